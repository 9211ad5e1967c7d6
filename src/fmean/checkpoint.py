"""One aggregation in one file, loaded without running any code from it."""

from __future__ import annotations

import inspect
import os
import pickle
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import functions
from .functions import ScalarFunction
from .genagg import GenAgg

__all__ = ["load", "load_or_set_aside", "read", "save", "save_atomically", "set_aside"]

FORMAT = "fmean aggregation 1"


def save(agg: GenAgg, path: str | Path) -> None:
    """Writes an aggregation, whose f is one of `fmean.functions`, to a file that `load` reads.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/agg.pt"
    >>> save(GenAgg("mlp"), path)
    >>> load(path).f.layer_sizes
    (1, 2, 2, 4)
    """
    f = agg.f
    name = type(f).__name__
    arguments = list(inspect.signature(type(f)).parameters)
    if not isinstance(f, ScalarFunction) or getattr(functions, name, None) is not type(f) or "parts" in arguments:
        raise TypeError(
            f"only an f of fmean.functions with plain arguments can be saved, not {name}; "
            "use torch.save(agg.state_dict(), path)"
        )
    content = {
        "format": FORMAT,
        "f": name,
        "arguments": {argument: getattr(f, argument) for argument in arguments},
        "channels": agg.channels,
        "alpha_shape": list(agg.alpha.shape),
        "learn": [isinstance(v, torch.nn.Parameter) for v in (agg.alpha, agg.beta)],
        "state_dict": agg.state_dict(),
    }
    save_atomically(content, path)


def load(path: str | Path) -> GenAgg:
    """The aggregation that `save` wrote. A layer that it is given to, and its `reset_parameters`, leave it as it is."""
    content = read(path, "a file that fmean.save wrote")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path} is not a file that fmean.save wrote: it has no mark {FORMAT!r}")
    f = getattr(functions, content["f"])(**content["arguments"])
    learn_alpha, learn_beta = content["learn"]
    agg = GenAgg(f, torch.zeros(content["alpha_shape"]), 0.0, learn_alpha, learn_beta, content["channels"])
    agg.to(content["state_dict"]["alpha"].dtype).load_state_dict(content["state_dict"])
    agg.eval()
    return agg.keep()


def read(path: str | Path, what: str) -> Any:
    """What `torch.save` wrote to a file, on the CPU; no code of it is run. An error says what is wrong with it.

    Arguments:
        what: What the file should be, such as "a checkpoint".
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other pickle protocols; what follows says more
            return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise ValueError(f"{path} is a folder, not {what}") from None
    except PermissionError:
        raise ValueError(f"{path} may not be read") from None
    except MemoryError:
        raise
    except Exception as error:  # a file that is cut off, or none of torch's, can bring about any of them
        if isinstance(error, pickle.UnpicklingError) and ("Unsupported global" in str(error) or "GLOBAL" in str(error)):
            raise ValueError(
                f"{path} holds Python objects, not only tensors, and is not opened, for that would run code from it. "
                "Save the weights alone: torch.save(model.state_dict(), path)"
            ) from None
        raise ValueError(f"{path} is not {what} ({type(error).__name__})") from None


def save_atomically(content: Any, path: str | Path) -> None:
    """`torch.save`, so that `path` holds the old content or the new one, whenever the program is killed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save(content, file)
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def load_or_set_aside(path: Path, restore: Callable[[Any], None]) -> bool:
    """Hands what `save_atomically` wrote to `restore`. A damaged file is named, set aside, and the answer is False."""
    if not path.exists():
        return True
    try:
        restore(torch.load(path, map_location="cpu", weights_only=True))
    except (MemoryError, PermissionError, torch.OutOfMemoryError):  # the file is none the worse for it
        raise
    except Exception as error:  # a damaged file can bring about any of them
        set_aside(path, error)
        return False
    return True


def set_aside(path: Path, error: Exception) -> None:
    """Gives a damaged file another name, and says so: what it held is made anew."""
    aside = path.with_suffix(f".damaged-{time.time_ns()}")
    path.rename(aside)
    warnings.warn(f"{path} is damaged ({error!r}); it is now {aside}, and training starts anew", stacklevel=3)
