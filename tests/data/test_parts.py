import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fmean.data import DamagedError, GraphSet, MissingError, store
from fmean.data import parts as module
from fmean.data.graphs import starts
from fmean.data.parts import build_superpixels
from fmean.data.store import read, write
from fmean.data.superpixels import graphs_of

from .samples import images, same, small


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("task", ["graph", "node"])
def test_a_set_comes_back_as_it_was(task, tmp_path):
    graphs = small(task=task, pos=task == "graph")
    if task == "node":
        graphs.masks = {"train": graphs.y == 0, "test": graphs.y == 1}
    write(graphs, tmp_path / "deep" / "set.pt")
    back = read(tmp_path / "deep" / "set.pt", "")
    same(back, graphs)
    assert (back.masks is None) == (graphs.masks is None)
    assert all(torch.equal(mask, graphs.masks[name]) for name, mask in (back.masks or {}).items())


def test_sources_in_any_order_come_back(tmp_path):
    """As in the published sets: edges are in order of target alone. One graph has more nodes than int16 numbers."""
    generator = torch.Generator().manual_seed(0)
    nodes = torch.tensor([40_000, 1, 3])
    target = torch.randint(0, 40_000, (5000,), generator=generator).sort().values
    source = torch.randint(0, 40_000, (5000,), generator=generator)
    ends = torch.tensor([[0, 2, 1, 2], [0, 0, 0, 2]])
    graphs = GraphSet(
        x=torch.zeros(40_004, 0),
        edge_index=torch.cat([torch.stack([source, target]), ends], 1),
        y=torch.zeros(3, dtype=torch.long),
        node_ptr=starts(nodes),
        edge_ptr=starts(torch.tensor([5000, 0, 4])),
    )
    write(graphs, tmp_path / "set.pt")
    same(read(tmp_path / "set.pt", ""), graphs)


def test_a_set_without_edges(tmp_path):
    graphs = small(3).select(torch.tensor([], dtype=torch.long))
    whole = replace(graphs, node_ptr=torch.tensor([0, 0]), edge_ptr=torch.tensor([0, 0]), y=torch.tensor([1]))
    write(whole, tmp_path / "set.pt")
    same(read(tmp_path / "set.pt", ""), whole)


def test_a_file_of_the_first_format_is_read(tmp_path):
    graphs = small(30)
    write(graphs, tmp_path / "set.pt", "then")
    content = torch.load(tmp_path / "set.pt", weights_only=True)
    kept = {name: store._from_packed(**one) for name, one in content["tensors"].items()}
    del kept["step"]
    kept["source"] = graphs.edge_index[0].contiguous()
    about = content["about"]
    torch.save(
        {"format": "fmean graphs 1", "sha256": store._digest(kept, about), "about": about, "tensors": kept},
        tmp_path / "old.pt",
    )
    same(read(tmp_path / "old.pt", "", made="then"), graphs)


def test_the_edges_of_superpixels_take_little_room(raw, tmp_path):
    """Less than half a byte each."""
    of = images(raw)
    pixels, labels = of.splits(raw, ["train"])["train"]
    graphs = graphs_of(pixels, labels, of)
    write(graphs, tmp_path / "set.pt")
    kept = torch.load(tmp_path / "set.pt", weights_only=True)["tensors"]["step"]
    assert kept["content"].numel() < graphs.edge_index.shape[1] / 2


def test_only_sorted_edges_are_kept(tmp_path):
    graphs = small()
    graphs.edge_index = graphs.edge_index.flip(1)
    with pytest.raises(ValueError, match="in order of target"):
        write(graphs, tmp_path / "set.pt")


def test_a_missing_or_damaged_file_is_named(tmp_path):
    path = tmp_path / "set.pt"
    with pytest.raises(MissingError, match=r"set.pt is missing; do something"):
        read(path, "do something")
    write(small(200), path, made="now")
    whole = path.read_bytes()
    with pytest.raises(DamagedError, match=r"set.pt is damaged .*made by 'now', not 'then'"):
        read(path, "", made="then")
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for content in (whole[:middle], b"", b"hello", flipped):
        path.write_bytes(content)
        with pytest.raises(DamagedError, match=r"set.pt is damaged .*; do something"):
            read(path, "do something")
    torch.save({"format": "another"}, path)
    with pytest.raises(DamagedError, match="it has the mark 'another', not 'fmean graphs 2'"):
        read(path, "")


