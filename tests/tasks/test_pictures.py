"""Training on pictures: networks by name, averages of weights, scores, runs in two processes, blocks compiled once."""

import os
import re
import shutil
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
from PIL import Image
from torch import nn
from torch.testing import assert_close

from horosphere.data.augment import Augmentation, normalise
from horosphere.errors import UserError
from horosphere.evaluate import classification
from horosphere.evaluate.classification import hierarchy_scores
from horosphere.geometry import Lorentz
from horosphere.measure.hierarchy import class_distances
from horosphere.models.backbones import blocks_of, classifier, head_of
from horosphere.models.convnets import CONVNETS
from horosphere.models.hcformer import HCFORMER, HCFormer
from horosphere.models.heads import LiftedClassifier
from horosphere.models.himapper import HiMapper
from horosphere.optim import param_groups
from horosphere.recipes import read_recipe, recipe_names
from horosphere.runs import Run
from horosphere.tasks import pictures as module
from horosphere.tasks.pictures import Pictures, evaluate_pictures
from horosphere.train.averages import Averaged
from horosphere.train.distributed import World
from horosphere.train.engine import Place, _shapes
from horosphere.train.recipe import Recipe
from horosphere.train.training import train
from tests.data.pictures import COLOURS, write_folder, write_npz
from tests.tasks.test_every_task import live, tensors
from tests.tasks.tiny import PICTURES, SHORT, run_tiny, tiny
from tests.tasks.two_processes import Normed
from tests.train.toy_task import lines

pytest.importorskip("torchvision", reason="pictures need torchvision")
ROOT = Path(__file__).parents[2]
CIFAR = ROOT.parent / "shared" / "data" / "images" / "cifar100-subset.npz"
TORCHVISION = ("resnet18", "resnet50", "swin_t", "convnext_tiny")


def small(data, *more):
    return tiny("pictures", data, *more)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_npz(tmp_path_factory.mktemp("data") / "colours.npz", coarse_of_fine=np.array([0, 0, 1, 1]))


def test_an_untrained_network_is_the_same_every_time_and_at_rest(data):
    task, chance = small(data).task, torch.get_rng_state()
    one, other = task.untrained(), task.untrained()
    assert not any(module.training for module in one.network.modules())
    assert all(torch.equal(a, b) for a, b in zip(*(t.network.state_dict().values() for t in (one, other)), strict=True))
    assert torch.equal(torch.get_rng_state(), chance)  # nobody else's random numbers are touched


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """A run that is done."""
    folder = tmp_path_factory.mktemp("runs") / "done"
    run_tiny(small(data), folder)
    return folder


