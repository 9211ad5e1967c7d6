"""C++ source to functions: compiled once by the machine's own compiler, and kept on disk."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["compiler", "load_source", "openmp"]

# Without -ffast-math: NaN and ∞ must come out as such.
FLAGS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
OUTPUT = ["-fPIC", "-shared", "-x", "c++", "-w"]


@cache
def compiler() -> str | None:
    """The C++ compiler of this machine: $CXX, or the first of c++, g++, clang++ that is there."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        path = shutil.which(name) if name else None
        if path:
            return path
    return None


@cache
def _processor() -> str:
    """What -march=native depends on: a folder may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    except OSError:
        return platform.processor() + platform.machine()


@cache
def _folder() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        folder = root / "fmean"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="fmean-"))  # for this process alone


@cache
def openmp() -> str | None:
    """The OpenMP library that torch has loaded. A second one would have threads of its own, and both would wait for
    work by spinning, on the same cores."""
    try:
        found = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libgomp" in line}
    except OSError:
        return None
    return found.pop() if len(found) == 1 else None


@cache
def load_source(source: str) -> ctypes.CDLL | None:
    """The functions of a C++ source, or None where it can't be compiled."""
    command = compiler()
    if command is None:
        return None
    threads = [] if openmp() is None else ["-fopenmp", str(openmp())]
    version = f"{Path(command).resolve()} {Path(command).stat().st_mtime} {FLAGS} {threads} {_processor()}"
    key = hashlib.sha256(f"{version}\n{source}".encode()).hexdigest()[:24]
    target = _folder() / f"{key}.so"
    try:
        if not target.exists():
            # Written under another name and then moved: two processes may compile the same at once.
            with tempfile.TemporaryDirectory(dir=_folder()) as folder:
                text, made = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
                text.write_text(source, encoding="utf-8")
                parts = [*FLAGS, *OUTPUT, *threads[:1], str(text), "-x", "none", *threads[1:], "-o", str(made)]
                subprocess.run([command, *parts], check=True, capture_output=True)
                made.replace(target)
        return ctypes.CDLL(str(target))
    except (OSError, subprocess.CalledProcessError):
        return None
