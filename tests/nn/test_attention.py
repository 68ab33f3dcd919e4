"""Attention with each kind of mask is the softmax written out."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask
from torch.testing import assert_close

from horosphere.nn import document_mask
from horosphere.nn.attention import attend

POSITIONS = torch.tensor([[0, 1, 2, 0, 1], [0, 0, 1, 2, 3]])  # documents of 3 and 2 tokens; of 1 and 4


def heads(queries, keys, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (2, 3, queries, 8), (2, 3, keys, 8), (2, 3, keys, 16)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def written_out(q, k, v, visible, scale):
    """(B, H, T, n), (B, H, S, n), (B, H, S, m), visible (B, 1, T, S) -> (B, T, H, m)"""
    return ((scale * q @ k.mT).masked_fill(~visible, -torch.inf).softmax(-1) @ v).transpose(1, 2)


def visible_in_documents():
    """Token by token: what came before it, since the last 0."""
    seen = torch.zeros(2, 1, 5, 5, dtype=torch.bool)
    for row, positions in enumerate(POSITIONS.tolist()):
        for i, back in enumerate(positions):
            seen[row, 0, i, i - back : i + 1] = True
    return seen


def test_documents_see_themselves_and_nothing_later():
    assert torch.equal(document_mask(POSITIONS), visible_in_documents())


@pytest.mark.parametrize("kind", ["booleans", "blocks"])
def test_masks_hide_what_is_not_visible(kind):
    (q, k, v), visible = heads(5, 5), visible_in_documents()
    mask = visible
    if kind == "blocks":  # as `document_mask` makes it on CUDA
        mask = create_block_mask(lambda b, h, i, j: visible[b, 0, i, j], 2, None, 5, 5, device="cpu")
    assert_close(attend(q, k, v, mask, 0.3), written_out(q, k, v, visible, 0.3))


def test_without_a_mask_a_row_sees_what_came_before():
    q, k, v = heads(5, 5)
    earlier = torch.ones(5, 5, dtype=torch.bool).tril().expand(2, 1, 5, 5)
    assert_close(attend(q, k, v, None, 0.3), written_out(q, k, v, earlier, 0.3))


def test_a_single_query_sees_all_that_is_kept():
    q, k, v = heads(1, 5)
    assert_close(attend(q, k, v, None, 0.3), written_out(q, k, v, torch.ones(2, 1, 1, 5, dtype=torch.bool), 0.3))
