from types import SimpleNamespace

import pytest

from fmean import GenAgg


@pytest.fixture
def fused(monkeypatch):
    """How often the layers took the fused way."""
    seen, neighbours = SimpleNamespace(calls=0), GenAgg.neighbours

    def counted(self, *args, **kwargs):
        seen.calls += 1
        return neighbours(self, *args, **kwargs)

    monkeypatch.setattr(GenAgg, "neighbours", counted)
    return seen
