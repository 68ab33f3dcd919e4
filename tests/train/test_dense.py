"""Training on masks: shapes are learned, batches depend on their step alone, scores are their definitions, runs resume exactly."""

import json
import os
import shutil
import signal
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from horosphere.data.dense import IGNORED, DenseData, Instances, open_instances, open_semantic
from horosphere.errors import UserError
from horosphere.train import dense as module
from horosphere.train.dense import (
    DenseRecipe,
    DenseTask,
    collate_instances,
    cut,
    dense_recipe_names,
    evaluate_instances,
    evaluate_semantic,
    flipped,
    is_dense_recipe,
    load_dense,
    separated,
    short_side,
    train_dense,
)
from horosphere.train.distributed import World
from horosphere.train.images import train_images
from tests.data.pictures import write_npz
from tests.data.shapes import save, write_coco, write_instances, write_semantic
from tests.train.tiny_images import small as small_classifier

pytest.importorskip("torchvision", reason="the models are torchvision's")
pytest.importorskip("torchmetrics", reason="the scores are torchmetrics'")
pytest.importorskip("PIL.Image", reason="pictures need Pillow")
SHARED = Path(__file__).parents[3] / "shared" / "data" / "images"

SMALL = (
    *(
        "size=32",
        "batch=4",
        "steps=4",
        "lr=1e-2",
        "log_every=1",
        "eval_every=2",
        "save_every=2",
        "width=8",
        "drop_path=0.2",
    ),
    *(
        "blocks=1,1,1,1",
        "dims=8,8,8,8",
        "heads=1,1,1,1",
        "head_width=8",
        "mlp_ratios=1,1,1,1",
        "windows=2,2,1,1",
        "patch_centres=4,1,1,1",
    ),
    *("window_centres=1,1,1,0", "layer_scale=0.5"),
)
KINDS = ["semantic-fpn", "mask-rcnn"]


def small(kind, data, *more):
    return DenseRecipe.read(kind, [f"data={data}", *SMALL, *(["ignore=9"] if kind == "semantic-fpn" else []), *more])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    return {
        "semantic-fpn": write_semantic(root / "semantic"),
        "mask-rcnn": write_instances(root / "instances", empty=(0, 1, 2, 3, 9)),
    }


@pytest.fixture(autouse=True)
def _needs_coco(request):
    if "mask-rcnn" in request.node.name or "instances" in request.node.name:
        pytest.importorskip("pycocotools", reason="COCO's scores need it")


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    """Runs that are done, made when first asked for."""
    folder, made = tmp_path_factory.mktemp("runs"), {}

    def run(kind):
        if kind not in made:
            train_dense(small(kind, data[kind]), folder / kind, quiet=True, device="cpu")
            made[kind] = folder / kind
        return made[kind]

    return run


def lines(folder):
    """metrics.jsonl without what the clock decides"""
    found = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in line.items() if name not in ("seconds", "images_per_second")} for line in found
    ]


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


# -- recipes ----------------------------------------------------------------------------------------------------------


def test_recipes_are_told_apart():
    assert dense_recipe_names() == sorted(KINDS)
    assert not is_dense_recipe("hcformer-nano")
    for kind in KINDS:
        assert DenseRecipe.read(kind, ["data=a"]).model == kind


def test_the_papers_settings_are_in_the_recipes():
    fpn, rcnn = (DenseRecipe.read(kind, ["data=a"]).engine for kind in KINDS)
    assert (fpn.lr, fpn.weight_decay, fpn.batch, fpn.final) == (2e-4, 1e-4, 16, 0.0)
    assert (rcnn.lr, rcnn.compile) == (1e-4, False)


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("stepps=2", "did you mean steps"),
        ("windw_geometry=lorentz", "did you mean window_geometry"),
        ("num_classes=9", "there is no setting num_classes"),
        ("model=mask-rcn", "choose from semantic-fpn, mask-rcnn"),
        ("size=0", "size=0: it must be at least 1"),
        ("scale=2,1", "scale=2,1: two positive numbers"),
        ("compile=true", "compile=true: the shapes"),
        ("backbone=hcformer-nanno", "did you mean hcformer-nano"),
        ("backbone=torchvision:resnet18", "layer_scale=0.5: a setting of hcformer"),
    ],
)
def test_a_wrong_setting_is_named(setting, complaint):
    with pytest.raises(UserError) as error:
        DenseRecipe.read("mask-rcnn", ["data=a", "layer_scale=0.5", setting])
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


