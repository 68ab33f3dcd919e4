"""Detectors: windows and their boxes belong together, proposals are given once, objects are learned and told."""

import os

import numpy as np
import pytest
import torch

from horosphere.data.augment import MEAN
from horosphere.data.dense import Instances, open_instances
from horosphere.data.dense_batches import collate_boxes, collate_instances, flipped_boxes, framed, separated
from horosphere.data.photographs import read_photograph
from horosphere.errors import UserError
from horosphere.runs import Run
from horosphere.train.recipe import Recipe
from tests.cli.command_line import runner
from tests.data.shapes import write_instances, write_semantic
from tests.tasks.test_every_task import live
from tests.tasks.test_masks import NothingNew
from tests.tasks.tiny import SHORT, run_tiny, tiny, write_data

pytest.importorskip("torchvision", reason="the models are torchvision's")
pytest.importorskip("torchmetrics", reason="the scores are torchmetrics'")
pytest.importorskip("pycocotools", reason="COCO's scores need it")
RCNN = ("task=objects", "width=8", "size=32", "scale=1,1", "batch=4", "regions=16", *SHORT)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_instances(tmp_path_factory.mktemp("objects"), empty=(0, 1, 2, 3, 9))


# -- windows ----------------------------------------------------------------------------------------------------------


def one_object(top=10, left=20, bottom=25, right=50, height=60, width=90, crowd=False):
    masks = np.zeros((1, height, width), dtype=bool)
    masks[0, top:bottom, left:right] = True
    image = np.where(masks[0, ..., None], 255, 0).astype(np.uint8).repeat(3, 2)
    return image, Instances(masks, np.array([3]), np.array([crowd]))


@pytest.mark.parametrize("seed", range(8))
def test_a_box_lies_where_its_object_is_seen(seed):
    image, objects = one_object()
    draws = np.random.default_rng(seed).random(4)
    square, truth = framed(image, objects, 120, (0.5, 1.5), True, draws)
    assert square.shape == (120, 120, 3)
    if not len(truth):  # its middle lies outside
        return
    label, *box = truth[0]
    assert label == 3
    rows, columns = (np.flatnonzero((square[..., 0] > 192).any(axis)) for axis in (1, 0))
    seen = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) / 120
    np.testing.assert_allclose(box, seen, atol=0.02)


def test_windows_go_from_a_part_of_the_picture_to_more_than_it():
    image, objects = one_object()
    whole, truth = framed(image, objects, 60, (1.0, 1.0), False, np.full(4, 0.5))
    np.testing.assert_allclose(truth[0], [3, 20 / 90, 10 / 60, 50 / 90, 25 / 60], rtol=1e-6)
    assert whole.shape == (60, 60, 3)
    around, _ = framed(image, objects, 60, (0.5, 0.5), False, np.full(4, 0.5))
    assert around[0, 0].tolist() == [round(255 * c) for c in MEAN]  # the mean colour is around it
    np.testing.assert_allclose((around[..., 0] > 192).mean(), (whole[..., 0] > 192).mean() / 4, rtol=0.2)
    nothing = framed(image, objects, 60, (3.0, 3.0), False, np.array([0.5, 1.0, 1.0, 1.0]))[1]
    assert nothing.shape == (0, 5)
    assert framed(*one_object(crowd=True), 60, (1.0, 1.0), False, np.zeros(4))[1].shape == (0, 5)


def test_truth_is_filled_up_to_a_power_of_two():
    square = np.zeros((8, 8, 3), dtype=np.uint8)
    for counts, most in (([0, 0], 1), ([1, 0], 1), ([3, 1], 4), ([5, 8], 8)):
        batch = collate_boxes([(square, np.full((count, 5), 0.5, dtype=np.float32)) for count in counts])
        assert batch["truth"].shape == (2, most, 5)
        assert (batch["truth"] > 0).all(-1).sum(1).tolist() == counts
    turned = flipped_boxes(np.array([[1.0, 2.0, 4.0, 6.0]]), 10)
    np.testing.assert_array_equal(flipped_boxes(turned, 10), [[1, 2, 4, 6]])


