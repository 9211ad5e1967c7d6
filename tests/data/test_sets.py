import importlib
import shutil

import pytest
import torch
from torch_geometric.datasets import GNNBenchmarkDataset
from torch_geometric.loader import DataLoader
from typer.testing import CliRunner

from fmean.data import DamagedError, Loader, MissingError, build, cluster, load, remedy, states
from fmean.data import published as published_module
from fmean.data.planetoid import files
from fmean.data.store import write

from .samples import REAL, same, small

needs_originals = pytest.mark.skipif(not REAL.exists(), reason=f"no original files in {REAL}")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("FMEAN_DATA", "FMEAN_CACHE"):
        monkeypatch.delenv(name, raising=False)


def test_random_graphs_are_drawn_or_read(tmp_path):
    drawn = load("cluster", "val")
    assert not list(tmp_path.iterdir())
    same(drawn, cluster("val"))
    write(drawn, tmp_path / "data" / "cluster" / "val.pt")
    same(load("cluster", "val"), drawn)


def test_superpixels_must_be_built(tmp_path, monkeypatch):
    with pytest.raises(MissingError, match=r"data/mnist/train.pt is missing; make it with: fmean data build mnist$"):
        load("mnist")
    with pytest.raises(MissingError, match=r"there/cifar10/val.pt is missing; .* build cifar10 --root there$"):
        load("cifar10", "val", root="there")
    monkeypatch.setenv("FMEAN_CACHE", "cache")
    write(small(), tmp_path / "cache" / "mnist" / "test.pt")
    same(load("mnist", "test"), small())
    (tmp_path / "cache" / "mnist" / "test.pt").write_bytes(b"half")
    with pytest.raises(DamagedError, match=r"cache/mnist/test.pt is damaged .*; make it with: fmean data build mnist"):
        load("mnist", "test")


def test_what_to_do_before_a_set_can_be_loaded(tmp_path):
    assert [remedy(name) for name in ("pattern", "cluster")] == [None, None]
    assert remedy("mnist", root="there") == "fmean data build mnist --root there"
    assert remedy("pattern", source="published") == "fmean data build pattern --source published"
    assert remedy("cora", raw="nowhere") == "fmean data build cora"
    for name in files("cora"):
        path = tmp_path / name.forms[0][0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert remedy("cora", raw=tmp_path) is None
    write(small(), tmp_path / "data" / "mnist" / "train.pt")
    assert remedy("mnist", ("train",)) is None
    assert remedy("mnist", ("train", "val")) == "fmean data build mnist"


def test_originals_that_are_not_there():
    for name in ("mnist", "cifar10", "cora"):
        with pytest.raises(
            MissingError, match=rf"{name[:4]}.* is missing in .*shared.data; put the original file there"
        ):
            list(build(name)) if name != "cora" else load(name)


def test_bad_arguments():
    with pytest.raises(ValueError, match="unknown data set 'mnst'; known are pattern, cluster, mnist"):
        load("mnst")
    with pytest.raises(ValueError, match="split is one of train, val, test, not 'all'"):
        load("mnist", "all")
    with pytest.raises(ValueError, match="source is made or published, not 'web'"):
        build("mnist", source="web")


@needs_originals
@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes", "train"),
    [("cora", 2708, 10556, 1433, 7, 140), ("citeseer", 3327, 9104, 3703, 6, 120), ("pubmed", 19717, 88648, 500, 3, 60)],
)
def test_citation_graphs(name, nodes, edges, features, classes, train, tmp_path):
    graph = load(name, raw=REAL)
    assert (*graph.x.shape, graph.edge_index.shape[1], graph.classes) == (nodes, features, edges, classes)
    assert [int(graph.masks[split].sum()) for split in ("train", "val", "test")] == [train, 500, 1000]
    assert (graph.edge_index[1].diff() >= 0).all()
    assert not list(tmp_path.iterdir())
    if name == "cora":
        list(build(name, raw=REAL))
        built = load(name, "test", raw="nowhere")
        same(built, graph)
        assert all(torch.equal(mask, graph.masks[split]) for split, mask in built.masks.items())