# -- batches ----------------------------------------------------------------------------------------------------------


def test_cutting_at_its_own_size_changes_nothing_and_a_flip_turns_both():
    image, mask = (
        np.random.default_rng(0).integers(0, 255, (8, 8, 3)).astype(np.uint8),
        np.arange(64, dtype=np.int16).reshape(8, 8),
    )
    same = cut(image, mask, 8, (1.0, 1.0), True, np.array([0.3, 0.0, 0.0, 0.9]))
    np.testing.assert_array_equal(same[0], image)
    np.testing.assert_array_equal(same[1], mask)
    turned = cut(image, mask, 8, (1.0, 1.0), True, np.array([0.3, 0.0, 0.0, 0.1]))
    np.testing.assert_array_equal(turned[0], image[:, ::-1])
    np.testing.assert_array_equal(turned[1], mask[:, ::-1])


@pytest.mark.parametrize("u", [0.0, 0.4, 0.999])
def test_pictures_and_masks_are_cut_alike_and_nothing_counts_beyond_them(u):
    mask = np.zeros((20, 30), dtype=np.int16)
    mask[5:15, 8:22] = 1
    image = np.repeat(mask[..., None] * 255, 3, 2).astype(np.uint8)
    square, classes = cut(image, mask, 20, (0.5, 2.0), False, np.full(4, u))
    assert square.shape == (20, 20, 3)
    counted = classes != IGNORED
    assert set(np.unique(classes)) <= {IGNORED, 0, 1}
    wrong = (square[..., 0] > 127) != (classes == 1)
    assert wrong[counted].mean() < 0.1  # edges are blurred in pictures, not in masks
    assert counted.all() == (u > 0.5)  # smaller than the square it does not fill it


def test_the_shorter_side_has_the_size():
    assert short_side(20, 30, 40) == (40, 60)
    assert short_side(300, 20, 10) == (150, 10)


def test_heaps_are_not_learned_from_and_boxes_turn_with_their_masks():
    masks = np.zeros((2, 4, 6), dtype=bool)
    masks[0, 1:3, 0:2] = masks[1, :, 4:] = True
    found = Instances(masks, np.array([1, 2]), np.array([False, True]))
    _, kept = flipped(np.zeros((4, 6, 3), dtype=np.uint8), found, True)
    assert kept.boxes.tolist() == [[4, 1, 6, 3]]
    assert kept.labels.tolist() == [1]


def test_instances_come_apart_as_they_were_put_together():
    random = np.random.default_rng(0)
    rows = []
    for count, shape in ((2, (6, 9)), (0, (8, 4)), (1, (5, 5))):
        masks = np.zeros((count, *shape), dtype=bool)
        masks[:, 1:3, 2:4] = True
        rows.append(
            (
                random.integers(0, 255, (*shape, 3)).astype(np.uint8),
                Instances(masks, np.arange(count) + 1, np.zeros(count, dtype=bool)),
            )
        )
    images, targets = separated(collate_instances(rows))
    for image, target, (before, found) in zip(images, targets, rows, strict=True):
        np.testing.assert_array_equal((image * 255).round().permute(1, 2, 0), before)
        np.testing.assert_array_equal(target["masks"].bool(), found.masks)
        assert target["labels"].tolist() == found.labels.tolist()
        assert target["boxes"].tolist() == found.boxes.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_a_function_of_its_step_however_it_is_shared(data, tmp_path, kind):
    recipe = small(kind, data[kind], "micro_batch=1")
    whole = DenseTask(recipe, recipe.pictures(), World(), tmp_path)
    tasks = [DenseTask(recipe, recipe.pictures(), World(rank, 2), tmp_path) for rank in (0, 1)]
    for step in range(2):
        together = whole.batch(step, range(4))
        parts = [
            task.batch(step, rows) for task in tasks for rows in task.read.order
        ]  # as the engine asks, with the next rows read ahead
        names = ("images", "masks") if kind == "semantic-fpn" else ("boxes", "labels", "counts")
        for name in names:
            assert torch.equal(torch.cat([part[name] for part in parts]), together[name])
    assert not torch.equal(whole.batch(0, range(4))["images"], whole.batch(1, range(4))["images"])
    whole.batch(3, range(4))
    assert whole.read.begun == {}


