"""What the tests of `fmean.data` share: small sets, small images, and where the real ones are."""

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fmean.data.graphs import GraphSet, starts
from fmean.data.images import IMAGES
from fmean.data.places import Original

REAL = Path(__file__).parents[3] / "shared" / "data"


def small(graphs=11, task="graph", pos=True, seed=0):
    """Random graphs of 0 to 6 nodes, some without edges, edges in order of target."""
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randint(0, 7, (graphs,), generator=generator)
    pairs, counts = [], []
    for n in nodes.tolist():
        edges = (torch.rand(n, n, generator=generator) < 0.4).nonzero().flip(1)
        pairs.append(edges.to(torch.int16))
        counts.append(len(edges))
    total = int(nodes.sum())
    return GraphSet(
        x=torch.randn(total, 2, generator=generator),
        edge_index=torch.cat(pairs).t(),
        y=torch.randint(0, 3, (total if task == "node" else graphs,), generator=generator),
        node_ptr=starts(nodes),
        edge_ptr=starts(torch.tensor(counts)),
        pos=torch.rand(total, 2, generator=generator) if pos else None,
        task=task,
        classes=3,
        name="small",
    )


def same(a, b):
    assert (a.task, a.classes, a.name) == (b.task, b.classes, b.name)
    for name in ("x", "edge_index", "y", "node_ptr", "edge_ptr", "pos"):
        one, other = getattr(a, name), getattr(b, name)
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other), name
        assert one is None or one.dtype == other.dtype, name


def images(raw):
    """25 and 10 images in the form of MNIST's files, written to a folder; the first 10 of the 25 are for validation."""
    rng = np.random.default_rng(0)
    files = {}
    for part, count in (("train", 25), ("test", 10)):
        originals = []
        pixels = np.kron(rng.integers(0, 256, (count, 7, 7)), np.ones((4, 4))).astype(np.uint8)
        for kind, header, content in (("images", 16, pixels), ("labels", 8, rng.integers(0, 10, count, np.uint8))):
            name = f"{part}-{kind}.gz"
            packed = gzip.compress(bytes(header) + content.tobytes(), mtime=0)
            (raw / name).write_bytes(packed)
            originals.append(Original(((name, "sha256", hashlib.sha256(packed).hexdigest()),)))
        files[part] = tuple(originals)
    return replace(IMAGES["mnist"], name="tiny", files=files, val=10)
