"""How far f⁻¹(f(x)) is from ±x after training, with the inversion objective at several weights and without it.

The paper's MLP f learns all 13 standard aggregators from several starts each, as in Aggregator Regression.
Writes results/inversion.json.
"""

from __future__ import annotations

import torch
from rich.progress import track

from fmean import STANDARD, GenAgg, standard
from fmean.experiments.graphs import Graphs, random_graphs
from fmean.experiments.learn import correlation
from fmean.experiments.record import write_record
from fmean.functions import MLPAutoencoder

WEIGHTS, STARTS, STEPS = (0.0, 0.01, 0.1, 1.0), 6, 1500


def outputs(agg: GenAgg, sets: Graphs) -> tuple[torch.Tensor, torch.Tensor]:
    x = sets.x.unsqueeze(-1).expand(-1, -1, agg.channels)
    y_hat = agg(x, sets.index, dim_size=sets.nodes, dim=0).view(sets.nodes, -1, len(STANDARD), STARTS)
    y = torch.stack([standard(name)(sets.x, sets.index, dim_size=sets.nodes) for name in STANDARD], -1)
    return y_hat, y.unsqueeze(-1)


def train(weight: float) -> dict[str, float]:
    torch.manual_seed(0)
    channels = len(STANDARD) * STARTS
    agg = GenAgg(MLPAutoencoder(inversion=weight, channels=channels), channels=channels)
    optimiser = torch.optim.Adam(agg.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    generator = torch.Generator().manual_seed(1)
    for _ in track(range(STEPS), f"weight {weight:g}"):
        y_hat, y = outputs(agg, random_graphs(64, 1, generator))
        optimiser.zero_grad()
        (y_hat - y).square().mean((0, 1)).sum().backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_value_(agg.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    agg.eval()
    with torch.no_grad():
        r = correlation(*outputs(agg, random_graphs(4000, 1, generator)))
        x = torch.randn(4000, 1, generator=generator).expand(-1, channels)
        error = (agg.f.inverse(agg.f(x)).abs() - x.abs()).abs().mean(0)
    return {
        "weight": weight,
        "inversion_error_median": round(error.median().item(), 4),
        "inversion_error_mean": round(error.mean().item(), 4),
        "correlation_mean": round(r.mean().item(), 4),
    }


if __name__ == "__main__":
    rows = [train(weight) for weight in WEIGHTS]
    write_record("results/inversion.json", "python benchmarks/inversion.py", rows, starts=STARTS, steps=STEPS)
    for row in rows:
        print(row)
