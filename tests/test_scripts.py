"""Scripts of the documentation run, on less than they are made for."""

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from horosphere.data.images import open_images

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"


@pytest.fixture
def rcnn(monkeypatch, capsys):
    """The script with these arguments: what it prints."""
    for package in ("sklearn", "skimage", "mlxtend", "torchmetrics", "torchvision", "pycocotools"):
        pytest.importorskip(package, reason="R-CNN needs it")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["rcnn.py", *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / "rcnn.py"), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_rcnn_writes_crops_that_can_be_trained_on(rcnn, tmp_path):
    rcnn("--crops", tmp_path / "crops.npz", "--train", 12)
    data = open_images(str(tmp_path / "crops.npz"))
    assert data.classes == ["background", *map(str, range(10))]
    labels = np.concatenate([data.train.labels, data.valid.labels])
    assert 12 < (labels > 0).sum() < (labels == 0).sum()


def test_rcnn_finds_digits_it_has_learned(rcnn, monkeypatch):
    """Random features of a network, and scenes it has seen: it finds some of them."""
    from horosphere.data import scenes

    torch.manual_seed(0)
    whole = scenes.scene
    monkeypatch.setattr(
        scenes, "scene", lambda number, seed, height, width, held_out: whole(number, seed, height, width)
    )
    out = rcnn("--backbone", "torchvision:resnet18", "--train", 10, "--test", 10)
    said = re.fullmatch(r"AP50 (\S+), AP (\S+) on 10 held-out scenes\n", out)
    assert 0.2 < float(said[1]) <= 1