def test_proposals_come_apart_as_they_were_put_together():
    image, objects = one_object()
    given = [np.arange(4 * n, dtype=np.float32).reshape(n, 4) for n in (3, 1)]
    batch = collate_instances([(image, objects, boxes) for boxes in given], masks=False)
    assert "masks" not in batch
    images, targets, proposals = separated(batch)
    assert [set(target) for target in targets] == [{"boxes", "labels"}] * 2
    assert len(images) == 2
    for boxes, expected in zip(proposals, given, strict=True):
        np.testing.assert_array_equal(boxes.numpy(), expected)


# -- trainings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model=tinyssd", "size=32"], "size=32: TinySSD needs at least 64 pixels a side"),
        (["model=tinyssd", "pretrained=true"], "pretrained=true: tinyssd has no published weights"),
        (["model=faster-rcnn", "compile=true"], "compile=true: the shapes in faster-rcnn depend on what it finds"),
        (["model=tinyssd", "backbone=resnet18"], "backbone=resnet18: tinyssd has no backbone beside its head"),
        (["model=tinyssd", "width=64"], "width=64: tinyssd has no backbone beside its head"),
        (["model=tinyssd", "geometry=sphere"], "geometry=sphere: choose from euclidean, lorentz"),
        (["model=faster-rcn"], "did you mean faster-rcnn"),
        (
            ["model=faster-rcnn", "layer_scale=0.5"],
            "layer_scale is a setting of HCFormer; faster-rcnn in the task objects",
        ),
        (["model=fcn"], "model=fcn: a model of the task pixels"),
        (["model=mask-rcnn", "geometry=lorentz"], " others; hcformer-nano in the task objects"),
        (["model=tinyssd", "head_lr=10"], "head_lr=10: tinyssd has no backbone beside its head; leave it out"),
    ],
)
def test_a_wrong_setting_is_named(settings, said):
    with pytest.raises(UserError) as error:
        Recipe.read("mask-rcnn", ["data=a", *settings])
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("negatives", ["none", "3"])
def test_what_a_cuda_graph_captures_of_tinyssd_takes_nothing_from_the_host(data, negatives):
    task = live("boxes", data, f"negatives={negatives}")
    model, batch = task.build(task.pictures), task.batch(0, range(4))
    assert task.graphable(batch)
    task.loss(model, batch)  # warm-up: the scale of the lift is matched
    with NothingNew():
        task.loss(model, batch)[0].backward()


@pytest.fixture(scope="module")
def learned(data, tmp_path_factory):
    """TinySSD that knows its own pictures by heart."""
    folder = tmp_path_factory.mktemp("learned") / "run"
    settings = ("steps=80", "batch=8", "lr=5e-3", "scale=1,1", "flip=false", f"valid={data}")
    return folder, run_tiny(tiny("boxes", data, *settings, "eval_every=none", "save_every=80"), folder)


def test_tinyssd_learns_its_own_pictures(learned):
    scores = learned[1].evaluation
    assert scores["box_ap50"] > 0.9
    assert not any(name.startswith("mask") for name in scores)


@pytest.mark.skipif(not os.environ.get("HOROSPHERE_SLOW"), reason="takes minutes; set HOROSPHERE_SLOW=1")
@pytest.mark.parametrize("model", ["fast-rcnn", "faster-rcnn"])
@pytest.mark.parametrize("geometry", ["euclidean", "lorentz"])
def test_rcnns_learn_their_own_pictures(data, tmp_path, model, geometry):
    settings = [f"data={data}", f"valid={data}", "size=64", "steps=150", "batch=4", f"geometry={geometry}"]
    assert run_tiny(Recipe.read(model, [*settings, "save_every=150"]), tmp_path / "run").evaluation["box_ap50"] > 0.95


