"""After `embed`: what lies near a node, and points for other programs."""

import json
from pathlib import Path

import pytest
import torch

from horosphere.runs import Run
from tests.cli.graph_commands import RING, SHORT, everything
from tests.tasks.tiny import run_tiny, tiny, write_data

pytestmark = pytest.mark.usefixtures("_beside_a_tree")


@pytest.fixture
def folder(run):
    run("embed", "tree.tsv", *SHORT, "--out", "out", "--quiet")
    return "out"


def test_embed_says_what_comes_next(run):
    _, out, _ = run("embed", "tree.tsv", *SHORT, "--out", "out", "--quiet")
    assert out.splitlines()[-1].split("  ")[-1].strip() == "horosphere neighbors out NODE"


def test_neighbors_are_the_nearest_by_the_geometrys_distance(run, folder):
    code, out, err = run("neighbors", folder, "n5", "n0", "--k", 4, "--json")
    assert (code, err) == (0, "")
    five, root = json.loads(out)
    embedded = Run.open(folder).load()
    distances = embedded.manifold.dist(embedded["n5"], embedded.points)
    order = [i for i in distances.argsort().tolist() if embedded.labels[i] != "n5"][:4]
    assert [near["node"] for near in five["neighbors"]] == [embedded.labels[i] for i in order]
    assert [near["distance"] for near in five["neighbors"]] == pytest.approx(distances[order].tolist(), rel=1e-12)
    assert (five["path"], five["parents"], five["children"]) == (["n5", "n2", "n0"], ["n2"], ["n11", "n12"])
    assert (root["path"], root["ancestors"], root["children"]) == (["n0"], [], ["n1", "n2"])


def test_neighbors_for_people(run, folder):
    code, out, err = run("neighbors", folder, "n5", "n3", "--k", 30)
    assert (code, err) == (0, "")
    first, second = out.split("\n\n")
    lines = [line.split() for line in first.splitlines()]
    assert lines[:3] == [["node", "n5"], ["path", "n5", "<", "n2", "<", "n0"], ["children", "n11,", "n12"]]
    assert lines[3] == ["neighbor", "distance", "it", "is"]
    assert len(lines) == 4 + 30  # all others
    kin = {line[0]: line[2:] for line in lines[4:]}
    assert (kin["n2"], kin["n0"], kin["n11"], kin["n23"]) == (["parent"], ["ancestor"], ["child"], ["descendant"])
    assert (kin["n6"], kin["n1"]) == (["sibling"], [])
    assert second.startswith("node      n3\n")


def test_neighbors_in_a_graph(run):
    Path("ring.csv").write_text(RING)
    run("embed", "ring.csv", "--graph", *SHORT, "--out", "out", "--quiet")
    (about,) = json.loads(run("neighbors", "out", "4", "--json")[1])
    assert about["linked"] == ["3", "5"]
    assert {near["node"] for near in about["neighbors"] if near["is"] == "linked"} == {"3", "5"}
    assert "path" not in about
    assert "linked  3, 5" in run("neighbors", "out", "4")[1]


