"""The command `fmean`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ModuleNotFoundError as error:
        sys.exit(f"the command fmean needs {error.name}: pip install 'fmean[cli]'")
    from .commands import app

    app()