# -- points -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("geometry", ["euclidean", "lorentz", "poincare"])
def test_points_are_the_classes_and_their_groups(data, tmp_path, geometry):
    how = () if geometry == "euclidean" else ("model=resnet18", f"head.geometry={geometry}")
    recipe = Recipe.read("hcformer-nano-32", [f"data={data}", "size=8", "batch=8", *SHORT, *how])
    run_tiny(recipe, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    vectors, head = Pictures.vectors(run), head_of(run.load().network)
    assert list(vectors.labels) == ["0", "1", "2", "3", "0, 1", "2, 3", "all classes"]
    assert_close(vectors.manifold.lower(vectors.points[:4]), head.weight.double())
    assert type(vectors.manifold).__name__.lower() == geometry
    assert vectors.graph.edges.tolist() == [[0, 4], [1, 4], [2, 5], [3, 5], [4, 6], [5, 6]]
    m = vectors.manifold
    assert_close(m.dist(vectors.points[4], vectors.points[0]), m.dist(vectors.points[4], vectors.points[1]))
    assert vectors.columns["group"][:5] == ["0, 1", "0, 1", "2, 3", "2, 3", "all classes"]
    for number in range(4):  # the test pictures of a class have its colour
        assert abs(vectors.thumbnail(number).mean((0, 1)) - COLOURS[number]).max() < 20
    assert vectors.thumbnail(4) is None


def test_points_of_a_hi_mapper_are_its_trees(data, tmp_path):
    run_tiny(small(data, "tree.leaves=4", "tree.levels=2", "tree.width=8", "tree.heads=2"), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    vectors, trained = Pictures.vectors(run), run.load()
    assert len(set(vectors.labels)) == len(vectors.labels) == 4 * 6  # four classes, a picture each
    assert set(vectors.columns["picture"]) == {"0", "1", "2", "3"}
    images = trained.network.hierarchy(normalise(task_pictures(data)[:4]))
    assert_close(vectors.points, images.points.flatten(0, 1))
    assert isinstance(vectors.manifold, Lorentz)
    assert "hyperboloid" in vectors.said("own")
    for child, parent in vectors.graph.edges:
        assert vectors.labels[child].startswith(vectors.labels[parent].split()[0])
        assert vectors.columns["picture"][child] == vectors.columns["picture"][parent]
        assert vectors.columns["level"][child] == vectors.columns["level"][parent] + 1
    assert len(vectors.graph.edges) == 4 * 4
    assert all(0 < share <= 1 + 1e-6 for share in vectors.columns["share seen"])
    assert vectors.thumbnail(23).shape == (8, 8, 3)


def task_pictures(data):
    with np.load(data) as arrays:
        return torch.from_numpy(arrays["test_images"]).permute(0, 3, 1, 2)


def test_a_run_whose_data_are_gone_has_points_without_pictures(tmp_path):
    data = write_npz(tmp_path / "set.npz")
    run_tiny(small(data), tmp_path / "run")
    os.remove(data)
    vectors = Pictures.vectors(Run.open(tmp_path / "run"))
    assert (vectors.graph, vectors.thumbnail, len(vectors.points)) == (None, None, 4)


# -- recipes ----------------------------------------------------------------------------------------------------------


def test_a_setting_goes_where_it_belongs_in_its_type():
    settings = ["data=a.npz", "steps=500", "mixup=0", "ema=none", "window_geometry=euclidean", "dims=8,16,16,24"]
    read = Recipe.read("hcformer-nano-32", settings)
    task = read.task
    assert (task.data, read.engine.steps, task.augmentation.mixup, task.ema, task.size) == ("a.npz", 500, 0.0, None, 32)
    assert task.config == {"window_geometry": "euclidean", "dims": (8, 16, 16, 24)}


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("mixups=2", "did you mean mixup"),
        ("window_geometri=lorentz", "did you mean window_geometry"),
        ("window_geometry=round", "window_geometry=round: choose"),
        ("num_classes=9", "there is no setting num_classes"),
        ("image_size=9", "there is no setting image_size"),
        ("model=hcformer-huge", "did you mean hcformer"),
        ("model=resnet81", "did you mean resnet18"),
        ("model=helm", "model=helm: there is no such model; "),
        ("size=0", "size=0: it goes from 1 to 1e6"),
        ("ema=1", "ema=1: it goes from 0 to just below 1, or none"),
        ("erase=2", "erase=2: it goes from 0 to 1"),
        ("dims=0,1,1,1", "dims=0: it goes from 1 to 1e6"),
        ("crop=all", "crop=all: choose from random, shift, none"),
        ("batch=7", "batch=7: mixup and cutmix take pictures in pairs"),
        ("micro_batch=1", "micro_batch=1: mixup and cutmix take pictures in pairs"),
        ("tree.leafs=3", "did you mean leaves"),
        ("tree.leaves=12", "use a multiple of 8"),
    ],
)
def test_a_wrong_setting_is_named(setting, complaint):
    with pytest.raises(UserError) as error:
        Recipe.read("hcformer-nano-32", ["data=a.npz", setting])
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_data_must_be_given():
    with pytest.raises(UserError, match="data must be given"):
        Recipe.read("hcformer-nano-32")


