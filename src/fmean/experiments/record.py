"""Figures with what made them: command, versions, machine."""

from __future__ import annotations

import json
import os
import platform
import re
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch
import torch_geometric

__all__ = ["cores", "machine", "versions", "write_record"]


def versions() -> dict[str, str]:
    from fmean import __version__

    return {
        "fmean": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        **{each.metadata["Name"]: each.version for name in ("triton", "genagg") for each in distributions(name=name)},
    }


def machine() -> str:
    """The processor and, if there is one, the GPU."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        name = names[0] if names else name
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{name}, {cores()} cores{gpu}"


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def readable(record: dict[str, Any]) -> str:
    """JSON with lists of numbers and words, such as curves, on one line each.

    >>> print(readable({"curve": [0.5, 0.75], "rows": [{"seed": 0}]}), end="")
    {
     "curve": [0.5, 0.75],
     "rows": [
      {
       "seed": 0
      }
     ]
    }
    """
    text = json.dumps(record, indent=1, ensure_ascii=False)
    # In a string a line break is written as a backslash and an n: these are all between values.
    return re.sub(r"\[\n[^][{}]*\]", _on_one_line, text) + "\n"


def _on_one_line(found: re.Match[str]) -> str:
    return "[" + re.sub(r",\n *", ", ", found[0][1:-1].strip()) + "]"


def write_record(path: str | Path, command: str, rows: list[dict[str, Any]], **more: Any) -> None:
    record = {"command": command, "versions": versions(), "machine": machine(), **more, "rows": rows}
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")  # whenever the process is killed, the old record or the new one is there
    new.write_text(readable(record), encoding="utf-8")
    new.replace(path)
