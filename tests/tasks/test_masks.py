"""Training on masks: shapes are learned, pictures and masks are cut alike, scores are their definitions."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from horosphere.data.dense import IGNORED, DenseData, Instances, open_instances, open_semantic
from horosphere.data.dense_batches import collate_instances, cut, flipped, separated, short_side
from horosphere.errors import UserError
from horosphere.evaluate import pixels
from horosphere.evaluate.objects import evaluate_instances
from horosphere.evaluate.pixels import evaluate_semantic
from horosphere.runs import Run
from horosphere.tasks.objects import Objects
from horosphere.tasks.pixels import Pixels
from horosphere.train.distributed import World
from horosphere.train.recipe import Recipe
from tests.data.shapes import save, write_coco, write_instances, write_semantic
from tests.tasks.test_every_task import live
from tests.tasks.tiny import run_tiny, tiny
from tests.train.toy_task import lines

pytest.importorskip("torchvision", reason="the models are torchvision's")
pytest.importorskip("torchmetrics", reason="the scores are torchmetrics'")
pytest.importorskip("PIL.Image", reason="pictures need Pillow")
SHARED = Path(__file__).parents[3] / "shared" / "data" / "images"
KINDS = ["semantic", "instances"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    return {
        "semantic": write_semantic(root / "semantic"),
        "instances": write_instances(root / "instances", empty=(0, 1, 2, 3, 9)),
    }


@pytest.fixture(autouse=True)
def _needs_coco(request):
    if "instances" in request.node.name or "mask_rcnn" in request.node.name:
        pytest.importorskip("pycocotools", reason="COCO's scores need it")


# -- recipes ----------------------------------------------------------------------------------------------------------


def test_the_papers_settings_are_in_the_recipes():
    fpn, rcnn = (Recipe.read(kind, ["data=a"]).engine for kind in ("semantic-fpn", "mask-rcnn"))
    assert (fpn.lr, fpn.weight_decay, fpn.batch, fpn.final) == (2e-4, 1e-4, 16, 0.0)
    assert (rcnn.lr, rcnn.compile) == (1e-4, False)


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("windw_geometry=lorentz", "did you mean window_geometry"),
        ("num_classes=9", "there is no setting num_classes"),
        ("model=mask-rcn", "did you mean mask-rcnn"),
        ("size=0", "size=0: it goes from 1 to 1e6"),
        ("scale=2,1", "scale=2,1: two positive numbers"),
        ("scale=0,1", "scale=0: it must be positive"),
        ("compile=true", "compile=true: the shapes"),
        ("backbone=hcformer-nanno", "did you mean hcformer-nano"),
        ("backbone=helm-d-tiny", "backbone=helm-d-tiny: a model of the task language"),
        ("backbone=torchvision:resnet18", "layer_scale is a setting of HCFormer; torchvision:resnet18"),
    ],
)
def test_a_wrong_setting_is_named(setting, complaint):
    with pytest.raises(UserError) as error:
        Recipe.read("mask-rcnn", ["data=a", "layer_scale=0.5", setting])
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
    objects = Instances(masks, np.array([1, 2]), np.array([False, True]))
    _, kept = flipped(np.zeros((4, 6, 3), dtype=np.uint8), objects, True)
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
    for image, target, (before, objects) in zip(images, targets, rows, strict=True):
        np.testing.assert_array_equal((image * 255).round().permute(1, 2, 0), before)
        np.testing.assert_array_equal(target["masks"].bool(), objects.masks)
        assert target["labels"].tolist() == objects.labels.tolist()
        assert target["boxes"].tolist() == objects.boxes.tolist()


# -- scores -----------------------------------------------------------------------------------------------------------


class Oracle(nn.Module):
    """Answers by the brightness of a pixel, whatever the truth is."""

    def forward(self, x):
        bright = x.mean(1, keepdim=True)
        return torch.cat([-bright, bright, torch.full_like(bright, -9.0)], 1)


def test_miou_and_accuracy_are_those_counted_by_hand(data):
    pictures = open_semantic(data["semantic"], ignore=9)
    score = evaluate_semantic(Oracle(), pictures, 32, World())
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
    assert list(score.by_class.values()) == pytest.approx(iou, abs=1e-6)
    assert score.miou == pytest.approx(iou.mean(), abs=1e-6)
    assert score.accuracy == pytest.approx(counts.diagonal().sum() / counts.sum(), abs=1e-6)


def test_classes_that_never_occur_do_not_lower_the_mean(data):
    few, many = (
        evaluate_semantic(Oracle(), open_semantic(data["semantic"], ignore=9, classes=n), 32, World()) for n in (3, 7)
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
    monkeypatch.setattr(pixels, "EVAL_ROWS", 1)
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

    def forward(self, picture):
        truth = next(self.answers)
        masks = torch.from_numpy(np.roll(truth.masks, self.shift, 2)).float()[:, None]
        boxes = torch.from_numpy(truth.boxes) + torch.tensor([self.shift, 0, self.shift, 0])
        labels = torch.from_numpy(truth.labels) + self.label
        return {"boxes": boxes, "labels": labels, "scores": torch.ones(len(labels)), "masks": masks}


def test_ap_of_instances_is_one_for_the_truth_and_falls_with_the_distance(data):
    pictures = open_instances(data["instances"])
    cpu = torch.device("cpu")
    exact, near, far = (evaluate_instances(Told(pictures, shift), pictures, cpu) for shift in (0, 1, 20))
    boxes = evaluate_instances(Told(pictures, 1), pictures, cpu, masks=False)
    assert boxes == pytest.approx({name: value for name, value in near.items() if name.startswith("box")})
    assert set(exact) == {f"{kind}_ap{at}" for kind in ("box", "mask") for at in ("", "50", "75")}
    assert exact == pytest.approx(dict.fromkeys(exact, 1.0))
    assert near["box_ap50"] == pytest.approx(1.0)
    assert 0 < near["box_ap"] < 1
    assert far["mask_ap50"] < 0.5
    assert evaluate_instances(Told(pictures, label=1), pictures, cpu)["box_ap"] == 0  # the right place, the wrong class


def test_heaps_of_instances_need_not_be_found(tmp_path):
    pictures = open_instances(write_coco(tmp_path))

    class WithoutHeaps(Told):
        def forward(self, picture):
            return {name: value[:2] for name, value in super().forward(picture).items()}

    score = evaluate_instances(WithoutHeaps(pictures), pictures, torch.device("cpu"))
    assert score["mask_ap"] == pytest.approx(1.0)


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
    score = run_tiny(tiny("semantic", data["semantic"], *settings), tmp_path / "run").evaluation
    assert score["miou"] > 0.6  # all ground: 0.27; every shape found, but all taken for one kind: 0.52
    assert score["accuracy"] > 0.85  # all ground: 0.81


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
    score = run_tiny(tiny("instances", data["instances"], *settings), run).evaluation
    losses = [line["loss"] for line in lines(run) if "loss" in line]
    assert np.mean(losses[-6:]) < 0.6 * np.mean(losses[:6])
    assert score["box_ap50"] > 0.3
    assert score["mask_ap50"] > 0.3


class NothingNew(TorchDispatchMode):
    """Refuses tensors made of Python's numbers: on an accelerator they are copies from the host."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function is not torch.ops.aten.lift_fresh.default
        return function(*args, **(kwargs or {}))


