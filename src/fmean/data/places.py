"""Where original files and made files lie, and whether a file is what it should be."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["DamagedError", "MissingError", "Original", "cache", "is_there", "originals", "read"]

NEARBY = Path("..") / "shared" / "data"


class MissingError(FileNotFoundError):
    """A file that is needed and is not there; the message says which, and what to do."""


class DamagedError(ValueError):
    """A file that is there and is not what it should be; the message says which, and what to do."""


class Original(NamedTuple):
    """A file of a data set as its authors gave it out, in the forms it may have: (path, algorithm, checksum)."""

    forms: tuple[tuple[str, str, str], ...]


def originals(raw: str | Path | None = None) -> Path:
    """The folder of the original files: `raw`, or the environment's FMEAN_DATA, or ../shared/data."""
    if raw is not None:
        return Path(raw)
    named = os.environ.get("FMEAN_DATA")
    return Path(named) if named else NEARBY


def cache(root: str | Path | None = None) -> Path:
    """The folder of what is made: `root`, or the environment's FMEAN_CACHE, or data."""
    return Path(root or os.environ.get("FMEAN_CACHE") or "data")


def is_there(original: Original, raw: str | Path | None = None) -> bool:
    """Whether a file is there in one of its forms; its content is not looked at."""
    return any((originals(raw) / name).is_file() for name, _, _ in original.forms)


def read(original: Original, raw: str | Path | None = None) -> bytes:
    """The content of an original file, its checksum verified, and unpacked if it is a .gz or .xz."""
    folder = originals(raw)
    for name, algorithm, checksum in original.forms:
        path = folder / name
        if path.is_file():
            content = path.read_bytes()
            found = hashlib.new(algorithm, content).hexdigest()
            if found != checksum:
                raise DamagedError(
                    f"{path} is damaged, or another version: its {algorithm} is {found}, not {checksum}; "
                    "put the original file in its place"
                )
            return {".gz": gzip.decompress, ".xz": lzma.decompress}.get(path.suffix, bytes)(content)
    names = " or ".join(name for name, _, _ in original.forms)
    raise MissingError(
        f"{names} is missing in {folder}; put the original file there, or name the folder that has it "
        "with raw= (--raw), or in the environment as FMEAN_DATA"
    )
