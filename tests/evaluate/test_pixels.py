"""Scores of pixels: torchmetrics says the same."""

import pytest
import torch

from horosphere.evaluate.pixels import confusion, semantic_scores

theirs = pytest.importorskip("torchmetrics.functional.classification")
K, IGNORED = 19, 255
NAMES = [f"class {k}" for k in range(K)]


def pixels(seed, present=K, shape=(3, 20, 30)):
    """Truth with pixels that do not count, and answers right in about half."""
    generator = torch.Generator().manual_seed(seed)
    truth, other = (torch.randint(present, shape, generator=generator) for _ in range(2))
    answer = torch.where(torch.rand(shape, generator=generator) < 0.5, truth, other)
    return truth.masked_fill(torch.rand(shape, generator=generator) < 0.1, IGNORED), answer


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_counts_are_those_of_torchmetrics(seed, dtype):
    truth, answer = pixels(seed)
    expected = theirs.multiclass_confusion_matrix(answer, truth, K, ignore_index=IGNORED)
    assert torch.equal(confusion(truth.to(dtype), answer.to(dtype), K, IGNORED), expected)


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_torchmetrics(seed):
    truth, answer = pixels(seed)
    found = semantic_scores(confusion(truth, answer, K, IGNORED), NAMES)
    iou = theirs.multiclass_jaccard_index(answer, truth, K, average="none", ignore_index=IGNORED)
    assert found.by_class == pytest.approx(dict(zip(NAMES, iou.tolist(), strict=True)), rel=1e-6)
    assert found.miou == pytest.approx(iou.mean().item(), rel=1e-6)
    right = theirs.multiclass_accuracy(answer, truth, K, average="micro", ignore_index=IGNORED)
    assert found.accuracy == pytest.approx(right.item(), rel=1e-6)


def test_pictures_add_up():
    truth, answer = pixels(0)
    parts = [confusion(t, a, K, IGNORED) for t, a in zip(truth, answer, strict=True)]
    assert torch.equal(sum(parts), confusion(truth, answer, K, IGNORED))


def test_classes_that_occur_nowhere_are_left_out():
    truth, answer = pixels(0, present=4)
    found = semantic_scores(confusion(truth, answer, K, IGNORED), NAMES)
    assert list(found.by_class) == NAMES[:4]
    assert found.miou == pytest.approx(sum(found.by_class.values()) / 4)


def test_a_class_that_is_only_answered_counts_as_missed():
    found = semantic_scores(confusion(torch.tensor([0, 0]), torch.tensor([0, 1]), 3, IGNORED), NAMES[:3])
    assert found.by_class == {"class 0": 0.5, "class 1": 0.0}


def test_the_truth_is_perfect_and_names_may_be_exchanged():
    truth, answer = pixels(1)
    counted = truth.where(truth != IGNORED, torch.zeros_like(truth))
    perfect = semantic_scores(confusion(counted, counted, K, IGNORED), NAMES)
    assert (perfect.miou, perfect.accuracy) == (1.0, 1.0)
    counts = confusion(truth, answer, K, IGNORED)
    order = torch.randperm(K, generator=torch.Generator().manual_seed(0))
    a, b = semantic_scores(counts, NAMES), semantic_scores(counts[order][:, order], [NAMES[k] for k in order])
    assert a.by_class == b.by_class
    assert (a.miou, a.accuracy) == pytest.approx((b.miou, b.accuracy))


def test_where_nothing_counts_scores_are_zero():
    found = semantic_scores(confusion(torch.full((4,), IGNORED), torch.zeros(4, dtype=torch.int64), 2, IGNORED), "ab")
    assert (found.miou, found.accuracy, found.by_class) == (0.0, 0.0, {})


def test_shares_of_very_many_pixels_keep_their_digits():
    """A data set has more pixels than fp32 has digits."""
    counts = torch.tensor([[10**12 + 1, 2], [1, 3]])
    scores = semantic_scores(counts, ["sky", "kite"])
    assert scores.accuracy == (10**12 + 4) / (10**12 + 7)
    assert scores.by_class == {"sky": (10**12 + 1) / (10**12 + 4), "kite": 3 / 6}
    assert scores.miou == pytest.approx(sum(scores.by_class.values()) / 2, rel=1e-15)
