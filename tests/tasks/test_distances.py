"""objective=distortion: all distances of a graph are fitted, in its units, with the curvature of each factor."""

import math
import shutil

import numpy as np
import pytest
import torch

from horosphere.errors import UserError
from horosphere.geometry import Lorentz, Sphere
from horosphere.measure import distortion
from horosphere.runs import Run
from horosphere.train.recipe import Recipe
from tests.tasks.test_every_task import live
from tests.tasks.tiny import run_tiny

TREE = "".join(f"n{i}\tn{(i - 1) // 2}\n" for i in range(1, 31))
PATH = "".join(f"{i} {i + 1}\n" for i in range(20))


def every_pair(lengths):
    rows, columns = np.triu_indices(len(lengths), 1)
    return "".join(f"{i} {j} {lengths[i, j]:.9g}\n" for i, j in zip(rows, columns, strict=True))


def sampled(manifold, count=60, spread=1.0):
    points = manifold.random(count, 2, std=spread, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return every_pair(manifold.pairwise(points, points).numpy())


@pytest.fixture
def fit(tmp_path):
    """fit(text, *settings): scores and points of a run that fits the distances of an edge list."""
    count = []

    def fit(text, *settings):
        count.append(1)
        data, folder = tmp_path / "graph.edges", tmp_path / f"run-{len(count)}"
        data.write_text(text)
        given = [f"data={data}", "graph=true", *settings]
        return run_tiny(Recipe.read("distances", given), folder).evaluation, Run.open(folder).load()

    return fit


# -- what can be embedded without distortion is -----------------------------------------------------------------------


def test_a_path_lies_on_a_line(fit):
    scores, embedded = fit(PATH, "geometry=euclidean", "dim=3", "steps=1000")
    assert scores["distortion"] < 0.01
    assert scores["map"] == pytest.approx(1)
    ends = embedded.manifold.dist(embedded["0"], embedded["20"])
    assert float(ends) == pytest.approx(20, rel=0.02)  # in the units of the graph


@pytest.mark.parametrize("c", [0.01, 4.0])
def test_distances_of_a_sphere_give_its_curvature_back(fit, c):
    text = sampled(Sphere(c), spread=1.2 / math.sqrt(c))
    scores, embedded = fit(text, "geometry=sphere", "dim=3", "steps=1500")
    assert scores["distortion"] < 0.01
    assert embedded.curvatures() == [pytest.approx(c, rel=0.1)]
    assert "map" not in scores  # all nodes are linked
    assert fit(text, "geometry=lorentz", "dim=3")[0]["distortion"] > 3 * scores["distortion"]


@pytest.mark.parametrize("c", [0.25, 9.0])
def test_distances_of_the_hyperboloid_give_its_curvature_back(fit, c):
    text = sampled(Lorentz(c), spread=1.5 / math.sqrt(c))
    scores, embedded = fit(text, "geometry=lorentz", "dim=2")
    assert scores["distortion"] < 0.01
    assert embedded.curvatures() == [pytest.approx(-c, rel=0.2)]
    assert fit(text, "geometry=sphere", "dim=2")[0]["distortion"] > 3 * scores["distortion"]


def test_every_factor_of_a_product_has_a_curvature_of_its_own(fit):
    scores, embedded = fit(TREE.replace("\t", " "), "geometry=lorentz:2+sphere:2+lorentz:2", "dim=6")
    signs = [math.copysign(1, c) for c in embedded.curvatures()]
    assert signs == [-1, 1, -1]
    assert len(set(embedded.curvatures())) == 3
    assert scores["distortion"] < 0.1


def test_a_larger_exponent_spares_the_worst_pairs(fit):
    """Leaves of one parent, which have no room to be apart."""
    star = "".join(f"0 {leaf}\n" for leaf in range(1, 30))
    worst = [fit(star, "geometry=euclidean", "dim=2", f"exponent={p}", "steps=500")[0]["worst"] for p in (1, 1.5, 2)]
    assert worst == sorted(worst, reverse=True)
    assert worst[0] > 3 * worst[2]


# -- runs -------------------------------------------------------------------------------------------------------------


def test_scores_are_in_the_units_of_the_graph_and_not_rescaled(fit):
    scores, embedded = fit(TREE.replace("\t", " "), "dim=3")
    found = distortion(embedded.points, embedded.manifold, embedded.graph, rescale=False)
    assert scores["distortion"] == pytest.approx(found.average, rel=1e-6)
    assert scores["worst"] == pytest.approx(found.worst, rel=1e-6)
    assert found.scale == 1


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path):
    (tmp_path / "graph.edges").write_text(PATH)
    words = [f"data={tmp_path}/graph.edges", "graph=true", "dim=3", "save_every=5", "steps=20"]
    recipe = Recipe.read("distances", [*words, "geometry=lorentz:2+sphere:1"])
    whole = run_tiny(recipe, tmp_path / "whole")
    part = tmp_path / "part"
    run_tiny(recipe, part)
    for late in sorted((part / "checkpoints").iterdir())[1:]:
        shutil.rmtree(late)
    (part / "points.safetensors").unlink()
    again = run_tiny(recipe, part, resume=True)
    assert again.evaluation == whole.evaluation
    first, second = (Run.open(tmp_path / name).load() for name in ("whole", "part"))
    assert torch.equal(first.points, second.points)
    assert first.curvatures() == second.curvatures()


