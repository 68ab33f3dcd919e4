"""Pictures of what vision models see show what they were given.

Colours are shares, dots are centres, thumbnails are attention, edges are parents.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex, to_rgb
from PIL import Image
from torch import nn

from horosphere.cli import explain as explain_verb
from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz
from horosphere.measure.vision import (
    EVEN,
    Explanation,
    branches,
    cluster_levels,
    explain,
    mean_point,
    node_names,
    spread_of,
    tree_numbers,
)
from horosphere.models.hcformer import HCFormer, HCFormerConfig
from horosphere.models.himapper import HiMapper, HiMapperConfig, tree_levels, tree_parents
from horosphere.nn.clustering import pool
from horosphere.plots import report as report_module
from horosphere.plots import vision
from horosphere.plots.explain import pictures, save_explanation, tree_rows
from horosphere.plots.style import BRANCHES, QUIET, render
from horosphere.plots.vision import (
    blend,
    draw_clusters,
    draw_coarse_to_fine,
    draw_learning,
    draw_nodes,
    draw_tree,
    heat,
    palette,
    sharpen,
)
from tests.cli.command_line import runner
from tests.data.pictures import write_npz
from tests.plots.reading import order_of, read_page
from tests.tasks.tiny import run_tiny, tiny

rng = np.random.default_rng(0)
TINY = {
    "blocks": (1, 2), "dims": (8, 8), "heads": (2, 5), "head_width": 4, "mlp_ratios": (1, 1),
    "windows": (2, 1), "patch_centres": (4, 4), "window_centres": (4, 0),
    "image_size": 16, "stem_kernel": 2, "stem_stride": 2, "num_classes": 3,
}  # fmt: skip


def former(**changes):
    torch.manual_seed(0)
    return HCFormer(HCFormerConfig(**TINY | changes)).eval()


class Conv(nn.Conv2d):
    """A backbone that is one convolution."""

    map_width = width = 8

    def __init__(self):
        super().__init__(3, 8, 4, 4)

    def features(self, x):
        features = self(x)
        return features, features.mean((2, 3))


def mapper(**changes):
    torch.manual_seed(0)
    return HiMapper(Conv(), 3, HiMapperConfig(**{"leaves": 8, "levels": 3, "width": 8, "heads": 2} | changes)).eval()


def photo(height=16, width=16):
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


def panels(figure):
    """All axes but the one beneath."""
    return [axes for axes in figure.axes if axes.images]


def words(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def overlapping(figure):
    figure.draw_without_rendering()
    shown = [text for axes in figure.axes for text in axes.texts if text.get_text()]
    boxes = [(text.get_text(), text.get_window_extent()) for text in shown]
    return [(a, b) for i, (a, one) in enumerate(boxes) for b, other in boxes[:i] if one.overlaps(other)]


# -- clusters over training -------------------------------------------------------------------------------------------


def reading(step, scale, first, second):
    return {"step": step, "patch_scale_1": scale, "patch_scale_2": 3 * scale} | {
        "patch_centres_1": first, "patch_centres_2": second, "mlp_scale_1": 0.1
    }  # fmt: skip


def test_learning_shows_loss_the_mean_scale_and_the_centres_of_stages_that_have_many():
    even = ([(5, 3.0), (10, 2.0)], [reading(5, 1.0, 16.0, 4.0), reading(10, 1.5, 15.0, 3.5)])
    sharp = ([(5, 2.5), (10, 1.0)], [reading(5, 10.0, 4.0, 2.0), reading(10, 30.0, 2.0, 1.0)])
    figure = draw_learning({"even": even, "sharp": sharp})
    assert [axes.get_title("left") for axes in figure.axes][2:] == ["centres of a patch, stage 1"]
    expected = [[[3.0, 2.0], [2.5, 1.0]], [[2.0, 3.0], [20.0, 60.0]], [[16.0, 15.0], [4.0, 2.0]]]
    for axes, runs in zip(figure.axes, expected, strict=True):
        assert [list(line.get_xdata()) for line in axes.lines] == [[5, 10]] * 2
        assert [list(line.get_ydata()) for line in axes.lines] == runs
        assert [line.get_color() for line in axes.lines] == list(BRANCHES[:2])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["even", "sharp"]
    assert [axes.get_yscale() for axes in figure.axes] == ["linear", "log", "linear"]  # 2 to 60


# -- clusters ---------------------------------------------------------------------------------------------------------


def test_levels_go_from_coarse_to_fine_and_hold_the_shares_of_the_last_block():
    model, x = former(), torch.randn(3, 16, 16)
    levels, maps = cluster_levels(model, x), model.cluster_maps(x[None])
    assert [(level.stage, level.level) for level in levels] == [(2, "patches"), (1, "windows"), (1, "patches")]
    for level, shares in zip(levels, (maps[1][-1].patch, maps[0][-1].window, maps[0][-1].patch), strict=True):
        np.testing.assert_allclose(level.shares, shares[0].numpy())
        np.testing.assert_allclose(level.shares.sum(1), 1, rtol=1e-5)
    assert [level.geometry for level in levels] == ["euclidean", "lorentz", "euclidean"]
    assert [level.cell for level in levels] == [(4, 4), (8, 8), (2, 2)]


@pytest.mark.parametrize(("height", "width"), [(16, 16), (24, 32)])
def test_centres_sit_in_the_middle_of_what_they_are_means_of(height, width):
    model = former()
    for level in cluster_levels(model, torch.randn(3, height, width)):
        stride = model.config.strides[level.stage - 1]
        rows, columns = height // stride, width // stride
        at = torch.stack(torch.meshgrid(torch.arange(rows) + 0.5, torch.arange(columns) + 0.5, indexing="ij"), -1)[None]
        side = round(len(level.seats) ** 0.5)
        np.testing.assert_allclose(level.seats, stride * pool(at, (side, side))[0].flatten(0, 1))
        counts = np.bincount(level.seat_centre)
        assert (counts == len(level.seats) / level.centres).all()


def test_windows_that_do_not_fit_end_beyond_the_picture_and_so_do_their_centres():
    for level in cluster_levels(former(), torch.randn(3, 10, 6)):  # maps of 5 x 3 and 3 x 2
        assert (level.seats < (10, 6)).all()
        assert [edge.tolist() for edge in level.edges] == ([[0, 6], [0, 4]] if level.stage == 1 else [[0], [0]])
        assert blend(level.shares[0], level.cell, photo(10, 6) / 255, 1.0).shape == (10, 6, 3)
        assert np.isfinite(level.spread).all()


def test_shifted_windows_are_drawn_where_they_are():
    levels = cluster_levels(former(hierarchy="shifted", blocks=(2, 1)), torch.randn(3, 16, 16))
    assert [level.level for level in levels] == ["patches", "patches"]
    assert levels[1].edges[0].tolist() == [4, 12]  # windows of 8 pixels, moved by half of one
    assert sorted({tuple(seat) for seat in levels[1].seats.tolist()})[0] == (2, 2)


def test_spread_counts_centres():
    level = cluster_levels(former(), torch.randn(3, 16, 16))[0]
    one = np.zeros_like(level.shares)
    one[:, 2] = 1
    for shares, count in ((one, 1), (np.full_like(one, 0.25), 4)):
        np.testing.assert_allclose(vision.ClusterMap(**vars(level) | {"shares": shares}).spread, count)


@pytest.mark.parametrize("count", [1, 4, 16, 49])
def test_colours_are_told_apart(count):
    colors = palette(count)
    assert colors.shape == (count, 3)
    np.testing.assert_allclose(colors[: len(BRANCHES)], [to_rgb(color) for color in BRANCHES[:count]])
    lab = vision._oklab(colors)
    distance = np.linalg.norm(lab[:, None] - lab, axis=-1) + 9 * np.eye(count)
    assert distance.min() > 0.06  # three times what is just seen
    np.testing.assert_allclose(
        vision._oklab(np.eye(3)), [[0.628, 0.225, 0.126], [0.866, -0.234, 0.179], [0.452, -0.032, -0.312]], atol=1e-3
    )


def test_sharper_shares_keep_their_order_and_decided_ones_stay():
    soft = rng.dirichlet(np.full(16, 2.0), (2, 5, 5)).transpose(0, 3, 1, 2)
    sharp, power = sharpen(soft)
    assert power > 1
    np.testing.assert_array_equal(sharp.argsort(1), soft.argsort(1))
    np.testing.assert_allclose(sharp.sum(1), 1)
    assert sharp.max(1).mean() > 1.5 * soft.max(1).mean()
    decided = rng.dirichlet(np.full(4, 0.05), (1, 5, 5)).transpose(0, 3, 1, 2)
    same, power = sharpen(decided)
    assert power == 1
    np.testing.assert_allclose(same, decided)


def test_even_shares_stay_even_and_are_called_that():
    """To the power 64 the noise of an even map would look like clusters."""
    even = rng.dirichlet(np.full(16, 300.0), (2, 5, 5)).transpose(0, 3, 1, 2)
    soft = rng.dirichlet(np.full(16, 2.0), (1, 5, 5)).transpose(0, 3, 1, 2)
    for noise in (even, np.full((1, 4, 2, 2), 0.25)):
        same, power = sharpen(noise)
        assert power == 1
        np.testing.assert_array_equal(same, noise)
    mixed, power = sharpen(np.concatenate([even, soft]))
    np.testing.assert_array_equal(mixed[:2], even)
    np.testing.assert_allclose(mixed[2:], sharpen(soft)[0])
    assert power == sharpen(soft)[1] > 1
    level = cluster_levels(former(), torch.randn(3, 16, 16))[0]
    flat = replace(level, shares=np.full_like(level.shares, 1 / level.centres))
    assert flat.even
    assert "even: nothing is clustered" in words(draw_clusters([flat], photo(), 16))
    assert "even: nothing is clustered" in words(draw_coarse_to_fine([flat], photo(), 16))
    explained = Explanation(
        photo(), 16, [], [flat, replace(flat, shares=np.eye(level.centres)[None, :, :, None])], None
    )
    ((_, remark),) = explained.remarks()
    assert remark.startswith(f"stage {level.stage} patches: every place belongs to all centres alike")


def test_a_place_has_the_mixed_colour_of_its_centres():
    shares = np.zeros((4, 2, 3))  # two rows, three columns
    shares[0, 0, 0] = shares[1, 0, 1] = shares[3, 0, 2] = 1
    shares[2:, 1] = 0.5
    image = blend(shares, (4.0, 2.0), np.zeros((16, 12, 3)), 2.0)  # places of 8 x 4 pixels
    colors = palette(4)
    mixed = colors[2:].mean(0)
    at = {(0, 0): colors[0], (7, 3): colors[0], (0, 4): colors[1], (7, 7): colors[1], (0, 11): colors[3], (8, 0): mixed}
    for place, color in at.items():
        np.testing.assert_allclose(image[place], vision.TINT * color + (1 - vision.TINT) * 0.3)  # 0.3: black, paled
    np.testing.assert_allclose(image[15, 11], image[8, 0])
    bright = blend(shares, (4.0, 2.0), np.ones((16, 12, 3)), 2.0)
    np.testing.assert_allclose(bright[0, 0], vision.TINT * colors[0] + (1 - vision.TINT))


def test_the_picture_beneath_is_in_grey_where_it_was():
    picture = np.zeros((4, 6, 3))
    picture[0, 5] = (1.0, 0.0, 0.0)
    image = blend(np.ones((1, 1, 1)), (4.0, 6.0), picture, 1.0)
    lighter = image - image[3, 0]
    assert np.argwhere(lighter.sum(-1) > 1e-9).tolist() == [[0, 5]]
    np.testing.assert_allclose(lighter[0, 5], (1 - vision.TINT) * 0.7 * 0.299)


def placed(figure, axes):
    """(left, top) in inches: where a panel is, for what stands above it."""
    left, top, *_ = inches(figure, axes)
    return left, top


def label_of(figure, axes):
    """The words straight above a panel."""
    left, top, right, _ = inches(figure, axes)
    above = [
        t for t in figure.axes[0].texts
        if left - 0.01 <= t.get_position()[0] <= right + 0.01 and 0 < top - t.get_position()[1] < 0.06
    ]  # fmt: skip
    (text,) = above
    return text.get_text()


@pytest.mark.parametrize("size", [(16, 24), (24, 12)])
def test_every_panel_shows_its_own_head(size):
    levels, picture = cluster_levels(former(), torch.randn(3, *size)), photo(3 * size[0], 3 * size[1])
    for chosen in (levels[:1], levels[1:]):
        figure = draw_clusters(chosen, picture, size[0])
        assert not overlapping(figure)
        assert figure.get_figwidth() * 96 <= 900
        shown = iter(panels(figure))
        headings = [t for t in figure.axes[0].texts if t.get_text().startswith("Stage")]
        assert len(headings) == len(chosen)
        for level, heading in zip(chosen, headings, strict=True):
            what, into = vision._what(level)
            assert heading.get_text() == f"Stage {level.stage}: {what} into {into}"
            sharp, power = sharpen(level.shares)
            seats = next(shown)
            assert label_of(figure, seats) == "centres, where they sit"
            np.testing.assert_allclose(seats.images[0].get_array(), picture / 255)
            assert inches(figure, seats)[1] > heading.get_position()[1]
            for head, shares in enumerate(sharp):
                axes = next(shown)
                assert label_of(figure, axes) == f"head {head + 1}: {level.spread[head]:.1f} of {level.centres} centres"
                np.testing.assert_allclose(axes.images[0].get_array(), blend(shares, level.cell, picture / 255, 3.0))
            assert vision._remark(level, power) in words(figure)
        assert next(shown, None) is None


def test_heads_stand_in_rows_of_four():
    level = cluster_levels(former(), torch.randn(3, 16, 24))[0]
    figure = draw_clusters([level], photo(16, 24), 16)
    seats, *heads = (placed(figure, axes) for axes in panels(figure))
    assert [top for _, top in heads[:4]] == pytest.approx([heads[0][1]] * 4)
    assert heads[4][1] > heads[0][1] + 0.5
    assert heads[4][0] == pytest.approx(heads[0][0])
    assert [left for left, _ in heads[:4]] == sorted(left for left, _ in heads[:4])
    assert seats[0] < heads[0][0]


def test_centres_are_dots_of_their_own_colour_and_windows_end_at_lines():
    levels, picture = cluster_levels(former(), torch.randn(3, 16, 24)), photo(48, 72)
    for level in levels:
        key = panels(draw_clusters([level], picture, 16))[0]
        (seats,) = key.collections
        np.testing.assert_allclose(seats.get_offsets(), 3 * level.seats[:, ::-1] - 0.5)
        np.testing.assert_allclose(seats.get_facecolor()[:, :3], palette(level.centres)[level.seat_centre])
        across = [line.get_ydata()[0] for line in key.lines if list(line.get_xdata()) == [0, 1]]
        upright = [line.get_xdata()[0] for line in key.lines if list(line.get_ydata()) == [0, 1]]
        for lines, edges in zip((across, upright), level.edges, strict=True):
            assert lines == [3 * at - 0.5 for at in edges if at > 0]
    assert across == [23.5]  # 16 high, two windows of 8
    assert upright == [35.5]  # 24 wide, two windows of 12


def test_centres_that_are_many_leave_room_between_them():
    level, picture = cluster_levels(former(), torch.randn(3, 16, 16))[0], photo()
    for side in (2, 5, 40):
        at = (np.arange(side) + 0.5) * 16 / side
        grid = np.stack(np.meshgrid(at, at, indexing="ij"), -1).reshape(-1, 2)
        figure = draw_clusters([replace(level, seats=grid, seat_centre=np.zeros(side**2, int))], picture, 16)
        key = panels(figure)[0]
        (dots,) = key.collections
        wide, rim = np.sqrt(dots.get_sizes()), dots.get_linewidths()
        apart = 72 * key.get_position().width * figure.get_figwidth() / side
        assert (wide < 0.7 * apart).all()
        assert (wide > min(10, 0.5 * apart)).all()
        assert (rim <= 1).all()
        assert (rim < wide / 7).all()


def test_what_was_clustered_is_said():
    coarse, windows, patches = cluster_levels(former(), torch.randn(3, 16, 24))
    assert vision._what(coarse) == ("4 x 6 patches", "4 clusters")
    assert vision._what(windows) == ("2 x 2 windows", "4 hyperbolic clusters")
    assert vision._what(patches) == ("8 x 12 patches", "4 clusters a window")


def test_coarse_to_fine_begins_with_the_picture():
    levels, picture = cluster_levels(former(), torch.randn(3, 16, 24)), photo(48, 72)
    figure = draw_coarse_to_fine(levels, picture, 16)
    assert not overlapping(figure)
    first, *others = panels(figure)
    assert label_of(figure, first) == "the picture"
    np.testing.assert_allclose(first.images[0].get_array(), picture / 255)
    for axes, level in zip(others, levels, strict=True):
        what, into = vision._what(level)
        even = "even: nothing is clustered" if level.even else "even in the mean of its heads"
        spread = spread_of(level.shares.mean(0, keepdims=True))[0]
        assert label_of(figure, axes) == (even if spread > EVEN * level.centres else f"into {into}")
        assert f"Stage {level.stage}: {what}" in words(figure)
        mean = sharpen(level.shares.mean(0, keepdims=True))[0][0]
        np.testing.assert_allclose(axes.images[0].get_array(), blend(mean, level.cell, picture / 255, 3.0))
    lefts = [placed(figure, axes)[0] for axes in (first, *others)]
    assert lefts == sorted(lefts)


def test_a_picture_of_clusters_reaches_the_disk(tmp_path):
    levels = cluster_levels(former(), torch.randn(3, 16, 16))
    draw_clusters(levels[:1], photo(), 16, tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


# -- the tree ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(8, 4, 2), (4, 2, 1), (6, 3), (64, 32)])
def test_names_and_branches_follow_the_parents(sizes):
    parents = tree_parents(sizes)
    names, branch = node_names(parents), branches(parents)
    assert len(set(names)) == len(names)
    for node, parent in enumerate(parents.tolist()):
        if parent >= 0:
            assert names[node][:-1] == names[parent]
            assert branch[node] == branch[parent]
    assert branch[-sizes[-1] :].tolist() == list(range(sizes[-1]))
    assert names[0] == "A" + "1" * (len(sizes) - 1)
    assert names[1].endswith("2")


def test_numbers_of_the_tree():
    tree = mapper().hierarchy(torch.randn(1, 3, 16, 16))
    tree.attention = torch.zeros_like(tree.attention)
    tree.attention[:, :, 0, :2] = 0.5  # two of sixteen places
    m, points = tree.manifold, tree.points[0].detach()
    top, middle, leaves = tree_numbers(tree)
    assert (top.nodes, middle.nodes, leaves.nodes) == (2, 4, 8)
    assert top.seen == pytest.approx(2 / 16)
    assert top.to_parent is None
    assert top.to_others == pytest.approx(m.dist(points[12], points[13]).item(), rel=1e-4)
    assert leaves.to_parent == pytest.approx(m.dist(points[:8], points[tree.parents[:8]]).mean().item(), rel=1e-4)
    assert middle.to_origin == pytest.approx(m.dist0(points[8:12]).mean().item(), rel=1e-4)
    assert [row[0] for row in tree_rows(tree)] == ["top", "2", "leaves"]
    assert tree_rows(tree)[0][4] == "—"
    assert (
        tree_numbers(mapper(leaves=2, levels=2).hierarchy(torch.randn(1, 3, 16, 16)))[0].to_others is None
    )  # one node at the top


@pytest.mark.parametrize("m", [Lorentz(c=0.5), Lorentz(c=4.0), Euclidean()])
@pytest.mark.parametrize("std", [0.1, 1.0, 4.0])
def test_the_mean_has_as_much_on_every_side(m, std):
    torch.manual_seed(0)
    points = m.lift(std * torch.randn(30, 6, dtype=torch.float64) + 0.5)
    mean = mean_point(points, m)
    towards = m.log(mean.expand_as(points), points)
    assert float(m.norm(mean, towards.mean(0))) < 1e-3 * float(m.dist(mean.expand_as(points), points).mean())


def test_heat_is_warm_where_a_node_looks():
    attention = torch.zeros(3, 5)
    attention[0, 3] = 1
    image = heat(attention, np.full((12, 20, 3), 0.5))  # places of 4 x 4 pixels
    assert image.shape == (12, 20, 3)
    red = image[..., 0] - image[..., 2]
    assert np.unravel_index(red.argmax(), red.shape) in [(y, x) for y in range(4) for x in range(12, 16)]
    assert red[8:, :] == pytest.approx(0)
    assert red[:, :8] == pytest.approx(0)
    assert ((image >= 0) & (image <= 1)).all()
    assert np.isfinite(heat(torch.zeros(2, 2), np.zeros((4, 4, 3)))).all()


def warm(share, grey=0.65):
    """A pixel of that share over a picture of this grey, which is 0.5 before it is paled."""
    return 0.8 * share * np.array(colormaps[vision.HEAT](0.25 + 0.75 * share)[:3]) + (1 - 0.8 * share) * grey


def test_heat_is_full_at_six_times_the_mean():
    attention = torch.ones(4, 4)
    attention[0, 0] = 9.0  # six times the mean of 24/16
    grey = np.full((4, 4, 3), 0.5)
    np.testing.assert_allclose(heat(attention, grey)[0, 0], warm(1.0), atol=1e-6)
    np.testing.assert_allclose(heat(attention, grey)[3, 3], warm(np.sqrt(1 / 9)), atol=1e-6)
    even = heat(torch.full((3, 5), 1 / 15), np.full((12, 20, 3), 0.5))
    np.testing.assert_allclose(even, np.broadcast_to(warm(np.sqrt(1 / 6)), even.shape), atol=1e-6)  # pale all over


def inches(figure, axes):
    """left, top, right, bottom"""
    box, (width, height) = axes.get_position(), figure.get_size_inches()
    return box.x0 * width, (1 - box.y1) * height, box.x1 * width, (1 - box.y0) * height


@pytest.mark.parametrize(
    ("leaves", "levels", "size"),
    [(32, 4, (16, 16)), (8, 3, (16, 24)), (8, 2, (24, 16)), (2, 2, (16, 16)), (48, 2, (16, 16)), (32, 6, (16, 16))],
)
def test_the_tree_stands_level_by_level_and_nothing_overlaps(leaves, levels, size):
    tree = mapper(leaves=leaves, levels=levels).hierarchy(torch.randn(1, 3, *size))
    figure = draw_tree(tree, photo(*size))
    _, _, *nodes = panels(figure)  # behind the picture and the scale
    assert len(nodes) == len(tree.parents)
    boxes = [inches(figure, axes) for axes in panels(figure)]
    width, height = figure.get_size_inches()
    assert all(left >= 0 and top >= 0 and right <= width and bottom <= height for left, top, right, bottom in boxes)
    apart = [
        a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1] for i, a in enumerate(boxes) for b in boxes[:i]
    ]
    assert all(apart)
    assert not overlapping(figure)
    assert set(node_names(tree.parents)) <= set(words(figure))

    by_name = {text.get_text(): text.get_position() for axes in figure.axes for text in axes.texts}
    names = node_names(tree.parents)
    for node, parent in enumerate(tree.parents.tolist()):
        if parent >= 0:
            assert by_name[names[node]][1] > by_name[names[parent]][1]  # children below; inches count downwards
    edges = figure.axes[0].lines
    assert len(edges) == int((tree.parents >= 0).sum()) + (tree.parents < 0).sum() * (leaves < 48)


def different(tree):
    """Every node looks at a place of its own."""
    nodes, (rows, columns) = len(tree.parents), tree.attention.shape[-2:]
    attention = torch.zeros(1, nodes, rows, columns)
    for node in range(nodes):
        attention[0, node, node * 5 % rows, node * 7 % columns] = 1 + node / 100
    tree.attention = attention
    return tree


def test_a_thumbnail_shows_its_own_node_in_the_frame_of_its_branch():
    tree = different(mapper().hierarchy(torch.randn(1, 3, 16, 24)))
    picture = photo(16, 24)
    figure = draw_tree(tree, picture)
    root, scale, *nodes = panels(figure)
    assert label_of(figure, root) == "the picture"
    np.testing.assert_allclose(root.images[0].get_array(), picture / 255)
    assert label_of(figure, scale) == "where a node looks"
    bar = np.asarray(scale.images[0].get_array())
    assert bar[0, -1, 0] - bar[0, -1, 2] > bar[0, 0, 0] - bar[0, 0, 2]  # warm on the right
    ends = {t.get_text(): t.get_position()[0] for t in figure.axes[0].texts if t.get_text() in ("not at all", "much")}
    assert ends["not at all"] < ends["much"]
    names, branch = node_names(tree.parents), branches(tree.parents)
    shown = {label_of(figure, axes): axes for axes in nodes}
    assert sorted(shown) == sorted(names)
    for node, name in enumerate(names):
        expected = heat(tree.attention[0, node], picture / 255)
        np.testing.assert_allclose(shown[name].images[0].get_array(), expected)
        assert {to_hex(spine.get_edgecolor()) for spine in shown[name].spines.values()} == {BRANCHES[branch[node]]}
        assert all(spine.get_visible() for spine in shown[name].spines.values())


def test_a_large_picture_is_made_smaller_for_thumbnails_and_keeps_its_shape():
    picture = np.zeros((20, 40, 3))
    picture[:4, 36:] = 1.0  # the upper right corner
    small = vision._resized(picture, 10)
    assert small.shape == (5, 10, 3)
    assert np.argwhere(small[..., 0] > 0.5).tolist() == [[0, 9]]
    assert vision._resized(picture, 40) is picture
    tree = different(mapper(leaves=2, levels=2).hierarchy(torch.randn(1, 3, 16, 24)))
    large = photo(300, 450)
    leaf = {label_of(f, axes): axes for f in [draw_tree(tree, large)] for axes in panels(f)}["A1"].images[0].get_array()
    assert leaf.shape[1] < 450
    assert leaf.shape[0] / leaf.shape[1] == pytest.approx(2 / 3, rel=0.02)


def test_children_stand_below_their_parent_and_two_leaves_in_order():
    tree = mapper().hierarchy(torch.randn(1, 3, 16, 24))
    figure = draw_tree(tree, photo(16, 24))
    box = {label_of(figure, axes): inches(figure, axes) for axes in panels(figure)}
    for name in ("A", "B"):
        left, right = box[f"{name}1"], box[f"{name}2"]
        assert left[2] < right[0]
        assert left[0] < (box[name][0] + box[name][2]) / 2 < right[2]
        for part in (1, 2):
            first, second = box[f"{name}{part}1"], box[f"{name}{part}2"]
            assert first[3] < second[1]  # one above the other
            assert box[f"{name}{part}"][3] < first[1]
            assert abs(first[0] - box[f"{name}{part}"][0]) < 0.5
    assert box["A"][2] < box["B"][0]


def test_an_edge_leads_from_parent_to_child_in_the_colour_of_the_branch():
    tree = mapper().hierarchy(torch.randn(1, 3, 16, 24))
    figure = draw_tree(tree, photo(16, 24))
    names, branch, parents = node_names(tree.parents), branches(tree.parents), tree.parents.tolist()
    box = {label_of(figure, axes): inches(figure, axes) for axes in panels(figure)}
    ends = {}
    for line in figure.axes[0].lines:
        ends[tuple(np.round(line.get_xydata()[-1], 3))] = line
    for node, name in enumerate(names):
        left, top, right, bottom = box[name]
        middle = (left + right) / 2
        leaf = tree.levels[node] == 0
        place = (left, (top + bottom) / 2) if leaf else (middle, top - vision.LABEL)
        line = ends[tuple(np.round(place, 3))]
        start = line.get_xydata()[0]
        if parents[node] < 0:
            picture = box["the picture"]
            np.testing.assert_allclose(start, [(picture[0] + picture[2]) / 2, picture[3]])
            assert to_hex(line.get_color()) == QUIET
        else:
            above = box[names[parents[node]]]
            assert start[1] == pytest.approx(above[3])
            assert above[0] - 1e-6 <= start[0] <= above[2]
            assert leaf or start[0] == pytest.approx((above[0] + above[2]) / 2)
            assert to_hex(line.get_color()) == BRANCHES[branch[node]]
    assert len(ends) == len(names)


@pytest.mark.parametrize("scale", [0.3, 30.0])
@pytest.mark.parametrize("geometry", ["lorentz", "euclidean"])
def test_nodes_on_the_disk_keep_their_distance_from_the_middle(geometry, scale):
    tree = mapper(geometry=geometry).hierarchy(torch.randn(1, 3, 16, 16))
    torch.manual_seed(0)
    m = tree.manifold
    tree.points = m.lift(scale * torch.randn(1, 14, 8, dtype=torch.float64) / 8**0.5).detach()
    figure = draw_nodes(tree)
    places = np.concatenate([c.get_offsets() for c in figure.axes[0].collections if len(c.get_offsets()) == 14])
    radius = np.linalg.norm(places, axis=1)
    assert 0.05 < np.median(radius) < 0.95
    seen = m.translate(tree.points[0], -mean_point(tree.points[0], m)).detach()
    if geometry == "lorentz":  # √c'·d/2 = artanh r for one c', which is no larger than c
        ratio = 2 * np.arctanh(np.sort(radius)) / np.sort(m.dist0(seen).detach().numpy())
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)
        c = m.c.item()
        assert ratio[0] <= np.sqrt(c) * (1 + 1e-4)
        shown = " ".join(text.get_text() for text in figure.texts)
        assert ("drawn with" in shown) == (ratio[0] < 0.99 * np.sqrt(c))
    assert isinstance(m, Lorentz if geometry == "lorentz" else Euclidean)
    named = {word for word in words(figure) if word}
    assert named <= {name for name, level in zip(node_names(tree.parents), tree.levels, strict=True) if level}
    assert "A" in named


def test_nodes_on_the_disk_are_joined_to_their_parents_and_named_by_branch():
    tree = mapper().hierarchy(torch.randn(1, 3, 16, 16))
    torch.manual_seed(0)
    tree.points = tree.manifold.lift(torch.randn(1, 14, 8, dtype=torch.float64) / 2).detach()
    figure = draw_nodes(tree)
    names, parents, branch = node_names(tree.parents), tree.parents.tolist(), branches(tree.parents)
    edges = next(c for c in figure.axes[0].collections if isinstance(c, LineCollection)).get_segments()
    at = {}
    for child, segment in zip([n for n in range(14) if parents[n] >= 0], edges, strict=True):
        for node, end in ((parents[child], segment[0]), (child, segment[-1])):
            np.testing.assert_allclose(at.setdefault(node, end), end, atol=1e-9)  # one place for all its edges
    dots = next(c for c in figure.axes[0].collections if isinstance(c, PathCollection))
    order = order_of(dots.get_offsets(), [at[node] for node in range(14)])
    colours = [to_hex(c) for c in dots.get_facecolor()[order]]
    (legend,) = figure.legends
    told = {t.get_text(): to_hex(h.get_color()) for t, h in zip(legend.get_texts(), legend.legend_handles, strict=True)}
    assert set(told) == {"branch A", "branch B"}
    assert colours == [told[f"branch {'AB'[b]}"] for b in branch]
    named = {t.get_text(): t.xy for t in figure.axes[0].texts if t.get_text()}
    assert {"A", "B"} <= set(named)
    for name, xy in named.items():
        np.testing.assert_allclose(xy, at[names.index(name)], atol=1e-9)
        assert tree.levels[names.index(name)] > 0  # leaves have no names


def test_one_image_at_a_time():
    tree = mapper().hierarchy(torch.randn(2, 3, 16, 16))
    for call in (tree_numbers, lambda t: draw_tree(t, photo()), draw_nodes):
        with pytest.raises(UserError, match="a hierarchy of 2 images"):
            call(tree)


# -- explain ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A trained Hi-Mapper around an HCFormer: both kinds of pictures."""
    folder = tmp_path_factory.mktemp("explain")
    data = write_npz(folder / "data.npz")
    settings = [
        "steps=2",
        "eval_every=none",
        "window_centres=4,1,1,0",
        "tree.leaves=4",
        "tree.levels=2",
        "tree.width=8",
        "tree.heads=2",
    ]
    run_tiny(tiny("pictures", data, *settings), folder / "run")
    return folder / "run"


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "street.png"
    Image.fromarray(photo(20, 30)).save(path)
    return path