def test_a_run_that_has_not_kept_its_edges(run, folder):
    Path(folder, "edges.safetensors").unlink()
    code, out, _ = run("neighbors", folder, "n5", "--k", 2)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[:2]] == ["node", "neighbor"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["n55"], 'there is no node "n55"; did you mean n5 or n25 or n15?'),
        (["n5", "--k", 0], "--k: 0: it goes from 1 to 1e9"),
        ([], "the following arguments are required: NODE"),
    ],
)
def test_a_wrong_word_is_told_in_one_line(words, message, run, folder):
    code, out, err = run("neighbors", folder, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_nodes_that_begin_with_a_dash(run):
    Path("signs.tsv").write_text("-x\troot\n-1\troot\n-y=2\troot\n--long\troot\n-\troot\n")
    run("embed", "signs.tsv", *SHORT, "--out", "out", "--quiet")
    code, out, err = run("neighbors", "out", "-x", "-1", "-y=2", "-", "--k", 2, "--json")
    assert (code, err) == (0, "")
    assert [about["node"] for about in json.loads(out)] == ["-x", "-1", "-y=2", "-"]
    code, out, err = run("neighbors", "out", "--k", 2, "--json", "--", "--long")
    assert (code, json.loads(out)[0]["node"]) == (0, "--long")
    for words in (["--long"], ["root", "--long"]):
        code, out, err = run("neighbors", "out", *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "begins with -- stands last, behind a -- of its own: horosphere neighbors RUN -- --node" in err


def test_damaged_edges_are_named(run, folder):
    Path(folder, "edges.safetensors").write_bytes(b"half")
    code, _, err = run("neighbors", folder, "n5")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("horosphere: out/edges.safetensors: damaged or foreign edges")


# -- export -----------------------------------------------------------------------------------------------------------


def test_export_writes_where_it_says(run, folder):
    for to, place in (("csv", "points.csv"), ("parquet", "points.parquet"), ("projector", "projector/tensors.tsv")):
        if to == "parquet":
            pytest.importorskip("pyarrow")
        code, out, err = run("export", folder, "--to", to)
        assert (code, err) == (0, "")
        assert Path(folder, place).is_file()
        assert out.splitlines()[0].split() == ["points", "31,", "3", "dimensions"]
    embedded = Run.open(folder).load()
    rows = [line.split(",") for line in Path(folder, "points.csv").read_text().splitlines()[1:]]
    assert [row[0] for row in rows] == embedded.labels
    numbers = torch.tensor([[float(x) for x in row[1:]] for row in rows], dtype=torch.float64)
    assert torch.equal(numbers, embedded.points)


def test_an_embedding_with_a_new_node_is_asked_and_exported_like_its_run(run, folder):
    Run.open(folder).load().add("new", ["n5"]).save("more")
    (about,) = json.loads(run("neighbors", "more", "new", "--k", 3, "--json")[1])
    assert about["path"] == ["new", "n5", "n2", "n0"]
    assert len(about["neighbors"]) == 3
    assert run("export", "more", "--to", "csv")[0] == 0
    assert Path("more/points.csv").read_text().splitlines()[-1].startswith("new,")
    code, _, err = run("eval", "more")
    assert (code, err.count("\n")) == (2, 1)
    assert "tree.tsv has changed since more was trained on it" in err


def test_export_states_its_coordinates(run, folder):
    own = "coordinates  space components on the hyperboloid, curvature -0.75\n"
    ball = "coordinates  the Poincaré ball of radius 1, curvature -0.75\n"
    assert own in run("export", folder, "--to", "csv", "--out", "a.csv")[1]
    assert ball in run("export", folder, "--to", "csv", "--coordinates", "ball", "--out", "b.csv")[1]
    assert ball in run("export", folder, "--to", "projector", "--out", "c")[1]
    assert own in run("export", folder, "--to", "projector", "--coordinates", "own", "--out", "d")[1]


def test_export_replaces_nothing_unasked(run, folder):
    Path("mine.csv").write_text("mine")
    Path("mine").mkdir()
    Path("mine/text").touch()
    before = everything()
    for words in (["csv", "--out", "mine.csv"], ["projector", "--out", "mine"], ["projector", "--out", "mine.csv"]):
        code, out, err = run("export", folder, "--to", *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "exists already" in err
    assert run("export", folder, "--to", "projector", "--out", "mine", "--overwrite")[0] == 2
    assert everything() == before
    assert run("export", folder, "--to", "csv", "--out", "mine.csv", "--overwrite")[0] == 0
    assert Path("mine.csv").read_text().startswith("label,x1")


def test_export_of_words(run):
    run_tiny(tiny("words", write_data("words", Path())), Path("words-run"))
    code, out, err = run("export", "words-run", "--to", "csv")
    assert (code, err) == (0, "")
    words = Run.open("words-run").load()
    lines = Path("words-run/points.csv").read_text().splitlines()
    assert len(lines) == 1 + len(words.words)
    assert "flat coordinates" in out


def test_export_of_a_run_without_points(run):
    run_tiny(tiny("tables", write_data("tables", Path())), Path("table-run"))
    code, out, err = run("export", "table-run", "--to", "csv")
    assert (code, out) == (2, "")
    assert err == "horosphere: table-run: a run of the task tables, which learns no labelled points\n"
    assert not Path("table-run/points.csv").exists()


def test_predict_points_to_neighbors(run, folder):
    code, _, err = run("predict", folder, "n5")
    assert (code, err) == (
        2,
        "horosphere: out: a run of the task nodes, which answers no inputs; use `horosphere neighbors out NODE`\n",
    )
