"""Writes the tables of README and docs/ from results/ and the code. With --check: fails if they are not up to date."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from fmean import STANDARD, standard
from fmean.experiments.bars import number, title
from fmean.experiments.benchmark.figures import made_on
from fmean.experiments.benchmark.output import markdown as benchmark_markdown
from fmean.experiments.benchmark.protocols import DATASETS
from fmean.experiments.tables import markdown

ROOT = Path(__file__).parent.parent

DEFINITIONS = {
    "mean": "Σx / n",
    "sum": "Σx",
    "product": "Π\\|x\\|",
    "min_magnitude": "min \\|x\\|",
    "max_magnitude": "max \\|x\\|",
    "min": "min x",
    "max": "max x",
    "harmonic_mean": "n / Σ 1/\\|x\\|",
    "geometric_mean": "(Π\\|x\\|)^(1/n)",
    "root_mean_square": "√(Σx² / n)",
    "euclidean_norm": "√Σx²",
    "standard_deviation": "√(Σ(x−μ)² / n)",
    "log_sum_exp": "log Σeˣ",
}


def load(name: str) -> Any:
    return json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))


def table(header: list[str], rows: list[list[str]], right: int = 0) -> str:
    """A Markdown table whose last `right` columns are flush right."""
    rule = ["---"] * (len(header) - right) + ["---:"] * right
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def the_13() -> str:
    rows = []
    for name in STANDARD:
        agg = standard(name)
        f = agg.f.formula.replace("|", "\\|")
        rows.append([f"`{name}`", DEFINITIONS[name], f, f"{agg.alpha.item():g}", f"{agg.beta.item():g}"])
    return table(["name", "⊕ x", "f(x)", "α", "β"], rows, right=2)


def learned() -> str:
    runs = {f: load(f"learn_{f}.json") for f in ("sinh", "mlp", "invertible")}
    rows = [
        [
            f"`{row['target']}`",
            f"{row['paper']:.3f}",
            *(f"{run['rows'][i]['correlation']:.4f}" for run in runs.values()),
        ]
        for i, row in enumerate(runs["sinh"]["rows"])
    ]
    times = ", ".join(f"`{run['command']}` in {run['seconds']:.0f} s" for run in runs.values())
    header = ["target", "paper's GenAgg", *(f'f = "{f}"' for f in runs)]
    return f"{table(header, rows, right=4)}\n\nMade by {times}, on {runs['sinh']['machine']}."


def inversion() -> str:
    record = load("inversion.json")
    rows = [
        [
            f"{r['weight']:g}",
            f"{r['inversion_error_median']:.3f}",
            f"{r['inversion_error_mean']:.3f}",
            f"{r['correlation_mean']:.3f}",
        ]
        for r in record["rows"]
    ]
    header = ["weight", "E\\|\\|f⁻¹(f(x))\\| − \\|x\\|\\|, median start", "mean", "correlation, mean of all starts"]
    return f"{table(header, rows, right=3)}\n\nMade by `{record['command']}`, on {record['machine']}."


NAMES = {
    "authors-genagg": "the authors' `genagg`, f = MLP",
    "fmean-sinh": '**`GenAgg("sinh")`**',
    "fmean-mlp": '**`GenAgg("mlp")`**',
    "fmean-invertible": '`GenAgg("invertible")`',
    "fmean-root_mean_square": '`standard("root_mean_square")`',
    "fmean-log_sum_exp": '`standard("log_sum_exp")`',
    "fmean-sinh-plain": '`GenAgg("sinh")`, plain path',
}


def _speed(name: str, cases: list[tuple[str, str]]) -> str:
    record = load(name)
    columns = {"forward_ms": "forward", "forward_backward_ms": "forward + backward"}
    if any("forward_kernel_ms" in row for row in record["rows"]):
        columns |= {"forward_kernel_ms": "forward, GPU", "forward_backward_kernel_ms": "forward + backward, GPU"}
    tables = []
    for workload, level in cases:
        rows = [row for row in record["rows"] if (row["workload"], row["level"]) == (workload, level)]
        total = next(row for row in rows if row["method"] == "pyg-sum")
        cells = [
            [NAMES.get(row["method"], f"PyG {row['method'].removeprefix('pyg-')}")]
            + [f"{number(row[column])} ({number(row[column] / total[column])} ×)" for column in columns]
            + [f"{row['peak_mib']:,.0f}"]
            for row in rows
        ]
        heading = f"{title(rows[0])}; milliseconds (× PyG sum)"
        tables.append(table([heading, *columns.values(), "peak, MiB"], cells, right=len(columns) + 1))
    made = f"Made by `{record['command']}`, on {record['machine']}, torch {record['versions']['torch']}."
    return "\n\n".join([*tables, made])


def speed_gpu() -> str:
    return _speed("bench_gpu.json", [("paper", "aggregation"), ("paper", "layer"), ("products", "layer")])


def speed_cpu() -> str:
    return _speed("bench_cpu.json", [("paper", "aggregation"), ("paper", "layer")])


def _reproduced(name: str) -> str:
    record = load(name)
    settings = record["settings"]
    made = f"Made by `{record['command']}`, on {record['machine']}, torch {record['versions']['torch']}"
    table = markdown(record).replace("genagg-", "GenAgg, ")
    return f"{table}\n{made}: {settings['trials']} trials of {settings['steps']:,} steps."


def regression() -> str:
    return _reproduced("regression.json")


def gnn_regression() -> str:
    return _reproduced("gnn_regression.json")


def hardened() -> str:
    record = load("harden.json")
    before = record["accuracy_before"]
    rows = [
        [
            f"{row['threshold']:g}",
            f"{row['replaced']} of {row['of']}",
            "a·⊕ + b" if row["calibrated"] else "⊕",
            f"{before:.4f}",
            f"{row['accuracy']:.4f}",
        ]
        for row in record["rows"]
        if row["replaced"] or row["calibrated"]
    ]
    header = ["threshold", "layers replaced", "by", "accuracy before", "after"]
    layers = "; ".join(
        f"layer {i + 1} is nearest to {row['nearest'].replace('_', ' ')} ({row['correlation']:.3f})"
        for i, row in enumerate(record["rows"][0]["layers"])
    )
    made = f"Made by `{record['command']}`, on {record['machine']}: {layers[0].upper()}{layers[1:]}."
    return f"{table(header, rows, right=5)}\n\n{made}"


def benchmark(name: str = "benchmark") -> str:
    """Its tables of accuracy, without what the layers learned: that is in the Markdown beside the record."""
    record = load(f"{name}.json")
    tables = benchmark_markdown(record).split("## What the layers learned")[0].replace("## ", "### ").strip()
    return f"{tables}\n\nOn {record['machine']}. The commands stand in `results/{name}.json`."


def benchmark_paper() -> str:
    """The first of its tables, that of all the data."""
    rows = [row for row in load("benchmark.json")["rows"] if (row["protocol"], row["share"]) == ("paper", 1)]
    rows = [row for row in rows if row["dataset"] in DATASETS[:4]]
    table = benchmark_markdown({"rows": rows}).split("## What the layers learned")[0].partition("\n")[2].strip()
    return f"{table}\n\nOn {'; '.join(made_on(rows))}. The commands stand in `results/benchmark.json`."


def benchmark_unclipped() -> str:
    return benchmark("benchmark_unclipped")


def starts() -> str:
    """The best of the curve of each start, by data set and number of epochs."""
    rows = load("starts.json")["rows"]
    columns = list(dict.fromkeys((row["dataset"], row["epochs"]) for row in rows))
    names = sorted({row["aggregator"] for row in rows}, key=lambda name: (not name.startswith("c"), name))
    best = {(row["dataset"], row["epochs"], row["aggregator"]): f"{max(row['curve']):.3f}" for row in rows}
    cells = [[f"`{name}`", *(best.get((*column, name), "") for column in columns)] for name in names]
    header = ["", *(f"{dataset.upper()}, best of {epochs}" for dataset, epochs in columns)]
    return f"{table(header, cells, right=len(columns))}\n\nOn {'; '.join(made_on(rows))}: `results/starts.json`."


def render(text: str) -> str:
    made = (
        the_13, benchmark, benchmark_paper, benchmark_unclipped, starts, learned, regression, gnn_regression, inversion,
        speed_gpu, speed_cpu, hardened,
    )  # fmt: skip
    blocks = {block.__name__: block for block in made}
    return re.sub(
        r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)",
        lambda match: f"{match[1]}{blocks[match[2]]()}\n{match[3]}",
        text,
        flags=re.S,
    )


if __name__ == "__main__":
    for path in (ROOT / "README.md", ROOT / "docs" / "explain.md", ROOT / "docs" / "benchmark.md"):
        old = path.read_text(encoding="utf-8")
        new = render(old)
        if "--check" not in sys.argv:
            path.write_text(new, encoding="utf-8")
        elif new != old:
            sys.exit(f"{path.name} is not up to date: run make readme")
