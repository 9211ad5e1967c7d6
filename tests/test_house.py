"""The rooms of the house: imports go one way."""

import ast
from pathlib import Path

import pytest

import fmean

SOURCE = Path(fmean.__file__).parent
# Each room may import those before it, and itself.
ORDER = [
    "functions",
    "kernels",
    "inputs",
    "aggregate",
    "seen",
    "genagg",
    "nn",
    "standard",
    "distributive",
    "checkpoint",
    "explain",
    "data",
    "experiments",
    "commands",
    "cli",
]
MODULES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py") if path.name != "__main__.py")


def room(path):
    return path.parts[0].removesuffix(".py")


def imported(path):
    """The rooms of fmean that a module imports, functions within it included."""
    for node in ast.walk(ast.parse((SOURCE / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = path.parts[:-1][: len(path.parts) - node.level]
            name = [*base, *(node.module.split(".") if node.module else [])]
            yield from [name[0]] if name else [alias.name for alias in node.names]


@pytest.mark.parametrize("path", [path for path in MODULES if room(path) != "__init__"], ids=str)
def test_imports_go_one_way(path):
    here = ORDER.index(room(path))
    for other in imported(path):
        if other in ORDER:
            assert ORDER.index(other) <= here, f"{path} imports {other}"


def test_every_module_has_its_room():
    assert {room(path) for path in MODULES} - {"__init__"} <= set(ORDER)


def test_only_torch_and_pyg_are_needed():
    """What `import fmean` loads must not need the extras."""
    import subprocess
    import sys

    extras = "typer, rich, matplotlib, plotly, scipy, hypothesis, skimage, lightning_fabric, torchmetrics, ray"
    code = f"import sys\nfor name in '{extras}'.split(', '): sys.modules[name] = None\nimport fmean; fmean.GenAgg()"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
