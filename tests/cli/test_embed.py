"""Embeddings of graphs from the command line: embed them, then measure what was made."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from horosphere.runs import Run
from horosphere.tasks.nodes import NodesOptions
from horosphere.train import engine
from tests.cli.command_line import cells
from tests.cli.graph_commands import RING, SHORT, TREE

pytestmark = pytest.mark.usefixtures("_beside_a_tree")

FILES = {
    "checkpoints",
    "disk.png",
    "edges.safetensors",
    "labels.json",
    "metrics.jsonl",
    "points.safetensors",
    "run.json",
}


def scores(folder):
    return Run.open(folder).evaluations()[-1]


def rows(out):
    """{first column: the rest} of a table without heads."""
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in out.splitlines())


# -- embed ------------------------------------------------------------------------------------------------------------


def test_embed_writes_a_folder_with_a_picture(run):
    code, out, err = run("embed", "tree.tsv", *SHORT, "--quiet")
    folder = Path("runs/tree-lorentz-3")
    assert (code, err) == (0, "")
    assert {path.name for path in folder.iterdir()} == FILES
    assert (folder / "disk.png").read_bytes().startswith(b"\x89PNG")
    table = rows(out)
    assert table["nodes"] == "31"
    assert table["geometry"] == "lorentz, 3 dimensions"
    assert table["picture"] == f"{folder}/disk.png"
    assert table["written"] == f"{folder}/"
    assert table["curvature"] == "-0.75"  # 3/(d-1)²
    embedded = Run.open(folder).load()
    assert embedded.points.shape == (31, 3)
    assert embedded.labels[:2] == ["n1", "n0"]
    assert table["mean rank"] == f"{scores(folder)['mean_rank']:.2f}  (1 is perfect)"
    assert {p.name for p in Path().iterdir()} == {"tree.tsv", "runs"}


def test_a_sphere_has_a_picture_of_its_own_and_every_verb_reads_its_run(run):
    """One that the disk would draw flat; a product with a sphere stays on the disk."""
    assert run("embed", "tree.tsv", *SHORT, "--geometry", "sphere", "--quiet", "--out", "round")[0] == 0
    table = rows(run("embed", "tree.tsv", *SHORT, "--geometry", "lorentz:1+sphere:2", "--quiet", "--out", "mixed")[1])
    assert table["picture"] == "mixed/disk.png"
    assert {path.name for path in Path("round").iterdir()} == FILES - {"disk.png"} | {"sphere.png"}
    for words in (
        ("neighbors", "round", "n1"),
        ("eval", "round"),
        ("measure", "radius", "round"),
        ("measure", "distortion", "mixed"),
        ("export", "round", "--to", "csv", "--coordinates", "ball"),
        ("explore", "round/points.csv", "--geometry", "sphere", "--curvature", "0.75", "--export", "vectors.html"),
        ("explore", "round", "mixed", "--export", "page.html"),
    ):
        code, _, err = run(*words)
        assert (code, err) == (0, ""), words


def test_spheres_are_compared_where_they_are_asked_for(run, in_this_process):
    words = ("compare", "tree.tsv", *SHORT, "--seeds", "2", "--quiet")
    code, out, _ = run(*words, "--geometries", "lorentz,sphere,euclidean")
    assert code == 0
    assert {line.split()[0] for line in out.splitlines()} >= {"lorentz", "sphere", "euclidean"}
    assert "product, euclidean, sphere" in run("list", "embedding")[1]
    assert "sphere" not in NodesOptions().geometries  # those of a comparison that asks for none


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("tree.csv", "child,parent\n" + TREE.replace("\t", ","), []),
        ("tree.json", json.dumps({"animal": {"dog": ["poodle", "beagle"], "cat": ["tabby"], "bird": None}}), []),
        ("ring.csv", RING, ["--graph"]),
        ("twice.tsv", TREE + "n1\tn0\n", ["--unique"]),
        ("weighted.edges", "a b 0.5\nc b 1\n", ["--unweighted"]),
        ("two.tsv", "a\tb\n", []),
        ("parts.tsv", "a\tb\nc\td\ne\td\n", []),
        ("tree.v2.tsv", TREE, []),
    ],
)
def test_embed_reads(name, text, options, run):
    Path(name).write_text(text)
    code, _, err = run("embed", name, *SHORT, *options, "--quiet")
    assert (code, err) == (0, "")
    assert {path.name for path in Path("runs", f"{Path(name).stem}-lorentz-3").iterdir()} == FILES


@pytest.mark.parametrize(
    "options", [["--geometry", "euclidean"], ["--geometry", "lorentz:2+euclidean:1"], ["--on", "edges"], ["--dim", "1"]]
)
def test_embed_in_other_ways(options, run):
    code, _, err = run("embed", "tree.tsv", *SHORT, *options, "--rank-nodes", 5, "--out", "out", "--quiet")
    assert (code, err) == (0, "")
    embedded = Run.open("out").load()
    name = options[0][2:]
    assert str(getattr(embedded.config, name, getattr(embedded.task, name, None))) == options[1]


def test_embed_shows_the_curvature_it_learned(run):
    _, out, _ = run("embed", "tree.tsv", *SHORT, "--learn-curvature")
    assert re.fullmatch(r"-[\d.]+ \(learned\)", rows(out)["curvature"])


def test_embed_refuses_to_replace_before_it_trains(run, refused):
    Path("out").mkdir()
    Path("out/mine.txt").touch()
    assert "out exists already: choose another --out, or pass --overwrite" in refused(
        "embed", "tree.tsv", "--out", "out"
    )


def test_embed_overwrites_its_own_folder_when_told(run):
    run("embed", "tree.tsv", *SHORT, "--out", "out")
    code, _, _ = run("embed", "tree.tsv", *SHORT, "--out", "out", "--overwrite", "--seed", 5)
    assert code == 0
    assert Run.open("out").about.recipe["engine"]["seed"] == 5


def test_embed_never_overwrites_other_folders(refused):
    assert "--overwrite leaves it alone" in refused("embed", "tree.tsv", "--out", ".", "--overwrite")


def test_embed_that_diverges_says_what_to_do(run):
    code, out, err = run("embed", "tree.tsv", *SHORT, "--lr", "1e9", "--warmup", 0)
    assert (code, out) == (3, "")
    assert re.fullmatch(
        r"horosphere: the gradient of .* is not finite: .* lower lr \(now 1e\+09\) or clip \(now none\)\n", err
    )


def test_a_stopped_embedding_goes_on(run, monkeypatch):
    words = ("embed", "tree.tsv", *SHORT, "--epochs", 6, "--quiet")
    assert run(*words, "--out", "whole")[0] == 0
    step, steps = engine._Loop.step, []

    def interrupted(loop, number):
        steps.append(number)
        if len(steps) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        step(loop, number)

    with monkeypatch.context() as patch:
        patch.setattr(engine._Loop, "step", interrupted)
        assert run(*words, "--out", "out")[0] == 130
    assert run(*words, "--out", "out", "--resume")[0] == 0
    assert Path("out/points.safetensors").read_bytes() == Path("whole/points.safetensors").read_bytes()
    assert run(*words, "--out", "out", "--continue")[0] == 0  # which is done: nothing changes
    assert run(*words, "--out", "new", "--continue")[0] == 0
    assert Path("new/points.safetensors").read_bytes() == Path("whole/points.safetensors").read_bytes()


def test_a_stopped_search_says_what_is_kept(run, monkeypatch):
    def stopped(*_, **__):
        Path("found-search/euclidean-0.21-1").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr("horosphere.study.signature.search", stopped)
    words = ("--graph", "--objective", "distortion", "--signature", "auto", "--out", "found")
    code, out, err = run("embed", "tree.tsv", *words)
    assert (code, out) == (130, "")
    assert err == "horosphere: stopped; what is done is in found-search, and the same command goes on\n"


def test_a_failure_while_drawing_keeps_the_points(run, monkeypatch):
    def fail(*_, path, **__):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("horosphere.plots.draw_points", fail)
    code, _, err = run("embed", "tree.tsv", *SHORT, "--quiet", "--out", "out")
    assert code == 2
    assert "No space left on device" in err
    assert Run.open("out").load().points.shape == (31, 3)


# -- exact ------------------------------------------------------------------------------------------------------------


def test_an_exact_tree_is_a_run_like_others(run):
    code, out, err = run("embed", "tree.tsv", "--exact", "--quiet")
    folder = Path("runs/tree-exact-2")
    assert (code, err) == (0, "")
    assert {path.name for path in folder.iterdir()} == FILES - {"checkpoints"}
    table = rows(out)
    assert table["geometry"] == "lorentz, 2 dimensions"
    assert table["mAP of edges"].startswith("1.000")
    assert float(table["worst distortion"].split()[0]) <= 1.1
    assert table["measured"].startswith("from 31 nodes to all")
    assert table["points"] == "of this edge length: mAP 1.000"
    assert "spanning tree" not in table
    nearest = run("neighbors", str(folder), "n1", "--k", "3")[1]
    assert {line.split()[-1] for line in nearest.splitlines()[-3:]} == {"parent", "child"}
    assert run("export", str(folder), "--to", "csv", "--out", "points.csv")[0] == 0
    assert run("embed", "tree.tsv", *SHORT[:2], "--dim", "2", "--epochs", 1, "--start", str(folder), "--quiet")[0] == 0


def test_an_exact_tree_takes_what_it_is_asked_for(run):
    Path("dag.tsv").write_text("c\ta\nc\tb\nd\tc\ne\tc\n")
    words = ("--exact", "--geometry", "poincare", "--dim", 3, "--edge-length", 3, "--rank-nodes", 2, "--out", "out")
    table = rows(run("embed", "dag.tsv", *words, "--quiet")[1])
    assert table["geometry"] == "poincare, 3 dimensions"
    assert table["edge length"] == "3 radii of curvature"
    assert table["spanning tree"] == "the first parent of each node; 1 edge dropped"
    assert table["roots"] == "several: a common one joins them"
    assert table["measured"].startswith("from 2 nodes drawn at random")
    assert table["points"] == "of this edge length: mAP 1.000"
    before = Run.open("out").load().points
    assert run("embed", "dag.tsv", *words, "--quiet")[0] == 2  # it is there
    assert run("embed", "dag.tsv", *words, "--overwrite", "--quiet")[0] == 0
    assert (Run.open("out").load().points == before).all()


def test_points_of_an_exact_tree_are_what_float64_holds(run):
    table = rows(run("embed", "tree.tsv", "--exact", "--edge-length", 50, "--out", "out", "--quiet")[1])
    assert table["depth"] == "4 edges: the tree reaches to radius 199.1"
    assert table["points"] == "of edge length 8.5, which float64 holds (radius 34): mAP 1.000"
    embedded = Run.open("out").load()
    assert 33 < float(embedded.manifold.dist0(embedded.points).max()) * 3**0.5 <= 34


def test_an_undirected_tree_is_exact_too(run):
    code, out, _ = run("embed", "tree.tsv", "--exact", "--graph", "--quiet")
    assert (code, rows(out)["depth"].split()[0]) == (0, "4")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--geometry", "euclidean"], "a tree is placed in one hyperbolic space; use geometry=lorentz or poincare"),
        (["--geometry", "product"], "a tree is placed in one hyperbolic space"),
        (["--dim", "1"], "a tree has no room on a line: dim=1; give 2 or more"),
        (["--epochs", "3"], "--exact trains nothing, and epochs=3 is of trainings: leave it out"),
        (["--resume"], "--exact trains nothing, so nothing goes on"),
        (["--edge-length", "0"], "it must be positive and finite"),
    ],
)
def test_what_an_exact_tree_cannot_be_is_refused(words, said, refused):
    assert said in refused("embed", "tree.tsv", "--exact", *words)


def test_an_exact_tree_has_no_cycles(refused):
    Path("ring.csv").write_text(RING)
    said = refused("embed", "ring.csv", "--graph", "--exact")
    assert "ring.csv: the graph has cycles (1 edge more than a tree)" in said


def test_an_edge_length_is_of_exact_trees(refused):
    assert "add --exact, or leave it out" in refused("embed", "tree.tsv", "--edge-length", "3")


# -- measure ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(run):
    run("embed", "tree.tsv", *SHORT, "--out", "out")
    return "out"


def test_measure_delta_of_a_graph(run):
    code, out, _ = run("measure", "delta", "tree.tsv")
    assert code == 0
    assert rows(out) == {
        "nodes": "31",
        "δ": "0.000  (exact)",
        "diameter": "8.000",
        "2δ/diameter": "0.000  (0 is a tree, 1 the least tree-like)",
    }


def test_measure_delta_of_a_graph_in_parts(run):
    Path("parts.tsv").write_text(TREE + "a\tb\n")
    _, out, _ = run("measure", "delta", "parts.tsv")
    assert rows(out)["nodes"] == "33  (94% of them in the largest connected part, the one measured)"


def test_weights_are_dropped_only_where_that_is_asked_for(run, refused):
    Path("weighted.edges").write_text("a b 0.5\nc b 1\nd b 1\ne b 2\n")
    for words in (["measure", "delta"], ["embed"], ["compare"]):
        assert "weighted.edges line 1: a third column with the number 0.5" in refused(*words, "weighted.edges")
    code, out, _ = run("measure", "delta", "weighted.edges", "--unweighted")
    assert (code, cells(out)["nodes"]) == (0, "5")


def test_a_chain_too_long_for_its_closure_is_refused_with_the_way_on(refused):
    Path("chain.tsv").write_text("".join(f"{i + 1}\t{i}\n" for i in range(20_000)))
    assert "chain.tsv: its closure has 200,010,000 pairs" in refused("embed", "chain.tsv")


def test_measure_delta_of_an_undirected_graph(run):
    Path("ring.csv").write_text(RING)
    _, out, _ = run("measure", "delta", "ring.csv", "--graph")
    assert float(rows(out)["δ"].split()[0]) > 0.5


def test_measure_delta_of_an_embedding(run, folder):
    code, out, _ = run("measure", "delta", folder)
    assert code == 0
    assert rows(out)["nodes"] == "31"


def test_measure_radius(run, folder):
    code, out, _ = run("measure", "radius", folder)
    assert code == 0
    assert float(rows(out)["mean"]) == pytest.approx(scores(folder)["radius_mean"], abs=5e-4)


def test_measure_distortion(run, folder):
    code, out, _ = run("measure", "distortion", folder)
    assert code == 0
    assert list(rows(out)) == ["average", "worst", "mAP of edges", "best scale"]


def test_measure_reconstruction_repeats_what_embed_found(run, folder):
    code, out, _ = run("measure", "reconstruction", folder)
    assert code == 0
    metrics = scores(folder)
    assert rows(out) == {
        "mean rank": f"{metrics['mean_rank']:.2f}  (1 is perfect)",
        "mAP": f"{metrics['map']:.3f}  (1 is perfect)",
        "nodes ranked": "30",
    }


def test_measure_remembers_that_a_graph_was_undirected(run):
    Path("path.csv").write_text("a,b\nb,c\nc,d\nd,e\n")  # would also do as a hierarchy, with other relations
    run("embed", "path.csv", "--graph", *SHORT, "--out", "out")
    _, out, _ = run("measure", "reconstruction", "out", "--data", "path.csv")
    assert rows(out)["mAP"].startswith(f"{scores('out')['map']:.3f}")
    assert rows(out)["nodes ranked"] == "5"


@pytest.mark.parametrize("what", ["distortion", "reconstruction"])
def test_measuring_against_a_graph_needs_that_graph(what, run, folder):
    assert run("measure", what, folder, "--data", "tree.tsv")[0] == 0
    Path("other.tsv").write_text("a\tb\n")
    code, _, err = run("measure", what, folder, "--data", "other.tsv")
    assert code == 2
    assert "other.tsv has other nodes than out" in err
    assert err.count("\n") == 1


def test_measuring_a_damaged_embedding(run, folder):
    (Path(folder) / "points.safetensors").write_bytes(b"half")
    code, _, err = run("measure", "radius", folder)
    assert code == 2
    assert err.startswith("horosphere: out/points.safetensors: damaged or foreign points")
    assert err.count("\n") == 1


# -- distances --------------------------------------------------------------------------------------------------------


def test_distances_are_fitted_with_weights_and_curvature(run):
    Path("far.edges").write_text("a b 2\nb c 0.5\nc d 1\na d 3\n")
    words = ("--graph", "--objective", "distortion", "--geometry", "lorentz:2+sphere:1", "--dim", "3", "--quiet")
    code, out, err = run("embed", "far.edges", *words, "steps=20")
    assert (code, err) == (0, "")
    table = rows(out)
    assert table["edges"] == "4"
    assert table["average distortion"] == f"{scores('runs/far-lorentz2+sphere1-3')['distortion']:.4f}  (0 is perfect)"
    assert re.fullmatch(r"-\S+, \S+ \(learned\)", table["curvature"])
    code, out, _ = run("neighbors", "runs/far-lorentz2+sphere1-3", "a", "--k", "2")
    assert code == 0
    code, out, _ = run("export", "runs/far-lorentz2+sphere1-3", "--to", "csv")
    assert code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--geometry", "sphere"], "geometry=sphere and --signature: both choose the geometry; leave one of them out"),
        (["--resume"], "a search that was stopped goes on with the same command; leave it out"),
        (["--holdout", "0.1"], "holdout=0.1 is of objective=ranking"),
    ],
)
def test_what_a_search_for_a_signature_cannot_do_is_told(run, words, said):
    code, out, err = run("embed", "tree.tsv", "--objective", "distortion", "--signature", "auto", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_signature_is_of_distances(run):
    code, out, err = run("embed", "tree.tsv", "--signature", "auto")
    assert (code, out) == (2, "")
    assert err == "horosphere: --signature searches for the least distortion: add --objective distortion\n"


def test_weights_are_refused_where_relations_are_ranked(run):
    Path("far.edges").write_text("a b 2\nb c 0.5\n")
    code, _, err = run("embed", "far.edges", "--graph")
    assert code == 2
    assert err.rstrip().endswith("Pass --unweighted to drop them; objective=distortion takes them for lengths.")


def test_options_of_trees_and_of_searches_do_not_go_together(refused):
    search = ("embed", "tree.tsv", "--objective", "distortion", "--signature", "auto")
    assert "--edge-length is of exact trees" in refused(*search, "--edge-length", "3")
    assert "leave one of them out" in refused(*search, "--exact")
