"""The paper's own figures, to stand beside ours."""

from __future__ import annotations

from ..standard import STANDARD

__all__ = ["COLUMNS", "CORRELATION"]

COLUMNS = ("genagg", "power", "softmax", "mean")

_REGRESSION = """
    1.000 0.817 1.000 1.000
    1.000 0.761 0.887 0.888
    0.985 0.407 0.172 0.022
    0.962 0.450 0.024 0.027
    0.990 0.586 0.423 0.024
    0.995 0.734 1.000 0.805
    0.990 0.920 1.000 0.805
    0.986 0.453 0.088 0.027
    0.994 0.481 0.152 0.031
    0.996 0.532 0.308 0.028
    0.964 0.585 0.464 0.019
    0.999 0.442 0.558 0.013
    0.999 0.823 0.947 0.747
"""
_GNN_REGRESSION = """
    0.977 0.999 1.000 0.972
    0.971 0.906 0.887 0.903
    0.966 0.644 0.726 0.434
    0.952 0.876 0.810 0.731
    0.986 0.734 0.784 0.747
    0.995 0.986 0.999 0.806
    0.989 0.976 0.999 0.845
    0.931 0.797 0.842 0.697
    0.963 0.629 0.836 0.626
    0.975 0.775 0.808 0.899
    0.985 0.742 0.680 0.756
    0.966 0.739 0.805 0.624
    0.983 0.919 0.952 0.841
"""


def _table(text: str) -> dict[str, dict[str, float]]:
    lines = [dict(zip(COLUMNS, map(float, line.split()), strict=True)) for line in text.strip().splitlines()]
    return dict(zip(STANDARD, lines, strict=True))


CORRELATION: dict[str, dict[str, dict[str, float]]] = {
    "regression": _table(_REGRESSION),
    "gnn-regression": _table(_GNN_REGRESSION),
}
"""Correlation with each standard aggregator, by experiment, target and column."""
