"""Charts: radius exact where it is promised, trees whose edges are of one length, maps that keep distances."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from horosphere.data import Graph
from horosphere.data.spanning import first_parents
from horosphere.evaluate.neighbours import nearest
from horosphere.explorer.charts import charts_of, neighbour_map
from horosphere.geometry import Euclidean, Lorentz, Poincare, Product, Sphere
from horosphere.models.exact_tree import FARTHEST

L = Lorentz(1.0)
TREE = Graph([f"n{i}" for i in range(40)], [(i, (i - 1) // 3) for i in range(1, 40)])
FOREST = Graph([f"n{i}" for i in range(41)], [(i, (i - 2) // 3) for i in range(2, 41)])


def cloud(manifold, dim, count=40, std=2.0):
    return manifold.random(count, dim, std=std, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def chart_named(name, points, manifold, graph=None):
    return next(chart for chart in charts_of(points, manifold, graph) if chart.name == name)


def drawn_radius(chart):
    length = torch.from_numpy(chart.coordinates).norm(dim=1)
    return chart.unit * (length.asinh() if chart.kind == "hyperbolic" else length)


@pytest.mark.parametrize("manifold", [Lorentz(0.25), Lorentz(4.0), Poincare(0.25), Poincare(4.0)], ids=repr)
@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("name", ["principal plane", "branches"])
def test_the_radius_is_the_true_one(manifold, dim, name):
    points = cloud(manifold, dim, std=0.4)
    chart = chart_named("as it is" if dim <= 2 and name == "principal plane" else name, points, manifold, TREE)
    assert_close(drawn_radius(chart), manifold.dist0(points), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("manifold", [Euclidean(), Lorentz(0.5), Poincare(2.0)], ids=repr)
def test_two_dimensions_are_shown_as_they_are(manifold):
    points = cloud(manifold, 2, std=0.4)
    (chart,) = charts_of(points, manifold)
    assert chart.note == "exact"
    plane = L if chart.kind == "hyperbolic" else Euclidean()
    x = torch.from_numpy(chart.coordinates)
    assert_close(chart.unit * plane.pairwise(x, x), manifold.pairwise(points, points), rtol=1e-9, atol=1e-7)


def test_far_points_are_finite_and_as_far_as_they_are():
    points = L.lift(torch.tensor([[30.0, 0.0, 1.0], [0.0, 29.0, 0.0]], dtype=torch.float64))
    chart = chart_named("principal plane", points, L)
    assert_close(drawn_radius(chart), L.dist0(points))


def test_all_at_the_origin_is_a_picture_too():
    for chart in charts_of(torch.zeros(3, 4, dtype=torch.float64), L):
        assert np.isfinite(chart.coordinates).all(), chart.name


def test_a_deep_tree_stays_within_the_digits_there_are():
    chain = Graph([str(i) for i in range(200)], [(i, i - 1) for i in range(1, 200)])
    chart = chart_named("tree", cloud(L, 3, 200), L, chain)
    assert np.isfinite(chart.coordinates).all()
    wide = Graph([str(i) for i in range(30)], [(i, (i - 1) // 2) for i in range(1, 30)])
    assert drawn_radius(chart_named("tree", cloud(L, 3, 30), L, wide)).max() <= FARTHEST


def test_branches_give_each_subtree_a_sector_of_its_own():
    x = chart_named("branches", cloud(L, 5), L, TREE).coordinates
    angle = np.arctan2(x[:, 1], x[:, 0]) % (2 * np.pi)
    top = np.array([i if i < 4 else -1 for i in range(40)])
    for node in range(4, 40):
        top[node] = top[first_parents(TREE)[node]]
    sectors = sorted((angle[top == child].min(), angle[top == child].max()) for child in (1, 2, 3))
    assert all(end < begin for (_, end), (begin, _) in pairwise(sectors))


def test_a_neighbour_map_keeps_more_neighbours_than_a_plane():
    points = cloud(L, 6, 150, std=1.0)
    itself = torch.arange(len(points))
    truth = nearest(points, points, L, 10, but=itself)[1]

    def kept(coordinates):
        x = torch.from_numpy(coordinates)
        found = nearest(x, x, L, 10, but=itself)[1]
        return (truth[:, :, None] == found[:, None]).any(-1).double().mean()

    plane, trained = (chart_named(name, points, L).coordinates for name in ("principal plane", "neighbour map"))
    assert kept(trained) > 1.5 * kept(plane)
    assert (trained == neighbour_map(points, L)).all()  # by a seed


def test_flat_points_are_projected():
    points = 30 + cloud(Euclidean(), 5)
    x = torch.from_numpy(chart_named("principal plane", points, Euclidean()).coordinates)
    assert (torch.cdist(x, x) <= torch.cdist(points, points) + 1e-5).all()


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_flat_points_are_shown_around_their_own_middle(dim):
    x = charts_of(30 + cloud(Euclidean(), dim), Euclidean())[0].coordinates
    assert np.abs(x.min(0) + x.max(0)).max() < 0.7 * np.ptp(x, axis=0).max()


def test_flat_points_of_one_length_are_shown_on_a_sphere():
    points = torch.nn.functional.normalize(cloud(Euclidean(), 3))
    chart = charts_of(points * 7, Euclidean())[0]
    assert (chart.name, chart.kind) == ("sphere", "sphere")
    assert chart.note.startswith("points of one length: directions exact")
    assert_close(torch.from_numpy(chart.coordinates), points)


@pytest.mark.parametrize(("dim", "name"), [(1, "as it is"), (2, "as it is"), (5, "principal sphere")])
def test_a_sphere_is_shown_on_a_sphere(dim, name):
    m = Sphere(4.0)
    points = cloud(m, dim, std=0.5)
    (chart,) = charts_of(points, m)
    x = torch.from_numpy(chart.coordinates)
    assert (chart.name, chart.kind, chart.unit) == (name, "sphere", 0.5)
    assert_close(x.norm(dim=1), torch.ones(len(x), dtype=torch.float64))
    if dim <= 2:
        assert_close(0.5 * (x @ x.T).clamp(-1, 1).acos(), m.pairwise(points, points), rtol=0, atol=1e-6)


def test_a_product_is_shown_part_by_part():
    product = Product((Lorentz(1.0), 3), (Euclidean(), 2))
    points = product.random(19, 5, dtype=torch.float64)
    names = [chart.name for chart in charts_of(points, product)]
    assert names == [
        "principal plane of part 1, lorentz",
        "neighbour map of part 1, lorentz",
        "as it is of part 2, euclidean",
    ]
