"""Points for other programs: every number comes back, in the coordinates that are named."""

import csv
import io

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from horosphere.explorer.points import in_space
from horosphere.geometry import Euclidean, Lorentz, Poincare, Product, Sphere, lorentz_to_poincare
from horosphere.train.vectors import Vectors

LABELS = ["Åland", 'a "b", c', "=1+1", "+2", "-3", "@SUM(A1)", "plain"]
MANIFOLDS = [Euclidean(), Lorentz(0.5), Poincare(2.0), Sphere(2.0), Product((Lorentz(0.5), 2), (Euclidean(), 1))]


def some(m, labels=LABELS):
    torch.manual_seed(0)
    return Vectors(labels, m.random(len(labels), 3, dtype=torch.float64), m)


def rows_of(content):
    return list(csv.reader(io.StringIO(content.decode())))


@pytest.mark.parametrize("m", MANIFOLDS, ids=lambda m: type(m).__name__)
def test_a_csv_has_every_digit(m):
    vectors = some(m)
    head, *rows = rows_of(vectors.as_csv())
    assert head == ["label", "x1", "x2", "x3"]
    assert torch.equal(torch.tensor([[float(x) for x in row[1:]] for row in rows], dtype=torch.float64), vectors.points)


def test_a_spreadsheet_runs_no_label():
    labels = [row[0] for row in rows_of(some(Euclidean()).as_csv())[1:]]
    assert labels == ["Åland", 'a "b", c', "'=1+1", "'+2", "'-3", "'@SUM(A1)", "plain"]


def test_parquet_is_read_by_pyarrow():
    parquet = pytest.importorskip("pyarrow.parquet")
    vectors = some(Lorentz(0.5))
    table = parquet.read_table(io.BytesIO(vectors.as_parquet()))
    assert table["label"].to_pylist() == LABELS  # as they are: no spreadsheet opens it
    assert np.array_equal(np.stack([table[f"x{i}"].to_numpy() for i in (1, 2, 3)], 1), vectors.points.numpy())
    said = table.schema.metadata[b"coordinates"].decode()
    assert said == "space components on the hyperboloid, curvature -0.5"


def test_the_projector_has_a_line_for_each_point_and_no_header():
    vectors = some(Poincare(2.0), ["a\tb", "c\nd", "e"])
    files = vectors.as_projector()
    assert set(files) == {"tensors.tsv", "metadata.tsv"}
    assert files["metadata.tsv"].decode() == "a b\nc d\ne\n"
    numbers = [[float(x) for x in line.split("\t")] for line in files["tensors.tsv"].decode().splitlines()]
    assert torch.equal(torch.tensor(numbers, dtype=torch.float64), vectors.coordinates("ball"))


def test_the_ball_has_radius_1_and_the_hyperboloid_and_the_ball_are_one_space():
    sheet = some(Lorentz(0.5))
    ball = Vectors(LABELS, lorentz_to_poincare(sheet.points, 0.5), Poincare(0.5))
    assert_close(sheet.coordinates("ball"), ball.coordinates("ball"))
    far = Vectors(["x"], Lorentz(0.5).exp0(torch.tensor([[30.0, 0.0]], dtype=torch.float64)), Lorentz(0.5))
    assert far.coordinates("ball")[0, 0].item() == pytest.approx(np.tanh(30 * 0.5**0.5 / 2))


def test_parts_of_a_product_are_mapped_one_by_one():
    vectors = some(MANIFOLDS[-1])
    curved, flat = vectors.coordinates("ball").split((2, 1), -1)
    assert_close(curved, lorentz_to_poincare(vectors.points[:, :2], 0.5) * 0.5**0.5)
    assert torch.equal(flat, vectors.points[:, 2:])
    assert vectors.said("ball") == "2 of the Poincaré ball of radius 1, curvature -0.5; then 1 of flat coordinates"
    assert vectors.said("own") == "2 of space components on the hyperboloid, curvature -0.5; then 1 of flat coordinates"


def test_a_sphere_lies_around_the_ball():
    """Unit vectors, which the explorer reads back."""
    m = Sphere(2.0)
    vectors = some(m)
    seen = vectors.coordinates("ball")
    assert_close(seen.norm(dim=-1), torch.ones(len(LABELS), dtype=torch.float64))
    assert_close(in_space("table", seen, "sphere", 2.0)[0], vectors.points)
    assert rows_of(vectors.as_csv("ball"))[0] == ["label", "x1", "x2", "x3", "x4"]
    assert rows_of(vectors.as_csv())[0] == ["label", "x1", "x2", "x3"]
    assert vectors.said("ball") == "unit vectors of the sphere, curvature 2"
    mixed = some(Product((Sphere(2.0), 2), (Euclidean(), 1)))
    assert mixed.coordinates("ball").shape == (len(LABELS), 4)
    assert mixed.said("ball") == "3 of unit vectors of the sphere, curvature 2; then 1 of flat coordinates"
    assert mixed.said("own") == "2 of stereographic on the sphere, curvature 2; then 1 of flat coordinates"
