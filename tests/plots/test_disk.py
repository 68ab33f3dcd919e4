"""The disk: arcs are geodesics, positions keep what the note says, colours are those of the key, names are right."""

import warnings

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex

from horosphere.errors import UserError
from horosphere.geometry.euclidean import Euclidean
from horosphere.geometry.lorentz import Lorentz
from horosphere.plots import draw_disk, geodesic_arc, layout
from horosphere.plots.directions import in_a_row
from horosphere.plots.style import BRANCHES, QUIET, style
from tests.plots.reading import colour, order_of

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


@pytest.mark.parametrize("dim", [2, 10])
@pytest.mark.parametrize(("size", "drawn"), [(0.3, 2.0), (3.0, None)])
def test_the_radius_is_exact_for_the_curvature_that_the_note_names(dim, size, drawn):
    """The own one, unless half of the points would lie in the outermost tenth of the disk: then half lies within it."""
    m = Lorentz(c=2.0)
    x = m.lift(size * torch.randn(61, dim, dtype=torch.float64))
    position, note = layout(x, m)
    radius, distance = np.linalg.norm(position, axis=-1), m.dist0(x).numpy()
    if drawn is None:
        assert np.median(radius) == pytest.approx(0.9)
        drawn = (2 * np.arctanh(0.9) / np.median(distance)) ** 2
        assert note.startswith(f"curvature -2 drawn as -{drawn:.2g} to fit, angle")
    else:
        assert note == "exact" if dim == 2 else note.startswith("radius exact, angle: 10 dimensions in a row")
    np.testing.assert_allclose(2 * np.arctanh(radius) / np.sqrt(drawn), distance, rtol=1e-4)


def grown_tree(dim):
    """84 leaves of 28 twigs of 7 branches of a root; twigs and leaves lie around what they grow from.

    -> points (120, dim), (child, parent) edges, depth
    """
    points, edges, depth, level = [torch.zeros(dim, dtype=torch.float64)], [], [0], [0]
    for count, reach in ((7, 2.0), (4, 0.5), (3, 0.1)):
        grown = []
        for parent in level:
            for _ in range(count):
                grown.append(len(points))
                edges.append((len(points), parent))
                depth.append(depth[parent] + 1)
                points.append(1.3 * points[parent] + reach * torch.randn(dim, dtype=torch.float64))
        level = grown
    return torch.stack(points), np.array(edges), np.array(depth)


def test_siblings_stay_neighbours_beyond_two_dimensions():
    """Whether the nearest leaf of a leaf is its sibling; a projection on two axes keeps less."""
    m = Lorentz(c=0.2)
    tangent, edges, depth = grown_tree(6)
    leaves = np.flatnonzero(depth == 3)
    parent = dict(edges.tolist())

    def kept(position):
        to = np.linalg.norm(position[leaves][:, None] - position[leaves], axis=-1)
        nearest = leaves[np.argsort(to, 1)[:, 1]]
        return np.mean([parent[a] == parent[b] for a, b in zip(leaves, nearest, strict=True)])

    axes = np.linalg.svd(tangent.numpy(), full_matrices=False)[2][:2]
    assert kept(layout(m.lift(tangent), m)[0]) > 0.95 > 0.9 > kept(tangent.numpy() @ axes.T)


def test_too_many_directions_for_one_clustering_are_cut_along_their_axis(monkeypatch):
    angle = torch.linspace(0, 3, 200, dtype=torch.float64)[torch.randperm(200)].numpy()
    directions = np.stack([np.cos(angle), np.sin(angle), 0 * angle], -1)
    whole = in_a_row(directions)
    monkeypatch.setattr("horosphere.plots.directions.LINKED", 30)
    for order in (whole, in_a_row(directions)):
        assert sorted(order) == list(range(200))
        assert np.median(np.abs(np.diff(angle[order]))) < 0.02  # neighbours lie 0.015 apart


def test_a_hierarchy_has_a_colour_a_branch_and_its_top_is_named_first():
    m = Lorentz(c=0.2)
    tangent, edges, depth = grown_tree(2)
    below_one = np.concatenate([edges, [(120, 0)]])[:, ::-1]  # either way round: depth says which is the parent
    below_one[below_one == 0], depth = 0, np.append(depth, 1)
    x, labels = m.lift(torch.cat([tangent, tangent[:1] + 0.1])), [f"n{i}" for i in range(121)]
    figure = draw_disk(x, m, below_one, labels, depth=depth, max_labels=8)
    told = key_of(figure)
    assert list(told) == [*(f"n{i}" for i in range(1, 8)), "n120", "other"]
    colours, _ = points_of(figure, layout(x, m)[0])
    assert [colours[i] for i in range(8)] == [told["other"], *(told[f"n{i}"] for i in range(1, 8))]
    assert all(colours[child] == colours[parent] for parent, child in below_one.tolist() if parent)
    named = [t.get_text() for t in figure.axes[0].texts]
    assert named[0] == "n0"
    assert set(named) <= {f"n{i}" for i in range(8)} | {f"n{i}" for i in range(8, 36)}  # no leaf before them


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


