"""The sphere's picture: areas and great circles are right, sides are told apart, the note says what is kept."""

import math

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from numpy.testing import assert_allclose

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz, Poincare, Product, Sphere
from horosphere.plots import chart_of, draw_points, draw_sphere, great_arc, on_a_sphere
from horosphere.plots.disk import Disk
from horosphere.plots.sphere import APART, Hemispheres, equal_area, over_the_equator

rng = np.random.default_rng(0)


def unit(count, d=3):
    v = rng.normal(size=(count, d))
    return v / np.linalg.norm(v, axis=-1, keepdims=True)


def spread(m, count=40, d=2, seed=0):
    """Points all over the sphere, more of them on one side."""
    v = torch.randn(count, d + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    v[:, 0] += 0.5
    return m.of_vector(v / v.norm(dim=-1, keepdim=True))


def angle(a, b):
    return 2 * np.arctan2(np.linalg.norm(a - b, axis=-1), np.linalg.norm(a + b, axis=-1))


def lifted(drawn):
    """Back from the page: unit vectors of both hemispheres.   (..., 2) -> (..., 3)"""
    side = np.sign(drawn[..., :1])
    flat = np.concatenate([1 + APART - side * drawn[..., :1], drawn[..., 1:]], -1)
    r2 = (flat**2).sum(-1, keepdims=True)
    return np.concatenate([flat * np.sqrt(np.maximum(2 - r2, 0)), -side * (1 - r2)], -1)


def picture(figure):
    (dots,) = (c for c in figure.axes[0].collections if isinstance(c, PathCollection))
    edges = [c for c in figure.axes[0].collections if isinstance(c, LineCollection) and c.get_zorder() == 1]
    return np.asarray(dots.get_offsets()), edges[0] if edges else None


# -- arcs -------------------------------------------------------------------------------------------------------------


def test_arcs_are_the_short_ways_in_even_steps():
    a, b = unit(60), unit(60)
    arc = great_arc(a, b, 9)
    assert_allclose(np.linalg.norm(arc, axis=-1), 1)
    assert_allclose(arc[:, [0, -1]], np.stack([a, b], 1), atol=1e-14)
    assert_allclose(angle(arc[:, 1:], arc[:, :-1]), np.tile(angle(a, b)[:, None] / 8, 8), rtol=1e-9)


@pytest.mark.parametrize("gap", [0.0, 1e-14, 1e-9, math.pi - 1e-9, math.pi])
def test_arcs_survive_equal_and_opposite_ends(gap):
    a = np.array([[1.0, 0, 0], [0, 0, 1], [0.6, 0.8, 0]])
    across = np.array([[0.0, 1, 0], [1, 0, 0], [-0.8, 0.6, 0]])
    b = np.cos(gap) * a + np.sin(gap) * across
    arc = great_arc(a, b, 5)
    assert_allclose(np.linalg.norm(arc, axis=-1), 1)
    assert_allclose(arc[:, -1], b, atol=1e-14)
    assert_allclose(angle(arc[:, 1:], arc[:, :-1]), np.full((3, 4), gap / 4), atol=1e-12)


def test_the_equator_is_crossed_on_the_great_circle():
    a, b = unit(60), unit(60)
    a[:, 2], b[:, 2] = np.abs(a[:, 2]), -np.abs(b[:, 2])
    way = over_the_equator(a, b)
    assert_allclose(way[:, 2], 0)
    assert_allclose(angle(a, way) + angle(way, b), angle(a, b))
    opposite = np.array([[0, 0, 1], [0.6, 0, 0.8]])
    way = over_the_equator(opposite, -opposite)
    assert_allclose(angle(opposite, way) + angle(way, -opposite), math.pi)


# -- projection and layout --------------------------------------------------------------------------------------------


def test_equal_areas_are_drawn_equal():
    """The Jacobian of the projection is 1/2 everywhere: a hemisphere 2π large is drawn π large."""
    at, step = unit(200), 1e-5
    at = at[np.abs(at[:, 2]) > 1e-3]
    u = np.cross(at, np.eye(3)[np.abs(at).argmin(-1)])
    u /= np.linalg.norm(u, axis=-1, keepdims=True)
    v, back = np.cross(at, u), at[:, 2] < 0

    def moved(t):
        return (equal_area(at + step * t, back) - equal_area(at - step * t, back)) / (2 * step)

    # moved() leaves the sphere by step² only
    assert_allclose(np.abs(np.linalg.det(np.stack([moved(u), moved(v)], -1))), 0.5, rtol=1e-6)


def test_hemispheres_touch_and_are_told_apart():
    on = np.array([[1.0, 0, 0], [0, 1, 0], [-1, 0, 0], [0, 0, 1], [0, 0, -1]])
    front, back = (equal_area(on, np.full(5, side)) for side in (False, True))
    assert_allclose(front[0] - back[0], [-2 * APART, 0])  # only the gap between them
    assert_allclose(front[1, 1], back[1, 1])  # and it is rolled over: up stays up
    assert_allclose([front[3], back[4]], [[-1 - APART, 0], [1 + APART, 0]])
    v = unit(100)
    assert_allclose(lifted(equal_area(v, v[:, 2] < 0)), v, atol=1e-12)


@pytest.mark.parametrize("c", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("d", [1, 2])
def test_up_to_two_dimensions_are_exact(c, d):
    m = Sphere(c)
    x, y = spread(m, d=d), m.random(40, d, dtype=torch.float64)
    vectors, note = on_a_sphere(torch.cat([x, y]), m)
    assert note.startswith("exact")
    p, q = vectors[:40], vectors[40:]
    assert_allclose(angle(p, q) / math.sqrt(c), m.dist(x, y).numpy(), rtol=1e-7)
    mean = vectors.mean(0)
    assert_allclose(mean / np.linalg.norm(mean), [0, 0, 1], atol=1e-7)


def test_beyond_two_dimensions_the_distance_to_the_mean_is_exact_and_the_rest_measured():
    m = Sphere(0.5)
    x = spread(m, 60, d=6)
    vectors, note = on_a_sphere(x, m)
    assert_allclose(np.arccos(vectors[:, 2]) / math.sqrt(0.5), m.dist(x, m.midpoint(x)).numpy(), rtol=1e-6)
    drawn, true = angle(vectors[:, None], vectors), math.sqrt(0.5) * m.pairwise(x, x).numpy()
    off = np.abs(drawn - true).mean() / true.mean()
    assert off > 0.1
    assert note.startswith(f"distances exact to the mean, off by {100 * off:.0f} % between points; angle")


def test_a_plane_in_ten_dimensions_is_found_whole():
    m = Sphere(1.0)
    flat = 0.8 * torch.randn(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    flat -= flat.mean(0)
    axes = torch.linalg.qr(torch.randn(10, 10, dtype=torch.float64)).Q[:2]
    x = m.lift(flat @ axes)
    vectors, note = on_a_sphere(torch.cat([x, -x]), m)  # their mean is the origin
    assert "off by 0 % between points" in note
    assert_allclose(angle(vectors[:30, None], vectors[:30]), m.dist(x[:, None], x).numpy(), atol=1e-6)


@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(1, 2),
        torch.zeros(3, 5),
        torch.tensor([[1.0, 0.0], [-1.0, 0.0]]),  # they cancel
        Sphere().exp0(torch.tensor([[math.pi / 2, 0.0], [0.0, 0.0], [0.3, 0.0]])),  # the end of the chart
        torch.full((4, 2), 1e6),
    ],
)
def test_odd_places_can_be_drawn(x):
    figure = draw_points(x, Sphere(), [(0, len(x) - 1)], [f"n{i}" for i in range(len(x))])
    places, _ = picture(figure)
    assert np.isfinite(places).all()


# -- what is drawn ----------------------------------------------------------------------------------------------------


def test_points_and_edges_are_where_they_belong():
    m = Sphere(2.0)
    x = spread(m)
    pairs = np.array([(i, (7 * i + 3) % 40) for i in range(40)])
    chart = Hemispheres(x, m)
    figure = draw_sphere(x, m, pairs, values=[str(i % 3) for i in range(40)])
    places, edges = picture(figure)
    assert {*map(tuple, places.round(9))} == {*map(tuple, chart.position.round(9))}
    lines = edges.get_segments()
    split = chart.back[pairs[:, 0]] != chart.back[pairs[:, 1]]
    assert 0 < split.sum() < 40
    assert len(lines) == 40 + split.sum()
    for line in lines:  # each on one side, inside its hemisphere, along a great circle
        v = lifted(line)
        assert len({*np.sign(line[:, 0])}) == 1
        assert np.linalg.matrix_rank(v, tol=1e-5) <= 2
    drawn, shown = chart.lines(pairs, 16)
    for number, (a, b) in enumerate(pairs):
        ways = lifted(drawn[shown == number])
        whole = angle(ways[:, 1:], ways[:, :-1]).sum()
        assert whole == pytest.approx(angle(chart.vectors[a], chart.vectors[b]), rel=1e-5)


def test_an_edge_has_the_colour_of_its_end_farther_from_the_mean():
    m = Sphere(1.0)
    x = m.lift(torch.tensor([[0.0, 0.0], [0.1, 0.0], [-0.1, 0.0], [0.0, 2.0], [0.0, -2.0]]))
    figure = draw_points(x, m, [(0, 3), (4, 1)], values=list("aabbb"))
    _, edges = picture(figure)
    (legend,) = figure.legends
    told = {t.get_text(): to_hex(h.get_color()) for t, h in zip(legend.texts, legend.legend_handles, strict=True)}
    assert {to_hex(c) for c in edges.get_color()} == {told["b"]}


def test_names_stay_on_the_side_of_their_point():
    m = Sphere(1.0)
    x = spread(m, 200)
    labels = [f"a rather long name {i}" for i in range(200)]
    axes = draw_points(x, m, labels=labels, max_labels=60).axes[0]
    middle = axes.bbox.x0 + axes.bbox.width / 2
    named = [text for text in axes.texts if hasattr(text, "xy")]
    assert len(named) > 10
    for text in named:
        box = text.get_window_extent()
        assert box.x1 <= middle if text.xy[0] < 0 else box.x0 >= middle


def test_title_and_caption_say_what_is_drawn():
    m = Sphere(1.0)
    title, caption = draw_points(spread(m), m, [(0, 1)], title="A ring").texts
    assert title.get_text() == "A ring"
    assert caption.get_text() == "40 points, 1 edges · exact; equal areas are drawn equal"


@pytest.mark.parametrize("m", [Lorentz(), Poincare(), Euclidean(), Product((Sphere(), 2), (Lorentz(), 1))])
def test_every_other_geometry_is_drawn_on_the_disk(m):
    assert chart_of(m) is Disk
    assert chart_of(Sphere(learn=True)) is Hemispheres
    draw_points(0.1 * torch.ones(2, 3), m)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"edges": [(0, 9)]}, "an edge names point 9"),
        ({"labels": ["one"]}, "1 labels for 3 points"),
        ({"points": torch.tensor([[0.0, 1.0], [math.nan, 0.0], [1.0, 1.0]])}, "1 of 3 points are not finite"),
    ],
)
def test_mistakes_are_named(wrong, message):
    with pytest.raises(UserError, match=message):
        draw_points(**{"points": torch.zeros(3, 2), "manifold": Sphere()} | wrong)


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_picture_is_the_same_twice(tmp_path, suffix):
    m = Sphere(1.0, learn=True)
    first, second = (tmp_path / f"{name}{suffix}" for name in "ab")
    for path in (first, second):
        draw_points(spread(Sphere(1.0), d=4), m, [(0, 1)], depth=range(40), path=path)
    assert first.read_bytes() == second.read_bytes()
