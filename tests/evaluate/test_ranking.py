"""Ranking scores equal those of torchmetrics and scikit-learn on the same answers."""

import numpy as np
import pytest
import torch

from horosphere.evaluate.ranking import Places, auc, hit_at, ndcg_at, places


def answers(users=30, items=20, seed=0):
    """Scores without ties, targets, and candidates that hold the target."""
    random = torch.Generator().manual_seed(seed)
    scores = torch.rand(users, items, generator=random)
    target = torch.randint(items, (users,), generator=random)
    candidates = torch.rand(users, items, generator=random) < 0.6
    candidates[torch.arange(users), target] = True
    return scores, target, candidates


def as_retrieval(scores, target, candidates):
    """preds, target, indexes of the candidates, as torchmetrics takes them."""
    truth = torch.nn.functional.one_hot(target, scores.shape[1])
    row = torch.arange(len(scores))[:, None].expand_as(scores)
    return scores[candidates], truth[candidates], row[candidates]


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("seed", range(3))
def test_hits_and_gains_are_those_of_torchmetrics(k, seed):
    retrieval = pytest.importorskip("torchmetrics.retrieval")
    made = answers(seed=seed)
    preds, truth, indexes = as_retrieval(*made)
    placed = places(*made)
    hits = retrieval.RetrievalHitRate(top_k=k)(preds, truth, indexes=indexes)
    gains = retrieval.RetrievalNormalizedDCG(top_k=k)(preds, truth, indexes=indexes)
    assert hit_at(placed, k) == pytest.approx(float(hits))
    assert ndcg_at(placed, k) == pytest.approx(float(gains))


@pytest.mark.parametrize("ties", [False, True])
def test_auc_is_the_mean_over_users_of_sklearns(ties):
    metrics = pytest.importorskip("sklearn.metrics")
    scores, target, candidates = answers()
    candidates[0] = True
    scores = (scores * 5).round() if ties else scores
    each = [
        metrics.roc_auc_score(np.arange(scores.shape[1])[c] == t.item(), s[c])
        for s, t, c in zip(scores.numpy(), target, candidates.numpy(), strict=True)
        if c.sum() > 1
    ]
    assert len(each) == len(scores)
    assert auc(places(scores, target, candidates)) == pytest.approx(np.mean(each))


def test_the_printed_area_has_no_comparison_in_it():
    """The notes cut it off: 1/m Σ 1/|I| is the same for every ranking."""
    scores, target, candidates = answers()
    assert auc(places(scores, target, candidates)) != pytest.approx(auc(places(-scores, target, candidates)))
    both = auc(places(scores, target, candidates)) + auc(places(-scores, target, candidates))
    assert both == pytest.approx(1)


def test_seen_items_compete_with_nobody():
    scores, target, candidates = answers()
    high = scores.masked_fill(~candidates, 9.0)
    a, b = places(scores, target, candidates), places(high, target, candidates)
    assert all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("before", "level", "others"))


def test_a_tie_counts_against_the_item_and_so_does_no_number():
    level = places(torch.zeros(4, 6), torch.arange(4))
    assert hit_at(level, 5) == ndcg_at(level, 5) == 0
    assert hit_at(level, 6) == 1
    broken = places(torch.full((4, 6), torch.nan), torch.arange(4))
    assert hit_at(broken, 5) == auc(broken) == 0


def test_the_best_and_the_worst():
    scores = torch.eye(5) + torch.rand(5, 5) / 4
    best, worst = places(scores, torch.arange(5)), places(-scores, torch.arange(5))
    assert (hit_at(best, 1), ndcg_at(best, 1), auc(best)) == (1, 1, 1)
    assert (hit_at(worst, 4), ndcg_at(worst, 4), auc(worst)) == (0, 0, 0)


def test_a_user_without_competitors_counts_a_half():
    none = torch.zeros(1, dtype=torch.long)
    assert auc(Places(none, none, none)) == 0.5


def test_candidates_are_left_as_they_were():
    scores, target, candidates = answers()
    before = candidates.clone()
    places(scores, target, candidates)
    assert torch.equal(candidates, before)
