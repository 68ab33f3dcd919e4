"""Training learns, repeats itself exactly, and what it saves comes back or is refused in one line."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from horosphere.data import Graph
from horosphere.errors import UserError
from horosphere.geometry import GEOMETRIES, matched_curvature, poincare_to_lorentz
from horosphere.measure import reconstruction
from horosphere.train.config import EmbedConfig
from horosphere.train.embed import FINAL, Embedded, embed, schedule
from tests.train.graphs import binary_tree, ring

TREE = binary_tree(4)
SHORT = EmbedConfig(dim=3, epochs=5, batch=16, negatives=20, seed=3)


def score(result, graph):
    return reconstruction(result.points, result.manifold, result.config.relations(graph))


# -- learning ---------------------------------------------------------------------------------------------------------


def test_learns_a_tree():
    tree = binary_tree(5)
    result = embed(tree, EmbedConfig(dim=5, epochs=150, batch=32))
    found = score(result, tree)
    assert found.mean_rank < 1.5
    assert found.map > 0.9


@pytest.mark.parametrize("name", GEOMETRIES)
def test_every_geometry_learns(name):
    few, many = (score(embed(TREE, replace(SHORT, geometry=name, epochs=epochs)), TREE).map for epochs in (1, 60))
    assert many > few + 0.2


def test_an_undirected_graph():
    graph = ring(12)
    result = embed(graph, replace(SHORT, epochs=150))
    assert not result.directed
    assert score(result, graph).map > 0.9


def test_edges_only():
    config = replace(SHORT, on="edges")
    assert config.relations(TREE) is TREE.edges
    assert len(replace(config, on="closure").relations(TREE)) > len(TREE.edges)
    few, many = (score(embed(TREE, replace(config, epochs=epochs)), TREE).map for epochs in (1, 60))
    assert many > few + 0.2


@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_seed_decides_everything(name):
    config = replace(SHORT, geometry=name)
    first, again, other = (embed(TREE, c).points for c in (config, config, replace(config, seed=4)))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_poincare_and_lorentz_are_one_geometry():
    ball, sheet = (embed(TREE, replace(SHORT, geometry=name, epochs=8)) for name in ("poincare", "lorentz"))
    assert_close(poincare_to_lorentz(ball.points, ball.manifold.c), sheet.points, rtol=1e-6, atol=1e-6)
    assert score(ball, TREE).mean_rank == pytest.approx(score(sheet, TREE).mean_rank, abs=1e-6)
    assert score(ball, TREE).map == pytest.approx(score(sheet, TREE).map, abs=1e-6)


def test_learned_curvature_moves_slowly_and_is_handed_over_at_rest():
    result = embed(TREE, replace(SHORT, learn_curvature=True, epochs=60))
    assert not any(p.requires_grad for p in result.manifold.parameters())
    ratio = float(result.manifold.c) / matched_curvature(SHORT.dim)
    assert ratio != 1
    assert 0.3 < ratio < 3  # at the pace of the points it runs into its bound, 1/100
    assert score(result, TREE).map > score(embed(TREE, replace(SHORT, epochs=60)), TREE).map - 0.1


def test_progress_hears_every_epoch():
    heard = []
    embed(TREE, SHORT, progress=lambda epoch, note: heard.append((epoch, note)))
    assert [epoch for epoch, _ in heard] == [1, 2, 3, 4, 5]
    assert all(note.startswith("loss ") and float(note.split()[1]) > 0 for _, note in heard)


@pytest.mark.parametrize("name", ["lorentz", "product"])
def test_divergence_is_an_error_that_says_what_to_do(name):
    with pytest.raises(UserError, match=rf"{name} embedding diverged in epoch \d \(.*\): lower --lr \(now 1e\+06\)"):
        embed(TREE, replace(SHORT, geometry=name, lr=1e6))


def test_a_graph_without_edges():
    with pytest.raises(UserError, match="no edges"):
        embed(Graph(["a", "b"], np.zeros((0, 2))), SHORT)


def test_schedule_warms_up_and_comes_down():
    share = [schedule(step / 1000) for step in range(1001)]
    assert share[0] == 0
    assert share[-1] == pytest.approx(FINAL)
    assert min(share) >= 0
    assert max(share) <= 1
    top = share.index(max(share))
    assert share == sorted(share[:top]) + sorted(share[top:], reverse=True)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dim": 0}, "--dim 0"),
        ({"epochs": 0}, "--epochs 0"),
        ({"batch": -1}, "--batch -1"),
        ({"negatives": 0}, "--negatives 0"),
        ({"lr": -0.1}, "--lr -0.1"),
        ({"lr": float("nan")}, "--lr nan"),
        ({"curvature": 0.0}, "--curvature 0"),
        ({"curvature": float("inf")}, "--curvature inf"),
        ({"geometry": "spherical"}, 'unknown geometry "spherical"'),
        ({"geometry": "product", "dim": 1}, "at least 2"),
    ],
)
def test_a_wrong_configuration(wrong, message):
    with pytest.raises(UserError, match=message):
        embed(TREE, replace(SHORT, **wrong))


# -- saving -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    result = replace(embed(TREE, replace(SHORT, learn_curvature=True)), metrics={"map": 0.5})
    result.save(tmp_path / "run")
    return result, tmp_path / "run"


def test_what_is_saved_comes_back(saved):
    result, folder = saved
    back = Embedded.load(folder)
    assert torch.equal(back.points, result.points)
    assert back.points.dtype == torch.float64
    assert (back.labels, back.config, back.metrics, back.directed) == (
        result.labels,
        result.config,
        result.metrics,
        True,
    )
    assert back.seconds == pytest.approx(result.seconds, abs=0.01)
    assert float(back.manifold.c) == float(result.manifold.c) != 1
    assert not any(p.requires_grad for p in back.manifold.parameters())


@pytest.mark.parametrize("name", GEOMETRIES)
def test_every_geometry_comes_back(name, tmp_path):
    result = embed(TREE, replace(SHORT, geometry=name, learn_curvature=True, curvature=0.5))
    result.save(tmp_path / "run")
    back = Embedded.load(tmp_path / "run")
    assert torch.equal(
        back.manifold.pairwise(back.points, back.points), result.manifold.pairwise(result.points, result.points)
    )


def test_an_undirected_graph_is_remembered(tmp_path):
    embed(ring(6), SHORT).save(tmp_path / "run")
    assert not Embedded.load(tmp_path / "run").directed


def test_files_are_readable_by_all_whom_the_umask_allows(saved):
    _, folder = saved
    assert {path.stat().st_mode for path in folder.iterdir()} == {(folder / "labels.json").stat().st_mode}


def test_saving_twice_needs_overwrite(saved):
    result, folder = saved
    with pytest.raises(UserError, match="--overwrite"):
        result.save(folder)
    replace(result, seconds=7.0).save(folder, overwrite=True)
    assert Embedded.load(folder).seconds == 7


def edit(path, change):
    content = json.loads(path.read_text())
    path.write_text(json.dumps(change(content)))


def without(key):
    return lambda about: {name: value for name, value in about.items() if name != key}


def config(**changed):
    return lambda about: {**about, "config": {**about["config"], **changed}}


DAMAGES = {
    "no folder": lambda f: f.rename(f.with_name("elsewhere")),
    "no about": lambda f: (f / "embedding.json").unlink(),
    "no labels": lambda f: (f / "labels.json").unlink(),
    "no points": lambda f: (f / "points.safetensors").unlink(),
    "truncated points": lambda f: (f / "points.safetensors").write_bytes(
        (f / "points.safetensors").read_bytes()[:-100]
    ),
    "hardly any points": lambda f: (f / "points.safetensors").write_bytes(b"abc"),
    "empty points": lambda f: (f / "points.safetensors").write_bytes(b""),
    "truncated about": lambda f: (f / "embedding.json").write_text('{"config": {'),
    "empty about": lambda f: (f / "embedding.json").write_text(""),
    "binary labels": lambda f: (f / "labels.json").write_bytes(b"\xff\xfe\x00"),
    "foreign object": lambda f: (f / "embedding.json").write_text('{"model": "resnet"}'),
    "foreign list": lambda f: (f / "embedding.json").write_text("[1, 2]"),
    "foreign number": lambda f: (f / "embedding.json").write_text("7"),
    "no metrics": lambda f: edit(f / "embedding.json", without("metrics")),
    "no seconds": lambda f: edit(f / "embedding.json", without("seconds")),
    "too few labels": lambda f: edit(f / "labels.json", lambda labels: labels[:-1]),
    "a number for labels": lambda f: edit(f / "labels.json", lambda labels: 31),
    "other dimension": lambda f: edit(f / "embedding.json", config(dim=4)),
    "unknown setting": lambda f: edit(f / "embedding.json", config(colour="red")),
    "unknown geometry": lambda f: edit(f / "embedding.json", config(geometry="spherical")),
    "no learned curvature": lambda f: edit(f / "embedding.json", config(learn_curvature=False)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused_in_one_line(damage, saved):
    _, folder = saved
    DAMAGES[damage](folder)
    with pytest.raises(UserError) as error:
        Embedded.load(folder)
    message = str(error.value)
    assert message.startswith(f"{folder}: ")
    assert "horosphere embed" in message
    assert "\n" not in message
