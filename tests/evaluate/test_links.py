"""Held-out links: the places of brute force, the AUC of scikit-learn, filtered, in blocks."""

import numpy as np
import pytest
import torch

from horosphere.evaluate import links
from horosphere.evaluate.links import link_places, places_without_points
from horosphere.evaluate.ranking import auc, hit_at
from horosphere.geometry import GEOMETRIES, Euclidean, geometry

NODES = 25


def some_relations():
    """Of 25 nodes, and the first twelve of them held out."""
    code = np.random.default_rng(0).permutation(NODES * NODES)[:90]
    pairs = np.stack(np.divmod(code, NODES), axis=1)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return pairs, pairs[:12]


def competitors(u, relations):
    related = {w for s, w in relations.tolist() if s == u}
    return [w for w in range(NODES) if w != u and w not in related]


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("at_once", [1, 60, 10**6])
def test_scores_are_those_of_scikit_learn(name, at_once, monkeypatch):
    metrics = pytest.importorskip("sklearn.metrics")
    monkeypatch.setattr(links, "AT_ONCE", at_once)
    torch.manual_seed(0)
    m = geometry(name, 3)
    points, (relations, held) = m.random(NODES, 3, dtype=torch.float64), some_relations()
    areas, hits = [], []
    for u, v in held.tolist():
        others = competitors(u, relations)
        scores = [-m.dist(points[u], points[w]).item() for w in (v, *others)]
        areas.append(metrics.roc_auc_score([1] + [0] * len(others), scores))
        hits.append(sorted(scores, reverse=True).index(scores[0]) < 5)
    placed = link_places(points, m, held, relations)
    assert auc(placed) == pytest.approx(np.mean(areas), abs=1e-12)
    assert hit_at(placed, 5) == pytest.approx(np.mean(hits))


def test_points_in_one_place_know_nothing():
    relations, held = some_relations()
    placed = link_places(torch.zeros(NODES, 2), Euclidean(), held, relations)
    assert auc(placed) == 0.5
    assert hit_at(placed, 10) == 0  # a tie counts against


def test_links_by_chance_are_half_right():
    torch.manual_seed(0)
    relations, held = some_relations()
    areas = [auc(link_places(torch.randn(NODES, 3), Euclidean(), held, relations)) for _ in range(50)]
    assert np.mean(areas) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("at_once", [1, 10**6])
def test_counting_is_what_it_says(at_once, monkeypatch):
    monkeypatch.setattr(links, "AT_ONCE", at_once)
    relations, held = some_relations()
    learned = relations[12:]
    known = {tuple(pair) for pair in learned.tolist()}

    def popularity(_, w):
        return sum((s, w) in known for s in range(NODES))

    def common(u, w):
        return sum((u, x) in known and (x, w) in known for x in range(NODES))

    found = places_without_points(learned, held, relations, NODES)
    for method, score in {"popularity": popularity, "common neighbours": common}.items():
        for i, (u, v) in enumerate(held.tolist()):
            others = [score(u, w) for w in competitors(u, relations)]
            expected = sum(o > score(u, v) for o in others), sum(o == score(u, v) for o in others), len(others)
            ours = found[method]
            assert (int(ours.before[i]), int(ours.level[i]), int(ours.others[i])) == expected
