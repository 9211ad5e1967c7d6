"""What was learned: in words, numbers and pictures, as standard aggregators, and on a page."""

from .explanation import Explanation, Feature, explain
from .harden import Hardening, Replacement, harden
from .history import History
from .report import report

__all__ = ["Explanation", "Feature", "Hardening", "History", "Replacement", "explain", "harden", "report"]