def test_every_hcformer_has_its_recipe():
    names = {name for name in recipe_names() if read_recipe(name)["task"] == "pictures"}
    assert names == {*HCFORMER, *CONVNETS, "himapper", "himapper-32"}
    for name in HCFORMER:
        assert Recipe.read(name, ["data=a.npz"]).task.model == name


def test_the_papers_training():
    recipe = Recipe.read("hcformer-nano", ["data=imagenet"])
    engine = recipe.engine
    assert engine.steps * engine.batch / 1_281_167 == pytest.approx(310, rel=1e-3)
    assert engine.warmup * 310 == pytest.approx(5, rel=0.01)
    assert (engine.lr, engine.weight_decay, engine.batch, engine.betas) == (1e-3, 0.05, 1024, (0.9, 0.999))
    assert recipe.task.augmentation == Augmentation("random", True, 9.0, 0.8, 1.0, 0.25, 0.1)


# -- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TORCHVISION)
def test_small_pictures_keep_their_resolution_in_the_opponents(name):
    pytest.importorskip("torchvision", reason="networks of torchvision's")
    with torch.device("meta"):
        little, large = (classifier(name, 7, size, {}) for size in (32, 224))
    seen = {}
    for key, network, size in (("little", little, 32), ("large", large, 128)):
        first = blocks_of(network)[0]
        first.register_forward_pre_hook(lambda m, x, key=key: seen.update({key: x[0].shape}))
        assert network(torch.zeros(2, 3, size, size, device="meta")).shape == (2, 7)
    assert seen["little"][1:].count(32) == seen["large"][1:].count(32) == 2  # stride 1 for 32 pixels, 4 for 128


@pytest.mark.parametrize(
    "name", ["timm:test_resnet", "timm:test_vit", "timm:test_efficientnet", "torchvision:resnet18"]
)
def test_hi_mapper_is_trained_around_any_network_by_name(name, tmp_path, data):
    pytest.importorskip(name.partition(":")[0], reason="whose network this is")
    recipe = tree_recipe(data)
    recipe = replace(recipe, task=replace(recipe.task, model=name, config={}, size=64))
    assert run_tiny(recipe, tmp_path / "run").step == recipe.engine.steps
    loaded = Run.open(tmp_path / "run").load().network
    assert isinstance(loaded, HiMapper)
    assert loaded(torch.zeros(1, 3, 64, 64)).shape == (1, 4)


def test_a_network_begins_with_its_published_weights(monkeypatch):
    zoo = pytest.importorskip("torchvision.models", reason="networks of torchvision's")
    published = zoo.resnet18().state_dict()
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", lambda *_, **__: published)
    network = classifier("torchvision:resnet18", 4, 64, {}, pretrained=True)
    assert torch.equal(network.conv1.weight, published["conv1.weight"])
    assert network.fc.out_features == 4
    assert network.training


def test_fine_tuning_keeps_the_trunk_and_gives_a_curved_head_a_rate_of_its_own(tmp_path, data):
    run_tiny(tiny("pictures", data, "steps=2"), tmp_path / "first")
    settings = (f"start={tmp_path / 'first'}", "head.geometry=lorentz", "head.curvature=0.5", "head_lr=10")
    task = live("pictures", data, *settings)
    model = task.build(task.pictures)
    given = Run.open(tmp_path / "first").load().network.state_dict()
    begun = model.network.state_dict()
    assert all(torch.equal(begun[name], t) for name, t in given.items() if not name.startswith("head."))
    assert isinstance(model.network.head, LiftedClassifier)
    rates = {id(p): group.get("lr_scale", 1.0) for group in task.groups(model) for p in group["params"]}
    head = {id(p) for p in model.network.head.parameters()}
    assert {rates[p] for p in head} == {10.0}
    assert {rate for p, rate in rates.items() if p not in head} == {1.0}
    assert run_tiny(tiny("pictures", data, *settings), tmp_path / "second").step == 4
    loaded = Run.open(tmp_path / "second").load().network
    assert str(loaded.head.manifold) == str(Lorentz(0.5))
    assert loaded(torch.zeros(1, 3, 8, 8)).shape == (1, 4)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["head.geometry=lorentz"], "head.geometry=lorentz and tree: Hi-Mapper has a head of its own"),
        (["head_lr=0"], "head_lr=0: it must be positive"),
        (["model=resnet18", "pretrained=true"], "pretrained=true: say whose weights, as in model=timm:resnet50"),
        (["model=timm:resnet18", "pretrained=true", "start=there"], "start=there and pretrained=true"),
        (["model=timm:resnet18", "drop_path=0.1"], "drop_path is a setting of HCFormer; timm:resnet18"),
        (["model=efficientnet_b4"], "torchvision:NAME, timm:NAME"),
    ],
)
def test_wrong_words_about_networks_of_others(settings, says):
    with pytest.raises(UserError, match=re.escape(says)):
        Recipe.read("himapper", ["data=a.npz", *settings])


