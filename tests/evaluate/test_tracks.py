"""How well a box was followed: distances and overlaps by hand."""

import numpy as np
import pytest

from horosphere.evaluate.tracks import centre_scores, mean_overlap


def test_distances_are_those_of_points():
    found, truth = np.random.default_rng(0).normal(0, 5, (2, 50, 2))
    by_hand = [((a - c) ** 2 + (b - d) ** 2) ** 0.5 for (a, b), (c, d) in zip(found, truth, strict=True)]
    scores = centre_scores(found, truth)
    assert scores["distance"] == pytest.approx(np.mean(by_hand))
    assert scores["near"] == np.mean([distance < 5 for distance in by_hand])


def test_each_box_is_compared_with_its_own():
    pytest.importorskip("torchvision", reason="its intersection over union")
    truth = np.array([[0.0, 0, 4, 4], [10, 10, 14, 14], [20, 20, 24, 24]])
    found = np.array([[0.0, 0, 4, 4], [12, 10, 16, 14], [0, 0, 4, 4]])  # the last is the first one's place
    assert mean_overlap(found, truth) == pytest.approx((1 + 8 / 24 + 0) / 3)
