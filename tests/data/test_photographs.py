"""Single pictures: photographs of scikit-image are what it says they are, and larger ones are shrunk."""

import numpy as np
import pytest
from PIL import Image

from horosphere.data.photographs import PHOTOGRAPHS, read_photograph
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
