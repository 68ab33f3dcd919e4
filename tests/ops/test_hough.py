"""Hough transforms: scikit-image's cells for lines, loops for circles and peaks; what was drawn comes back."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from horosphere.data import scenes
from horosphere.errors import UserError
from horosphere.ops import hough
from horosphere.ops.hough import hough_circles, hough_lines, peaks, strongest_circles, strongest_lines


def some_edges(*shape, share=0.05, seed=0):
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share).float()


def drawn_line(height, width, rho, theta):
    """Pixels within half a pixel of a line."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return ((x * math.cos(theta) + y * math.sin(theta) - rho).abs() <= 0.5).float()


def drawn_circles(height, width, circles):
    """Pixels within half a pixel of circles (x, y, r), and the direction away from the centre there."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    edges, direction = torch.zeros(height, width), torch.zeros(height, width)
    for a, b, r in circles:
        on = (torch.hypot((x - a).float(), (y - b).float()) - r).abs() <= 0.5
        edges[on], direction[on] = 1.0, torch.atan2((y - b).float(), (x - a).float())[on]
    return edges[None, None], direction[None, None]


# -- lines ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("height", "width", "angles"), [(40, 60, 180), (33, 21, 180), (1, 9, 180), (30, 30, 45), (16, 50, 7)]
)
def test_lines_are_scikit_images_cell_for_cell(height, width, angles):
    transform = pytest.importorskip("skimage.transform")
    edges = some_edges(4, 1, height, width, share=0.2)
    votes, rho, theta = hough_lines(edges, angles)
    for picture, ours in zip(edges[:, 0], votes, strict=True):
        theirs, their_theta, their_rho = transform.hough_line(
            picture.numpy(), np.linspace(-np.pi / 2, np.pi / 2, angles, False)
        )
        assert np.array_equal(ours.numpy(), theirs)
        assert np.array_equal(rho.numpy(), their_rho)
        np.testing.assert_allclose(theta.numpy(), their_theta, rtol=0, atol=1e-15)


def test_edges_of_a_photograph():
    transform, data, feature = (pytest.importorskip(f"skimage.{name}") for name in ("transform", "data", "feature"))
    edges = feature.canny(data.camera()[::2, ::2] / 255, 1.5)
    theirs = transform.hough_line(edges, np.linspace(-np.pi / 2, np.pi / 2, 180, endpoint=False))[0]
    assert np.array_equal(hough_lines(torch.tensor(edges)[None, None])[0][0].numpy(), theirs)


def test_every_pixel_votes_once_an_angle(monkeypatch):
    edges = some_edges(3, 1, 20, 30) * 0.3  # not 0 is an edge, whatever it is
    votes, rho, theta = hough_lines(edges)
    assert (votes.sum(1) == (edges != 0).sum((1, 2, 3))[:, None]).all()
    assert votes.shape == (3, len(rho), len(theta))
    assert_close(votes, torch.cat([hough_lines(one[None])[0] for one in edges]))  # a batch is its pictures
    monkeypatch.setitem(hough.CELLS, "cpu", 500)  # and blocks of a few pixels are the whole
    assert_close(hough_lines(edges)[0], votes)
    assert hough_lines(torch.zeros(2, 1, 8, 9))[0].sum() == 0
    assert peaks(hough_lines(edges[:0])[0], threshold=1).shape == (0, 3)


@pytest.mark.parametrize(("rho", "degrees"), [(30, 0), (25, 45), (40, 60), (-12, -45), (5, -30), (-17, -90), (20, 89)])
def test_a_drawn_line_comes_back(rho, degrees):
    edges = drawn_line(60, 80, rho, math.radians(degrees))[None, None]
    votes, rhos, theta = hough_lines(edges)
    _, i, j = peaks(votes, threshold=0.9 * votes.max().item())[0]
    assert rhos[i].item() == pytest.approx(rho, abs=1)
    assert math.degrees(theta[j]) == pytest.approx(degrees, abs=1.01)


def test_several_lines_come_back_from_noise():
    drawn = [(30, 0), (45, 40), (-10, -60)]
    edges = some_edges(1, 1, 90, 100, share=0.03)
    for rho, degrees in drawn:
        edges[0, 0] += drawn_line(90, 100, rho, math.radians(degrees))
    votes, rhos, theta = hough_lines(edges)
    found = peaks(votes, threshold=50, reach=6)
    assert len(found) == 3
    assert sorted((round(rhos[i].item()), round(math.degrees(theta[j]))) for _, i, j in found) == sorted(drawn)


# -- circles ----------------------------------------------------------------------------------------------------------


def circles_by_loops(edges, direction, radii):
    votes = torch.zeros(len(edges), len(radii), *edges.shape[-2:], dtype=torch.int64)
    for picture, _, y, x in edges.nonzero().tolist():
        theta = direction[picture, 0, y, x].item()
        for (k, r), sign in itertools.product(enumerate(radii), (-1, 1)):
            a, b = round(x + sign * r * math.cos(theta)), round(y + sign * r * math.sin(theta))
            if 0 <= a < edges.shape[-1] and 0 <= b < edges.shape[-2]:
                votes[picture, k, b, a] += 1
    return votes


def test_circles_by_loops(monkeypatch):
    edges, radii = some_edges(2, 1, 20, 26), [3, 4.5, 8]
    direction = torch.rand(2, 1, 20, 26, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 7
    expected = circles_by_loops(edges, direction, radii)
    assert torch.equal(hough_circles(edges, direction, radii), expected)
    assert torch.equal(hough_circles(edges, direction + math.pi, radii), expected)  # both signs: a turn by π is nothing
    monkeypatch.setitem(hough.CELLS, "cpu", 50)
    assert torch.equal(hough_circles(edges, direction, radii), expected)


def test_a_drawn_circle_comes_back():
    edges, direction = drawn_circles(100, 100, [(50, 50, 20)])
    radii = list(range(15, 26))
    for turn in (0.0, math.pi):  # a bright disc and a dark one
        votes = hough_circles(edges, direction + turn, radii)
        found = peaks(votes, threshold=0.7 * edges.sum().item())
        assert found.tolist() == [[0, radii.index(20), 50, 50]]


def test_circles_of_a_picture_through_its_edges():
    """Canny's edges and Sobel's direction of two discs, one bright and one dark, of different sizes."""
    filters = pytest.importorskip("kornia.filters")
    y, x = torch.meshgrid(torch.arange(90.0), torch.arange(120.0), indexing="ij")
    picture = torch.full((1, 1, 90, 120), 0.5)
    for (a, b, r), bright in (((35, 40, 18), 1.0), ((85, 50, 26), 0.0)):
        picture[0, 0][torch.hypot(x - a, y - b) <= r] = bright
    edges = filters.canny(picture, 0.3, 0.6)[1]
    g_x, g_y = filters.spatial_gradient(filters.gaussian_blur2d(picture, 7, (1.0, 1.0))).unbind(2)
    radii = torch.arange(12, 34)
    votes = hough_circles(edges, torch.atan2(g_y, g_x), radii)
    found = sorted((b.item(), a.item(), radii[k].item()) for _, k, a, b in peaks(votes, threshold=25, reach=5))
    assert len(found) == 2
    for ours, drawn in zip(found, [(35, 40, 18), (85, 50, 26)], strict=True):
        assert ours == pytest.approx(drawn, abs=1)


# -- peaks ------------------------------------------------------------------------------------------------------------


def peaks_by_loops(votes, threshold, reach):
    """Highest: no neighbour has more votes. A peak: highest, and no neighbour before it is highest too."""
    found = []
    for picture, cells in enumerate(votes.numpy()):

        def around(place, cells=cells):
            windows = [
                range(max(0, p - reach), min(size, p + reach + 1)) for p, size in zip(place, cells.shape, strict=True)
            ]
            return [other for other in itertools.product(*windows) if other != place]

        highest = {
            place
            for place in np.ndindex(cells.shape)
            if cells[place] >= threshold and all(cells[other] <= cells[place] for other in around(place))
        }
        firsts = [place for place in highest if not any(other in highest and other < place for other in around(place))]
        found += [[picture, *place] for place in sorted(firsts, key=lambda place: (-cells[place], place))]
    return found


@pytest.mark.parametrize("shape", [(2, 9, 12), (2, 5, 6, 7)])
@pytest.mark.parametrize("reach", [1, 2])
def test_peaks_by_loops(shape, reach):
    votes = torch.randint(0, 6, shape, generator=torch.Generator().manual_seed(reach))  # few values: many ties
    for threshold in (0, 3, 5):
        assert peaks(votes, threshold, reach).tolist() == peaks_by_loops(votes, threshold, reach)


def test_neighbours_of_a_peak():
    """8 in a plane, 26 in space: a cell with a higher one at a corner is no peak. The notes count 8 in space too."""
    for axes, count in ((2, 8), (3, 26)):
        others = [o for o in itertools.product((0, 1, 2), repeat=axes) if o != (1,) * axes]
        assert len(others) == count
        for other in others:
            votes = torch.zeros((1, *(3,) * axes))
            votes[(0, *(1,) * axes)], votes[(0, *other)] = 5, 6
            assert peaks(votes, threshold=1).tolist() == [[0, *other]]


def test_a_plateau_is_one_peak():
    votes = torch.zeros(1, 6, 9)
    votes[0, 2:4, 1:7] = 4
    assert peaks(votes, threshold=1).tolist() == [[0, 2, 1]]
    assert peaks(votes, threshold=5).shape == (0, 3)


# -- both -------------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu():
    edges, direction = some_edges(3, 1, 40, 50), torch.rand(3, 1, 40, 50)
    votes = hough_lines(edges)[0]
    assert torch.equal(hough_lines(edges.cuda())[0].cpu(), votes)
    assert torch.equal(peaks(votes.cuda(), 5).cpu(), peaks(votes, 5))
    assert_close(hough_circles(edges.cuda(), direction.cuda(), [3, 5]).cpu(), hough_circles(edges, direction, [3, 5]))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: hough_lines(torch.zeros(2, 3, 9, 9)), "edges of shape (2, 3, 9, 9): give (B, 1, H, W)"),
        (lambda: hough_lines(torch.zeros(9, 9)), "edges of shape (9, 9): give (B, 1, H, W)"),
        (lambda: hough_lines(torch.zeros(1, 1, 9, 9), 0), "angles=0: lines need one angle or more"),
        (
            lambda: hough_circles(torch.zeros(1, 1, 9, 9), torch.zeros(9, 9), [3]),
            "directions of shape (9, 9) for edges",
        ),
        (lambda: hough_circles(*torch.zeros(2, 1, 1, 9, 9), []), "radii=[]: give a list of lengths"),
        (lambda: hough_circles(*torch.zeros(2, 1, 1, 9, 9), [3, -1]), "radii=[3, -1]: give a list of lengths"),
        (lambda: peaks(torch.zeros(9, 9), 1), "votes of shape (9, 9): give (B, R, A)"),
        (lambda: peaks(torch.zeros(1, 9, 9), 1, 0), "reach=0: the nearest neighbours are one cell away"),
    ],
)
def test_mistakes_are_one_line(call, said):
    with pytest.raises(UserError) as error:
        call()
    assert said in str(error.value)
    assert "\n" not in str(error.value)


# -- the strongest ----------------------------------------------------------------------------------------------------


def seen(pixels):
    pytest.importorskip("kornia", reason="edges are kornia's")
    from horosphere.ops.edges import canny

    return canny(torch.from_numpy(pixels[..., 0])[None, None].float() / 255)


@pytest.mark.parametrize("number", range(4))
def test_lines_are_found_where_they_were_drawn(number):
    picture, truth = scenes.drawn_lines(number)
    found = strongest_lines(seen(picture)[0]).numpy()
    assert len(found) == len(truth)
    for rho, theta in truth:
        apart = abs(found[:, 1] - theta)
        wrapped = apart > math.pi / 2  # the same line, half a turn on
        angle = np.where(wrapped, math.pi - apart, apart)
        distance = abs(np.where(wrapped, -found[:, 0], found[:, 0]) - rho)
        assert ((np.degrees(angle) < 1.5) & (distance < 2.5)).sum() == 1  # a stroke's edges lie a pixel beside it


def test_a_line_across_the_end_of_angles_is_one_line():
    edges = torch.zeros(1, 1, 100, 160)
    edges[..., 40, :] = 1
    assert strongest_lines(edges)[:, :2].tolist() == [[-40, -math.pi / 2]]


@pytest.mark.parametrize("number", range(4))
def test_circles_are_found_where_they_were_drawn(number):
    picture, truth = scenes.drawn_circles(number)
    found = strongest_circles(*seen(picture), range(5, 60)).numpy()
    assert len(found) == len(truth)
    for circle in truth:
        assert (abs(found[:, :3] - circle).max(1) < 2).sum() == 1


def test_all_coins_are_found():
    pytest.importorskip("skimage", reason="the photograph is scikit-image's")
    from horosphere.data.photographs import read_photograph

    assert len(strongest_circles(*seen(read_photograph("builtin:coins")), range(15, 36), count=40)) == 24


def test_the_strongest_of_nothing():
    nothing = torch.zeros(1, 1, 30, 30)
    assert len(strongest_lines(nothing)) == len(strongest_circles(nothing, nothing, range(5, 9))) == 0
    with pytest.raises(UserError, match="edges of 2 pictures"):
        strongest_lines(torch.zeros(2, 1, 30, 30))
