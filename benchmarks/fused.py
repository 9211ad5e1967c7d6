"""The fused path of GenAgg with f = Sinh on a GPU, beside PyG's aggregations and the plain path.

The paper's runtime workload: 72,000 nodes, 578,000 edges, 64 features. Checks every result against the plain path
first. Writes FILE (default: results/fused_gpu.json).

usage: python benchmarks/fused.py [FILE]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn.aggr import (
    MaxAggregation,
    MeanAggregation,
    PowerMeanAggregation,
    SoftmaxAggregation,
    SumAggregation,
)

from fmean import GenAgg
from fmean.experiments.record import write_record
from fmean.kernels import plain

NODES, EDGES, FEATURES = 72_000, 578_000, 64


def milliseconds(run: Callable[[], Any]) -> float:
    from triton.testing import do_bench

    return round(float(do_bench(run, warmup=50, rep=200, return_mode="median")), 4)


def mebibytes(run: Callable[[], Any]) -> float:
    """The peak above what is held before."""
    run()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return round((torch.cuda.max_memory_allocated() - before) / 2**20, 1)


def kernel_milliseconds(run: Callable[[], Any]) -> float:
    """The time of the GPU alone, without what the host takes to launch its work."""
    from torch.profiler import ProfilerActivity, profile

    for _ in range(3):
        run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as record:
        for _ in range(10):
            run()
        torch.cuda.synchronize()
    return round(float(sum(event.device_time_total for event in record.key_averages())) / 10_000, 4)


def measure(workload: str, method: str, agg: Any, x: Tensor, index: Tensor, grad: Tensor) -> dict[str, Any]:
    parameters = [x, *agg.parameters()]

    def forward() -> Tensor:
        with torch.no_grad():
            return agg(x, index, dim_size=NODES)  # type: ignore[no-any-return]

    def forward_backward() -> tuple[Tensor, ...]:
        return torch.autograd.grad(agg(x, index, dim_size=NODES), parameters, grad)

    return {
        "workload": workload,
        "level": "aggregation",
        "method": method,
        "forward_ms": milliseconds(forward),
        "forward_backward_ms": milliseconds(forward_backward),
        "forward_kernel_ms": kernel_milliseconds(forward),
        "forward_backward_kernel_ms": kernel_milliseconds(forward_backward),
        "peak_mib": mebibytes(forward_backward),
    }


def check(agg: GenAgg, x: Tensor, index: Tensor, grad: Tensor) -> None:
    results = []
    for path in ("fused", "plain"):
        if path == "plain":
            with plain():
                y = agg(x, index, dim_size=NODES)
        else:
            y = agg(x, index, dim_size=NODES)
        results.append([y, *torch.autograd.grad(y, [x, *agg.parameters()], grad)])
    for i, (a, b) in enumerate(zip(*results, strict=True)):
        error = ((a - b).double().norm() / b.double().norm()).item()
        assert error < (1e-4 if i == 0 else 1e-3), f"output {i}: {error:g}"


def main() -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    unsorted = torch.randint(0, NODES, (EDGES,), device="cuda", generator=generator)
    x = torch.randn(EDGES, FEATURES, device="cuda", generator=generator, requires_grad=True)
    grad = torch.randn(NODES, FEATURES, device="cuda", generator=generator)
    ours = GenAgg(beta=0.1).cuda()
    others = {
        "sum": SumAggregation(),
        "mean": MeanAggregation(),
        "max": MaxAggregation(),
        "softmax": SoftmaxAggregation(learn=True).cuda(),
        "powermean": PowerMeanAggregation(learn=True).cuda(),
    }
    rows = []
    for workload, index in (("paper, sorted", unsorted.sort()[0]), ("paper, unsorted", unsorted)):
        check(ours, x, index, grad)
        for name, agg in others.items():
            rows.append(measure(workload, f"pyg-{name}", agg, x, index, grad))
        rows.append(measure(workload, "genagg-sinh", ours, x, index, grad))
        with plain():
            rows.append(measure(workload, "genagg-sinh-plain", ours, x, index, grad))
    path = sys.argv[1] if len(sys.argv) > 1 else "results/fused_gpu.json"
    write_record(path, "python benchmarks/fused.py", rows, nodes=NODES, edges=EDGES, features=FEATURES)
    for row in rows:
        print(*row.values(), sep="\t")


if __name__ == "__main__":
    main()
