"""GenAgg: the augmented f-mean as a PyTorch Geometric aggregation."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn.aggr import Aggregation

from .aggregate import augmented_f_mean, neighbour_f_mean
from .functions import ScalarFunction, function
from .functions.base import parameter, show
from .inputs import check_function
from .seen import Seen

__all__ = ["GenAgg"]

Number = float | Sequence[float] | Tensor


class GenAgg(Aggregation):  # type: ignore[misc]
    r"""y = f⁻¹( n^(α−1) · Σ f(xᵢ − β·μ) ) with learnable f, α and β.

    A drop-in for `sum`, `mean` or `max` in any PyG layer. Starts as a plain f-mean (α = β = 0).
    Paper: "Generalised f-Mean Aggregation for Graph Neural Networks", https://arxiv.org/abs/2306.13826

    Arguments:
        f: `"sinh"` (closed form), `"mlp"` (the paper's two networks), `"invertible"` (a network with an exact
            inverse), the name of a standard aggregator (its f), or any `fmean.functions.ScalarFunction` or
            other module with `forward` and `inverse`.
        alpha: Where α starts: one number, or one for each channel of f. How the result depends on the size n
            of the set: 0 as a mean does, 1 as a sum does.
        beta: Where β starts. 0: the values count; 1: their deviation from the mean.
        learn_alpha: Whether α is a parameter (else a buffer). In a limit p → ±∞, such as the f of `max`, α has no
            effect and is a buffer always.
        learn_beta: Whether β is a parameter (else a buffer).
        channels: 1, if all features share f, α and β; or the number of features, each with its own.

    Shapes:
        `x` ``[..., N, F]``, `index` ``[N]`` or `ptr` ``[dim_size + 1]`` → ``[..., dim_size, F]``

    Example:
        >>> from torch_geometric.nn import GraphConv
        >>> conv = GraphConv(8, 16, aggr=GenAgg())
        >>> x, edge_index = torch.randn(3, 8), torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> conv(x, edge_index).shape
        torch.Size([3, 16])
    """

    def __init__(
        self,
        f: str | ScalarFunction | nn.Module = "sinh",
        alpha: Number = 0.0,
        beta: Number = 0.0,
        learn_alpha: bool = True,
        learn_beta: bool = True,
        channels: int = 1,
    ) -> None:
        super().__init__()
        if not isinstance(channels, int) or channels < 1:
            raise ValueError(f"channels must be an integer of 1 or more, got {channels!r}")
        if isinstance(f, str):
            self.f: Any = function(f, channels)
        elif isinstance(f, type):
            raise TypeError(f"f must be an instance, got the class {f.__name__}; write {f.__name__}()")
        else:
            check_function(f, channels)
            self.f = f
        self.channels = channels
        k, alphas = getattr(self.f, "k", 1), getattr(self.f, "alphas", 1)
        self._start = {
            "alpha": _start(alpha, "alpha", channels, alphas, k),
            "beta": _start(beta, "beta", channels, 1, 1),
        }
        limit = getattr(self.f, "reduction", "sum") == "max"
        for name, learn in (("alpha", learn_alpha and not limit), ("beta", learn_beta)):
            value = self._start[name].clone()
            if learn:
                setattr(self, name, nn.Parameter(value))
            else:
                self.register_buffer(name, value)
        self._note_beta()
        self._kept: dict[str, Tensor] | None = None
        self.observe = True
        self.seen = Seen(channels) if any(True for _ in self.parameters()) else None

    alpha: Tensor
    beta: Tensor
    observe: bool
    """Whether it keeps running quantiles of what it meets in training, in `seen`, for `fmean.explain`."""
    seen: Seen | None
    """Those; None where nothing is learned."""

    def _note(self, x: Tensor, *sets: Any, **more: Any) -> None:
        if (
            self.training
            and self.observe
            and torch.is_grad_enabled()
            and not torch.compiler.is_compiling()
            and not torch._C._are_functorch_transforms_active()
            and not x.is_meta
            and (seen := self.seen) is not None
        ):
            seen.note(x, *sets, **more)

    # A fixed β of 0 needs no centring. A look at a tensor's value would wait for a GPU at every call, so it is taken
    # only when β has changed; and never within torch.compile, which keeps what was seen last.
    def _note_beta(self) -> None:
        self._beta_seen = self._beta_key()
        self._centred = self.beta.is_meta or bool((self.beta != 0).any())

    def _beta_key(self) -> tuple[int, int]:
        return id(self.beta), -1 if self.beta.is_inference() else self.beta._version

    def _used_beta(self) -> float | Tensor:
        beta = parameter(self, "beta")
        # One that needs a gradient is learned, too: the replicas of DataParallel hold no parameters.
        if isinstance(beta, nn.Parameter) or beta.requires_grad or torch._C._are_functorch_transforms_active():
            return beta
        if not torch.compiler.is_compiling() and self._beta_seen != self._beta_key():
            self._note_beta()
        return beta if self._centred else 0.0

    def keep(self) -> GenAgg:
        """From now on `reset_parameters`, which every PyG layer calls of what it is given, comes back to this state.

        >>> agg = GenAgg("mlp")  # trained, and now to be used in a layer
        >>> layer = torch.nn.Sequential(agg.keep())
        """
        self._kept = {name: value.detach().clone() for name, value in self.state_dict().items()}
        return self

    def reset_parameters(self) -> None:
        """α and β as they started, f from a fresh start; or all as it was at `keep` or in the file of `fmean.load`."""
        if self._kept is not None:
            self.load_state_dict(self._kept)
            return
        with torch.no_grad():
            self.alpha.copy_(self._start["alpha"])
            self.beta.copy_(self._start["beta"])
        self._note_beta()
        if hasattr(self.f, "reset_parameters"):
            self.f.reset_parameters()

    # PyG's own __call__ makes up an index where none is given and looks for its maximum: a wait for the GPU
    # and the end of `torch.compile(fullgraph=True)`. `augmented_f_mean` makes the same checks without them.
    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        return nn.Module.__call__(self, *args, **kwargs)  # type: ignore[no-any-return]

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
        max_num_elements: int | None = None,
    ) -> Tensor:
        """Aggregates `x` over the sets of `index` or `ptr`, as PyG's aggregations do.

        `max_num_elements` is part of PyG's interface and not needed here.
        """
        y = augmented_f_mean(x, self.f, parameter(self, "alpha"), self._used_beta(), index, ptr, dim_size, dim)
        self._note(x, index, ptr, dim_size, dim)
        return y

    def neighbours(
        self, x: Tensor, source: Tensor, index: Tensor, dim_size: int, edge_weight: Tensor | None = None
    ) -> Tensor:
        r"""y = ⨁ wₑ·x[sourceₑ] over the edges e of each set of `index`: gather and aggregation in one.

        What the layers of `fmean.nn` call. The weight is a factor of the message; it does not count it.

        Arguments:
            x: The values of the nodes, ``[N, ..., F]``.
            source: The node that each edge comes from, ``[E]``.
            index: The set that each edge goes to, ``[E]``.
            dim_size: The number of sets.
            edge_weight: w, ``[E]``. (default: 1)

        Returns:
            ``[dim_size, ..., F]``, of the type of `x`.

        Example:
            >>> from fmean import standard
            >>> x = torch.tensor([[1.0], [2.0], [4.0]])
            >>> standard("mean").neighbours(x, torch.tensor([0, 2, 2]), torch.tensor([0, 0, 1]), dim_size=2)
            tensor([[2.5000],
                    [4.0000]])
        """
        alpha, beta = parameter(self, "alpha"), self._used_beta()
        y = neighbour_f_mean(x, self.f, alpha, beta, source, index, dim_size, edge_weight)
        self._note(x, index, None, dim_size, 0, source=source, factor=edge_weight)
        return y

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._note_beta()

    def feature(self, i: int | list[int]) -> GenAgg:
        """The aggregation of feature i alone, as a GenAgg with `channels=1`, or of several features."""
        for number in [i] if isinstance(i, int) else i:
            if not -self.channels <= number < self.channels:
                raise IndexError(f"there is no feature {number} in a GenAgg with channels={self.channels}")
        count = 1 if isinstance(i, int) else len(i)
        chosen = i if isinstance(i, int) or count > 1 else i[0]
        alpha, beta = (v.detach() if self.channels == 1 else v.detach()[chosen] for v in (self.alpha, self.beta))
        alpha = alpha.squeeze() if alpha.numel() == 1 else alpha
        f = self.f.feature(i) if isinstance(self.f, ScalarFunction) else copy.deepcopy(self.f)
        learn_alpha, learn_beta = (isinstance(v, nn.Parameter) for v in (self.alpha, self.beta))
        one = GenAgg(f, alpha, beta, learn_alpha, learn_beta, count)
        if self.seen is not None and one.seen is not None:
            one.seen = self.seen.feature(chosen)
        one.to(alpha).train(self.training)
        return one

    def extra_repr(self) -> str:
        return f"alpha={show(self.alpha)}, beta={show(self.beta)}" + (
            f", channels={self.channels}" if self.channels > 1 else ""
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.f}, {self.extra_repr()})"


def _start(value: Number, name: str, channels: int, alphas: int, k: int) -> Tensor:
    """The tensor that α or β starts from: ``[]``, ``[k]``, ``[channels]``, or ``[channels, 1 or k]`` where k > 1."""
    value = torch.as_tensor(value).detach()
    value = value if value.is_floating_point() else value.to(torch.get_default_dtype())
    lead = [channels] if channels > 1 else []
    inner = [alphas] if alphas > 1 or (channels > 1 and k > 1) else []
    shape = [*lead, *inner]
    allowed = [[], shape]
    if k > 1:  # one α for each channel of f is always possible
        allowed += [[k], [*lead, k]]
    if list(value.shape) not in allowed:
        shapes = " or ".join(str(s) for i, s in enumerate(allowed) if s not in allowed[:i] and s)
        raise ValueError(
            f"{name} must be one number{' or have shape ' * bool(shapes)}{shapes}, got {list(value.shape)}"
        )
    return value.expand([*lead, k] if value.dim() and value.size(-1) == k > 1 else shape).clone()