def test_networks_of_others_that_are_unknown_or_of_another_size():
    pytest.importorskip("torchvision", reason="networks of torchvision's")
    with pytest.raises(UserError, match="torchvision knows no model resnet19: did you mean"):
        classifier("torchvision:resnet19", 4, 64, {})
    with pytest.raises(UserError, match=r"torchvision:vit_b_16 does not take size=64 .*: set the size it was made for"):
        classifier("torchvision:vit_b_16", 4, 64, {})


def test_the_average_follows_the_weights_and_answers_in_eval_mode():
    torch.manual_seed(0)
    model = Averaged(Normed(3), 0.6)
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
    plain = Averaged(Normed(3), None).eval()
    assert torch.equal(plain(x), plain.network(x))


def test_what_is_no_matrix_is_not_decayed():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer_scale = nn.Parameter(torch.ones(4, 1, 1))
            self.relative_position_bias_table = nn.Parameter(torch.ones(9, 2))
            self.conv = nn.Conv2d(3, 4, 3)
            self.norm = nn.BatchNorm2d(4)

    model = Averaged(Network(), 0.9)
    groups = param_groups(model, weight_decay=0.3)
    decayed = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
    everything = [id(p) for group in groups for p in group["params"]]
    assert decayed == {id(model.network.conv.weight)}
    assert sorted(everything) == sorted(id(p) for p in model.network.parameters())


def test_what_hi_mapper_asks_to_spare_is_spared(data):
    model = Averaged(tree_recipe(data).task.network_for(4), 0.9)
    groups = param_groups(model, weight_decay=0.3)
    decayed = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
    tree = model.network.mapper.tree
    assert decayed.isdisjoint({id(tree.mean), id(tree.log_variance)})
    biases = [p for name, p in model.network.named_parameters() if name.endswith(("patch_bias", "window_bias"))]
    assert biases
    assert decayed.isdisjoint(map(id, biases))


def test_scales_learn_at_a_rate_of_their_own_within_hi_mapper_too(data):
    for settings in (("scale_lr=50",), ("scale_lr=50", "tree.leaves=4", "tree.levels=2")):
        task = live("pictures", data, *settings, "window_centres=4,1,1,0")
        model = task.build(task.pictures)
        rates = {id(p): group.get("lr_scale", 1.0) for group in task.groups(model) for p in group["params"]}
        names = {name for name, p in model.network.named_parameters() if rates[id(p)] == 50}
        assert {name.rpartition(".")[2] for name in names} == {"patch_scale", "window_scale"}
        assert len(names) == 4 + 1
        assert set(rates.values()) == {1.0, 50.0}


