"""A box through frames: patches whose ways are known, and what is lost."""

import numpy as np
import pytest
import torch

from horosphere.data.scenes import moving_patch
from horosphere.errors import UserError
from horosphere.ops.following import follow_box

pytest.importorskip("skimage", reason="the frames are made of its photographs")


def grey(frames):
    return [torch.from_numpy(frame).float().mean(-1)[None, None] / 255 for frame in frames]


@pytest.mark.parametrize("number", [0, 1, 2, 4, 5, 6, 7, 8])
def test_a_patch_is_followed(number):
    frames, boxes = moving_patch(number, frames=16)
    steps = list(follow_box(grey(frames), torch.from_numpy(boxes[0])))
    assert not any(step.lost for step in steps)
    found = np.stack([step.box.numpy() for step in steps])
    assert np.array_equal(found[0], boxes[0])
    assert abs(found - boxes).max() < 0.3  # after 15 steps of up to 4 pixels


def test_a_patch_that_vanishes_is_lost_there():
    frames, boxes = moving_patch(1, frames=8)
    frames[5:] = 128
    steps = list(follow_box(grey(frames), torch.from_numpy(boxes[0])))
    assert [step.lost for step in steps] == [False] * 5 + [True]
    assert torch.equal(steps[5].box, steps[4].box)


def test_a_box_that_leaves_the_picture_is_lost():
    picture = torch.rand(1, 1, 60, 60, generator=torch.Generator().manual_seed(0))
    picture = torch.nn.functional.interpolate(picture, (240, 240), mode="bicubic")
    frames = [
        picture[..., 60:180, 60 + 5 * step : 180 + 5 * step].clone() for step in range(12)
    ]  # it moves to the left
    steps = list(follow_box(frames, torch.tensor([20.0, 40.0, 50.0, 70.0])))
    assert steps[-1].lost
    assert 5 <= len(steps) < 12
    assert (steps[3].box - torch.tensor([5.0, 40.0, 35.0, 70.0])).abs().max() < 0.3


def test_frames_of_two_sizes():
    with pytest.raises(UserError, match="frames of 40 x 30 and 40 x 31 pixels"):
        list(follow_box([torch.rand(1, 1, 30, 40), torch.rand(1, 1, 31, 40)], torch.tensor([5.0, 5.0, 20.0, 20.0])))
