"""Single pictures: photographs of scikit-image are what it says they are, and larger ones are shrunk."""

import numpy as np
import pytest
from PIL import Image

from horosphere.data.photographs import PHOTOGRAPHS, read_photograph, shrunk_flow, stereo_pair
from horosphere.errors import UserError

OTHER_NAMES = {"hubble": "hubble_deep_field", "motorcycle": "stereo_motorcycle"}


@pytest.mark.parametrize("name", PHOTOGRAPHS)
def test_photographs_are_those_of_scikit_image(name):
    data = pytest.importorskip("skimage.data", reason="the photographs are its own")
    picture = getattr(data, OTHER_NAMES.get(name, name))()
    picture = picture[0] if name == "motorcycle" else picture
    grey = picture.ndim == 2
    assert np.array_equal(read_photograph(f"builtin:{name}"), np.stack([picture] * 3, -1) if grey else picture)


def test_a_larger_picture_is_shrunk_and_a_smaller_one_is_not(tmp_path):
    Image.new("RGB", (30, 20), (10, 200, 30)).save(tmp_path / "green.png")
    assert read_photograph(str(tmp_path / "green.png"), longest=40).shape == (20, 30, 3)
    small = read_photograph(str(tmp_path / "green.png"), longest=15)
    assert small.shape == (10, 15, 3)
    assert (small == (10, 200, 30)).all()


def test_what_is_no_picture_is_named(tmp_path):
    (tmp_path / "a.png").write_text("no picture")
    with pytest.raises(UserError, match=r"a\.png: no readable picture"):
        read_photograph(str(tmp_path / "a.png"))
    with pytest.raises(UserError, match="no such photograph"):
        read_photograph("builtin:eagle")  # a download


def test_the_stereo_pair_and_its_truth_are_those_of_scikit_image():
    data = pytest.importorskip("skimage.data", reason="the photographs are its own")
    left, right, flow = stereo_pair()
    theirs = data.stereo_motorcycle()
    assert np.array_equal(left, theirs[0])
    assert np.array_equal(right, theirs[1])
    known = np.isfinite(theirs[2])
    assert np.array_equal(np.isfinite(flow), np.stack([known, known]))
    assert np.array_equal(flow[0][known], -theirs[2][known])
    assert (flow[1][known] == 0).all()


def test_a_flow_shrinks_with_its_pictures():
    y, x = np.mgrid[:40, :60].astype(np.float64)
    small = shrunk_flow(np.stack([x, y]), 10, 20)
    assert small.shape == (2, 10, 20)
    assert np.array_equal(small[:, 0, 0], [1 / 3, 2 / 4])  # pixel (1, 2) of the larger, in pixels of the smaller
    assert np.array_equal(small[:, -1, -1], [58 / 3, 38 / 4])