# What is drawn, read back


def spread_out(count=12):
    """Points of the plane at different radii and angles, none of them like another's mirror image."""
    angle, radius = torch.linspace(0.3, 5.5, count, dtype=torch.float64), torch.linspace(0.4, 2.6, count).double()
    return Lorentz().lift(torch.stack([radius * angle.cos(), radius * angle.sin()], -1))


def points_of(figure, position):
    """Colours and areas of the points, in the order they were given."""
    (scatter,) = (c for c in figure.axes[0].collections if isinstance(c, PathCollection))
    order = order_of(scatter.get_offsets(), position)
    assert sorted(order) == list(range(len(position)))
    assert (np.diff(scatter.get_sizes()) >= 0).all()  # the large ones on top
    faces = scatter.get_facecolor()
    faces = np.repeat(faces, len(order), 0) if len(faces) == 1 else faces
    return [to_hex(c) for c in faces[order]], scatter.get_sizes()[order]


def key_of(figure):
    """{text: colour} below the disk."""
    (legend,) = figure.legends
    return {t.get_text(): colour(h) for t, h in zip(legend.get_texts(), legend.legend_handles, strict=True)}


def test_points_are_where_they_belong_and_shrink_towards_the_rim():
    x, m = spread_out(), Lorentz()
    position, _ = layout(x, m)
    colours, sizes = points_of(draw_disk(x, m), position)
    assert set(colours) == {BRANCHES[0]}
    shrink = (1 - (position**2).sum(-1)) / (1 - (position[0] ** 2).sum())
    width = np.sqrt(sizes)
    np.testing.assert_allclose(width, np.maximum(width[0] * shrink, 4), rtol=1e-6)  # but never too small to be seen
    assert width[0] > width[8] > width[-1] == 4
    angles = np.arctan2(position[:, 1], position[:, 0])
    expected = np.arctan2(np.sin(np.linspace(0.3, 5.5, 12)), np.cos(np.linspace(0.3, 5.5, 12)))
    np.testing.assert_allclose(angles, expected, atol=1e-9)


@pytest.mark.parametrize("m", [Lorentz(), Euclidean()])
def test_edges_lead_from_point_to_point_in_the_colour_of_their_outer_end(m):
    x = spread_out()
    pairs = np.array([(0, 5), (7, 2), (3, 11), (1, 0)])
    depth = np.arange(12) % 5
    figure = draw_disk(x, m, pairs, depth=depth)
    position, _ = layout(x, m)
    colours, _ = points_of(figure, position)
    (edges,) = (c for c in figure.axes[0].collections if isinstance(c, LineCollection))
    segments = edges.get_segments()
    for (a, b), line, edge_colour in zip(pairs, segments, edges.get_color(), strict=True):
        np.testing.assert_allclose(line[[0, -1]], position[[a, b]], atol=1e-9)
        if m.flat:
            assert len(line) == 2
        else:
            np.testing.assert_allclose(line, geodesic_arc(position[[a]], position[[b]], len(line))[0])
        assert to_hex(edge_colour) == colours[max(a, b)]  # radii grow with the number
    assert edges.get_zorder() < 2


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (["_a", "top :: b $x$"] * 6, {"_a": "a", "top :: b $x$": "b $x$"}),
        (list("aabbccddeefg"), {letter: letter for letter in "abcdefg"}),
        (list("ggfeddccbbaa"), {letter: letter for letter in "gdcbafe"}),
        (list("aabcdefghijk"), {**{letter: letter for letter in "abcdefghi"}, "j": "other", "k": "other"}),
    ],
)
def test_a_branch_has_the_colour_that_the_key_gives_it(values, named):
    x, m = spread_out(), Lorentz()
    figure = draw_disk(x, m, values=values)
    colours, _ = points_of(figure, layout(x, m)[0])
    told = key_of(figure)
    assert list(told) == list(dict.fromkeys(named.values()))
    assert [told[named[value]] for value in values] == colours
    assert len(set(told.values())) == len(told)
    assert told.get("other", QUIET) == QUIET


