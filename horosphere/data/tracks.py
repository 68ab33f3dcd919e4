"""Sequences of frames with a box around one thing in each: drawn ones, and folders as OTB has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from horosphere.data.builtin import BUILTIN
from horosphere.data.images import read_whole_picture, resample
from horosphere.data.order import held_out
from horosphere.data.scenes import moving_patch, turning_disc
from horosphere.errors import UserError, choices, one_line
from horosphere.foreign import EXTENSIONS, Unreadable, read_text

# what is drawn: a square that keeps its look, and a disc that turns and changes its light
DRAWN = {f"{BUILTIN}moving": moving_patch, f"{BUILTIN}turning": turning_disc}
TRAINED, HELD, FRAMES = 160, 40, 16  # sequences, and frames of each
TRUTH = "groundtruth*.txt"  # OTB's is groundtruth_rect.txt, GOT-10k's groundtruth.txt
PICTURES = "img"  # the folder of frames in one of OTB's sequences


@dataclass(frozen=True, eq=False)
class Track:
    """One thing through T frames.

    >>> read = [np.zeros((8, 9, 3), dtype=np.uint8)] * 2
    >>> len(Track("two", np.array([[1.0, 2, 4, 5]] * 2), read.__getitem__))
    2
    """

    name: str
    boxes: np.ndarray  # (T, 4): left, top, right, bottom
    read: Callable[[int], np.ndarray]  # a frame by number, (H, W, 3) uint8

    def __len__(self) -> int:
        return len(self.boxes)


@dataclass(frozen=True, eq=False)
class TrackData:
    """Sequences to learn from, and sequences held out."""

    train: list[Track]
    valid: list[Track]


def open_tracks(source: str, valid: str | None = None) -> TrackData:
    """Sequences to learn from, and sequences held out.

    source: "builtin:moving", "builtin:turning", or a folder of folders. Each of these has frames, ordered by name, in
    it or in img/, and groundtruth_rect.txt or groundtruth.txt: x, y, width, height of the box in each frame, a line
    each, counted from 1 as OTB does.
    valid: a folder of its own. None: every tenth sequence, the same ones always.

    >>> data = open_tracks("builtin:moving")
    >>> len(data.train), len(data.valid), data.train[0].read(3).shape, data.train[0].boxes.shape
    (160, 40, (128, 128, 3), (16, 4))
    """
    if source.startswith(BUILTIN):
        if source not in DRAWN:
            raise UserError(f"{source}: no such sequences are drawn here; {choices(source, DRAWN)}")
        train, held = (_drawn(source, count, held) for count, held in ((TRAINED, False), (HELD, True)))
    else:
        found = _folders(Path(source))
        learned, chosen = held_out(len(found))
        train, held = ([found[i] for i in part] for part in (learned, chosen))
        train = found if valid is not None else train
    if valid is not None:
        held = _folders(Path(valid))
    if not held:
        raise UserError(f"{source}: one sequence cannot be learned from and judged by; give more, or valid=FOLDER")
    return TrackData(train, held)


# -- drawn ones -------------------------------------------------------------------------------------------------------


@lru_cache(2 * len(DRAWN))  # a training, its evaluation and its baselines open them again
def _drawn(source: str, count: int, held: bool) -> list[Track]:
    tracks = []
    for number in range(count):
        frames, boxes = DRAWN[source](number, frames=FRAMES, held_out=held)
        tracks.append(Track(f"{source}, {'held out' if held else 'train'} {number}", boxes, frames.__getitem__))
    return tracks


# -- folders ----------------------------------------------------------------------------------------------------------


def _folders(root: Path) -> list[Track]:
    if not root.is_dir():
        known = " and ".join(DRAWN)
        raise UserError(f"{root}: no such folder; check the path. Sequences that are drawn here are {known}.")
    inside = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not inside:
        what = f"no folders of sequences in it; each needs frames and {TRUTH.replace('*', '_rect')}"
        raise UserError(f"{root}: {what}")
    return [read_track(folder) for folder in inside]


def read_track(folder: str | Path) -> Track:
    """The sequence in a folder. Its first frame is read, so that boxes beyond the picture are named now."""
    folder = Path(folder)
    files = frame_files(folder)
    truth = sorted(folder.glob(TRUTH))
    if len(truth) != 1:
        what = f"more than one: {truth[0].name}, {truth[1].name}; keep one" if truth else "none; a line for each frame"
        raise UserError(f"{folder}: its boxes stand in one file {TRUTH}, and there is {what}")
    boxes = _boxes(truth[0])
    if len(boxes) != len(files):
        counts = f"{len(boxes)} boxes for {len(files)} frames in {files[0].parent}"
        raise UserError(f"{truth[0]}: {counts}; give each frame one")
    width, height = read_whole_picture(files[0]).size
    for line, box in enumerate(boxes, 1):
        require_inside(box, height, width, f"{truth[0]} line {line}")
    return Track(folder.name, boxes, partial(_read, files, (height, width)))


def frame_files(folder: str | Path) -> list[Path]:
    """The pictures of a sequence, ordered by name: those in the folder, or in its img/ where it has one."""
    folder = Path(folder)
    inside = folder / PICTURES if (folder / PICTURES).is_dir() else folder
    if not inside.is_dir():
        raise UserError(f"{folder}: no such folder of frames; check the path")
    files = sorted(path for path in inside.iterdir() if path.suffix.lower() in EXTENSIONS and path.name[0] != ".")
    if not files:
        raise UserError(f"{inside}: no frames in it; put pictures there ({' '.join(EXTENSIONS)}), ordered by name")
    return files


def read_frame(file: Path, shape: tuple[int, int] | None = None) -> np.ndarray:
    """A frame, which has this height and width.   -> (H, W, 3) uint8"""
    frame = np.array(read_whole_picture(file))
    if shape is not None and frame.shape[:2] != shape:
        sizes = f"{frame.shape[1]} x {frame.shape[0]} pixels, and the first frame has {shape[1]} x {shape[0]}"
        raise UserError(f"{file}: {sizes}; make all frames of a sequence alike")
    return frame


def _read(files: Sequence[Path], shape: tuple[int, int], number: int) -> np.ndarray:
    return read_frame(files[number], shape)


def _boxes(file: Path) -> np.ndarray:
    """x, y, width, height a line, counted from 1 -> (T, 4) left, top, right, bottom from 0"""
    try:
        lines = read_text(file).splitlines()
    except Unreadable as error:
        raise UserError(f"{file}: no readable text ({one_line(error)}); write x,y,width,height a line") from error
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            x, y, width, height = (float(cell) for cell in re.split(r"[,;\s]+", line.strip()))
        except ValueError:
            what = f'"{one_line(line, 40)}" are not four numbers'
            raise UserError(f"{file} line {number}: {what}; write x,y,width,height") from None
        rows.append((x - 1, y - 1, x - 1 + width, y - 1 + height))
    return np.array(rows, dtype=np.float64).reshape(-1, 4)


def require_inside(box: np.ndarray, height: int, width: int, where: str) -> None:
    """Complain about a box without an area, or with none of it in the picture.   (4,)

    >>> require_inside(np.array([-3, 0, 4, 5]), height=8, width=8, where="here")  # some of it is
    """
    left, top, right, bottom = (float(side) for side in box)
    told = f"{left:g},{top:g},{right:g},{bottom:g}"
    if not np.isfinite(box).all() or right <= left or bottom <= top:
        raise UserError(f"{where}: the box {told} (left, top, right, bottom) has no area; correct it")
    if right <= 0 or bottom <= 0 or left >= width or top >= height:
        raise UserError(f"{where}: the box {told} lies outside the picture of {width} x {height} pixels; correct it")


# -- crops ------------------------------------------------------------------------------------------------------------


def cropped(frame: np.ndarray, centre: np.ndarray, side: float, size: int) -> Tensor:
    """The square around a point, resized to size x size; black beyond the picture.   (H, W, 3) -> (3, size, size) uint8

    >>> cropped(np.full((8, 8, 3), 7, dtype=np.uint8), np.array([4.0, 4.0]), side=4.0, size=2).shape
    torch.Size([3, 2, 2])
    """
    left, top = (float(place) - side / 2 for place in centre)
    pixels = torch.from_numpy(frame).permute(2, 0, 1)[None]
    return resample(pixels, torch.tensor([[top, left, side, side]]), size)[0]


def middle(box: np.ndarray) -> np.ndarray:
    """(..., 4) -> (..., 2) as (x, y)

    >>> middle(np.array([1.0, 2.0, 5.0, 4.0]))
    array([3., 3.])
    """
    return (box[..., :2] + box[..., 2:]) / 2