def test_scales_take_steps_of_their_own_length(data, tmp_path):
    """The first step of Adam is as long as the rate, whatever the gradient."""
    moved = {}
    for rate in (1, 50):
        words = (
            "steps=1",
            "warmup=0",
            "schedule=constant",
            "lr=1e-3",
            "ema=none",
            "clip=none",
            f"scale_lr={rate}",
            "eval_every=none",
        )
        run_tiny(tiny("pictures", data, *words), tmp_path / str(rate))
        block = Run.open(tmp_path / str(rate)).load().network.stages[0][0]
        moved[rate] = [abs(block.mixer.patch_scale.item() - 1), (block.mlp_scale - 0.5).abs().mean().item()]
    assert moved[1] == pytest.approx([1e-3, 1e-3], rel=0.05)
    assert moved[50] == pytest.approx([50e-3, 1e-3], rel=0.05)


def test_a_rate_for_scales_is_refused_where_there_are_none(data):
    task = live("pictures", data)
    task.model, task.scale_lr = "resnet18", 50.0
    with pytest.raises(UserError, match="scale_lr=50: resnet18 has no scales of similarities; leave it out"):
        task.groups(Averaged(Normed(4), None))


# -- what a network says of itself ------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [(), ("tree.leaves=4", "tree.levels=2")])
def test_each_evaluation_logs_how_the_average_clusters(data, tmp_path, settings):
    run_tiny(tiny("pictures", data, "steps=4", "eval_every=2", *settings), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert [reading["step"] for reading in run.readings()] == [2, 4]
    last, loaded = run.readings()[-1], run.load()
    assert {
        f"{name}_{stage}" for name in ("patch_centres", "patch_scale", "mlp_scale") for stage in (1, 2, 3, 4)
    } < last.keys()
    held = Recipe.read("hcformer-nano-32", [f"data={data}", *PICTURES]).task.open_data().valid
    x = normalise(held.pictures.crops(held.numbers[:32], loaded.augmentation.still_box, np.zeros((32, 4)), 8)())
    network = next(part for part in loaded.network.modules() if isinstance(part, HCFormer))
    assert {name: last[name] for name in network.readings(x)} == pytest.approx(network.readings(x), rel=1e-4)
    assert not any("scale" in name for name in run.scores())  # readings are no scores


def test_a_network_that_clusters_nothing_says_nothing(data):
    task = live("pictures", data)
    assert task.readings(Averaged(Normed(4).eval(), 0.9)) == {}


# -- batches ----------------------------------------------------------------------------------------------------------


def test_files_are_read_ahead_of_their_step_and_the_last_step_reads_nothing(data, tmp_path):
    files = write_folder(tmp_path / "files", ["a", "b"], each=20)
    whole, ahead = live("pictures", files, "crop=random"), live("pictures", files, "crop=random", "micro_batch=2")
    for step in range(3):
        parts = [ahead.batch(step, rows) for rows in ahead.read.order]
        assert len(ahead.read.begun) == 1
        torch.testing.assert_close(torch.cat([part["images"] for part in parts]), whole.batch(step, range(8))["images"])
    task = live("pictures", data)
    task.batch(3, range(8))
    assert task.read.begun == {}


def test_evaluation_counts_every_picture_once(data, monkeypatch):
    images = replace(small(data).task.open_data())
    images = replace(
        images, valid=replace(images.valid, numbers=images.valid.numbers[:13], labels=images.valid.labels[:13])
    )
    monkeypatch.setattr(classification, "EVAL_ROWS", 5)  # which does not divide 13
    torch.manual_seed(0)
    model = Normed(4).eval()
    measured = evaluate_pictures(model, images, 8, Augmentation(crop="shift"), World())
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
    assert measured == pytest.approx({**expected, "tree_error": scores.tree_error, **distances}, rel=1e-5)


# -- runs -------------------------------------------------------------------------------------------------------------


def test_a_run_learns_and_says_so(data, tmp_path):
    steps = ("steps=50", "batch=16", "mixup=0", "cutmix=0", "eval_every=none", "drop_path=0", "ema=0.8")
    scores = run_tiny(small(data, *steps), tmp_path / "run").evaluation
    assert scores["top1"] > 0.9
    assert scores["coarse"] >= scores["top1"]
    assert scores["tree_error"] < 0.4
    assert 0 < scores["parent"] < scores["sibling"]
    assert set(scores) == {"loss", "top1", "top5", "coarse", "tree_error", "parent", "sibling"}


def test_many_classes_are_not_compared_with_each_other(data, monkeypatch):
    monkeypatch.setattr(classification, "PLACED", 3)
    scores = evaluate_pictures(Normed(4).eval(), small(data).task.open_data(), 8, Augmentation(crop="shift"), World())
    assert set(scores) == {"loss", "top1", "top5", "coarse", "tree_error"}


def test_a_class_without_pictures_has_no_place(data):
    images = small(data).task.open_data()
    seen = images.valid.labels > 0
    images = replace(
        images, valid=replace(images.valid, numbers=images.valid.numbers[seen], labels=images.valid.labels[seen])
    )
    scores = evaluate_pictures(Normed(4).eval(), images, 8, Augmentation(crop="shift"), World())
    assert set(scores) == {"loss", "top1", "top5", "coarse", "tree_error"}


def test_buffers_are_averaged_and_resumed_too(data, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "classifier", lambda name, classes, *more: Normed(classes))
    run_tiny(small(data), tmp_path / "whole")
    run_tiny(small(data, "schedule=constant", "warmup=1", "steps=2"), tmp_path / "parts")
    run_tiny(small(data, "schedule=constant", "warmup=1"), tmp_path / "parts", resume=True)
    run_tiny(small(data, "schedule=constant", "warmup=1"), tmp_path / "straight")
    for name, t in tensors(tmp_path / "parts").items():
        assert torch.equal(t, tensors(tmp_path / "straight")[name]), name
    average = Run.open(tmp_path / "whole").load().network.state_dict()
    assert average["1.num_batches_tracked"] == 4


def test_a_run_is_loaded_with_its_classes(run):
    trained = Run.open(run).load()
    assert (trained.classes, trained.size) == (["0", "1", "2", "3"], 8)
    assert trained.tree.parents.tolist() == [4, 4, 5, 5, 6, 6, -1]
    saved = tensors(run)
    for name, t in trained.network.state_dict().items():
        assert torch.equal(t, saved[f"model-00001-of-00001.safetensors:average.{name}"])


def test_a_broken_picture_stops_the_run_in_one_line(tmp_path):
    folder = write_folder(tmp_path / "files", ["a", "b"], each=10)
    for file in Path(folder, "a").iterdir():
        file.write_bytes(file.read_bytes()[:70])
    with pytest.raises(UserError, match="no readable picture"):
        run_tiny(small(folder), tmp_path / "run")


def test_a_picture_that_breaks_costs_no_step_and_can_be_replaced(tmp_path):
    """The run goes on as if the picture had been sound from the beginning: no step before it has seen it."""
    folder = Path(write_folder(tmp_path / "set", ("a", "b"), each=20))
    how = ("model=resnet18", *(s for s in PICTURES if "=" in s and s.split("=")[0] in ("size", "batch", "lr", "ema")))
    recipe = Recipe.read("hcformer-nano-32", [f"data={folder}", *how, "steps=4", "save_every=4", "mixup=0", "cutmix=0"])
    run_tiny(recipe, tmp_path / "straight")
    task = replace(recipe.task)
    task.engine = recipe.engine
    data = task.open_data()
    seen = [set(task.drawn(step, range(8), len(data.train)).tolist()) for step in range(4)]
    number = next(iter(seen[2] - seen[0] - seen[1]))  # is read in the third step first
    file = data.train.pictures.name(int(data.train.numbers[number]))
    whole = Path(file).read_bytes()
    Path(file).write_bytes(whole[:50])
    with pytest.raises(UserError, match=r"under the same name\. The 2 steps before it are saved: go on") as error:
        run_tiny(recipe, tmp_path / "run")
    assert str(error.value).startswith(file)
    Path(file).write_bytes(whole)
    run_tiny(recipe, tmp_path / "run", resume=True)
    ours, theirs = tensors(tmp_path / "run"), tensors(tmp_path / "straight")
    assert all(torch.equal(ours[name], t) for name, t in theirs.items())


def test_other_pictures_are_other_data(tmp_path):
    """Of arrays the pixels count, of folders the names of files."""
    write_npz(tmp_path / "set.npz")
    write_folder(tmp_path / "set", ("a", "b"), each=20)
    recipes = {kind: small(tmp_path / kind, "steps=2", "save_every=1") for kind in ("set.npz", "set")}
    for kind, recipe in recipes.items():
        run_tiny(recipe, tmp_path / f"run-{kind}")
        run_tiny(recipe, tmp_path / f"run-{kind}", resume=True)
    (tmp_path / "set/a/0.png").rename(tmp_path / "set/a/00.png")
    arrays = dict(np.load(tmp_path / "set.npz"))
    arrays["train_images"][5, 3, 2] += 1
    np.savez(tmp_path / "set.npz", **arrays)
    for kind, recipe in recipes.items():
        with pytest.raises(UserError, match="the data have changed since it was begun"):
            run_tiny(recipe, tmp_path / f"run-{kind}", resume=True)


def save_rows(folder, shade):
    datasets = pytest.importorskip("datasets", reason="datasets of Hugging Face")
    pictures = [Image.new("RGB", (32, 32), (i, shade, 0)) for i in range(40)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    rows = datasets.Dataset.from_dict({"image": pictures, "label": [i % 2 for i in range(40)]}, features)
    shutil.rmtree(folder, ignore_errors=True)
    rows.save_to_disk(folder)


def test_rows_of_other_content_are_other_data(tmp_path):
    """Of a dataset in a folder the content counts, not its name."""
    save_rows(tmp_path / "rows", shade=7)
    recipe = small(f"hf:{tmp_path / 'rows'}", "steps=2", "save_every=1")
    run_tiny(recipe, tmp_path / "run")
    save_rows(tmp_path / "rows", shade=7)  # the same, written again
    run_tiny(recipe, tmp_path / "run", resume=True)
    save_rows(tmp_path / "rows", shade=8)
    with pytest.raises(UserError, match="the data have changed since it was begun"):
        run_tiny(recipe, tmp_path / "run", resume=True)


@pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="needs torch.distributed with gloo")
def test_two_processes_train_what_one_does(data, tmp_path):
    run_tiny(small(data, "drop_path=0"), tmp_path / "one")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(ROOT / "tests/tasks/two_processes.py"), str(port), data, str(tmp_path / "two")]
    command += ["pictures", "drop_path=0"]
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


