"""Embeddings of nodes: they learn, repeat themselves exactly, and what they keep comes back."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.geometry import GEOMETRIES, matched_curvature, poincare_to_lorentz
from horosphere.runs import Run
from horosphere.train.recipe import Recipe
from tests.tasks.test_every_task import live
from tests.tasks.tiny import run_tiny, tiny

TREE = "".join(f"n{i}\tn{(i - 1) // 2}\n" for i in range(1, 63))
RING = "".join(f"{i},{(i + 1) % 12}\n" for i in range(12))


@pytest.fixture
def embed(tmp_path):
    """embed(*settings): scores and points of a run on a binary tree of 63 nodes."""
    (tmp_path / "tree.tsv").write_text(TREE)
    count = []

    def embed(*settings, data=tmp_path / "tree.tsv"):
        count.append(1)
        recipe = Recipe.read("embedding", [f"data={data}", "dim=3", "negatives=20", "epochs=5", "batch=16", *settings])
        folder = tmp_path / f"run-{len(count)}"
        scores = run_tiny(recipe, folder).evaluation
        return scores, Run.open(folder).load()

    return embed


# -- learning ---------------------------------------------------------------------------------------------------------


def test_learns_a_tree(embed):
    scores, _ = embed("dim=5", "epochs=100", "negatives=256", "batch=0")
    assert scores["mean_rank"] < 1.2
    assert scores["map"] > 0.95
    assert scores["radius_depth_correlation"] > 0.3


@pytest.mark.parametrize("name", GEOMETRIES)
def test_every_geometry_learns_and_a_seed_decides_everything(embed, name):
    few, _ = embed(f"geometry={name}", "epochs=1")
    many, first = embed(f"geometry={name}", "epochs=40")
    again, other = (embed(f"geometry={name}", "epochs=40", f"seed={seed}") for seed in (0, 1))
    assert many["map"] > few["map"] + 0.15
    assert torch.equal(first.points, again[1].points)
    assert not torch.equal(first.points, other[1].points)
    assert first.points.dtype == torch.float64


@pytest.mark.parametrize("name", ["lorentz", "poincare"])
def test_points_may_begin_in_the_tree(embed, name):
    words = (f"geometry={name}", "epochs=3", "lr=1e-9")  # nothing moves
    (random, first), (placed, begun) = (embed(*words, f"place={place}") for place in ("random", "tree"))
    assert placed["map"] > random["map"] + 0.2
    child, above = begun.graph.edges.T
    lengths = begun.manifold.dist(begun.points[child], begun.points[above])
    assert_close(lengths, lengths[:1].expand(len(lengths)), rtol=1e-5, atol=0)
    assert not torch.equal(first.points, begun.points)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["geometry=euclidean"], "use geometry=lorentz or poincare"),
        (["geometry=product"], "use geometry=lorentz or poincare"),
        (["start=runs/other"], "both say where points begin; leave one out"),
    ],
)
def test_no_tree_to_begin_in_is_told(words, said):
    with pytest.raises(UserError, match=said):
        Recipe.read("embedding", ["data=tree.tsv", "place=tree", *words])


@pytest.mark.parametrize("name", [name for name in GEOMETRIES if name != "euclidean"])
@pytest.mark.parametrize("c", [1e-10, 1e10])
def test_any_curvature_that_a_setting_takes_can_be_trained(embed, name, c):
    """Points begin within the radius of curvature: beyond it, gradients are lost, whatever the learning rate."""
    _, embedded = embed(f"geometry={name}", f"curvature={c}", "epochs=2")
    assert embedded.points.isfinite().all()


def test_an_undirected_graph(embed, tmp_path):
    (tmp_path / "ring.csv").write_text(RING)
    scores, embedded = embed("graph=true", "epochs=150", data=tmp_path / "ring.csv")
    assert scores["map"] > 0.9
    assert "radius_depth_correlation" not in scores
    assert embedded.labels == [str(i) for i in range(12)]


def test_a_node_is_related_to_its_ancestors_or_to_its_parents_only(tmp_path):
    (tmp_path / "tree.tsv").write_text(TREE)
    closure, edges = (live("nodes", tmp_path / "tree.tsv", f"on={on}").opened for on in ("closure", "edges"))
    assert len(edges.relations) == 62 == len(edges.graph.edges)
    assert len(closure.relations) == 2 * 1 + 4 * 2 + 8 * 3 + 16 * 4 + 32 * 5


def test_poincare_and_lorentz_are_one_geometry(embed):
    (ball_scores, ball), (scores, sheet) = (embed(f"geometry={name}", "epochs=8") for name in ("poincare", "lorentz"))
    assert_close(poincare_to_lorentz(ball.points, ball.manifold.c), sheet.points, rtol=1e-5, atol=1e-5)
    assert ball_scores["map"] == pytest.approx(scores["map"], abs=1e-6)


def test_steps_are_as_long_in_every_geometry_and_curvature_has_a_pace_of_its_own(tmp_path):
    (tmp_path / "tree.tsv").write_text(TREE)
    for name in ("euclidean", "lorentz"):
        task = live("nodes", tmp_path / "tree.tsv", f"geometry={name}", "learn_curvature=true")
        groups = task.optimizer(task.build(task.opened)).param_groups
        scales = sorted(group["lr_scale"] for group in groups)
        assert scales[-1] == pytest.approx(matched_curvature(3) ** -0.5)
        assert scales[:-1] == ([] if name == "euclidean" else [pytest.approx(1e-3 / task.engine.lr)])


def test_learned_curvature_moves_slowly_and_is_handed_over_at_rest(embed):
    scores, embedded = embed("learn_curvature=true", "epochs=60")
    assert not any(p.requires_grad for p in embedded.manifold.parameters())
    ratio = -embedded.curvatures()[0] / matched_curvature(3)
    assert ratio != 1
    assert 0.3 < ratio < 3  # at the pace of the points it runs into its bound, 1/100
    assert scores["map"] > embed("epochs=60")[0]["map"] - 0.1


def test_the_loss_is_the_mean_over_relations(tmp_path):
    (tmp_path / "tree.tsv").write_text(TREE)
    task = live("nodes", tmp_path / "tree.tsv", "batch=62")
    model, batch = task.build(task.opened), task.batch(0, range(62))
    loss, _ = task.loss(model, batch)
    points, manifold = model.points, model.manifold
    relations = {tuple(pair) for pair in task.opened.relations.tolist()}
    costs = []
    for u, v in sorted(relations):
        near = torch.exp(-manifold.dist(points[u], points[v]))
        far = [n for n in batch["negatives"].tolist() if n != u and (u, n) not in relations]
        costs.append(-torch.log(near / (near + torch.exp(-manifold.dist(points[u], points[far])).sum())))
    assert loss.item() == pytest.approx(torch.stack(costs).mean().item(), rel=1e-9)


def test_the_batch_is_an_eighth_of_the_nodes_and_an_epoch_all_of_them(embed):
    _, embedded = embed("batch=0", "epochs=7")
    about = Run.open(next(Path(embedded.task.data).parent.glob("run-*"))).about
    assert (about.recipe["engine"]["batch"], about.recipe["engine"]["steps"]) == (32, 7 * 2)
    assert (about.facts["nodes"], about.facts["edges"]) == (63, 62)


# -- what was held out ------------------------------------------------------------------------------------------------


def test_held_out_relations_are_seen_by_no_step_and_predicted(embed, tmp_path):
    scores, _ = embed("dim=5", "epochs=100", "negatives=256", "batch=0", "holdout=0.2")
    assert scores["link_auc"] > 0.9
    assert scores["link_hits"] > 0.5
    task = live("nodes", tmp_path / "tree.tsv", "holdout=0.2", "batch=62")
    held = {tuple(pair) for pair in task.opened.held.tolist()}
    assert len(held) == round(0.2 * len(task.opened.relations))
    batch = task.batch(0, range(task.rows(task.opened)))
    seen = set(zip(batch["nodes"][batch["row"]].tolist(), batch["related"].tolist(), strict=True))
    assert held.isdisjoint(seen)
    assert len(seen) + len(held) == len(task.opened.relations)
    few, _ = embed("dim=5", "epochs=1", "batch=0", "holdout=0.2")
    assert few["link_auc"] < scores["link_auc"]
    assert "link_auc" not in embed("epochs=1")[0]


def test_a_run_with_links_held_out_says_so(embed, tmp_path):
    embed("holdout=0.1", "epochs=1")
    run = Run.open(tmp_path / "run-1")
    rows = dict(run.load().task.summary(run))
    assert rows["held out"] == "26 of the relations, which no step sees"
    assert rows["AUC held out"].endswith("(0.5 is chance)")


@pytest.mark.parametrize(("nodes", "says"), [(9, False), (40, True)])
def test_hits_among_fewer_than_ten_say_nothing(embed, tmp_path, nodes, says):
    """All would be hits."""
    pairs = [(i, (i + step) % nodes) for i in range(nodes) for step in (1, 2)]
    (tmp_path / "ring.csv").write_text("".join(f"{a},{b}\n" for a, b in pairs))
    scores, _ = embed("graph=true", "epochs=1", "holdout=0.1", data=tmp_path / "ring.csv")
    run = Run.open(tmp_path / "run-1")
    assert "link_auc" in scores
    assert ("link_hits" in scores) == says
    assert all(("link_hits" in beside) == says for beside in run.baselines().values())
    rows = [cell for row in run.load().task.summary(run) for cell in row]
    assert any("Hits@10" in cell for cell in rows) == says


def test_nodes_with_several_parents_are_counted(embed, tmp_path):
    for more, said in (("", None), ("n5\tn0\n", "1 node has more than one"), ("n5\tn0\nn9\tn0\n", "2 nodes have more")):
        (tmp_path / "dag.tsv").write_text(TREE + more)
        task = live("nodes", tmp_path / "dag.tsv")
        told = dict(task.about(task.facts(task.opened))).get("several parents")
        assert told is None if said is None else told.startswith(said)


# -- nodes by name ----------------------------------------------------------------------------------------------------


def test_an_embedding_knows_its_nodes_by_name(embed):
    _, embedded = embed()
    i = embedded.labels.index("n7")
    assert torch.equal(embedded["n7"], embedded.points[i])
    assert "n7" in embedded
    assert "cat" not in embedded
    assert len(embedded) == 63
    near = embedded.neighbors("n7", 3)
    distances = embedded.manifold.dist(embedded["n7"], embedded.points)
    assert [name for name, _ in near] == [embedded.labels[j] for j in distances.argsort()[1:4]]
    assert len(embedded.neighbors("n7", 1000)) == 62
    assert list(embedded) == embedded.labels
    with pytest.raises(UserError, match='there is no node "n77"; did you mean n7'):
        embedded["n77"]


@pytest.mark.parametrize(("k", "message"), [(-1, "^k=-1: it goes from 1"), (0, "^k=0"), ("x", "^k=x"), (2.5, "^k=2.5")])
def test_a_number_of_neighbours_that_is_none(embed, k, message):
    _, embedded = embed("epochs=1")
    for ask in (embedded.neighbors, embedded.surroundings):
        with pytest.raises(UserError, match=message):
            ask("n7", k)
    assert len(embedded.neighbors("n7", torch.tensor(3).item())) == 3


@pytest.mark.parametrize("node", [5, None, ["n7"], slice(0, 2), torch.tensor(3)])
def test_what_is_no_name_is_no_node(embed, node):
    _, embedded = embed("epochs=1")
    for ask in (embedded.__getitem__, embedded.neighbors, embedded.surroundings):
        with pytest.raises(UserError, match="is no name of a node; give the text that the data call it"):
            ask(node)
    assert node not in embedded


@pytest.mark.parametrize("on", ["closure", "edges"])
def test_a_new_node_finds_its_place_and_the_others_keep_theirs(embed, on):
    _, embedded = embed("dim=5", "epochs=60", "negatives=256", "batch=0", f"on={on}")
    before = embedded.points.clone()
    more = embedded.add("new", parents=["n20"])
    assert (len(more), len(embedded), "new" in embedded) == (64, 63, False)  # a new object: this one stays
    assert torch.equal(embedded.points, before)
    assert torch.equal(more.points[:63], before)
    path = ["new", "n20", "n9", "n4", "n1", "n0"]
    about = more.surroundings("new", 8)
    assert about["path"] == path
    near = [one["node"] for one in about["neighbors"]]
    wanted = set(path[1:]) if on == "closure" else {"n20"}
    assert len(wanted & set(near)) >= len(wanted) - 1
    assert torch.equal(more["new"], embedded.add("new", parents=["n20"])["new"])  # deterministic
    assert more.add("below it", ["new", "n21"]).graph.several_parents() == 1


def test_a_new_node_of_a_graph(embed, tmp_path):
    (tmp_path / "ring.csv").write_text(RING)
    _, embedded = embed("graph=true", "epochs=150", data=tmp_path / "ring.csv")
    more = embedded.add("3½", parents=["3", "4"])
    assert {name for name, _ in more.neighbors("3½", 2)} == {"3", "4"}
    assert more.surroundings("3½")["linked"] == ["3", "4"]


def test_a_new_node_that_cannot_be(embed, tmp_path):
    _, embedded = embed("epochs=1")
    for name, parents, message in (
        ("n3", ["n1"], 'there is a node "n3" already'),
        ("new", [], "at least one"),
        ("new", "n1", "give a list"),
        ("new", ["n99"], 'there is no node "n99"'),
        (5, ["n1"], r'^add\(5, …\): a node is called by a text; give one, as in add\("5", …\)$'),
        (None, ["n1"], "a node is called by a text"),
        ("", ["n1"], r"^add\(…\): the name of the new node is empty; give one$"),
        (" ", ["n1"], "is empty"),
        ("new", 5, "give a list"),
        ("new", None, "give a list"),
        ("new", [5], "5 is no name of a node"),
    ):
        with pytest.raises(UserError, match=message):
            embedded.add(name, parents)
    with pytest.raises(UserError, match="has not kept its edges"):
        replace(embedded, graph=None).add("new", ["n1"])


@pytest.mark.parametrize(
    "settings", [("geometry=lorentz",), ("geometry=poincare", "learn_curvature=true"), ("geometry=product", "dim=4")]
)
def test_an_embedding_with_new_nodes_is_saved_as_a_run(embed, tmp_path, settings):
    _, embedded = embed("epochs=2", *settings)
    more = embedded.add("new", ["n20"]).add("below it", ["new", "n21"])
    saved = more.save(tmp_path / "more")
    again = Run.open(tmp_path / "more", "nodes").load()
    assert torch.equal(again.points, more.points)
    assert (again.labels, again.curvatures()) == (more.labels, more.curvatures())
    assert again.surroundings("below it", 5) == more.surroundings("below it", 5)
    facts = saved.about.facts
    assert (facts["nodes"], facts["edges"], facts["several_parents"], facts["added"]) == (65, 65, 1, 2)
    assert again.add("third", ["below it"]).save(tmp_path / "most").about.count("added") == 3
    assert sorted(path.name for path in tmp_path.iterdir() if "more" in path.name) == ["more"]


def test_a_saved_embedding_replaces_nothing_and_is_not_trained_on(embed, tmp_path):
    _, embedded = embed("epochs=2")
    more = embedded.add("new", ["n20"])
    before = (tmp_path / "run-1/run.json").read_bytes()
    with pytest.raises(UserError, match="exists already, and is not replaced; give another folder"):
        more.save(tmp_path / "run-1")
    assert (tmp_path / "run-1/run.json").read_bytes() == before
    more.save(str(tmp_path / "more"))
    asked = [f"data={tmp_path / 'tree.tsv'}", "dim=3", "negatives=20", "epochs=2", "batch=16"]
    with pytest.raises(UserError, match="nothing is left to go on from"):
        run_tiny(Recipe.read("embedding", asked), tmp_path / "more", resume=True)
    (tmp_path / "tree.tsv").write_text(TREE + "new\tn20\n")  # the same nodes: a training may begin with these points
    run_tiny(Recipe.read("embedding", [*asked, f"start={tmp_path / 'more'}"]), tmp_path / "trained")
    assert len(Run.open(tmp_path / "trained").load()) == 64


# -- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lorentz", "product"])
def test_divergence_is_an_error_that_says_what_to_do(embed, name):
    with pytest.raises(UserError, match=r"is not finite: no checkpoint was saved before it; lower lr \(now 1e\+06\)"):
        embed(f"geometry={name}", "lr=1e6", "warmup=0")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("dim=0", "dim=0: it goes from 1 to 1e6"),
        ("negatives=0", "negatives=0: it goes from 1 to 1e6"),
        ("curvature=0", "curvature=0: it goes from 1e-10 to 1e10"),
        ("curvature=inf", "curvature=inf: it goes from 1e-10 to 1e10"),
        ("geometry=spherical", 'unknown geometry "spherical"'),
        ("geometry=product dim=1", "at least 2"),
        ("on=leaves", "on=leaves: choose from closure, edges"),
        ("holdout=1", "holdout=1: it goes from 0 to just below 1"),
        ("data=builtin:trov", "did you mean builtin:trove"),
    ],
)
def test_a_wrong_setting(setting, message):
    with pytest.raises(UserError, match=message):
        Recipe.read("embedding", ["data=tree.tsv", *setting.split()]).task.open_data()


def test_weights_of_another_graph_are_refused(embed, tmp_path):
    embed()
    (tmp_path / "other.tsv").write_text("a\tb\nc\tb\n")
    with pytest.raises(UserError, match="a run of other nodes, dimensions, geometry or curvature"):
        embed(f"start={tmp_path / 'run-1'}", data=tmp_path / "other.tsv")


def test_points_of_another_shape_are_refused(tmp_path):
    (tmp_path / "tree.tsv").write_text(TREE)
    run_tiny(tiny("nodes", tmp_path / "tree.tsv"), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    wider = replace(run, about=replace(run.about, recipe={**run.about.recipe, "model": {"dim": 4}}))
    with pytest.raises(
        UserError, match=r"damaged or foreign points \(points \(63, 3\) for 63 labels in 4 dimensions\)"
    ):
        wider.load()


def test_points_that_are_not_finite_are_named(embed, tmp_path):
    embed("epochs=1")
    (file,) = tmp_path.rglob("points.safetensors")
    tensors = load_file(file)
    tensors["points"][3, 0] = torch.nan
    save_file(tensors, file)
    with pytest.raises(
        UserError, match=r"damaged or foreign points \(not finite\); delete it to use the last checkpoint"
    ):
        Run.open(file.parent).load()