def test_builds_all_splits(raw, tmp_path):
    of = images(raw)
    said = list(build_superpixels(of, tmp_path, raw, part=5))
    assert said == [(n, 35) for n in range(0, 36, 5)]
    pixels = of.splits(raw, ["train", "val", "test"])
    assert [len(labels) for _, labels in pixels.values()] == [15, 10, 10]
    for split, (some, labels) in pixels.items():
        same(read(tmp_path / f"{split}.pt", ""), graphs_of(some, labels, of))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raw", "test.pt", "train.pt", "val.pt"]
    assert list(build_superpixels(of, tmp_path, raw, part=5)) == []


def test_makes_only_what_is_damaged(raw, tmp_path):
    of = images(raw)
    list(build_superpixels(of, tmp_path, raw))
    before = {split: (tmp_path / f"{split}.pt").read_bytes() for split in ("train", "val", "test")}
    (tmp_path / "val.pt").write_bytes(before["val"][:1000])
    assert list(build_superpixels(of, tmp_path, raw))[-1] == (10, 10)
    assert {split: (tmp_path / f"{split}.pt").read_bytes() for split in before} == before


def test_stopped_it_goes_on(raw, tmp_path, monkeypatch):
    """Parts that are finished are kept; one that is damaged is made again."""
    of, made = images(raw), []
    for done, _ in build_superpixels(of, tmp_path, raw, part=5):
        if done == 20:
            break
    parts = sorted((tmp_path / "parts").iterdir())
    assert len(parts) == 4
    assert not list(tmp_path.glob("*.pt"))
    parts[0].write_bytes(parts[0].read_bytes()[:700])
    make = module._make
    monkeypatch.setattr(module, "_make", lambda *task: made.append(task) or make(*task))
    said = list(build_superpixels(of, tmp_path, raw, part=5))
    assert said[0] == (15, 35)
    assert said[-1] == (35, 35)
    assert len(made) == 4
    assert not (tmp_path / "parts").exists()


def test_killed_half_way(raw, tmp_path):
    """With processes of its own, which end as well; what it left is taken up, and the end is the same."""
    of = images(raw)
    program = f"""
        import sys, time
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from fmean.data import parts
        from tests.data.samples import images
        make = parts.graphs_of
        parts.graphs_of = lambda *some: time.sleep(0.3) or make(*some)  # in its processes too: slow enough to be killed
        if __name__ == "__main__":
            of = images(Path(sys.argv[1]))
            for done, total in parts.build_superpixels(of, Path(sys.argv[2]), sys.argv[1], workers=2, part=1):
                print(done, flush=True)
    """
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program))
    with subprocess.Popen([sys.executable, script, raw, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        while int(process.stdout.readline()) < 4:
            pass
        process.kill()
        process.stdout.read()  # ends when the last of its processes has
    parts = tmp_path / "parts"
    kept = {path: path.stat().st_mtime_ns for path in parts.glob("*.pt")}
    assert 4 <= len(kept) < 35
    assert not list(tmp_path.glob("*.pt"))
    began = time.time_ns()
    said = iter(build_superpixels(of, tmp_path, raw, part=1))
    assert next(said)[0] == len(kept)
    assert all(path.stat().st_mtime_ns == when < began for path, when in kept.items())
    assert list(said)[-1] == (35, 35)
    pixels, labels = of.splits(raw, ["train"])["train"]
    same(read(tmp_path / "train.pt", ""), graphs_of(pixels, labels, of))


def test_originals_are_checked(raw, tmp_path, monkeypatch):
    of = images(raw)
    path = raw / "train-labels.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"?")
    with pytest.raises(DamagedError, match=r"train-labels.gz is damaged, or another version: its sha256 is .* not "):
        next(build_superpixels(of, tmp_path / "made", raw))
    path.unlink()
    with pytest.raises(MissingError, match=r"train-labels.gz is missing in .*raw; put .* raw= .* FMEAN_DATA"):
        next(build_superpixels(of, tmp_path / "made", raw))
    assert not (tmp_path / "made").exists()
    path.write_bytes(whole)
    monkeypatch.setenv("FMEAN_DATA", str(raw))
    assert next(build_superpixels(of, tmp_path / "made")) == (0, 35)