STAGES = (*PICTURES, "size=16", "windows=2,2,1,1", "blocks=3,3,3,3", "dims=8,16,24,32")


@pytest.mark.parametrize(
    ("settings", "graphs"),
    [
        ((*STAGES, "drop_path=0"), 4),  # one a stage
        ((*STAGES, "drop_path=0.2"), 4),
        # its rates are compiled in: one a block, and one for each of three mergers, more than the 8 that torch stops at
        (("size=16", "batch=8", "model=swin_t"), 15),
    ],
)
def test_every_block_is_compiled_for_its_shape_and_evaluation_compiles_nothing(data, compiler, settings, graphs):
    recipe = Recipe.read("hcformer-nano-32", [f"data={data}", *settings, "compile=true"])
    task, task.engine, images = recipe.task, recipe.engine, recipe.task.open_data()
    model = task.build(images)
    task.ready(images)
    for block in blocks_of(model.network):
        block.compile(backend=compiler)
    with _shapes(task), torch.autocast("cpu", torch.bfloat16):
        for step in range(2):
            task.loss(model.train(), task.batch(step, range(8)))[0].backward()
        task.evaluate(model.eval(), last=True)
    assert len(compiler.inputs) == graphs
    # a shape that may vary is a number of its own
    assert all(isinstance(x, torch.Tensor) for inputs in compiler.inputs for x in inputs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("source", ["arrays", "files"])
def test_an_accelerator_sees_the_same_batches_and_trains(data, tmp_path, source):
    folder = data if source == "arrays" else write_folder(tmp_path / "files", ["a", "b"], each=20)
    settings = ("steps=8", "crop=random")  # enough steps for the graph to be replayed
    there = live("pictures", folder, *settings)
    there.world = World(device=torch.device("cuda"))
    there.ready(there.open_data())
    seen = there.batch(1, range(8))
    for name, value in live("pictures", folder, *settings).batch(1, range(8)).items():
        assert seen[name].is_cuda
        assert (seen[name].cpu() - value).abs().max() < 0.02  # a pixel may be rounded the other way
    assert train(small(folder, *settings), Place(tmp_path / "run", quiet=True), "cuda").step == 8
    assert Run.open(tmp_path / "run").load().size == 8


@pytest.mark.skipif(not CIFAR.is_file(), reason="needs the subset of CIFAR-100 in ../shared/data")
def test_real_pictures(tmp_path, monkeypatch):
    settings = ("size=32", "randaugment=9", "batch=16", "steps=3", "eval_every=none", "windows=4,4,1,1")
    task = live("pictures", CIFAR, *settings)
    images = task.pictures
    assert (len(images.train), len(images.valid), len(images.classes)) == (15000, 3000, 100)
    assert images.tree.distances.max() == 4
    x = task.batch(0, range(16))["images"]
    assert x.shape == (16, 3, 32, 32)
    assert 0.5 < x.std() < 2
    few = replace(images.valid, numbers=images.valid.numbers[::15], labels=images.valid.labels[::15])
    monkeypatch.setattr(module.Pictures, "open_data", lambda self: replace(images, valid=few))
    scores = run_tiny(small(CIFAR, *settings), tmp_path / "run").evaluation
    assert 0 <= scores["top1"] <= scores["coarse"] <= 1
    assert scores["top1"] <= scores["top5"]
    assert 0 < scores["tree_error"] <= 4


# -- Hi-Mapper and weights to begin with ------------------------------------------------------------------------------


def tree_recipe(data, *more):
    return small(data, "tree.leaves=8", "tree.levels=2", "tree.width=16", "tree.heads=2", "drop_path=0", *more)


def test_a_network_trains_inside_hi_mapper_and_is_loaded_again(data, tmp_path):
    run_tiny(tree_recipe(data), tmp_path / "run")
    assert all({"contrast", "kl"} <= line.keys() for line in lines(tmp_path / "run") if "grad_norm" in line)
    network = Run.open(tmp_path / "run").load().network
    assert network.config.leaves == 8
    assert network(torch.zeros(2, 3, 8, 8)).shape == (2, 4)


def test_a_run_begins_with_the_weights_of_another(data, run, tmp_path):
    given, task = Run.open(run).load().network.state_dict(), small(data).task
    plain = task.network_for(4, start=str(run))
    assert all(torch.equal(value, given[name]) for name, value in plain.state_dict().items())
    wrapped = tree_recipe(data).task.network_for(4, start=str(run)).eval()
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(wrapped(x), plain.eval()(x))  # the plug-in begins as the network itself
    assert task.network_for(7, start=str(run))(x).shape == (2, 7)
    with pytest.raises(UserError, match="a run of another network"):
        small(data, "dims=8,8,8,16").task.network_for(4, start=str(run))
    with pytest.raises(UserError, match="no folder of a run"):
        task.network_for(4, start=str(tmp_path / "nowhere"))


def test_hi_mapper_is_taken_off_by_one_setting(data):
    assert Recipe.read("himapper-32", [f"data={data}"]).task.tree.levels == 4
    assert Recipe.read("himapper-32", [f"data={data}", "tree=none"]).task.tree is None
