"""Points of files: every format gives the same ones, columns become columns, and each mistake is one line."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from horosphere.data.graph import Graph
from horosphere.errors import UserError
from horosphere.explorer.points import read_points
from horosphere.geometry import Euclidean, Lorentz, Poincare
from horosphere.train.vectors import Vectors

X = np.array([[0.1, 0.2, 0.0], [0.0, -0.3, 0.1], [0.5, 0.0, 0.2]])
KIND, AGE = ["cat", "dog", "cat"], [3.0, None, 5.0]
ROWS = ["a", "b, c", "=d"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write_table(name, delimiter=","):
    lines = [delimiter.join(["label", "x1", "x2", "x3", "kind", "age"])]
    for label, row, kind, age in zip(ROWS, X, KIND, AGE, strict=True):
        lines.append(delimiter.join([f'"{label}"', *map(str, row), kind, "" if age is None else str(age)]))
    Path(name).write_text("\n".join(lines))


def write(name):
    arrays = {"points": X, "age": np.array([3.0, np.nan, 5.0])}
    match Path(name).suffix:
        case ".npz":
            np.savez(name, **arrays, labels=np.array(ROWS), kind=np.array(KIND))
        case ".npy":
            np.save(name, X)
        case ".safetensors":
            save_file(arrays, name)
        case ".csv":
            write_table(name)
        case ".tsv":
            write_table(name, "\t")
        case ".parquet":
            pa = pytest.importorskip("pyarrow")
            from pyarrow import parquet

            columns = {f"x{i + 1}": X[:, i] for i in range(3)}
            parquet.write_table(pa.table({"label": ROWS, **columns, "kind": KIND, "age": AGE}), name)
    return name


@pytest.mark.parametrize("name", ["p.npz", "p.npy", "p.safetensors", "p.csv", "p.tsv", "p.parquet"])
def test_every_format(name):
    vectors = read_points(write(name), "poincare", 0.5)
    assert torch.equal(vectors.points, torch.from_numpy(X))
    assert repr(vectors.manifold) == repr(Poincare(0.5))
    labelled = not name.endswith((".npy", ".safetensors"))
    assert vectors.labels == (ROWS if labelled else ["1", "2", "3"])
    if labelled:
        assert list(vectors.columns["kind"]) == KIND
    if name != "p.npy":
        assert [None if age is None or np.isnan(age) else age for age in vectors.columns["age"]] == AGE


def test_what_export_writes_is_read_again():
    Path("points.csv").write_bytes(Vectors(["a", "-b", "c"], torch.from_numpy(X), Lorentz()).as_csv())
    assert torch.equal(read_points("points.csv", "lorentz").points, torch.from_numpy(X))


def test_named_coordinates():
    Path("cities.csv").write_text("label,lon,lat,people\nRome,12.5,41.9,2.8\nOslo,10.8,59.9,0.7\n")
    vectors = read_points("cities.csv", coordinates=["lon", "lat"])
    assert vectors.points.tolist() == [[12.5, 41.9], [10.8, 59.9]]
    assert dict(vectors.columns) == {"people": [2.8, 0.7]}


@pytest.mark.parametrize(
    ("text", "labels", "columns"),
    [
        ("a\nb\nc\n", ["a", "b", "c"], {}),
        ("name,kind,age\na,x,1\nb,y,\nc,x,3\n", ["a", "b", "c"], {"kind": ["x", "y", "x"], "age": [1.0, None, 3.0]}),
        ("label\na\nb\nc\n", ["a", "b", "c"], {}),
    ],
)
def test_labels_of_a_file(text, labels, columns):
    Path("labels.csv").write_text(text)
    vectors = read_points(write("p.npy"), labels="labels.csv")
    assert (vectors.labels, dict(vectors.columns)) == (labels, columns)


@pytest.mark.parametrize("name", ["label", "Name", "title", "city"])
def test_names_of_points_are_found(name):
    Path("cities.csv").write_text(f"{name},x1,x2,land\nRome,1,2,I\nOslo,3,4,N\nMilan,5,6,I\n")
    vectors = read_points("cities.csv")
    assert (vectors.labels, list(vectors.columns)) == (["Rome", "Oslo", "Milan"], ["land"])


def test_points_of_a_sphere_are_given_as_vectors():
    x = torch.nn.functional.normalize(torch.from_numpy(X) + 1)
    np.save("sphere.npy", 6371 * x)
    vectors = read_points("sphere.npy", "sphere", 4.0)
    assert vectors.points.shape == (3, 2)
    assert torch.allclose(vectors.manifold.vector(vectors.points), x)
    with pytest.raises(UserError, match=r"points of a sphere differ in length; give vectors from the middle"):
        read_points(write("p.npy"), "sphere")


def test_flat_space_has_no_curvature():
    with pytest.raises(UserError, match=r"flat space has no --curvature: leave it out, or name a --geometry"):
        read_points(write("p.npy"), "euclidean", 0.5)


def test_edges_between_labels_and_between_rows():
    Path("tree.tsv").write_text("=d\ta\nb, c\ta\n")
    graph = read_points(write("p.csv"), edges="tree.tsv").graph
    assert (graph.directed, graph.edges.tolist()) == (True, [[2, 0], [1, 0]])
    np.savez("ring.npz", points=X, edges=np.array([[0, 1], [1, 2], [2, 0]]))
    graph = read_points("ring.npz").graph
    assert isinstance(graph, Graph)
    assert (graph.directed, len(graph.edges)) == (False, 3)
    Path("ring.tsv").write_text("a\tb, c\nb, c\t=d\n=d\ta\n")
    assert not read_points("p.csv", edges="ring.tsv").graph.directed


def test_flat_is_the_default():
    assert isinstance(read_points(write("p.npy")).manifold, Euclidean)


FORMATS = ".npz, .npy, .csv, .tsv, .parquet, .safetensors"
BAD = {
    "none.npz": f"none.npz: no such file; give a file of points in one of {FORMATS}",
    "p.txt": f"p.txt: neither a run nor a file of points; give one of {FORMATS}",
    "two.npz": "two.npz: it holds a, b; call the matrix of coordinates points",
    "long.npz": "long.npz: kind has 4 values for 3 points; give one for each",
    "text.npz": "text.npz: points is 1 x 1 of <U1; give a row of numbers for each point",
    "edges.npz": "edges.npz: edges should be pairs of rows, whole numbers of the shape (E, 2)",
    "plain.csv": "plain.csv: no columns x1, x2, … (but a, b); "
    "name those of the coordinates with --coordinates; a list of edges is for `horosphere embed`",
    "semi.csv": "semi.csv line 2: 3 cells below 1 columns; is it separated by semicolons? Save it with commas",
    "blank.csv": 'blank.csv line 2, column "x1": an empty cell is no number',
    "latin.csv": "latin.csv: no UTF-8 text at byte 11; save it as UTF-8",
    "word.csv": 'word.csv line 3, column "x1": "two" is no number',
    "short.csv": "short.csv line 3: 1 cells below 2 columns",
    "twice.csv": 'twice.csv: two columns are called "x1"; rename one',
    "empty.csv": "empty.csv: the table is empty",
}


def write_bad(name):
    arrays = {
        "two.npz": {"a": X, "b": X},
        "long.npz": {"points": X, "kind": np.arange(4)},
        "text.npz": {"points": np.array([["a"]])},
        "edges.npz": {"points": X, "edges": X},
    }
    tables = {
        "p.txt": "1",
        "plain.csv": "a,b\n1,2\n",
        "word.csv": "x1,x2\n1,2\ntwo,3\n",
        "short.csv": "x1,x2\n1,2\n3\n",
        "twice.csv": "x1,x1\n1,2\n",
        "empty.csv": "",
        "semi.csv": "x1;x2\n1,0;2,5\n3,1;2\n",
        "blank.csv": "x1,x2\n,2\n",
    }
    if name == "latin.csv":
        Path(name).write_bytes("x1,kind\n1,Hüte\n".encode("latin-1"))
    if name in arrays:
        np.savez(name, **arrays[name])
    if name in tables:
        Path(name).write_text(tables[name])


@pytest.mark.parametrize("name", BAD)
def test_bad_files(name):
    write_bad(name)
    with pytest.raises(UserError) as error:
        read_points(name)
    assert str(error.value) == BAD[name]


def test_points_outside_the_ball():
    with pytest.raises(UserError) as error:
        read_points(write("p.npy"), "poincare", 4.0)
    assert str(error.value) == (
        "p.npy: point 3 lies outside the Poincaré ball of radius 0.5 (c = 4); "
        "give --geometry lorentz for space components on the hyperboloid, or another --curvature"
    )


def test_labels_of_another_length():
    Path("labels.csv").write_text("a\nb\n")
    with pytest.raises(UserError) as error:
        read_points(write("p.npy"), labels="labels.csv")
    assert str(error.value) == "labels.csv: 2 labels for the 3 points of p.npy; give one for each"
    Path("labels.csv").write_text("name,kind\na,1\n")
    with pytest.raises(UserError, match="1 labels below a header of 2 columns for the 3 points"):
        read_points("p.npy", labels="labels.csv")


def test_edges_of_nobody():
    Path("tree.tsv").write_text("dog\ta\n")
    with pytest.raises(UserError, match='no point is called "dog"'):
        read_points(write("p.csv"), edges="tree.tsv")
    Path("same.csv").write_text("label,x1\na,1\na,2\n")
    with pytest.raises(UserError, match='two points are called "a"'):
        read_points("same.csv", edges="tree.tsv")
