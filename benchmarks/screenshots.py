"""Pictures of the page of `fmean.report` for the docs, from a small model trained here, in half a minute.

Writes docs/report_light.png, report_dark.png and report_phone.png. Needs Debian's chromium and chromium-driver.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
from pathlib import Path
from typing import cast

import torch
from rich.progress import track
from selenium import webdriver
from torch import nn
from torch_geometric.nn import GraphConv

from fmean import GenAgg, History, report, standard
from fmean.experiments.graphs import random_graphs

TARGETS = (
    ("max",),
    ("standard_deviation",),
    ("sum", "mean", "max", "max", "min", "root_mean_square", "log_sum_exp", "mean"),
)
STEPS, EVERY = 800, 20

FLAGS = (
    "headless=new no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
    "disable-component-update disable-sync hide-scrollbars"
)
# The file, width and height of the picture, the colours, and the element at its top.
SHOTS = (
    ("report_light", 1280, 1780, "light", "header"),
    ("report_dark", 1280, 1900, "dark", "#layer-2"),
    ("report_phone", 360, 1500, "light", "#layer-0"),
)


class Network(nn.Module):
    """Layers whose aggregations each learn something else, as those of `fmean learn` do."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([GraphConv(8, 8, aggr=GenAgg(channels=len(names))) for names in TARGETS])


def train(model: Network) -> History:
    """Teaches each layer its targets on random graphs."""
    aggs = [cast(GenAgg, conv.aggr_module) for conv in model.convs]
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    generator = torch.Generator().manual_seed(0)
    history = History(model, EVERY)
    for _ in track(range(STEPS + 1), "Training"):
        history.step()
        sets = random_graphs(64, 1, generator)
        loss = torch.zeros(())
        for names, agg in zip(TARGETS, aggs, strict=True):
            y = torch.cat([standard(name)(sets.x, sets.index, dim_size=sets.nodes) for name in names], -1)
            x = sets.x.expand(-1, len(names))
            loss = loss + (agg(x, sets.index, dim_size=sets.nodes) - y).square().mean(0).sum()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return history


def shoot(page: Path, folder: Path) -> None:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in [*FLAGS.split(), f"user-data-dir={profile}"]:
            options.add_argument(f"--{flag}")
        browser = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            for name, width, height, colours, top in SHOTS:
                size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
                browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
                features = [
                    {"name": "prefers-color-scheme", "value": colours},
                    {"name": "prefers-reduced-motion", "value": "reduce"},
                ]
                browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
                browser.get(page.as_uri())
                browser.execute_script(
                    "scrollTo(0, document.querySelector(arguments[0]).getBoundingClientRect().top - 16)", top
                )
                wait = "const done = arguments[0]; setTimeout(done, 1500);"  # until the pictures are drawn
                browser.execute_async_script(wait)
                shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
                path = folder / f"{name}.png"
                path.write_bytes(base64.b64decode(shot["data"]))
                print(path, f"{path.stat().st_size // 1000} kB")
        finally:
            browser.quit()


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Network()
    history = train(model)
    with tempfile.TemporaryDirectory() as folder:
        shoot(report(model, Path(folder) / "report.html", history), Path("docs"))