# -- scores -----------------------------------------------------------------------------------------------------------


class Oracle(nn.Module):
    """Answers by the brightness of a pixel, whatever the truth is."""

    def forward(self, x):
        bright = x.mean(1, keepdim=True)
        return torch.cat([-bright, bright, torch.full_like(bright, -9.0)], 1)


def test_miou_and_accuracy_are_those_counted_by_hand(data):
    pictures = open_semantic(data["semantic-fpn"], ignore=9)
    found = evaluate_semantic(Oracle(), pictures, 32, World())
    counts = np.zeros((3, 3))
    for number in range(len(pictures.valid)):
        image, mask = pictures.valid.read(number)
        x = (image / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
        guess = (x.mean(-1) > 0).astype(int)
        for truth in range(3):
            for answer in range(3):
                counts[truth, answer] += ((mask == truth) & (guess == answer)).sum()
    assert counts.sum() == 6 * 31 * 40  # the void row is in none of them
    iou = counts.diagonal() / (counts.sum(0) + counts.sum(1) - counts.diagonal())
    assert list(found.by_class.values()) == pytest.approx(iou, abs=1e-6)
    assert found.miou == pytest.approx(iou.mean(), abs=1e-6)
    assert found.accuracy == pytest.approx(counts.diagonal().sum() / counts.sum(), abs=1e-6)


def test_classes_that_never_occur_do_not_lower_the_mean(data):
    few, many = (
        evaluate_semantic(Oracle(), open_semantic(data["semantic-fpn"], ignore=9, classes=n), 32, World())
        for n in (3, 7)
    )
    assert few.miou == many.miou


def test_pictures_of_many_sizes_are_scored_as_one_by_one(tmp_path, monkeypatch):
    root = Path(write_semantic(tmp_path, 2, 3))
    for number, (height, width) in enumerate(((33, 41), (40, 52), (33, 41)), start=3):
        other = write_semantic(tmp_path / f"other{number}", 1, 1, height=height, width=width)
        for part in ("val", "valannot"):
            shutil.copy(Path(other, part, "00.png"), root / part / f"{number:02}.png")
    pictures = open_semantic(str(root), ignore=9)
    together = evaluate_semantic(Oracle(), pictures, 32, World())
    monkeypatch.setattr(module, "EVAL_ROWS", 1)
    assert evaluate_semantic(Oracle(), pictures, 32, World()) == together


def test_where_nothing_counts_scores_are_zero(tmp_path):
    root = write_semantic(tmp_path, 2, 1)
    save(np.full((32, 40), 9, dtype=np.uint8), tmp_path / "valannot" / "00.png")
    assert evaluate_semantic(Oracle(), open_semantic(root, ignore=9), 32, World()).miou == 0


class Told(nn.Module):
    """Answers with the truth of the pictures in order, moved by some pixels."""

    def __init__(self, data, shift=0, label=0):
        super().__init__()
        self.answers, self.shift, self.label = (
            iter([data.valid.read(i)[1] for i in range(len(data.valid))]),
            shift,
            label,
        )

    def forward(self, images):
        truth = next(self.answers)
        masks = torch.from_numpy(np.roll(truth.masks, self.shift, 2)).float()[:, None]
        boxes = torch.from_numpy(truth.boxes) + torch.tensor([self.shift, 0, self.shift, 0])
        labels = torch.from_numpy(truth.labels) + self.label
        return [{"boxes": boxes, "labels": labels, "scores": torch.ones(len(labels)), "masks": masks}]


def test_ap_of_instances_is_one_for_the_truth_and_falls_with_the_distance(data):
    pictures = open_instances(data["mask-rcnn"])
    cpu = torch.device("cpu")
    exact, near, far = (evaluate_instances(Told(pictures, shift), pictures, cpu) for shift in (0, 1, 20))
    assert set(exact) == {f"{kind}_ap{at}" for kind in ("box", "mask") for at in ("", "50", "75")}
    assert exact == pytest.approx(dict.fromkeys(exact, 1.0))
    assert near["box_ap50"] == pytest.approx(1.0)
    assert 0 < near["box_ap"] < 1
    assert far["mask_ap50"] < 0.5
    assert evaluate_instances(Told(pictures, label=1), pictures, cpu)["box_ap"] == 0  # the right place, the wrong class


def test_heaps_of_instances_need_not_be_found(tmp_path):
    pictures = open_instances(write_coco(tmp_path))

    class WithoutHeaps(Told):
        def forward(self, images):
            return [{name: value[:2] for name, value in super().forward(images)[0].items()}]

    found = evaluate_instances(WithoutHeaps(pictures), pictures, torch.device("cpu"))
    assert found["mask_ap"] == pytest.approx(1.0)


# -- runs -------------------------------------------------------------------------------------------------------------


def test_squares_and_circles_are_learned(data, tmp_path):
    settings = (
        "steps=60",
        "batch=8",
        "eval_every=none",
        "save_every=60",
        "drop_path=0",
        "scale=1,1",
        "width=16",
        "dims=16,16,16,16",
    )
    found = train_dense(
        small("semantic-fpn", data["semantic-fpn"], *settings), tmp_path / "run", quiet=True, device="cpu"
    ).evaluation
    assert found["miou"] > 0.6  # all ground: 0.27; every shape found, but all taken for one kind: 0.52
    assert found["accuracy"] > 0.85  # all ground: 0.81


def test_objects_are_learned_by_mask_rcnn(data, tmp_path):
    settings = (
        "steps=24",
        "batch=2",
        "size=64",
        "eval_every=none",
        "drop_path=0",
        "scale=1,1",
        "width=16",
        "dims=16,16,16,16",
        "lr=1e-2",
    )
    run = tmp_path / "run"
    found = train_dense(small("mask-rcnn", data["mask-rcnn"], *settings), run, quiet=True, device="cpu").evaluation
    losses = [line["loss"] for line in lines(run) if "loss" in line]
    assert np.mean(losses[-6:]) < 0.6 * np.mean(losses[:6])
    assert found["box_ap50"] > 0.3
    assert found["mask_ap50"] > 0.3


class NothingNew(TorchDispatchMode):
    """Refuses tensors made of Python's numbers: on an accelerator they are copies from the host."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function is not torch.ops.aten.lift_fresh.default
        return function(*args, **(kwargs or {}))


def test_what_a_cuda_graph_captures_takes_nothing_from_the_host(data, tmp_path):
    recipe = small("semantic-fpn", data["semantic-fpn"])
    task = DenseTask(recipe, recipe.pictures(), World(), tmp_path)
    model, batch = (
        module.dense_model({**asdict(recipe), "image_size": recipe.size}, len(task.data.classes)),
        task.batch(0, range(4)),
    )
    assert task.graphable(batch)
    task.loss(model, batch)  # warm-up, as before a capture
    with NothingNew():
        task.loss(model, batch)[0].backward()


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_goes_on_exactly(data, runs, tmp_path, kind, monkeypatch):
    folder, loss, calls = tmp_path / "run", DenseTask.loss, []

    def interrupt(task, model, batch):
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return loss(task, model, batch)

    monkeypatch.setattr(DenseTask, "loss", interrupt)
    with pytest.raises(SystemExit):
        train_dense(small(kind, data[kind]), folder, quiet=True, device="cpu")
    monkeypatch.setattr(DenseTask, "loss", loss)
    assert not (folder / "model.safetensors").exists()
    halfway = load_dense(folder).network.state_dict()
    train_dense(small(kind, data[kind]), folder, resume=True, quiet=True, device="cpu")
    expected = load_file(runs(kind) / "model.safetensors")
    assert_same(load_file(folder / "model.safetensors"), expected)
    assert lines(folder) == lines(runs(kind))
    assert any(not torch.equal(value, halfway[name]) for name, value in expected.items())


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_loaded_with_what_it_was_trained_for(runs, kind):
    found = load_dense(runs(kind))
    assert (found.size, found.detects, len(found.classes)) == (32, kind == "mask-rcnn", 1 if kind == "mask-rcnn" else 3)
    assert not found.network.training
    assert_same(found.network.state_dict(), load_file(runs(kind) / "model.safetensors"))
    x = torch.rand(3, 33, 47)
    answer = found.network([x])[0]["masks"] if found.detects else found.network(x[None])
    assert answer.shape[2:] == (33, 47)


@pytest.mark.parametrize(
    ("file", "content", "remedy"),
    [
        ("model.safetensors", b"broken", "damaged or foreign weights"),
        ("classes.json", b"{", "classes.json: a damaged file"),
        ("run.json", b"{", "run.json: a damaged file"),
        ("run.json", b'{"recipe": {"model": "hcformer-nano"}}', "no run of a model of pixels"),
    ],
)
def test_a_damaged_run_is_named(runs, tmp_path, file, content, remedy):
    folder = shutil.copytree(runs("semantic-fpn"), tmp_path / "run")
    (folder / file).write_bytes(content)
    with pytest.raises(UserError, match=remedy) as error:
        load_dense(folder)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="no folder made by"):
        load_dense(tmp_path)


def test_a_run_begins_with_the_backbone_of_a_classifier(data, tmp_path):
    classifier = tmp_path / "classifier"
    train_images(
        small_classifier(write_npz(tmp_path / "x.npz"), "model=hcformer-nano", "stem_kernel=4", "stem_stride=4"),
        classifier,
        device="cpu",
        quiet=True,
    )
    shape = ("stem_kernel=4", "stem_stride=4", "drop_path=0.2", f"start={classifier}", "steps=1", "lr=1e-9")
    train_dense(small("semantic-fpn", data["semantic-fpn"], *shape), tmp_path / "run", quiet=True, device="cpu")
    given, mine = load_file(classifier / "model.safetensors"), load_file(tmp_path / "run" / "model.safetensors")
    for name, value in given.items():
        if not name.startswith("head"):
            torch.testing.assert_close(mine[f"pyramid.backbone.model.{name}"], value)
    with pytest.raises(UserError, match=r"a run of another backbone \(\d+ of \d+ tensors fit\)"):
        train_dense(
            small("semantic-fpn", data["semantic-fpn"], *shape, "dims=8,8,8,16"),
            tmp_path / "other",
            quiet=True,
            device="cpu",
        )
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_file_stops_the_run_in_one_line(data, tmp_path, kind):
    root = Path(shutil.copytree(data[kind], tmp_path / "data"))
    for file in (root / ("train" if kind == "semantic-fpn" else "images")).iterdir():
        file.write_bytes(file.read_bytes()[:70])
    with pytest.raises(UserError, match="no readable picture") as error:
        train_dense(small(kind, root), tmp_path / "run", quiet=True, device="cpu")
    assert "\n" not in str(error.value)


def test_nothing_is_overwritten_unasked(data, runs):
    before = lines(runs("semantic-fpn"))
    with pytest.raises(UserError, match="exists already"):
        train_dense(small("semantic-fpn", data["semantic-fpn"]), runs("semantic-fpn"), quiet=True, device="cpu")
    assert lines(runs("semantic-fpn")) == before


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs CamVid and Penn-Fudan in ../shared/data")
@pytest.mark.parametrize("kind", KINDS)
def test_real_pictures(tmp_path, kind, monkeypatch):
    source, size, ignore = ("camvid", 64, ("ignore=11",)) if kind == "semantic-fpn" else ("pennfudan", 96, ())
    recipe = small(kind, SHARED / source, f"size={size}", "batch=2", "steps=2", "eval_every=none", *ignore)
    data = recipe.pictures()
    monkeypatch.setattr(
        DenseRecipe, "pictures", lambda self: DenseData(data.train, data.valid.subset(range(4)), data.classes)
    )
    found = train_dense(replace(recipe), tmp_path / "run", quiet=True, device="cpu").evaluation
    assert all(-1 <= value <= 1 for value in found.values())