@needs_originals
def test_a_damaged_citation_file_is_never_opened(tmp_path):
    shutil.copytree(REAL / "planetoid" / "Cora", tmp_path / "planetoid" / "Cora")
    path = tmp_path / "planetoid" / "Cora" / "raw" / "ind.cora.graph"
    path.chmod(0o600)
    path.write_bytes(b"cos\nsystem\n(S'touch opened'\ntR.")
    with pytest.raises(DamagedError, match=r"ind.cora.graph is damaged"):
        load("cora", raw=tmp_path)
    assert not (tmp_path / "opened").exists()


@pytest.mark.parametrize("name", ["mnist", "cluster"])
def test_published_graphs(name, tmp_path):
    """PyG's own class reads a file of the published form, and what becomes of it is the same, batch by batch."""
    task = "graph" if name == "mnist" else "node"
    folder = tmp_path / "data" / "downloaded"
    raw = folder / name.upper() / "raw" / f"{name.upper()}_v2.pt"
    raw.parent.mkdir(parents=True)
    splits = [small(count, task, pos=task == "graph", seed=count) for count in (12, 5, 6)]
    torch.save([[graphs.graph(i).to_dict() for i in range(len(graphs))] for graphs in splits], raw)
    for split, graphs in zip(("train", "val", "test"), splits, strict=True):
        found = load(name, split, source="published")
        assert (found.name, found.task, found.classes) == (name, task, 10 if name == "mnist" else 6)
        pyg = GNNBenchmarkDataset(str(folder), name.upper(), split)
        for ours, theirs in zip(Loader(found, 4), DataLoader(pyg, 4), strict=True):
            for key in ("x", "edge_index", "y", "batch", "ptr"):
                assert torch.equal(getattr(ours, key), theirs[key])
        assert torch.equal(found.edge_index, graphs.edge_index)
    shutil.rmtree(folder)  # it has been kept in our form
    assert len(load(name, "val", source="published")) == 5
    assert [one.state for one in states(name, source="published")] == ["whole"] * 3


def test_published_graphs_without_a_network(monkeypatch):
    def unreachable(*_):
        raise OSError("no network")

    monkeypatch.setattr("torch_geometric.datasets.GNNBenchmarkDataset.download", unreachable)
    with pytest.raises(MissingError, match=r"could not load the published mnist .*no network.* source='made' makes"):
        published_module.published("mnist", "train", published_module.Path("downloaded"))


@pytest.fixture
def command():
    importlib.import_module("fmean.commands.data")
    from fmean.commands import app

    runner = CliRunner(env={"COLUMNS": "120"})
    return lambda *words: runner.invoke(app, ["data", *words])


def test_command_build_and_info(command, tmp_path, monkeypatch):
    from fmean.data import sets

    monkeypatch.setitem(sets.RANDOM, "cluster", lambda split: cluster(split, graphs=20))
    result = command("build", "cluster")
    assert result.exit_code == 0, result.output
    (tmp_path / "data" / "cluster" / "val.pt").write_bytes(b"half")
    (tmp_path / "data" / "cluster" / "test.pt").unlink()
    lines = command("info", "cluster").output.splitlines()
    rows = {line.split()[0]: line.split() for line in lines if line.strip().startswith("cluster/")}
    assert rows["cluster/train.pt"][1] == "20"
    assert [row[-1] for row in rows.values()] == ["whole", "damaged", "built"]
    assert command("build", "cluster").exit_code == 0
    assert [one.state for one in states("cluster")] == ["whole"] * 3


def test_command_says_what_is_wrong(command):
    result = command("build", "mnist", "--raw", "nowhere")
    assert result.exit_code == 1
    assert "mnist/train-images-idx3-ubyte.gz is missing in nowhere; put" in result.output
    assert "known are pattern" in command("build", "mnst").output
    assert "known are pattern" in command("info", "mnst").output
    assert sum(line.rstrip().endswith("not built") for line in command("info").output.splitlines()) == 15
