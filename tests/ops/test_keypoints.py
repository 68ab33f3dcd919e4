"""Corners, SIFT's points and the map between two photographs, where the truth is known."""

import numpy as np
import pytest
import torch

from horosphere.data.scenes import moved
from horosphere.errors import UserError
from horosphere.ops.darkroom import grey
from horosphere.ops.keypoints import affine_between, corners, match, sift

pytest.importorskip("kornia", reason="half of it is kornia's")


def light(pixels):
    return grey(torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255)


def board(squares=5, side=12):
    place = torch.arange(squares * side) // side
    return ((place + place[:, None]) % 2).float()[None, None]


@pytest.mark.parametrize("method", ["harris", "gftt", "noble"])
def test_corners_of_a_chessboard(method):
    """4 x 4 inner corners lie between four pixels; those of the border are none, as it is mirrored there."""
    found = corners(board(), method, count=100)
    inner = torch.cartesian_prod(*[torch.arange(1, 5) * 12 - 0.5] * 2)
    assert len(found) == 16
    assert torch.cdist(found, inner).min(1).values.max() < 1
    assert len(corners(board(), method, count=3)) == 3


def test_flat_pictures_have_no_corners():
    assert len(corners(torch.full((1, 1, 30, 30), 0.5))) == 0


@pytest.mark.parametrize("radius", [4.0, 8.0, 11.0])
def test_sift_finds_a_disc_and_its_radius(radius):
    y, x = np.mgrid[:96, :96]
    disc = torch.from_numpy((np.hypot(x - 45, y - 50) < radius).astype(np.float32))[None, None]
    found = sift(disc, count=1)
    assert (found.points[0] - torch.tensor([45.0, 50.0])).abs().max() < 0.2
    assert found.scales[0].item() == pytest.approx(radius, rel=0.08)


def test_turns_of_sift_go_from_x_to_y():
    """A disc on a ramp that gets brighter downwards: +90° where y goes down."""
    pytest.importorskip("skimage", reason="the photograph is scikit-image's")
    from horosphere.data.photographs import read_photograph

    picture = light(read_photograph("builtin:camera", longest=160))
    first, second = sift(picture, 200), sift(picture.rot90(-1, (2, 3)), 200)  # clockwise on screen: x becomes y
    here, there = first.points, torch.stack([second.points[:, 1], 159 - second.points[:, 0]], 1)
    near = torch.cdist(here, there).min(1)
    same = near.values < 0.5
    turned = torch.rad2deg(second.turns[near.indices[same]] - first.turns[same]) % 360
    assert same.sum() > 50
    assert ((turned - 90).abs() < 5).float().mean() > 0.8


@pytest.mark.parametrize("kind", ["shift", "rotation"])
def test_the_map_between_two_photographs_is_the_one_they_were_made_by(kind):
    scene = moved(0, kind=kind, height=200, width=260, reach=25.0)
    here, there = match(sift(light(scene.first)), sift(light(scene.second)))
    map, agree = affine_between(here, there)
    assert agree.sum() > 30
    corners_of = np.array([[0, 0, 1], [259, 0, 1], [0, 199, 1], [259, 199, 1]])
    off = corners_of @ (map.double().numpy() - scene.map[:2]).T
    assert abs(off).max() < 0.5


def test_false_pairs_do_not_count():
    generator = torch.Generator().manual_seed(0)
    here = 100 * torch.rand(60, 2, generator=generator)
    there = here @ torch.tensor([[0.9, 0.3], [-0.2, 1.1]]).T + torch.tensor([5.0, 40.0])
    there[:20] = 100 * torch.rand(20, 2, generator=generator)
    map, agree = affine_between(here, there)
    assert agree[20:].all()
    assert agree[:20].sum() <= 1
    assert (map - torch.tensor([[0.9, 0.3, 5.0], [-0.2, 1.1, 40.0]])).abs().max() < 0.05


def test_pairs_that_fix_no_map():
    with pytest.raises(UserError, match="2 pairs of points: an affine map needs 3"):
        affine_between(torch.rand(2, 2), torch.rand(2, 2))
    line = torch.arange(20.0)[:, None] * torch.tensor([1.0, 2.0])
    with pytest.raises(UserError, match="pairs of points"):
        affine_between(line, line)
