"""Every classic that is no convnet, in every geometry it has: it learns, goes on to the last bit, and loads as it was.

They have tests of their own (test_convnets.py): they need larger pictures.
"""

import math
import shutil

import pytest
import torch

from horosphere import catalogue
from horosphere.catalogue.classics import CONVNETS, MODELS
from horosphere.errors import UserError
from horosphere.recipes import read_recipe
from horosphere.runs import Run
from horosphere.train.recipe import Recipe
from tests.tasks.tiny import run_tiny, write_data
from tests.train.toy_task import lines

SMALL = {
    **{"steps": 4, "batch": 8, "log_every": 1, "eval_every": 2, "save_every": 2, "sample_every": "none"},
    **{"length": 16, "vocab": 300, "valid": "none", "least": 1, "eval_rows": 4},
    **{"embedding_size": 6, "hidden_size": 8, "context": 3},
    **{"size": 64, "regions": 16, "ignore": 9, "backbone": "timm:test_resnet"},
    **{"dim": 4, "width": 8, "heads": 2, "layers": 1, "inner": 12, "filters": 4, "buckets": 50, "window": 2},
}
# one picture is learned, by a small trunk of its own; TinySSD has no backbone
LEFT_OUT = {"style": {"batch", "backbone"}, "tinyssd": {"backbone", "width"}}
NEEDS = {
    **{"language": ("transformers",), "masked": ("transformers",)},
    **{"pixels": ("timm",), "objects": ("timm", "torchmetrics", "pycocotools", "skimage")},
}
HIDDEN = {"mlp": "6,5", "maxout": "6,5", "neumf": "6,4"}
CASES = [(model.name, geometry) for model in MODELS if model not in CONVNETS for geometry in model.geometries]


def small(name, geometry, data):
    """Its recipe, with what can be small made small."""
    recipe = read_recipe(name)
    known = catalogue.known_settings(recipe)
    asked = {key: value for key, value in SMALL.items() if key not in LEFT_OUT.get(name, ())}
    words = {key: value for key, value in {**asked, "hidden": HIDDEN.get(name, 8)}.items() if key in known}
    if "geometry" in known:
        words["geometry"] = geometry
    return Recipe.read(name, [f"data={data}", *(f"{key}={value}" for key, value in words.items())])


def write_sums(path):
    path.write_text("".join(f"{i % 7},{i % 5},{i % 7 + 2 * (i % 5)}\n" for i in range(60)))
    return str(path)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    made = {}

    def write(name):
        kind = "numbers" if name == "linear-regression" else catalogue.models()[name].task
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            made[kind] = write_sums(folder / "sums.csv") if kind == "numbers" else write_data(kind, folder)
        return made[kind]

    return write


@pytest.mark.parametrize(("name", "geometry"), CASES)
def test_it_learns_resumes_and_loads(data, tmp_path, name, geometry):
    for package in NEEDS.get(catalogue.models()[name].task, ()):
        pytest.importorskip(package)
    recipe = small(name, geometry, data(name))
    run_tiny(recipe, tmp_path / "straight")
    losses = [line["loss"] for line in lines(tmp_path / "straight") if "loss" in line and "baseline" not in line]
    assert len(losses) == 4
    assert all(map(math.isfinite, losses))
    stopped = tmp_path / "stopped"
    shutil.copytree(tmp_path / "straight", stopped)
    shutil.rmtree(stopped / "checkpoints" / "step-00000004")
    recipe = small(name, geometry, data(name))
    (stopped / recipe.task.mark).unlink()
    run_tiny(recipe, stopped, resume=True)
    assert lines(stopped) == lines(tmp_path / "straight")
    networks = [type(recipe.task).of(run).network_of(run) for run in map(Run.open, (tmp_path / "straight", stopped))]
    one, other = (network.state_dict() for network in networks)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", [model.name for model in MODELS])
def test_other_geometries_are_refused_in_one_line(name):
    known = catalogue.models()[name].geometries
    for geometry in {"lorentz", "poincare", "sphere"} - set(known):
        with pytest.raises(UserError) as error:
            Recipe.read(name, [f"geometry={geometry}"])
        assert "\n" not in str(error.value)
        assert geometry in str(error.value) or "flat space only" in str(error.value)