def test_a_run_comes_back_with_its_lengths_and_says_what_it_is(fit, tmp_path):
    _, embedded = fit("a b 2\nb c 0.5\nd e 1\n", "dim=2", "epochs=2")
    assert embedded.graph.lengths.tolist() == [2.0, 0.5, 1.0]
    assert [name for name, _ in embedded.neighbors("a", 2)]
    run = Run.open(tmp_path / "run-1")
    rows = dict(run.load().task.summary(run))
    assert rows["mean distance"] == "1.5"
    assert rows["left out"] == "6 pairs without a path"
    assert rows["average distortion"].endswith("(0 is perfect)")
    with pytest.raises(UserError, match="this run fits distances; embed the graph again"):
        embedded.add("new", ["a"])


def test_a_fixed_curvature_stays_and_comes_back(fit):
    _, embedded = fit(PATH, "dim=2", "epochs=2", "curvature=0.02", "learn_curvature=false")
    assert embedded.curvatures() == [-0.02]
    _, embedded = fit(PATH, "dim=2", "epochs=2", "learn_curvature=false")
    assert embedded.curvatures() == [pytest.approx(-1 / embedded.about.facts["mean_path"] ** 2)]


def test_how_a_batch_is_cut_changes_nothing(tmp_path):
    (tmp_path / "graph.edges").write_text("a b 2\nb c 0.5\nd e 1\ne f 1\n")
    task = live("nodes", tmp_path / "graph.edges", "graph=true", "objective=distortion", "batch=6")
    model = task.build(task.opened)
    whole = task.loss(model, task.batch(0, range(6)))[0].detach()
    cut = [task.loss(model, task.batch(0, rows))[0].detach() for rows in (range(2), range(2, 6))]
    assert float(whole) == pytest.approx(float(cut[0]) * 2 / 6 + float(cut[1]) * 4 / 6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["holdout=0.1"], "holdout=0.1 is of objective=ranking"),
        (["place=tree"], "place=tree is of objective=ranking"),
        (["objective=both"], "objective"),
        (["objective=ranking", "exponent=2"], "exponent=2 is of objective=distortion: leave it out"),
        (["exponent=0.5"], "exponent"),
    ],
)
def test_what_does_not_go_together_is_told(words, said):
    with pytest.raises(UserError, match=said):
        Recipe.read("distances", ["data=tree.tsv", *words])


def test_weights_are_refused_where_relations_are_ranked(tmp_path):
    (tmp_path / "graph.edges").write_text("a b 2\nb c 0.5\n")
    with pytest.raises(UserError, match="objective=distortion takes them for lengths"):
        live("nodes", tmp_path / "graph.edges", "graph=true")
