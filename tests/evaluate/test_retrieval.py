"""Recall at k: ties and what is no number count against the query."""

import torch

from horosphere.evaluate.retrieval import recall_at


def test_recall_is_counted_by_hand():
    alike = torch.tensor([[0.9, 0.8, 0.1], [0.9, 0.8, 0.1], [0.5, 0.5, 0.5]])
    assert recall_at(alike, torch.tensor([0, 1, 2]), 1, 2, 3) == [1 / 3, 2 / 3, 1.0]


def test_what_is_no_number_is_no_hit():
    assert recall_at(torch.full((4, 9), torch.nan), torch.arange(4), 1, 5) == [0.0, 0.0]
