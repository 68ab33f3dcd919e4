"""Pictures over photographs: as large as these, and drawn where it says."""

import numpy as np
import pytest
import torch
from PIL import Image

from horosphere.errors import UserError
from horosphere.plots.photographs import (
    brightest,
    developed,
    draw_boxes,
    draw_circles,
    draw_flow,
    draw_lines,
    draw_matches,
    draw_path,
    draw_points,
    flow_colours,
    require_picture_place,
    save_photograph,
)

pytest.importorskip("matplotlib", reason="it draws")
SIZES = [(97, 130), (500, 741), (33, 600), (303, 384)]


def photograph(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def amber(pixels):
    """(y, x) of pixels of the colour of what was found"""
    return np.argwhere(abs(pixels.astype(int) - (255, 176, 0)).max(-1) < 40)


@pytest.mark.parametrize("size", SIZES)
def test_pixels_stay_where_nothing_is_drawn(size):
    pixels = photograph(*size)
    nothing = [
        draw_lines(pixels, np.zeros((0, 3))),
        draw_circles(pixels, np.zeros((0, 4))),
        draw_points(pixels, np.zeros((0, 2))),
        draw_boxes(pixels, np.zeros((0, 4))),
    ]
    assert all(np.array_equal(picture, pixels) for picture in nothing)


def test_lines_circles_points_and_boxes_lie_where_they_are():
    grey = np.full((200, 300, 3), 90, dtype=np.uint8)
    y, x = amber(draw_lines(grey, np.array([[40.0, np.pi / 2]]))).T
    assert y.mean() == pytest.approx(40, abs=0.5)
    assert (x.min(), x.max()) == (0, 299)
    y, x = amber(draw_circles(grey, np.array([[100.0, 80.0, 30.0]]))).T
    assert (x.mean(), y.mean()) == pytest.approx((100, 80), abs=0.5)
    assert np.hypot(x - 100, y - 80).max() == pytest.approx(30, abs=1.5)
    y, x = amber(draw_points(grey, np.array([[250.0, 20.0]]))).T
    assert (x.mean(), y.mean()) == pytest.approx((250, 20), abs=0.5)
    y, x = amber(draw_boxes(grey, np.array([[50.0, 60.0, 120.0, 90.0]]))).T
    # pixel i covers [i, i + 1): the middle of the box is called 84.5, 74.5 where centres of pixels are whole numbers
    assert ((x.min() + x.max()) / 2, (y.min() + y.max()) / 2) == pytest.approx((84.5, 74.5), abs=0.6)
    assert x.max() - x.min() == pytest.approx(70, abs=2)


def test_a_hand_shows_where_a_point_turns():
    grey = np.full((100, 100, 3), 90, dtype=np.uint8)
    one = np.array([[50.0, 50.0]])
    down = amber(draw_points(grey, one, np.array([20.0]), np.array([np.pi / 2])))
    inside = down[np.hypot(*(down - 50).T) < 15]
    assert inside[:, 0].mean() > 52  # y goes down
    assert inside[:, 1].mean() == pytest.approx(50, abs=0.5)


def test_the_box_of_a_lost_thing_is_of_another_colour():
    grey = np.full((100, 100, 3), 90, dtype=np.uint8)
    boxes = np.array([[10.0, 10, 30, 30], [40, 50, 60, 70]])
    kept, lost = draw_path(grey, boxes), draw_path(grey, boxes, lost=True)
    assert kept.shape == lost.shape == grey.shape
    assert len(amber(kept)) > len(amber(lost)) > 20


def test_matches_stand_side_by_side():
    left, right = photograph(60, 80), photograph(90, 70, seed=1)
    made = draw_matches(left, right, np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0, dtype=bool))
    assert made.shape == (90, 158, 3)
    assert np.array_equal(made[:60, :80], left)
    assert np.array_equal(made[:, 88:], right)
    grey = np.full((60, 80, 3), 90, dtype=np.uint8)
    places = np.array([[10.0, 30.0], [20.0, 50.0]])
    made = draw_matches(grey, grey, places, places, np.array([True, False]))
    y, x = amber(made).T
    assert y.mean() == pytest.approx(30, abs=0.6)
    assert x.min() < 15
    assert x.max() > 95


def test_colours_of_flow():
    """Right is red; down, a quarter of a turn clockwise, yellow-green; left cyan; unknown grey."""
    flow = np.array([[[1.0, 0, -1, 0, np.nan]], [[0.0, 1, 0, 0, 0]]])
    colours = flow_colours(flow, 1.0)[0]
    np.testing.assert_allclose(colours, [[1, 0, 0], [0.5, 1, 0], [0, 1, 1], [1, 1, 1], [0.6, 0.6, 0.6]], atol=1e-9)
    made = draw_flow(np.zeros((2, 300, 200)))
    assert made.shape == (300, 200 + 8 + 120, 3)
    assert (made[:, :200] == 255).all()
    assert draw_flow(np.ones((2, 50, 40)), np.full((2, 50, 40), np.nan)).shape[1] == 2 * 48 + 120


def test_values_become_light():
    ink = torch.tensor([[[1.0]], [[0.0]], [[0.5]], [[0.0]]])
    assert developed(ink, "inks").tolist() == [[[0, 255, 255], [255, 255, 255]], [[255, 255, 128], [255, 255, 255]]]
    assert developed(torch.tensor([[[0.0, 0.5, 2.0]]]), "light").tolist() == [[0, 128, 255]]
    assert developed(torch.zeros(1, 2, 2), "signed").tolist() == [[128] * 2] * 2
    spark = torch.full((1, 1, 1000), 0.1)
    spark[..., 0] = 50.0
    assert brightest(spark) == pytest.approx(0.1)
    assert developed(spark, "slopes").min() == 255


@pytest.mark.parametrize("name", ["a.png", "a.JPG", "a.webp"])
def test_pictures_are_written_in_the_format_of_their_name(name, tmp_path):
    save_photograph(photograph(20, 30), tmp_path / name)
    assert Image.open(tmp_path / name).size == (30, 20)
    with pytest.raises(UserError, match="exists already"):
        require_picture_place(tmp_path / name, overwrite=False)
    require_picture_place(tmp_path / name, overwrite=True)
