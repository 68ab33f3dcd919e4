"""Average precision: COCO's own evaluation, given the same objects in its own words, says the same."""

import contextlib
import io

import numpy as np
import pytest
import torch

from horosphere.data.dense import Instances
from horosphere.evaluate.objects import AveragePrecision

pytest.importorskip("torchmetrics")
coco = pytest.importorskip("pycocotools.coco")
cocoeval = pytest.importorskip("pycocotools.cocoeval")
codec = pytest.importorskip("pycocotools.mask")
SIDE, CLASSES = 120, 3


def box_mask(boxes):
    """Filled boxes with a corner missing, so that boxes and masks score differently."""
    y, x = np.mgrid[:SIDE, :SIDE] + 0.5
    inside = [(x > a) & (x < c) & (y > b) & (y < d) & (x + y > a + b + (c - a) / 3) for a, b, c, d in boxes]
    return np.array(inside, dtype=bool).reshape(-1, SIDE, SIDE)


def some_boxes(rng, count):
    low = rng.integers(0, SIDE // 2, (count, 2))
    return np.concatenate([low, low + rng.integers(10, SIDE // 2, (count, 2))], 1).astype(np.float32)


def scene(seed):
    """What there is to find in a picture, and what a detector says: near, far, twice, or nowhere."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 6))
    boxes, labels = some_boxes(rng, count), rng.integers(1, CLASSES + 1, count)
    truth = Instances(box_mask(boxes), labels, crowd=rng.random(count) < 0.2)
    moved = np.clip(np.repeat(boxes, 2, 0) + rng.integers(-4, 5, (2 * count, 4)), 0, SIDE).astype(np.float32)
    found = np.concatenate([moved, some_boxes(rng, 2)])
    said = np.concatenate([np.repeat(labels, 2), rng.integers(1, CLASSES + 1, 2)])
    scores = rng.uniform(0.05, 0.95, len(found)).astype(np.float32)  # no two alike: of ties the order would decide
    soft = np.where(box_mask(found), rng.uniform(0.51, 1, SIDE * SIDE).reshape(SIDE, SIDE), rng.uniform(0, 0.49))
    answer = {
        "boxes": torch.from_numpy(found),
        "labels": torch.from_numpy(said),
        "scores": torch.from_numpy(scores),
        "masks": torch.from_numpy(soft[:, None].astype(np.float32)),
    }
    return answer, truth


def encoded(mask):
    return codec.encode(np.asfortranarray(mask.astype(np.uint8)))


def by_coco(scenes):
    """The same by pycocotools alone, from its own format: boxes are x, y, width, height."""

    def thing(picture, box, label, mask, **more):
        a, b, c, d = map(float, box)
        own = {"image_id": picture, "category_id": int(label), "segmentation": encoded(mask), **more}
        return {"bbox": [a, b, c - a, d - b], "area": float(mask.sum()), **own}

    notes, answers = [], []
    for picture, (answer, truth) in enumerate(scenes):
        for box, label, mask, crowd in zip(truth.boxes, truth.labels, truth.masks, truth.crowd, strict=True):
            notes.append(thing(picture, box, label, mask, iscrowd=int(crowd), id=len(notes) + 1))
        for box, label, mask, score in zip(*(answer[n] for n in ("boxes", "labels", "masks", "scores")), strict=True):
            answers.append(thing(picture, box, label, mask[0].numpy() > 0.5, score=float(score)))
    table = coco.COCO()
    table.dataset = {
        "images": [{"id": picture, "height": SIDE, "width": SIDE} for picture in range(len(scenes))],
        "categories": [{"id": k, "name": str(k)} for k in range(1, CLASSES + 1)],
        "annotations": notes,
    }
    scores = {}
    with contextlib.redirect_stdout(io.StringIO()):
        table.createIndex()
        for ours, kind in (("box", "bbox"), ("mask", "segm")):
            own = [{k: v for k, v in a.items() if k != ("segmentation" if kind == "bbox" else "bbox")} for a in answers]
            judge = cocoeval.COCOeval(table, table.loadRes(own), kind)
            judge.evaluate()
            judge.accumulate()
            judge.summarize()
            scores |= dict(zip((f"{ours}_ap", f"{ours}_ap50", f"{ours}_ap75"), judge.stats[:3], strict=True))
    return scores


def by_us(scenes):
    score = AveragePrecision()
    for answer, truth in scenes:
        score.add(answer, truth)
    return score.compute()


@pytest.mark.parametrize("seed", range(3))
def test_it_is_cocos(seed):
    scenes = [scene(100 * seed + number) for number in range(6)]
    expected = by_coco(scenes)
    assert by_us(scenes) == pytest.approx(expected, abs=1e-6)
    assert 0.1 < expected["mask_ap"] < 0.9  # neither all nor nothing: there is something to get wrong
    assert abs(expected["mask_ap"] - expected["box_ap"]) > 1e-3


def test_pictures_may_come_in_any_order_and_only_the_order_of_scores_counts():
    scenes = [scene(number) for number in range(4)]
    found = by_us(scenes)
    assert by_us(scenes[::-1]) == pytest.approx(found)
    squeezed = [({**answer, "scores": answer["scores"] ** 2 / 3}, truth) for answer, truth in scenes]
    assert by_us(squeezed) == pytest.approx(found)
    shuffled = [({**answer, "scores": answer["scores"].flip(0)}, truth) for answer, truth in scenes]
    assert by_us(shuffled) != pytest.approx(found)


def test_half_precision_is_judged_as_it_is():
    """The answer was rounded; nothing more is lost where widths are computed from it."""
    half, exact = AveragePrecision(), AveragePrecision()
    for answer, truth in (scene(number) for number in range(2)):
        answer["boxes"] = answer["boxes"] * 0.997
        rounded = {name: answer[name].bfloat16() for name in ("boxes", "scores", "masks")}
        half.add({**answer, **rounded}, truth)
        exact.add({**answer, **{name: value.float() for name, value in rounded.items()}}, truth)
    assert half.compute() == exact.compute()


def test_each_process_judges_all_and_asks_nobody():
    """Others have seen the same pictures: together all would count twice."""
    alone, among = AveragePrecision(), AveragePrecision()
    among.metric.distributed_available_fn = lambda: True
    among.metric.dist_sync_fn = lambda *_, **__: pytest.fail("there is nobody to ask")
    for score in (alone, among):
        score.add(*scene(0))
    assert among.compute() == alone.compute()


def test_where_there_is_nothing_to_find_it_is_minus_one():
    answer, truth = scene(0)
    empty = Instances(truth.masks[:0], truth.labels[:0], truth.crowd[:0])
    assert set(by_us([(answer, empty)]).values()) == {-1.0}
    nothing = {name: value[:0] for name, value in answer.items()}
    assert set(by_us([(nothing, truth)]).values()) == {0.0}
