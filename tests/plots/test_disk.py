"""The disk: arcs are geodesics, positions keep what the note says, files are whole."""

import numpy as np
import pytest
import torch

from horosphere.errors import UserError
from horosphere.geometry.euclidean import Euclidean
from horosphere.geometry.lorentz import Lorentz
from horosphere.plots import draw_disk, geodesic_arc, layout

rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _same_points_every_time():
    torch.manual_seed(0)


def disk_points(count, farthest=6.0):
    """Random points up to this hyperbolic distance from the origin."""
    angle, radius = rng.uniform(0, 2 * np.pi, count), np.tanh(rng.uniform(0, farthest, count) / 2)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1)


def disk_distance(p, q):
    gap = (1 - (p**2).sum(-1)) * (1 - (q**2).sum(-1))
    return 2 * np.arcsinh(np.linalg.norm(p - q, axis=-1) / np.sqrt(gap))


def test_arcs_lie_on_circles_orthogonal_to_the_rim():
    a, b = disk_points(50), disk_points(50)
    # the circle through a and b orthogonal to the rim: centre·p = (1 + |p|²)/2 for both, radius² = |centre|² - 1
    ends = np.stack([a, b], 1)
    centre = np.linalg.solve(ends, (1 + (ends**2).sum(-1, keepdims=True)) / 2)[..., 0]
    radius = np.sqrt((centre**2).sum(-1) - 1)
    to_centre = np.linalg.norm(geodesic_arc(a, b) - centre[:, None], axis=-1)
    np.testing.assert_allclose(to_centre / radius[:, None], 1, atol=1e-9)


def test_arcs_through_the_origin_are_diameters():
    a = disk_points(20)
    for b in (-0.5 * a, 0 * a, 0.3 * a):
        arc = geodesic_arc(a, b)
        across = arc[..., 0] * a[:, None, 1] - arc[..., 1] * a[:, None, 0]
        np.testing.assert_allclose(across, 0, atol=1e-15)


def test_arcs_step_evenly_from_end_to_end():
    a, b = disk_points(50), disk_points(50)
    arc = geodesic_arc(a, b, 9)
    np.testing.assert_allclose(arc[:, [0, -1]], np.stack([a, b], 1), rtol=0, atol=1e-15)
    np.testing.assert_allclose(
        disk_distance(arc[:, 1:], arc[:, :-1]), np.tile(disk_distance(a, b)[:, None] / 8, 8), rtol=1e-9
    )


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((0.3, 0.4), (0.3, 0.4)),
        ((0, 0), (0, 0)),
        ((1 - 1e-15, 0), (0, 1 - 1e-15)),
        ((1, 0), (-1, 0)),
        ((1, 0), (1, 0)),
        ((0.3, 0.4), (0.3, 0.4 + 1e-14)),
    ],
)
def test_arcs_survive_equal_ends_and_the_rim(a, b):
    arc = geodesic_arc(np.array([a]), np.array([b]))[0]
    assert (np.linalg.norm(arc, axis=-1) <= 1 + 1e-15).all()
    np.testing.assert_allclose(arc[[0, -1]], [a, b], rtol=0, atol=1e-15)


@pytest.mark.parametrize("c", [0.25, 1.0, 3.0])
def test_two_dimensions_are_exact(c):
    m = Lorentz(c=c)
    x, y = m.lift(torch.randn(2, 40, 2, dtype=torch.float64))
    (p, note), (q, _) = layout(x, m), layout(y, m)
    assert note == "exact"
    np.testing.assert_allclose(disk_distance(p, q) / np.sqrt(c), m.dist(x, y).numpy(), rtol=1e-9)


def test_ten_dimensions_keep_the_radius():
    m = Lorentz(c=2.0)
    x = m.lift(torch.randn(60, 10))
    position, note = layout(x, m)
    np.testing.assert_allclose(
        2 * np.arctanh(np.linalg.norm(position, axis=-1)) / np.sqrt(2), m.dist0(x).numpy(), rtol=1e-4
    )
    assert note.startswith("radius exact, angle projected from 10 dimensions (")


