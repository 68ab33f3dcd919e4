"""Style transfer as a training: the loss falls, the picture is kept and the network is not, mistakes are named."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from horosphere.errors import UserError
from horosphere.models.style import restored
from horosphere.runs import Run
from horosphere.train.recipe import Recipe
from tests.tasks.tiny import run_tiny, tiny, write_data, write_noise

pytest.importorskip("torchvision", reason="its networks are looked through")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data("style", tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "style"
    run_tiny(tiny("style", data, "steps=30", "lr=0.05"), folder)
    return Run.open(folder)


def test_the_loss_falls_below_that_of_the_content_as_it_is(run):
    beside = run.baselines()["the content as it is"]
    assert beside["content"] == 0
    assert run.scores()["loss"] < 0.8 * beside["loss"]
    assert run.scores()["style"] < beside["style"]


def test_the_picture_is_all_that_is_kept(run):
    for file in (run.folder / "model.safetensors", *run.folder.glob("checkpoints/*/model-*.safetensors")):
        assert {name: tuple(t.shape) for name, t in load_file(file).items()} == {"x": (1, 3, 32, 40)}
    assert run.about.facts["parameters"] == 3 * 32 * 40


def test_the_exported_file_is_the_picture(run):
    learned = run.load()
    assert np.array_equal(np.asarray(Image.open(run.folder / "picture.png")), learned.picture)
    x = restored(learned.network())[0].permute(1, 2, 0)
    assert np.abs(learned.picture / 255 - x.detach().numpy()).max() <= 0.5 / 255 + 1e-6


def test_a_run_of_the_task_pictures_may_be_what_looks(data, tmp_path):
    squares = write_data("pictures", tmp_path)
    run_tiny(tiny("pictures", squares, "size=32"), tmp_path / "looks")
    recipe = tiny("style", data, f"backbone={tmp_path / 'looks'}", "lr=0.05", "steps=10")
    run_tiny(recipe, tmp_path / "run")
    told = Run.open(tmp_path / "run")
    assert told.scores()["loss"] < told.baselines()["the content as it is"]["loss"]
    assert ["network", f"{tmp_path / 'looks'}, trained weights"] in recipe.task.summary(told)


def test_noise_is_another_begin_and_depends_on_the_seed(data):
    pictures = []
    for more in (["begin=noise"], ["begin=noise"], ["begin=noise", "seed=1"], []):
        recipe = tiny("style", data, *more)
        recipe.task.engine = recipe.engine
        torch.manual_seed(recipe.engine.seed)
        pictures.append(recipe.task.build(recipe.task.open_data()).pixels())
    assert torch.equal(pictures[0], pictures[1])
    assert not torch.equal(pictures[0], pictures[2])
    assert np.array_equal(pictures[3].numpy(), np.asarray(Image.open(data)))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["data=nowhere.png"], r"nowhere\.png: no such picture"),
        (["style=builtin:chelsae"], "no such photograph comes with scikit-image.*builtin:chelsea"),
        (["size=20"], "20 x 16 pixels at size=20 are too few; each side needs 32"),
        (["batch=2"], "one picture is learned"),
        (["micro_batch=2"], "one picture is learned"),
        (["backbone=nowhere"], "nowhere: no folder of a run"),
        (["backbone=nowhere", "pretrained=true"], "nowhere has weights of its own"),
        (["backbone=torchvision:vgg91"], "did you mean torchvision:vgg19"),
        (["model=vgg11"], "a model of the task pictures; style has style"),
        (["geometry=lorentz"], "exists in flat space only; leave geometry=lorentz out"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_written(data, tmp_path, settings, complaint):
    with pytest.raises(UserError, match=complaint) as error:
        run_tiny(tiny("style", data, *settings), tmp_path / "run")
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_run_does_not_go_on_with_other_pictures(tmp_path):
    data = write_data("style", tmp_path)
    run_tiny(tiny("style", data, "steps=2"), tmp_path / "run")
    write_noise(Path(data).parent / "style.png", seed=2)
    with pytest.raises(UserError, match=r"the data have changed since it was begun \(digest\)"):
        run_tiny(tiny("style", data, "steps=2"), tmp_path / "run", resume=True)


def test_the_recipe_asks_for_no_published_weights():
    task = Recipe.read("style").task
    assert (task.pretrained, task.backbone, task.data) == (False, None, "builtin:chelsea")