def test_what_a_cuda_graph_captures_takes_nothing_from_the_host(data):
    task = live("semantic", data["semantic"])
    model, batch = task.build(task.pictures), task.batch(0, range(4))
    assert task.graphable(batch)
    task.loss(model, batch)  # warm-up, as before a capture
    with NothingNew():
        task.loss(model, batch)[0].backward()


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_answers_at_the_size_of_the_picture(data, tmp_path, kind):
    run_tiny(tiny(kind, data[kind], "steps=1"), tmp_path / "run")
    trained = Run.open(tmp_path / "run").load()
    assert trained.size == 32
    assert len(trained.classes) == (1 if kind == "instances" else 3)
    x = torch.rand(3, 33, 47)
    answer = trained.find(x)["masks"] if kind == "instances" else trained.network(x[None])
    assert answer.shape[2:] == (33, 47)


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_file_stops_the_run_in_one_line(data, tmp_path, kind):
    root = Path(shutil.copytree(data[kind], tmp_path / "data"))
    for file in (root / ("train" if kind == "semantic" else "images")).iterdir():
        file.write_bytes(file.read_bytes()[:70])
    with pytest.raises(UserError, match="no readable picture") as error:
        run_tiny(tiny(kind, root), tmp_path / "run")
    assert "\n" not in str(error.value)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs CamVid and Penn-Fudan in ../shared/data")
@pytest.mark.parametrize("kind", KINDS)
def test_real_pictures(tmp_path, kind, monkeypatch):
    source, size, ignore = ("camvid", 64, ("ignore=11",)) if kind == "semantic" else ("pennfudan", 96, ())
    recipe = tiny(kind, SHARED / source, f"size={size}", "batch=2", "steps=2", "eval_every=none", *ignore)
    data = recipe.task.open_data()
    few = DenseData(data.train, data.valid.subset(range(4)), data.classes)
    monkeypatch.setattr(Pixels if kind == "semantic" else Objects, "open_data", lambda self: few)
    scores = run_tiny(recipe, tmp_path / "run").evaluation
    assert all(-1 <= value <= 1 for value in scores.values())