def test_whole_depths_have_the_colours_of_the_key():
    x, m, depth = spread_out(), Lorentz(), torch.arange(12) % 3
    figure = draw_disk(x, m, depth=depth)
    colours, _ = points_of(figure, layout(x, m)[0])
    told = key_of(figure)
    assert list(told) == ["depth 0", "1", "2"]
    assert [list(told.values())[d] for d in depth.tolist()] == colours
    ends = [to_hex(colormaps["viridis"](share)) for share in (0, 0.9)]
    assert [told["depth 0"], told["2"]] == ends


def test_many_values_have_a_bar_from_the_least_to_the_most():
    x, m = spread_out(), Lorentz()
    values = np.array([2.5, np.nan, *np.linspace(-1, 4, 10)])
    figure = draw_disk(x, m, values=values)
    colours, _ = points_of(figure, layout(x, m)[0])
    bar = figure.axes[1]
    assert bar.get_xlim() == (-1, 4)
    assert [t.get_text() for t in bar.texts] == ["value"]
    shades = [to_hex(colormaps["viridis"](round(share * 255) / 255 * 0.9)) for share in (0, 1)]
    assert [colours[2], colours[-1]] == shades
    assert colours[1] == QUIET  # what is not known
    assert [t.get_text() for t in draw_disk(x, m, depth=range(12)).axes[1].texts] == ["depth"]
    assert len(draw_disk(x, m).axes) == 1
    assert not draw_disk(x, m).legends


def test_a_name_stands_beside_its_own_point():
    m = Lorentz()
    x = m.lift(torch.randn(300, 2, dtype=torch.float64))
    labels = [f"point {i}" for i in range(300)]
    position, _ = layout(x, m)
    axes = draw_disk(x, m, labels=labels).axes[0]
    assert 5 < len(axes.texts) <= 30
    for text in axes.texts:
        np.testing.assert_allclose(text.xy, position[labels.index(text.get_text())])
        dx, dy = text.get_position()
        sides = {(1, 0): ("left", "center"), (-1, 0): ("right", "center")}
        sides |= {(0, 1): ("center", "bottom"), (0, -1): ("center", "top")}
        assert (text.get_ha(), text.get_va()) == sides[int(np.sign(dx)), int(np.sign(dy))]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_central_and_well_connected_points_are_named_first():
    x, m = spread_out(), Lorentz()
    labels = [f"n{i}" for i in range(12)]
    named = [t.get_text() for t in draw_disk(x, m, labels=labels, max_labels=3).axes[0].texts]
    assert named == ["n0", "n1", "n2"]  # radii grow
    named = [t.get_text() for t in draw_disk(x.flip(0), m, labels=labels, max_labels=3).axes[0].texts]
    assert named == ["n11", "n10", "n9"]
    star = [(6, i) for i in range(12) if i != 6]
    assert "n6" in [t.get_text() for t in draw_disk(x, m, star, labels, max_labels=3).axes[0].texts]
    sizes = [t.get_fontsize() for t in draw_disk(x, m, labels=labels, max_labels=12).axes[0].texts]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("Topic :: Games", "Games"),
        ("a > b > c", "c"),
        ("a / b", "b"),
        ("two_words", "two words"),
        ("x" * 30, "x" * 23 + "…"),
    ],
)
def test_names_are_cut_to_what_fits(label, shown):
    texts = draw_disk(torch.zeros(1, 2), Lorentz(), labels=[label]).axes[0].texts
    assert [t.get_text() for t in texts] == [shown]


def test_title_and_caption_say_what_is_drawn():
    x, m = spread_out(), Lorentz()
    title, caption = draw_disk(x, m, [(0, 1), (2, 3)], title="A tree").texts
    assert title.get_text() == "A tree"
    assert caption.get_text() == "12 points, 2 edges · exact"
    assert title.get_position()[1] > 0.9 > 0.1 > caption.get_position()[1]
    wide = torch.randn(1200, 5)
    (caption,) = draw_disk(wide, Euclidean()).texts
    assert caption.get_text() == f"1,200 points\n{layout(wide, Euclidean())[1]}"


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


@pytest.mark.filterwarnings("error")
def test_names_that_no_font_has_draw_without_a_word(tmp_path):
    """matplotlib would warn of each glyph; it draws a box, and that says it."""
    names = ["\N{DOG FACE}", "\N{CAT FACE} cat", "कुत्ता", "\N{SNOWMAN}", "כלב", "犬"]
    edges = np.array([(i, 0) for i in range(1, 6)])
    for suffix in (".png", ".svg", ".pdf"):
        draw_disk(torch.randn(6, 2), Lorentz(), edges, names, path=tmp_path / f"a{suffix}")
        assert (tmp_path / f"a{suffix}").stat().st_size > 1000


def test_other_warnings_are_heard():
    with pytest.warns(UserWarning, match="something else"), style():
        warnings.warn("something else", UserWarning, stacklevel=1)