def test_fast_rcnn_is_given_its_proposals_once_and_turns_them_with_their_picture(data, tmp_path):
    pytest.importorskip("skimage", reason="selective search begins with its regions")
    recipe = Recipe.read("fast-rcnn", [f"data={data}", "backbone=resnet18", *RCNN[1:]])
    first = run_tiny(recipe, tmp_path / "run")
    assert first.step == 4
    task, again = recipe.task, [recipe.task.batch(1, range(4)) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(again[0].values(), again[1].values(), strict=True))
    number = next(iter(task.proposed))
    image = task.pictures.train.read(number)[0]
    kept = task.proposed[number]
    assert kept is task._proposals(number, image)
    height, width = image.shape[:2]
    assert (kept >= 0).all()
    assert (kept <= [width, height, width, height]).all()
    answer = Run.open(tmp_path / "run").load().find(torch.rand(3, 40, 50))
    assert set(answer) == {"boxes", "labels", "scores"}


def test_a_detector_tells_what_is_in_a_picture(data, learned, tmp_path, capsys):
    run, pictures = runner(capsys), open_instances(data).train
    counts = [len(pictures.read(number)[1].labels) for number in range(len(pictures))]
    files = [pictures.files[counts.index(count)] for count in (2, 0)]
    code, out, _ = run("predict", learned[0], *files)
    assert code == 0
    heads, first, *_, last = out.splitlines()
    assert "object at left,top,right,bottom" in heads
    assert "object at " in first
    assert "nothing" in last
    code, _, err = run("predict", learned[0], tmp_path / "no.png")
    assert code == 2
    assert len(err.splitlines()) == 1


def test_what_a_detector_finds_is_drawn_over_the_photograph(data, learned, tmp_path, capsys):
    run, pictures = runner(capsys), open_instances(data).train
    counts = [len(pictures.read(number)[1].labels) for number in range(len(pictures))]
    file, out = pictures.files[counts.index(2)], tmp_path / "found.png"
    code, told, _ = run("image", "find", file, "--model", learned[0], "--out", out)
    assert code == 0
    assert told.splitlines()[0].split() == ["object", "left", "top", "right", "bottom", "score"]
    drawn, before = read_photograph(str(out)), read_photograph(str(file))
    assert drawn.shape == before.shape
    left, top = (int(cell) for cell in told.splitlines()[1].split()[1:3])
    assert (drawn[top : top + 3, left : left + 3] != before[top : top + 3, left : left + 3]).any()
    empty = pictures.files[counts.index(0)]
    assert "nothing" in run("image", "find", empty, "--model", learned[0], "--out", tmp_path / "none.png")[1]
    code, _, err = run("image", "find", file, "--model", learned[0], "--out", out)
    assert code == 2
    assert "found.png" in err


def test_a_run_that_finds_nothing_in_places_says_so(tmp_path, capsys):
    run_tiny(tiny("tables", write_data("tables", tmp_path)), tmp_path / "run")
    code, _, err = runner(capsys)("image", "find", "builtin:camera", "--model", tmp_path / "run")
    assert code == 2
    assert "a run of the task tables, which finds nothing in places" in err
    assert len(err.splitlines()) == 1


def test_a_segmenter_tells_what_covers_a_picture(tmp_path, capsys):
    root = write_semantic(tmp_path / "data")
    run_tiny(tiny("semantic", root, "steps=1"), tmp_path / "run")
    trained, picture = Run.open(tmp_path / "run").load(), tmp_path / "data" / "val" / "00.png"
    code, out, _ = runner(capsys)("predict", tmp_path / "run", picture, "--k", "3")
    assert code == 0
    shares = [float(line.split()[-1]) for line in out.splitlines()[1:]]
    assert sum(shares) == pytest.approx(1, abs=1e-3)
    classes = trained.classify(read_photograph(str(picture)))
    assert classes.shape == (32, 40)
    code, told, _ = runner(capsys)("image", "find", picture, "--model", tmp_path / "run", "--out", tmp_path / "a.png")
    assert code == 0
    assert told.splitlines()[1].split()[-1] == f"{shares[0]:.1%}"
    assert read_photograph(str(tmp_path / "a.png")).shape == (32, 40 + 120, 3)  # with its legend
    assert shares[0] == pytest.approx(classes.flatten().bincount().max().item() / classes.numel(), abs=1e-4)
