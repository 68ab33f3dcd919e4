"""Sequences of frames with boxes: drawn ones, folders as OTB has them, and what is wrong with others."""

import numpy as np
import pytest
from PIL import Image

from horosphere.data import tracks
from horosphere.data.scenes import moving_patch, turning_disc
from horosphere.data.tracks import cropped, middle, open_tracks, read_track
from horosphere.errors import UserError
from tests.tasks.tiny import write_sequences


def test_drawn_ones_are_those_of_scenes(monkeypatch):
    pytest.importorskip("skimage", reason="the photographs are its own")
    monkeypatch.setattr(tracks, "TRAINED", 8)
    monkeypatch.setattr(tracks, "HELD", 8)
    for source, draw in (("builtin:moving", moving_patch), ("builtin:turning", turning_disc)):
        data = open_tracks(source)
        for drawn, held in ((data.train, False), (data.valid, True)):
            frames, boxes = draw(7, held_out=held)
            assert np.array_equal(np.stack([drawn[7].read(t) for t in range(16)]), frames)
            assert np.array_equal(drawn[7].boxes, boxes)


def test_a_disc_turns_about_the_middle_of_its_box():
    pytest.importorskip("skimage", reason="the photographs are its own")
    frames, boxes = turning_disc(0, frames=6)
    again, _ = turning_disc(0, frames=6)
    assert np.array_equal(frames, again)
    still, _ = turning_disc(1, frames=6)
    assert not np.array_equal(frames, still)
    y, x = np.mgrid[:128, :128] + 0.5
    static = np.ones((128, 128), dtype=bool)
    for box in boxes:
        static &= np.hypot(x - middle(box)[0], y - middle(box)[1]) > 16.5  # half a side, and half a pixel of the rim
    changed = (frames != frames[:1]).any((0, 3))
    assert changed.any()
    assert not (changed & static).any()


@pytest.mark.parametrize("separator", [",", "\t", " ", ", "])
def test_a_folder_as_otb_has_it_is_read(tmp_path, separator):
    write_sequences(tmp_path / "set", count=3, separator=separator)
    data = open_tracks(str(tmp_path / "set"))
    assert (len(data.train), len(data.valid)) == (2, 1)
    track = read_track(tmp_path / "set" / "s1")
    for t in range(len(track)):
        left, top, right, bottom = track.boxes[t].astype(int)  # the file counts from 1
        assert (track.read(t)[top:bottom, left:right] == (250, 40, 40)).all()
        assert (track.read(t)[top - 1, left:right] != (250, 40, 40)).any()
    other = open_tracks(str(tmp_path / "set"), valid=str(tmp_path / "set"))
    assert (len(other.train), len(other.valid)) == (3, 3)


def test_a_crop_has_its_point_in_its_middle():
    frame = np.zeros((40, 50, 3), dtype=np.uint8)
    frame[20, 30] = 200  # covers [30, 31) x [20, 21)
    assert cropped(frame, np.array([30.5, 20.5]), side=5.0, size=5)[0].nonzero().tolist() == [[2, 2]]
    assert (
        cropped(frame, np.array([30.5, 20.5]), side=10.0, size=5)[0].sum() == 50
    )  # a quarter of 200, where it shrinks
    beyond = cropped(np.full_like(frame, 9), np.array([0.0, 0.0]), side=4.0, size=4)[0]
    assert beyond.tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 9, 9], [0, 0, 9, 9]]


def spoil(folder, what):
    truth = folder / "s0" / "groundtruth_rect.txt"
    lines = truth.read_text().splitlines()
    if what == "no frames":
        for file in (folder / "s0" / "img").iterdir():
            file.unlink()
    elif what == "no truth":
        truth.unlink()
    elif what == "two truths":
        (folder / "s0" / "groundtruth.txt").write_text("1,1,2,2\n")
    elif what == "another length":
        truth.write_text("\n".join(lines[:-1]))
    elif what == "words":
        truth.write_text("\n".join(["a,b,c,d", *lines[1:]]))
    elif what == "outside":
        truth.write_text("\n".join([*lines[:-1], "400,10,20,20"]))
    elif what == "no area":
        truth.write_text("\n".join([*lines[:-1], "10,10,0,20"]))
    elif what == "not finite":
        truth.write_text("\n".join([*lines[:-1], "10,10,nan,20"]))
    elif what == "a size":
        last = sorted((folder / "s0" / "img").iterdir())[-1]
        Image.new("RGB", (9, 9)).save(last)


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        ("no frames", r"img: no frames in it; put pictures there"),
        ("no truth", r"s0: its boxes stand in one file groundtruth\*\.txt, and there is none"),
        ("two truths", "there is more than one"),
        ("another length", r"groundtruth_rect\.txt: 5 boxes for 6 frames"),
        ("words", r'line 1: "a,b,c,d" are not four numbers; write x,y,width,height'),
        ("outside", r"line 6: the box 399,9,419,29 .*outside the picture of 64 x 48 pixels"),
        ("no area", "line 6: the box 9,9,9,29 .*has no area"),
        ("not finite", "line 6: .*has no area"),
        ("a size", "9 x 9 pixels, and the first frame has 64 x 48"),
    ],
)
def test_what_is_wrong_with_a_sequence_is_named(tmp_path, what, complaint):
    write_sequences(tmp_path / "set", count=2)
    spoil(tmp_path / "set", what)
    with pytest.raises(UserError, match=complaint) as error:
        [track.read(5) for track in open_tracks(str(tmp_path / "set"), str(tmp_path / "set")).train]
    assert "\n" not in str(error.value)


def test_what_is_no_folder_of_sequences_is_named(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        open_tracks(str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="no folders of sequences in it"):
        open_tracks(str(tmp_path))
    with pytest.raises(UserError, match=r"no such sequences are drawn here; .*builtin:moving"):
        open_tracks("builtin:movign")
    write_sequences(tmp_path / "set", count=1)
    with pytest.raises(UserError, match="one sequence cannot be learned from and judged by"):
        open_tracks(str(tmp_path / "set"))
