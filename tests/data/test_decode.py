"""Pictures in files: only kinds that are pictures, turned as the camera says, not larger than memory."""

import pytest

pytest.importorskip("PIL")

import numpy as np
from PIL import Image

from horosphere.data import decode
from horosphere.data.decode import EXTENSIONS, FORMATS, open_picture
from horosphere.data.images import open_images, pictures_in
from horosphere.errors import UserError


def test_every_extension_has_its_format():
    known = Image.registered_extensions()
    assert {known[extension] for extension in EXTENSIONS} == set(FORMATS)


@pytest.mark.parametrize("kind", ["EPS", "PDF", "GIF", "ICO"])
def test_what_is_no_picture_is_not_opened_whatever_its_name(tmp_path, kind, monkeypatch):
    def started(*words, **how):
        raise AssertionError("another program was started")

    monkeypatch.setattr("subprocess.Popen", started)
    Image.new("RGB", (8, 8)).save(tmp_path / "a.bin", format=kind)
    (tmp_path / "a.bin").rename(tmp_path / "a.png")
    with pytest.raises(UserError, match=r"a\.png: no readable picture"):
        pictures_in([tmp_path / "a.png"]).digest(np.zeros(1, np.int64))


def test_a_picture_is_upright(tmp_path):
    picture = Image.new("RGB", (6, 4), "red")
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    picture.save(tmp_path / "a.jpg", exif=exif)
    assert open_picture(tmp_path / "a.jpg").size == (4, 6)


def test_a_picture_that_claims_too_many_pixels_is_not_decoded(tmp_path, monkeypatch):
    Image.new("RGB", (6, 4)).save(tmp_path / "a.png")
    monkeypatch.setattr(decode, "MOST_PIXELS", 20)
    with pytest.raises(ValueError, match="6 x 4 pixels are more than 20"):
        open_picture(tmp_path / "a.png")


def test_a_link_to_a_folder_around_it_is_named(tmp_path):
    (tmp_path / "set" / "cats").mkdir(parents=True)
    (tmp_path / "set" / "cats" / "more").symlink_to(tmp_path / "set", target_is_directory=True)
    with pytest.raises(UserError, match="more: a link to a folder around it; remove it"):
        open_images(str(tmp_path / "set"))
    (tmp_path / "set" / "cats" / "more").unlink()
    (tmp_path / "elsewhere").mkdir()
    for number in range(10):
        Image.new("RGB", (4, 4)).save(tmp_path / "elsewhere" / f"{number}.png")
    (tmp_path / "set" / "cats").rmdir()
    (tmp_path / "set" / "cats").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert len(open_images(str(tmp_path / "set")).train) == 9  # other links are followed
