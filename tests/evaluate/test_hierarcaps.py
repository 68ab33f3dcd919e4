"""HierarCaps' measures on cases small enough to do by hand, and Kendall's τ against scipy."""

import pytest
import torch
from scipy.stats import kendalltau

from horosphere.evaluate.hierarcaps import hierarchy_retrieval, length_order, order_of, retrieve


def test_order_is_kendalls():
    radii = torch.rand(40, 4, generator=torch.Generator().manual_seed(0))
    expected = sum(kendalltau(row.tolist(), [1, 2, 3, 4]).correlation for row in radii) / 40
    assert order_of(radii) == pytest.approx(expected)
    assert order_of(torch.tensor([[4.0, 3.0, 2.0, 1.0]])) == -1


def test_length_is_a_radius_too():
    assert length_order([["dog", "big dog"], ["a cat", "cat"]]) == 0


# two pictures along two axes; texts of both, general ones nearer the root
TEXTS = torch.tensor([[[0.6, 0.8, 0.0], [1.0, 0.0, 0.0]], [[0.6, 0.8, 0.0], [0.0, 0.0, 1.0]]])
CAPTIONS = [["animal", "dog"], ["animal", "car"]]
ROOT = torch.tensor([0.0, 1.0, 0.0])


def test_a_walk_goes_from_general_to_specific():
    radii = (TEXTS - ROOT).norm(dim=-1)
    walk = retrieve(TEXTS.flatten(0, 1) @ torch.tensor([1.0, 0.0, 0.0]), radii.flatten())
    assert [place % 2 for place in walk] == [0, 1]
    assert walk[-1] == 1


def test_a_walk_takes_fifty_steps():
    """As published. Texts at fifty radii, each a better fit than the one before: all are met, and of more not all."""
    assert retrieve(torch.arange(50), torch.arange(50.0)) == list(range(50))
    assert len(retrieve(torch.arange(99), torch.arange(99.0))) == 50
    assert retrieve(torch.arange(99), torch.arange(99.0), thresholds=99) == list(range(99))


def judged(images, of):
    return hierarchy_retrieval(TEXTS @ images.T, (TEXTS - ROOT).norm(dim=-1), of, CAPTIONS)


def test_precision_and_recall_by_hand():
    images = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    scores = judged(images, [0, 1])
    assert (scores.precision, scores.recall, scores.order) == (1.0, 1.0, 1.0)
    crossed = judged(images.flip(0), [0, 1])
    # both are told "animal", which is right, and the other's name, which is not
    assert (crossed.precision, crossed.recall, crossed.order) == (0.5, 0.5, 1.0)


def test_several_chains_of_one_picture_help_each_other():
    images = torch.tensor([[1.0, 0.0, 0.0]])
    both = judged(images, [0, 0])
    assert (both.precision, both.recall) == (1.0, 1.0)