def test_a_plane_in_ten_dimensions_is_found_whole():
    m = Lorentz()
    flat = torch.randn(30, 2, dtype=torch.float64)
    turned = m.lift(flat @ torch.linalg.qr(torch.randn(10, 10, dtype=torch.float64)).Q[:2])
    position, note = layout(turned, m)
    assert "(100 % of squared length)" in note
    original, _ = layout(m.lift(flat), m)
    np.testing.assert_allclose(position @ position.T, original @ original.T, atol=1e-9)


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_flat_space_is_scaled_to_fit_and_says_so(dim):
    position, note = layout(100 * torch.randn(41, dim), Euclidean())
    assert np.median(np.linalg.norm(position, axis=-1)) == pytest.approx(0.6)
    assert "to fit" in note


def test_points_seen_end_on_keep_their_radius():
    m = Lorentz(c=0.5, learn=True)
    for x in (m.lift(torch.eye(5) * torch.arange(5, 0, -1)), m.lift(torch.ones(1, 3))):
        radius = np.linalg.norm(layout(x, m)[0], axis=-1)
        np.testing.assert_allclose(radius, np.tanh(np.sqrt(0.5) * m.dist0(x).detach().numpy() / 2), rtol=1e-5)


def test_the_origin_alone_can_be_drawn():
    assert (layout(torch.zeros(3, 4), Euclidean())[0] == 0).all()
    draw_disk(torch.zeros(1, 2), Lorentz(), labels=["root"])


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_picture_is_written_whole_and_the_same_twice(tmp_path, suffix):
    m = Lorentz()
    x, edges = m.lift(torch.randn(12, 3)), torch.randint(0, 12, (20, 2))
    first, second = (tmp_path / f"{name}{suffix}" for name in "ab")
    for path in (first, second):
        draw_disk(x, m, edges, [f"$odd_{i}$" for i in range(12)], title="50 $ <tree>", path=path)
    assert first.read_bytes() == second.read_bytes()
    assert sorted(tmp_path.iterdir()) == [first, second]


@pytest.mark.parametrize(
    ("colour", "key"),
    [
        ({}, []),
        ({"depth": torch.arange(12) % 3}, ["depth 0", "1", "2"]),
        ({"depth": range(12)}, "bar"),
        ({"values": [float("nan")] + [0.5] * 11}, "bar"),
        ({"values": ["_a", "top :: b $x$"] * 6}, ["a", "b $x$"]),
        ({"values": list("aabbccddeefg")}, [*"abcdefg"]),
        ({"values": list("aabcdefghijk")}, [*"abcdefghi", "other"]),
    ],
)
def test_colours_have_a_key(colour, key):
    figure = draw_disk(torch.randn(12, 2), Lorentz(), **colour)
    named = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert (len(figure.axes) == 2) if key == "bar" else (named == key)


def test_labels_do_not_overlap():
    m = Lorentz()
    axes = draw_disk(m.lift(torch.randn(300, 2)), m, labels=[f"point {i}" for i in range(300)]).axes[0]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert 5 < len(boxes) <= 30
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"edges": [(0, 9)]}, "an edge names point 9"),
        ({"labels": ["one"]}, "1 labels for 3 points"),
        ({"path": "picture.bmp"}, r"picture.bmp: a picture's name ends in .png, .svg, .pdf"),
        ({"path": "nowhere/picture.png"}, "there is no folder nowhere"),
        ({"points": torch.full((3, 2), torch.nan)}, "3 of 3 points are not finite"),
    ],
)
def test_mistakes_are_named(wrong, message):
    with pytest.raises(UserError, match=message):
        draw_disk(**{"points": torch.zeros(3, 2), "manifold": Lorentz()} | wrong)
