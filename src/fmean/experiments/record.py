"""Figures with what made them: command, versions, machine."""

from __future__ import annotations

import json
import os
import platform
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


def write_record(path: str | Path, command: str, rows: list[dict[str, Any]], **more: Any) -> None:
    record = {"command": command, "versions": versions(), "machine": machine(), **more, "rows": rows}
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")  # whenever the process is killed, the old record or the new one is there
    new.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    new.replace(path)
