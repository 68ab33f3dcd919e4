"""What the page is told of an embedding: arrays as it reads them, neighbours as `dist` has them, refusals."""

import io
import json

import numpy as np
import pytest
import torch

from horosphere import explore
from horosphere.data import Graph
from horosphere.errors import UserError
from horosphere.explorer import Explorer
from horosphere.explorer.atlas import Atlas, Column
from horosphere.geometry import Euclidean, Lorentz, Poincare, Product, Sphere
from horosphere.train.vectors import Vectors

L = Lorentz(0.7)
GEOMETRIES = [Euclidean(), L, Poincare(0.7), Sphere(0.7), Product((Lorentz(0.7), 3), (Euclidean(), 2))]


def atlas_of(manifold=L, count=30, dim=5, **more):
    points = manifold.random(count, dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return Atlas("some", Vectors([f"n{i}" for i in range(count)], points, manifold, **more))


def tree(count=30):
    return Graph([f"n{i}" for i in range(count)], [(i, (i - 1) // 3) for i in range(1, count)])


@pytest.mark.parametrize("manifold", GEOMETRIES, ids=repr)
def test_neighbours_are_those_of_dist(manifold):
    atlas = atlas_of(manifold, 60)
    for node in range(60):
        truth = manifold.dist(atlas.points[node], atlas.points)
        truth[node] = torch.inf
        found = atlas.neighbours(node, 7)
        assert found["numbers"] == truth.argsort(stable=True)[:7].tolist()
        assert found["distances"] == pytest.approx(truth[found["numbers"]].tolist(), rel=1e-14)  # as vector units round


@pytest.mark.parametrize("manifold", GEOMETRIES, ids=repr)
def test_every_array_that_is_named_is_there_and_as_long_as_it_should_be(manifold):
    graph = tree()
    atlas = atlas_of(
        manifold, graph=graph, columns={"kind": ["a", "b"] * 15, "note": [str(i) * 9 for i in range(30)] * 1}
    )
    meta = atlas.meta()
    json.dumps(meta, allow_nan=False)
    assert json.loads(atlas.array("labels")) == graph.labels
    for chart in meta["charts"]:
        width = 3 if chart["kind"] == "sphere" else 2
        assert len(atlas.array(chart["array"])) == 8 * width * 30, chart["name"]
    for column in meta["columns"]:
        content = atlas.array(column["array"])
        assert len(json.loads(content) if column["kind"] == "text" else np.frombuffer(content, "<f4")) == 30
    assert np.frombuffer(atlas.array("edges"), "<u4").reshape(-1, 2).tolist() == graph.edges.tolist()
    anchors = np.frombuffer(atlas.array("anchors"), "<f4").reshape(30, -1)
    numbers = meta["anchors"]["numbers"]
    assert anchors[:, 3] == pytest.approx(manifold.dist(atlas.points, atlas.points[numbers[3]]).numpy(), rel=1e-6)
    assert (meta["logs"] is None) == isinstance(manifold, Product)
    assert atlas.array("nothing") is None


def test_columns_of_a_tree():
    meta = atlas_of(graph=tree()).meta()
    assert [column["name"] for column in meta["columns"]] == ["radius", "branch", "depth", "links"]
    assert (meta["colour"], meta["directed"]) == ("branch", True)


def test_a_column_of_many_small_kinds_is_not_what_points_are_coloured_by():
    many = {"number": [str(i) for i in range(30)], "side": ["left", "right"] * 15}
    assert atlas_of(columns=many).meta()["colour"] == "side"
    assert atlas_of(columns={"number": many["number"]}).meta()["colour"] == "radius"


def test_columns_called_as_ours_stand_beside_them():
    given = {"radius": range(30), "depth": ["x", "y"] * 15, "distortion of the picture": range(30)}
    names = [column["name"] for column in atlas_of(graph=tree(), columns=given).meta()["columns"]]
    assert names[:4] == ["radius", "branch", "depth", "links"]
    assert names[4:] == ["radius (given)", "depth (given)", "distortion of the picture (given)"]


def test_kinds_of_columns():
    assert Column("a", [1, 2.5, None, float("nan")]).kind == "number"
    assert Column("a", [True, False]).names == ["False", "True"]
    assert Column("a", [f"text {i}" for i in range(100)]).kind == "text"
    assert np.isnan(np.frombuffer(Column("a", [1, None]).content(), "<f4")[1])
    assert np.frombuffer(Column("a", ["x", None, "y"]).content(), "<f4").tolist() == [0, 2, 1]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_points(count):
    atlas = atlas_of(count=count)
    meta = atlas.meta()
    assert all(len(atlas.array(chart["array"])) == 16 * count for chart in meta["charts"])
    assert (meta["neighbours"], meta["anchors"] is None) == (count > 1, count < 3)
    assert Explorer([atlas]).page(quiet=True).startswith("<!doctype html>")


def test_cones_and_thumbnails():
    Image = pytest.importorskip("PIL.Image", reason="pictures are written by pillow")
    seen = [None, np.full((40, 20, 3), 200, np.uint8), None]
    points = L.random(3, 4, dtype=torch.float64)
    vectors = Vectors(["a", "b", "c"], points, L, thumbnail=seen.__getitem__, aperture=torch.tensor([0.1, 0.2, 0.3]))
    atlas = Atlas("x", vectors)
    assert np.frombuffer(atlas.array("aperture"), "<f4").tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert atlas.thumbnail(0) is None
    assert Image.open(io.BytesIO(atlas.thumbnail(1))).size == (20, 40)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"labels": ["a"]}, "some: 1 labels for 3 points; give one for each"),
        ({"columns": {"kind": ["a", "b"]}}, "some: 2 values of the column kind for 3 points; give one for each"),
        ({"points": torch.zeros(3)}, "some: points of the shape 3; give a row of coordinates for each"),
        (
            {"points": torch.zeros(0, 2), "labels": []},
            "some: points of the shape 0 x 2; give a row of coordinates for each",
        ),
        (
            {"points": torch.tensor([[0.0, 1.0], [float("nan"), 0.0], [float("inf"), 0.0]])},
            "some: 2 of 3 points are not finite, row 2 first; remove them",
        ),
        (
            {"points": torch.full((3, 2), 1e30), "manifold": Euclidean()},
            "some: points lie 1.41e+30 from the origin; a page draws up to 1e+18. Scale them.",
        ),
        (
            {"points": torch.full((3, 2), 5.0), "manifold": Poincare(1.0)},
            "some: some points lie outside their space, or at its rim; is this their geometry?",
        ),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_line(change, complaint):
    good = {"labels": ["a", "b", "c"], "points": torch.zeros(3, 2), "manifold": L}
    with pytest.raises(UserError) as error:
        Atlas("some", Vectors(**{**good, **change}))
    assert str(error.value) == complaint


# -- in Python --------------------------------------------------------------------------------------------------------


def test_explore_takes_what_people_have(tmp_path):
    x = np.random.default_rng(0).normal(size=(5, 3))
    assert repr(explore(x)) == "Explorer(points: 5 points)"
    explorer = explore(x.tolist(), L, list("abcde"), [(1, 0), (2, 0)], {"size": range(5)}, name="five")
    assert [column["name"] for column in explorer.atlases[0].meta()["columns"]][-1] == "size"
    assert explore(x / 9, "poincare").atlases[0].meta()["geometry"] == "poincare, curvature -1, 3 dimensions"
    named = explore(x, labels=list("abcde"), edges=[("b", "a"), ("c", "a")]).atlases[0]
    assert named.vectors.graph.edges.tolist() == [[1, 0], [2, 0]]
    np.save(tmp_path / "x.npy", x)
    assert repr(explore(tmp_path / "x.npy")) == "Explorer(x.npy: 5 points)"
    frame = explorer._repr_html_()
    assert frame.startswith('<iframe style="width:100%')
    assert "<script" not in frame  # it is escaped
    saved = explorer.save(tmp_path / "five.html", quiet=True)
    assert saved.read_text() == explorer.page(quiet=True)
    with pytest.raises(UserError, match=r"exists already: give another name, or overwrite=True"):
        explorer.save(tmp_path / "five.html")


@pytest.mark.parametrize(
    "how",
    [
        {"points": np.zeros((3, 2), complex)},
        {"points": np.ma.masked_array(np.zeros((3, 2)), np.eye(3, 2))},
        {"points": torch.eye(3).to_sparse()},
        {"edges": [(0.5, 1.2)]},
        {"edges": [0, 1]},
        {"edges": np.array([[0, 1, 2], [1, 2, 0]])},
        {"edges": [(0, 10**30)]},
        {"edges": 5},
        {"labels": 5},
        {"columns": {"a": 5}},
        {"manifold": Lorentz},
        {"manifold": "torus"},
        {"points": "a run that is not there"},
        {"points": Vectors(["a"], torch.zeros(1, 2), L), "labels": ["b"]},
    ],
)
def test_wrong_use_is_one_line(how):
    with pytest.raises(UserError):
        explore(**{"points": np.zeros((3, 2)), **how})


def test_explore_refuses_in_one_line():
    with pytest.raises(UserError, match="give a matrix of numbers"):
        explore([["a"]])
    with pytest.raises(UserError, match="2 labels for 3 points"):
        explore(np.zeros((3, 2)), labels=["a", "b"], edges=[(0, 1)])
    with pytest.raises(UserError, match="2 thumbnails for 3 points"):
        explore(np.zeros((3, 2)), thumbnails=[None, None])
    with pytest.raises(UserError, match=r'no point is called "z"; edges name labels or rows'):
        explore(np.zeros((3, 2)), labels=list("abc"), edges=[("z", "a")])
    with pytest.raises(UserError, match="thumbnail 1: give pixels"):
        explore(np.zeros((2, 2)), thumbnails=[None, np.zeros((4, 4))])
    with pytest.raises(UserError, match=r"manifold=3\): give a manifold"):
        explore(np.zeros((2, 2)), 3)
    with pytest.raises(UserError, match="3 embeddings: a page shows one, or 2 side by side"):
        Explorer(3 * [atlas_of()])