@pytest.fixture
def coarse(monkeypatch):
    """Pictures of fewer pixels: quicker, and just as many."""
    monkeypatch.setattr(report_module, "render", lambda figure, dpi=None: render(figure, dpi=30))
    monkeypatch.setattr(explain_verb, "SHOWN", 64)


@pytest.fixture
def explained(capsys):
    """explained(image, model, *words): exit code, output and complaint of the command."""
    run = runner(capsys, "explain")
    return lambda image, model, *words: run(image, "--model", model, *words)


@pytest.mark.usefixtures("coarse")
def test_a_run_and_a_picture_become_a_folder(run, image, tmp_path, explained):
    code, out, err = explained(image, run, "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    answers = [line.split() for line in out.splitlines() if line.endswith("%")]
    shares = [float(words[-2]) for words in answers]
    assert len(answers) == 4
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=0.3)
    stages = [f"clusters-stage-{stage}.png" for stage in (1, 2, 3, 4)]
    files = {"report.html", "clusters.png", *stages, "tree.png", "tree-disk.png"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == files
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.count("<img ") == 7
    headings = ("street.png", "The answer", "Clusters, coarse to fine", "The tree of parts")
    assert all(heading in page for heading in headings)
    assert "exists already" in explained(image, run, "--out", tmp_path / "out")[2]


@pytest.mark.usefixtures("coarse")
def test_a_page_of_a_model_that_was_never_trained(image, tmp_path, explained):
    state = torch.random.get_rng_state()
    code, out, _ = explained(image, "hcformer-nano-32", "--out", tmp_path / "page.html", "--random-weights")
    assert code == 0
    assert torch.equal(state, torch.random.get_rng_state())
    assert "%" not in out
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "random weights" in page
    assert "The answer" not in page
    assert "The tree" not in page


def explained_tree(**more):
    tree = different(mapper().hierarchy(torch.randn(1, 3, 16, 24)))
    answers = [("<a>", 0.625), ("b", 0.25), ("c", 0.125)]
    clusters = cluster_levels(former(), torch.randn(3, 16, 24))
    return Explanation(
        **{"picture": photo(16, 24), "size": 16, "answers": answers, "clusters": clusters, "tree": tree} | more
    )


NAMES = ["clusters", "clusters-stage-2", "clusters-stage-1", "tree", "tree-disk"]
FIRST_WORDS = {  # by what each picture is known
    "clusters": "the picture",
    "clusters-stage-2": "Stage 2: 4 x 6 patches into 4 clusters",
    "clusters-stage-1": "Stage 1: 2 x 2 windows into 4 hyperbolic clusters",
    "tree": "where a node looks",
}


def is_shown(figure, name):
    if name == "tree-disk":
        return figure.texts[0].get_text().startswith("The tree, seen from the mean of its nodes")
    return FIRST_WORDS[name] in words(figure) and (name != "clusters" or "where a node looks" not in words(figure))


def test_pictures_come_in_order_under_their_own_names():
    seen = explained_tree()
    drawn = {name: (figure, caption) for name, figure, caption in pictures(seen)}
    assert list(drawn) == NAMES
    assert all(is_shown(figure, name) for name, (figure, _) in drawn.items())
    for name in NAMES[:-1]:  # each begins with the picture that was given
        np.testing.assert_allclose(panels(drawn[name][0])[0].images[0].get_array(), seen.picture / 255)
    assert [len(panels(drawn[f"clusters-stage-{stage}"][0])) for stage in (2, 1)] == [1 + 5, 2 * (1 + 2)]
    assert "last block of stage 2" in drawn["clusters-stage-2"][1]
    assert "last block of stage 1" in drawn["clusters-stage-1"][1]


def test_the_page_tells_the_answer_and_shows_each_picture_over_its_caption(tmp_path, album):
    seen = explained_tree()
    (path,) = save_explanation(seen, "mine", "by me", tmp_path / "page.html")
    page = read_page(path.read_text(encoding="utf-8"))
    assert (page.heading, page.of("p")[0]) == ("mine", "by me")
    assert page.of("h2") == ["The answer", "Clusters, coarse to fine", "The tree of parts"]
    answer, levels = page.of("table")
    assert (answer.head, answer.best) == (["class", "probability"], [0])
    assert answer.rows == [["<a>", "62.5 %"], ["b", "25.0 %"], ["c", "12.5 %"]]
    assert levels.head[:3] == ["level", "nodes", "share of the picture seen"]
    assert levels.rows == tree_rows(seen.tree)
    assert [image.caption for image in page.of("img")] == [caption for *_, caption in pictures(seen)]
    for name, image in zip(NAMES, page.of("img"), strict=True):
        assert is_shown(album[image.content], name)
    kinds = [kind if kind != "h2" else text for kind, text in page.parts if kind in ("h2", "img", "table")]
    assert kinds == [
        *("The answer", "table"),
        *("Clusters, coarse to fine", "img", "img", "img"),
        *("The tree of parts", "table", "img", "img"),
    ]


def test_a_folder_holds_each_picture_under_its_own_name(tmp_path, album):
    written = save_explanation(explained_tree(), "mine", "", tmp_path / "out")
    assert [path.stem for path in written] == ["report", *NAMES]
    for path in written[1:]:
        assert is_shown(album[path.read_bytes()], path.stem)


def test_the_table_of_levels_is_that_of_the_tree():
    tree = different(mapper().hierarchy(torch.randn(1, 3, 16, 24)))
    for row, level in zip(tree_rows(tree), tree_numbers(tree), strict=True):
        assert row[1] == str(level.nodes)
        assert row[2] == f"{100 * level.seen:.1f} %"
        numbers = (level.to_origin, level.to_parent, level.to_others)
        assert row[3:] == ["—" if value is None else f"{value:.2f}" for value in numbers]
    assert [row[0] for row in tree_rows(mapper(leaves=16, levels=4).hierarchy(torch.randn(1, 3, 16, 16)))] == [
        "top",
        "2",
        "3",
        "leaves",
    ]


@pytest.mark.usefixtures("coarse")
def test_what_a_mapper_alone_has_to_show(tmp_path):
    seen = explain(mapper(), torch.randn(3, 16, 16), photo(), ["<a>", "b", "c"])
    assert seen.picture.shape[-1] == 3
    assert all(caption.endswith(".") for *_, caption in pictures(seen))
    (page,) = save_explanation(seen, "mine", "", tmp_path / "page.html")
    assert "&lt;a&gt;" in page.read_text()
    assert "Clusters" not in page.read_text()
    with pytest.raises(UserError, match="Conv has neither clusters nor a tree"):
        explain(Conv(), torch.randn(3, 16, 16), photo())


def test_mistakes_are_named_and_nothing_is_written(run, image, tmp_path, monkeypatch, explained):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 no picture")
    (tmp_path / "cut.png").write_bytes(image.read_bytes()[:200])
    Image.new("RGBA", (8, 8)).save(tmp_path / "four.png")
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(tmp_path / "deep.png")
    before = sorted(tmp_path.iterdir())
    cases = [
        (run, "broken.jpg", (), "broken.jpg: no readable picture ("),
        (run, "cut.png", (), "cut.png: no readable picture ("),
        (run, "four.png", (), "four.png: 4 channels (RGBA, transparent) instead of RGB or grey"),
        (run, "deep.png", (), "deep.png: 1 channels (I;16) instead of RGB or grey"),
        (run, "absent.png", (), "absent.png: no such picture"),
        (run, ".", (), "no such picture"),
        ("absent", image, (), "absent: no folder of a run"),
        ("hcformer-nano-32", image, (), "hcformer-nano-32: a recipe, not a run"),
        (
            "hcformer-nana",
            image,
            ("--random-weights",),
            "hcformer-nana: no recipe of a model of pictures; did you mean hcformer-nano",
        ),
        ("helm-d-tiny", image, ("--random-weights",), "helm-d-tiny: no recipe of a model of pictures"),
    ]
    for model, picture, more, message in cases:
        code, out, err = explained(picture, model, "--out", "out", *more)
        assert (code, out) == (2, "")
        assert err.startswith(f"horosphere: {message}") or message == "no such picture"
        assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_levels_are_those_of_the_model():
    tree = mapper().hierarchy(torch.randn(1, 3, 16, 16))
    assert torch.equal(tree.levels, tree_levels((8, 4, 2)))
