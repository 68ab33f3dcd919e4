"""Runs every command of docs/images.md, and keeps its output there and its picture in docs/images/photographs.

python docs/make_photographs.py        # from anywhere; a minute on one core

Blocks of the page that begin with `$ horosphere image` are run in order, in one folder, beside the pictures that
`prepare` makes. What a command prints replaces what stands below it.
"""

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from horosphere.data.photographs import open_photograph
from horosphere.data.scenes import moving_patch

PAGE = Path(__file__).with_name("images.md")
PICTURES = PAGE.parent / "images" / "photographs"
BLOCK = re.compile(r"```\n\$ (horosphere [^\n]*)\n.*?```", re.DOTALL)
WIDEST, COLOURS, MOST = 800, 128, 60_000  # pixels, colours and bytes of a picture on the page
AFFINE = np.array([[0.85, 0.25, 20], [-0.2, 0.9, 70], [0, 0, 1]])  # from left.png to right.png
HALF = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])  # Pillow counts from the corner of a pixel, we from its middle


def prepare(folder: Path) -> None:
    """What the commands read: two pictures of one thing, frames of a patch that moves, points that a camera saw."""
    left = open_photograph("builtin:astronaut")
    back = (HALF @ np.linalg.inv(AFFINE) @ np.linalg.inv(HALF))[:2].ravel().tolist()
    left.save(folder / "left.png")
    left.transform(left.size, Image.Transform.AFFINE, back, Image.Resampling.BICUBIC).save(folder / "right.png")
    (folder / "frames").mkdir()
    frames, _ = moving_patch(1, frames=24, height=240, width=320, side=56)
    for number, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / "frames" / f"{number:03d}.png")
    random = np.random.default_rng(0)
    world = random.uniform(-1, 1, (12, 3))
    seen = (world + np.array([0.5, -0.25, 6])) @ np.array([[800, 0, 320], [0, 780, 240], [0, 0, 1]]).T
    pixels = seen[:, :2] / seen[:, 2:] + random.normal(0, 0.3, (12, 2))
    lines = [",".join(f"{value:.3f}" for value in row) for row in np.concatenate([world, pixels], 1)]
    (folder / "points.csv").write_text("\n".join(["X,Y,Z,x,y", *lines]) + "\n")


def output(command: str, folder: Path) -> str:
    words = [sys.executable, "-m", *command.split()]
    env = {**os.environ, "PYTHONPATH": str(PAGE.parents[1])}
    return subprocess.run(words, cwd=folder, env=env, check=True, text=True, stdout=subprocess.PIPE).stdout.rstrip()


def keep(file: Path) -> None:
    """A picture for the page: of few colours, and as wide as `MOST` bytes let it be."""
    with Image.open(file) as opened:
        whole = opened.convert("RGB")
    width = min(whole.width, WIDEST)
    while True:
        picture = whole.resize((width, round(whole.height * width / whole.width)), Image.Resampling.LANCZOS)
        packed = io.BytesIO()
        # by coverage: the few pixels of a line or a legend keep their colours
        few = picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
        few.save(packed, "PNG", optimize=True)
        if len(packed.getvalue()) <= MOST:
            break
        width = round(0.92 * width)
    (PICTURES / file.name).write_bytes(packed.getvalue())


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder)
        text = PAGE.read_text(encoding="utf-8")
        made = BLOCK.sub(lambda block: f"```\n$ {block[1]}\n{output(block[1], folder)}\n```", text)
        PICTURES.mkdir(parents=True, exist_ok=True)
        for name in re.findall(r"images/photographs/([\w-]+\.png)", text):
            keep(folder / name)
    PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
