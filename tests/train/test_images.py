"""Training on pictures: the recipe's flat list, batches that depend on their step alone, averages of weights, runs that resume exactly."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

from horosphere.data.augment import Augmentation, normalise
from horosphere.errors import UserError
from horosphere.evaluate.classification import hierarchy_scores
from horosphere.measure.hierarchy import class_distances
from horosphere.models.hcformer import HCFORMER
from horosphere.models.himapper import HiMapper
from horosphere.train import images as module
from horosphere.train.distributed import World
from horosphere.train.engine import EngineConfig
from horosphere.train.images import (
    TORCHVISION,
    ImageClassifier,
    ImageRecipe,
    ImageTask,
    compiled_by_shape,
    evaluate_images,
    image_model,
    image_recipe_names,
    is_image_recipe,
    load_images,
    train_images,
)
from tests.data.pictures import write_folder, write_npz
from tests.train.tiny_images import SMALL, Normed, small

ROOT = Path(__file__).parents[2]
CIFAR = ROOT.parent / "shared" / "data" / "images" / "cifar100-subset.npz"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_npz(tmp_path_factory.mktemp("data") / "colours.npz", coarse_of_fine=np.array([0, 0, 1, 1]))


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """A run that is done."""
    folder = tmp_path_factory.mktemp("runs") / "done"
    train_images(small(data), folder, quiet=True, device="cpu")
    return folder


def lines(folder):
    """metrics.jsonl without what the clock decides"""
    found = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in line.items() if name not in ("seconds", "images_per_second")} for line in found
    ]


def tensors(folder, step=4):
    """Everything in a checkpoint, by file and name."""
    files = (Path(folder) / "checkpoints" / f"step-{step:08d}").glob("*.safetensors")
    return {f"{file.name}:{name}": t for file in files for name, t in load_file(file).items()}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


# -- recipes ----------------------------------------------------------------------------------------------------------


def test_a_setting_goes_where_it_belongs_in_its_type():
    found = ImageRecipe.read(
        "hcformer-nano-32",
        ["data=a.npz", "steps=500", "mixup=0", "ema=none", "window_geometry=euclidean", "dims=8,16,16,24"],
    )
    assert (found.data, found.engine.steps, found.augmentation.mixup, found.ema, found.size) == (
        "a.npz",
        500,
        0.0,
        None,
        32,
    )
    assert found.config == {"window_geometry": "euclidean", "dims": (8, 16, 16, 24)}


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("stepps=2", "did you mean steps"),
        ("mixups=2", "did you mean mixup"),
        ("window_geometri=lorentz", "did you mean window_geometry"),
        ("window_geometry=round", "window_geometry=round: choose"),
        ("num_classes=9", "there is no setting num_classes"),
        ("image_size=9", "there is no setting image_size"),
        ("model=hcformer-huge", "hcformer-huge"),
        ("model=resnet81", "did you mean resnet18"),
        ("model=helm", "choose hcformer-nano"),
        ("size=0", "size=0: it must be at least 1"),
        ("ema=1", "ema=1: a decay"),
        ("erase=2", "erase=2: it goes from 0 to 1"),
        ("crop=all", "crop=all: choose from random, shift, none"),
        ("batch=7", "batch=7: mixup and cutmix take pictures in pairs"),
        ("micro_batch=1", "micro_batch=1: mixup and cutmix take pictures in pairs"),
        ("lr=-1", "lr=-1.0: it must be positive"),
    ],
)
def test_a_wrong_setting_is_named(setting, complaint):
    with pytest.raises(UserError) as error:
        ImageRecipe.read("hcformer-nano-32", ["data=a.npz", setting])
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_data_must_be_given_and_settings_of_hcformer_are_its_own():
    with pytest.raises(UserError, match="data must be given"):
        ImageRecipe.read("hcformer-nano-32")
    with pytest.raises(UserError, match=r"drop_path=0\.1: a setting of hcformer; resnet18 has none"):
        ImageRecipe.read("hcformer-nano-32", ["data=a.npz", "model=resnet18", "drop_path=0.1"])


def test_every_hcformer_has_its_recipe_and_language_models_are_told_apart():
    assert set(image_recipe_names()) == {*HCFORMER, "himapper", "himapper-32"}
    for name in HCFORMER:
        assert ImageRecipe.read(name, ["data=a.npz"]).model == name
    for name in TORCHVISION:
        assert is_image_recipe("hcformer-nano-32", [f"model={name}"])
        assert ImageRecipe.read("hcformer-nano-32", ["data=a.npz", f"model={name}"]).model == name
    assert not is_image_recipe("helm-d-tiny")


def test_the_papers_training():
    recipe = ImageRecipe.read("hcformer-nano", ["data=imagenet"])
    engine = recipe.engine
    assert engine.steps * engine.batch / 1_281_167 == pytest.approx(310, rel=1e-3)
    assert engine.warmup * 310 == pytest.approx(5, rel=0.01)
    assert (engine.lr, engine.weight_decay, engine.batch, engine.betas) == (1e-3, 0.05, 1024, (0.9, 0.999))
    assert recipe.augmentation == Augmentation("random", True, 9.0, 0.8, 1.0, 0.25, 0.1)


# -- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TORCHVISION)
def test_small_pictures_keep_their_resolution_in_the_opponents(name):
    pytest.importorskip("torchvision", reason="networks of torchvision's")
    with torch.device("meta"):
        little, large = (image_model(name, 7, size, {}) for size in (32, 224))
    seen = {}
    for key, network, size in (("little", little, 32), ("large", large, 128)):
        first = next(m for m in network.modules() if type(m).__name__ in module.UNITS)
        first.register_forward_pre_hook(lambda m, x, key=key: seen.update({key: x[0].shape}))
        assert network(torch.zeros(2, 3, size, size, device="meta")).shape == (2, 7)
    assert seen["little"][1:].count(32) == seen["large"][1:].count(32) == 2  # stride 1 for 32 pixels, 4 for 128


@pytest.mark.parametrize(
    "name", ["timm:test_resnet", "timm:test_vit", "timm:test_efficientnet", "torchvision:resnet18"]
)
def test_hi_mapper_is_trained_around_any_network_by_name(name, tmp_path, data):
    pytest.importorskip(name.partition(":")[0], reason="whose network this is")
    recipe = replace(tree_recipe(data), model=name, config={}, size=64)
    result = train_images(recipe, tmp_path / "run", quiet=True, device="cpu")
    assert result.step == recipe.engine.steps
    loaded = load_images(tmp_path / "run").network
    assert isinstance(loaded, HiMapper)
    assert loaded(torch.zeros(1, 3, 64, 64)).shape == (1, 4)


def test_a_network_begins_with_its_published_weights(monkeypatch):
    zoo = pytest.importorskip("torchvision.models", reason="networks of torchvision's")
    published = zoo.resnet18().state_dict()
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", lambda *_, **__: published)
    network = image_model("torchvision:resnet18", 4, 64, {}, pretrained=True)
    assert torch.equal(network.conv1.weight, published["conv1.weight"])
    assert network.fc.out_features == 4
    assert network.training


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["model=resnet18", "pretrained=true"], "pretrained=true: say whose weights, as in model=timm:resnet50"),
        (["model=timm:resnet18", "pretrained=true", "start=there"], "start=there and pretrained=true"),
        (["model=timm:resnet18", "drop_path=0.1"], "a setting of hcformer; timm:resnet18 has none"),
        (["model=efficientnet_b4"], "or say whose it is: timm:efficientnet_b4, torchvision:efficientnet_b4"),
    ],
)
def test_wrong_words_about_networks_of_others(settings, says):
    with pytest.raises(UserError, match=re.escape(says)):
        ImageRecipe.read("himapper", ["data=a.npz", *settings])


def test_networks_of_others_that_are_unknown_or_of_another_size():
    pytest.importorskip("torchvision", reason="networks of torchvision's")
    with pytest.raises(UserError, match="torchvision knows no model resnet19: did you mean"):
        image_model("torchvision:resnet19", 4, 64, {})
    with pytest.raises(UserError, match=r"torchvision:vit_b_16 does not take size=64 .*: set the size it was made for"):
        image_model("torchvision:vit_b_16", 4, 64, {})


def test_the_average_follows_the_weights_and_answers_in_eval_mode():
    torch.manual_seed(0)
    model = ImageClassifier(Normed(3), 0.6)
    optimizer = torch.optim.SGD(model.network.parameters(), 0.5)
    expected = {name: t.clone() for name, t in model.network.state_dict().items()}
    x, y = torch.randn(8, 3, 6, 6), torch.arange(8) % 3
    for n in range(1, 12):
        optimizer.zero_grad()
        F.cross_entropy(model.train()(x), y).backward()
        optimizer.step()
        model.after_step()
        decay = min(0.6, (1 + n) / (10 + n))
        for name, t in model.network.state_dict().items():
            expected[name] = decay * expected[name] + (1 - decay) * t if t.is_floating_point() else t.clone()
    for name, t in model.average.state_dict().items():
        torch.testing.assert_close(t, expected[name])
    assert not any(p.requires_grad for p in model.average.parameters())
    assert torch.equal(model.eval()(x), model.average(x))
    assert not torch.allclose(model(x), model.network(x))
    assert model.steps == 11
    plain = ImageClassifier(Normed(3), None).eval()
    assert torch.equal(plain(x), plain.network(x))


def test_what_is_no_matrix_is_not_decayed():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer_scale = nn.Parameter(torch.ones(4, 1, 1))
            self.relative_position_bias_table = nn.Parameter(torch.ones(9, 2))
            self.conv = nn.Conv2d(3, 4, 3)
            self.norm = nn.BatchNorm2d(4)

    model = ImageClassifier(Network(), 0.9)
    optimizer = module.image_optimizer(EngineConfig(steps=1, batch=1, lr=1.0, weight_decay=0.3), model)
    decayed = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    everything = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert decayed == {id(model.network.conv.weight)}
    assert sorted(everything) == sorted(id(p) for p in model.network.parameters())


# -- batches ----------------------------------------------------------------------------------------------------------


def whole(recipe, tmp_path, step, **world):
    return ImageTask(recipe, recipe.images(), World(**world), tmp_path).batch(step, range(recipe.engine.batch))


@pytest.mark.parametrize("source", ["arrays", "files"])
def test_a_batch_is_a_function_of_its_step_however_it_is_shared(data, tmp_path, source):
    folder = data if source == "arrays" else write_folder(tmp_path / "files", ["a", "b"], each=20)
    recipe = small(folder, "micro_batch=2", "crop=random")
    expected = [whole(recipe, tmp_path, step) for step in range(3)]
    assert expected[0]["images"].shape == (8, 3, 8, 8)
    tasks = [ImageTask(recipe, recipe.images(), World(rank, 2), tmp_path) for rank in (0, 1)]
    for step in range(3):  # as the engine asks, with the next rows read ahead
        parts = [task.batch(step, rows) for task in tasks for rows in task.read.order]
        assert all(len(task.read.begun) == 1 for task in tasks)
        for name, value in expected[step].items():
            torch.testing.assert_close(torch.cat([part[name] for part in parts]), value, rtol=0, atol=1e-6)
    again = ImageTask(recipe, recipe.images(), World(), tmp_path)
    assert torch.equal(again.batch(2, range(2, 4))["images"], tasks[0].batch(2, range(2, 4))["images"])
    assert not torch.equal(expected[0]["images"], expected[1]["images"])


def test_the_last_step_reads_nothing_ahead(data, tmp_path):
    recipe = small(data)
    task = ImageTask(recipe, recipe.images(), World(), tmp_path)
    task.batch(3, range(8))
    assert task.read.begun == {}


def test_evaluation_counts_every_picture_once(data, monkeypatch):
    images = replace(small(data).images())
    images = replace(
        images, valid=replace(images.valid, numbers=images.valid.numbers[:13], labels=images.valid.labels[:13])
    )
    monkeypatch.setattr(module, "EVAL_ROWS", 5)  # which does not divide 13
    torch.manual_seed(0)
    model = Normed(4).eval()
    found = evaluate_images(model, images, 8, Augmentation(crop="shift"), World())
    logits, truth = model(normalise(images.valid.pictures.pixels[:13])), torch.from_numpy(images.valid.labels)
    scores = hierarchy_scores(logits.argmax(1), truth, images.tree)
    expected = {
        "loss": F.cross_entropy(logits, truth).item(),
        "top1": scores.fine,
        "top5": 1.0,
        "coarse": scores.coarse,
    }
    apart = class_distances(torch.stack([logits[truth == k].mean(0) for k in range(4)]), images.tree)
    distances = {"parent": apart.parent / apart.stranger, "sibling": apart.sibling / apart.stranger}
    assert found == pytest.approx({**expected, "tree_error": scores.tree_error, **distances}, rel=1e-5)


# -- runs -------------------------------------------------------------------------------------------------------------


def test_a_run_learns_and_says_so(data, tmp_path):
    steps = ("steps=50", "batch=16", "mixup=0", "cutmix=0", "eval_every=none", "drop_path=0", "ema=0.8")
    found = train_images(small(data, *steps), tmp_path / "run", quiet=True, device="cpu").evaluation
    assert found["top1"] > 0.9
    assert found["coarse"] >= found["top1"]
    assert found["tree_error"] < 0.4
    assert 0 < found["parent"] < found["sibling"]
    assert set(found) == {"loss", "top1", "top5", "coarse", "tree_error", "parent", "sibling"}


def test_many_classes_are_not_compared_with_each_other(data, monkeypatch):
    monkeypatch.setattr(module, "PLACED", 3)
    found = evaluate_images(Normed(4).eval(), small(data).images(), 8, Augmentation(crop="shift"), World())
    assert set(found) == {"loss", "top1", "top5", "coarse", "tree_error"}


def test_a_class_without_pictures_has_no_place(data):
    images = small(data).images()
    seen = images.valid.labels > 0
    images = replace(
        images, valid=replace(images.valid, numbers=images.valid.numbers[seen], labels=images.valid.labels[seen])
    )
    found = evaluate_images(Normed(4).eval(), images, 8, Augmentation(crop="shift"), World())
    assert set(found) == {"loss", "top1", "top5", "coarse", "tree_error"}


@pytest.mark.parametrize("network", ["hcformer", "batchnorm"])
def test_a_stopped_run_goes_on_exactly(data, run, tmp_path, network, monkeypatch):
    if network == "batchnorm":
        monkeypatch.setattr(module, "image_model", lambda name, classes, size, changes, *more: Normed(classes))
        run = tmp_path / "whole"
        train_images(small(data), run, quiet=True, device="cpu")
    folder, loss = tmp_path / "run", ImageTask.loss

    def interrupt(task, model, batch):
        if (2, range(8)) in task.read.begun:
            os.kill(os.getpid(), signal.SIGINT)
        return loss(task, model, batch)

    monkeypatch.setattr(ImageTask, "loss", interrupt)
    with pytest.raises(SystemExit):
        train_images(small(data), folder, quiet=True, device="cpu")
    monkeypatch.setattr(ImageTask, "loss", loss)
    assert (folder / "checkpoints" / "step-00000002").is_dir()
    halfway = load_images(folder).network.state_dict()
    result = train_images(small(data), folder, resume=True, quiet=True, device="cpu")
    assert result.step == 4
    assert_same(tensors(folder), tensors(run))
    assert_same(load_file(folder / "model.safetensors"), load_file(run / "model.safetensors"))
    assert lines(folder) == lines(run)
    assert any(not torch.equal(t, halfway[name]) for name, t in load_file(run / "model.safetensors").items())


def test_another_augmentation_is_another_run(data, run):
    with pytest.raises(UserError, match=r"augmentation.mixup 0.8 -> 0.2"):
        train_images(small(data, "mixup=0.2"), run, resume=True, quiet=True, device="cpu")


def test_a_run_is_loaded_with_its_classes(run, tmp_path):
    found = load_images(run)
    assert (found.classes, found.size, found.tree.parents.tolist()) == (["0", "1", "2", "3"], 8, [4, 4, 5, 5, 6, 6, -1])
    assert not found.network.training
    saved = tensors(run)
    for name, t in found.network.state_dict().items():
        assert torch.equal(t, saved[f"model-00001-of-00001.safetensors:average.{name}"])
    bare = shutil.copytree(run, tmp_path / "bare")
    (bare / "model.safetensors").unlink()
    assert_same(found.network.state_dict(), load_images(bare).network.state_dict())


@pytest.mark.parametrize(
    ("file", "content", "remedy"),
    [
        ("model.safetensors", b"broken", "damaged or foreign weights"),
        ("classes.json", b"{", "classes.json: a damaged file"),
        ("run.json", b"{", "run.json: a damaged file"),
        ("run.json", b'{"recipe": {"model": "helm-d-tiny"}}', "no run of a model of pictures"),
    ],
)
def test_a_damaged_run_is_named(run, tmp_path, file, content, remedy):
    folder = shutil.copytree(run, tmp_path / "run")
    (folder / file).write_bytes(content)
    with pytest.raises(UserError, match=remedy) as error:
        load_images(folder)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="no folder made by"):
        load_images(tmp_path)


def test_a_broken_picture_stops_the_run_in_one_line(tmp_path):
    folder = write_folder(tmp_path / "files", ["a", "b"], each=10)
    for file in Path(folder, "a").iterdir():
        file.write_bytes(file.read_bytes()[:70])
    with pytest.raises(UserError, match="no readable picture"):
        train_images(small(folder), tmp_path / "run", quiet=True, device="cpu")


def test_nothing_is_overwritten_unasked(data, run):
    before = lines(run)
    with pytest.raises(UserError, match="exists already"):
        train_images(small(data), run, quiet=True, device="cpu")
    assert lines(run) == before


@pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="needs torch.distributed with gloo")
def test_two_processes_train_what_one_does(data, tmp_path):
    train_images(small(data, "drop_path=0"), tmp_path / "one", quiet=True, device="cpu")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(ROOT / "tests/train/tiny_images.py"), str(port), data, str(tmp_path / "two")]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    one, two = tensors(tmp_path / "one"), tensors(tmp_path / "two")
    assert one.keys() == two.keys()
    for name, t in one.items():
        if name.startswith("model"):
            torch.testing.assert_close(two[name], t, rtol=1e-3, atol=1e-4)
    for a, b in zip(lines(tmp_path / "one"), lines(tmp_path / "two"), strict=True):
        assert b == pytest.approx(a, rel=1e-3)


class Compiled:
    """Compiles nothing, and remembers what it was asked to."""

    def __init__(self):
        self.inputs = []

    def __call__(self, graph, inputs):
        self.inputs.append(inputs)
        return graph.forward


@pytest.fixture
def compiler():
    torch.compiler.reset()
    yield Compiled()
    torch.compiler.reset()


STAGES = (*SMALL, "size=16", "windows=2,2,1,1", "blocks=3,3,3,3", "dims=8,16,24,32")


@pytest.mark.parametrize(
    ("settings", "graphs"),
    [
        ((*STAGES, "drop_path=0"), 4),  # one a stage
        ((*STAGES, "drop_path=0.2"), 4),
        (
            ("size=16", "batch=8", "model=swin_t"),
            12,
        ),  # its rates are compiled in: one a block, more than the 8 that torch stops at
    ],
)
def test_every_block_is_compiled_for_its_shape_and_evaluation_compiles_nothing(
    data, tmp_path, compiler, settings, graphs
):
    recipe = ImageRecipe.read("hcformer-nano-32", [f"data={data}", *settings, "compile=true"])
    model, images = ImageClassifier(image_model(recipe.model, 4, 16, recipe.config), recipe.ema), recipe.images()
    task = ImageTask(recipe, images, World(), tmp_path)
    for block in task.units(model):
        block.compile(backend=compiler)
    with compiled_by_shape(recipe.engine, World()), torch.autocast("cpu", torch.bfloat16):
        for step in range(2):
            task.loss(model.train(), task.batch(step, range(8)))[0].backward()
        evaluate_images(model.eval(), images, 16, recipe.augmentation, World())
    assert len(compiler.inputs) == graphs
    assert all(
        isinstance(x, torch.Tensor) for inputs in compiler.inputs for x in inputs
    )  # a shape that may vary is a number of its own


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("source", ["arrays", "files"])
def test_an_accelerator_sees_the_same_batches_and_trains(data, tmp_path, source):
    folder = data if source == "arrays" else write_folder(tmp_path / "files", ["a", "b"], each=20)
    recipe = small(folder, "steps=8", "crop=random")  # enough steps for the graph to be replayed
    there = ImageTask(
        recipe, recipe.images().to(torch.device("cuda")), World(device=torch.device("cuda")), tmp_path
    ).batch(1, range(8))
    for name, value in whole(recipe, tmp_path, 1).items():
        assert there[name].is_cuda
        assert (there[name].cpu() - value).abs().max() < 0.02  # a pixel may be rounded the other way
    assert train_images(recipe, tmp_path / "run", quiet=True, device="cuda").step == 8
    assert load_images(tmp_path / "run").size == 8


@pytest.mark.skipif(not CIFAR.is_file(), reason="needs the subset of CIFAR-100 in ../shared/data")
def test_real_pictures(tmp_path, monkeypatch):
    pytest.importorskip("torchvision", reason="RandAugment is torchvision's")
    settings = ("size=32", "randaugment=9", "batch=16", "steps=3", "eval_every=none", "windows=4,4,1,1")
    recipe = small(CIFAR, *settings)
    images = recipe.images()
    assert (len(images.train), len(images.valid), len(images.classes), images.tree.distances.max()) == (
        15000,
        3000,
        100,
        4,
    )
    task = ImageTask(recipe, images, World(), tmp_path)
    x = task.batch(0, range(16))["images"]
    assert x.shape == (16, 3, 32, 32)
    assert 0.5 < x.std() < 2
    few = replace(
        images, valid=replace(images.valid, numbers=images.valid.numbers[::15], labels=images.valid.labels[::15])
    )
    monkeypatch.setattr(ImageRecipe, "images", lambda self: few)
    found = train_images(recipe, tmp_path / "run", quiet=True, device="cpu").evaluation
    assert 0 <= found["top1"] <= found["coarse"] <= 1
    assert found["top1"] <= found["top5"]
    assert 0 < found["tree_error"] <= 4


# -- Hi-Mapper and weights to begin with ------------------------------------------------------------------------------


def tree_recipe(data, *more):
    return small(data, "tree.leaves=8", "tree.levels=2", "tree.width=16", "tree.heads=2", "drop_path=0", *more)


def test_a_network_trains_inside_hi_mapper_and_is_loaded_again(data, tmp_path):
    train_images(tree_recipe(data), tmp_path / "run", quiet=True, device="cpu")
    assert all({"contrast", "kl"} <= line.keys() for line in lines(tmp_path / "run") if "grad_norm" in line)
    found = load_images(tmp_path / "run").network
    assert found.config.leaves == 8
    assert found(torch.zeros(2, 3, 8, 8)).shape == (2, 4)


def test_a_run_begins_with_the_weights_of_another(data, run, tmp_path):
    given = load_images(run).network.state_dict()
    plain = image_model("hcformer-nano-32", 4, 8, small(data).config, start=str(run))
    assert all(torch.equal(value, given[name]) for name, value in plain.state_dict().items())
    wrapped = image_model("hcformer-nano-32", 4, 8, small(data).config, tree_recipe(data).tree, str(run)).eval()
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(wrapped(x), plain.eval()(x))  # the plug-in begins as the network itself
    more = image_model("hcformer-nano-32", 7, 8, small(data).config, start=str(run))
    assert more(x).shape == (2, 7)
    with pytest.raises(UserError, match="a run of another network"):
        image_model("hcformer-nano-32", 4, 8, {**small(data).config, "dims": (8, 8, 8, 16)}, start=str(run))
    with pytest.raises(UserError, match="no folder made by"):
        image_model("hcformer-nano-32", 4, 8, {}, start=str(tmp_path / "nowhere"))


def test_settings_of_the_tree_are_checked(data):
    assert ImageRecipe.read("himapper-32", [f"data={data}"]).tree.levels == 4
    assert ImageRecipe.read("himapper-32", [f"data={data}", "tree=none"]).tree is None
    with pytest.raises(UserError, match="did you mean leaves"):
        tree_recipe(data, "tree.leafs=3")
    with pytest.raises(UserError, match="use a multiple of 8"):
        ImageRecipe.read("himapper-32", [f"data={data}", "tree.leaves=12"])
