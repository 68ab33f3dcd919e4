"""Edges: kornia's Canny pixel for pixel, at the price of one labelling."""

import math

import pytest
import torch
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.ops.edges import canny

kornia = pytest.importorskip("kornia", reason="the slopes of edges are kornia's")


def photograph():
    from horosphere.data.photographs import read_photograph

    pytest.importorskip("skimage", reason="the photograph is scikit-image's")
    return torch.from_numpy(read_photograph("builtin:camera", longest=200)).permute(2, 0, 1)[None, :1].float() / 255


def test_edges_are_those_of_kornia():
    picture = photograph()
    ours, _ = canny(picture, 0.3, 0.9, sigma=1.0)
    _, theirs = kornia.filters.canny(picture, 0.3, 0.9, (7, 7), (1.0, 1.0))
    assert_close(ours, theirs)
    assert 0.01 < ours.mean() < 0.2


def test_without_thresholds_the_steepest_tenth_begins_an_edge():
    picture = photograph()
    blurred = kornia.filters.gaussian_blur2d(picture, (7, 7), (1.0, 1.0))
    raw = 8 * torch.linalg.vector_norm(kornia.filters.spatial_gradient(blurred), dim=2)
    high = raw.flatten().sort().values[math.ceil(0.9 * raw.numel()) - 1].item()
    assert_close(canny(picture)[0], canny(picture, high / 2, high)[0])
    assert canny(torch.full((1, 1, 20, 20), 0.5))[0].sum() == 0  # flat: nothing is steep, though a tenth always is


@pytest.mark.parametrize(("turns", "angle"), [(0, 0.0), (1, -90.0), (2, 180.0), (3, 90.0)])
def test_directions_point_to_the_brighter_side(turns, angle):
    step = torch.zeros(1, 1, 21, 21)
    step[..., 10:] = 1
    edges, direction = canny(step.rot90(turns, (2, 3)))
    found = torch.rad2deg(direction[edges == 1])
    assert len(found) >= 15
    difference = (found - angle + 180) % 360 - 180
    assert difference.abs().max() < 1


def test_every_picture_has_its_own_chains():
    a, b = photograph(), photograph().flip(3)
    both, _ = canny(torch.cat([a, b]), 0.3, 0.9)
    assert_close(both, torch.cat([canny(a, 0.3, 0.9)[0], canny(b, 0.3, 0.9)[0]]))


def test_thresholds_the_wrong_way_round():
    with pytest.raises(UserError, match=r"low=0.9 high=0.3"):
        canny(torch.rand(1, 1, 20, 20), 0.9, 0.3)
