"""Losses against torch's own, written-out sums, and the wrong forms that are often printed."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from horosphere.geometry import Euclidean
from horosphere.nn import FeedForward, Maxout, against_the_rest, bpr, hinge, masked_bce, perceptron


def some(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# -- masked cross-entropy ---------------------------------------------------------------------------------------------


def test_masked_bce_is_torchs_over_what_counts():
    logits, labels, mask = some(5, 7), some(5, 7, seed=1) > 0, some(5, 7, seed=2) > -0.5
    for row, value in enumerate(masked_bce(logits, labels, mask)):
        kept = mask[row]
        expected = F.binary_cross_entropy_with_logits(logits[row, kept], labels[row, kept].double())
        torch.testing.assert_close(value, expected)


def test_masked_bce_without_the_logarithm_is_another_number():
    """As printed the -log is missing; without it the sign of the label flips a share, not a loss."""
    logits, labels = some(1, 4), torch.tensor([[1, 0, 0, 1]])
    printed = torch.sigmoid((2 * labels - 1) * logits).mean(-1)
    assert not torch.allclose(masked_bce(logits, labels, torch.ones(1, 4)), printed, atol=0.05)


def test_what_is_masked_has_no_gradient_and_empty_rows_no_loss():
    logits = some(2, 3).requires_grad_()
    loss = masked_bce(logits, torch.ones(2, 3), torch.tensor([[1, 0, 1], [0, 0, 0]]))
    loss.sum().backward()
    assert loss[1] == 0
    assert (logits.grad == 0).tolist() == [[False, True, False], [True, True, True]]


def test_masked_bce_bears_large_logits():
    logits = torch.tensor([[1e4, -1e4]])
    assert masked_bce(logits, torch.tensor([[1, 0]]), torch.ones(1, 2)).item() == 0
    assert masked_bce(logits, torch.tensor([[0, 1]]), torch.ones(1, 2)).item() == 1e4


# -- rankings and margins ---------------------------------------------------------------------------------------------


def test_bpr_is_the_likelihood_of_the_order():
    better, worse = some(9), some(9, seed=1)
    torch.testing.assert_close(bpr(better, worse), -torch.sigmoid(better - worse).log().mean())
    assert bpr(torch.tensor([-1e4]), torch.tensor([0.0])).item() == 1e4  # the plain logarithm would be infinite


@pytest.mark.parametrize("margin", [0.0, 0.3, 1.0])
def test_hinge_is_torchs_margin_ranking(margin):
    better, worse = some(9), some(9, seed=1)
    expected = F.margin_ranking_loss(better, worse, torch.ones(9), margin=margin)
    torch.testing.assert_close(hinge(better, worse, margin), expected)


def test_hinge_of_one_class_against_the_rest_is_sklearns():
    metrics = pytest.importorskip("sklearn.metrics")
    f, y = some(20), (some(20, seed=1) > 0).long()
    signed = (2 * y - 1) * f
    assert hinge(signed).item() == pytest.approx(metrics.hinge_loss(y.numpy(), f.numpy()))


def test_each_class_is_set_against_the_rest():
    logits, labels = some(6, 3), torch.arange(6) % 3
    signed = against_the_rest(logits, labels)
    for row in range(6):
        for column in range(3):
            assert signed[row, column] == (1 if column == labels[row] else -1) * logits[row, column]


def test_the_perceptrons_gradient_is_its_rule():
    """w += α(y - ŷ)x with ŷ = h(wᵀx + b), for y in {0, 1}: one step of gradient descent, scores of 0 excepted."""
    x, y, w = some(8, 3), some(8, seed=1) > 0, some(3, seed=2).requires_grad_()
    score = (2 * y.long() - 1) * (x @ w)
    (gradient,) = torch.autograd.grad(perceptron(score) * len(x), w)
    answer = (x @ w > 0).double()
    torch.testing.assert_close(-gradient, ((y.double() - answer)[:, None] * x).sum(0))


# -- layers of one position -------------------------------------------------------------------------------------------


def test_feed_forward_is_two_convolutions_of_one_position():
    layer, x = FeedForward(6, 9, Euclidean()), torch.randn(2, 5, 6)
    first, second = layer.linear1, layer.linear2
    inner = F.conv1d(x.mT, first.weight[..., None], first.bias).relu()
    torch.testing.assert_close(layer(x), F.conv1d(inner, second.weight[..., None], second.bias).mT)


def test_feed_forward_is_that_of_torchs_encoder():
    theirs = nn.TransformerEncoderLayer(6, 2, 9, dropout=0.0, batch_first=True)
    ours = FeedForward(6, 9, Euclidean())
    ours.load_state_dict({name: t for name, t in theirs.state_dict().items() if name.startswith("linear")})
    x = torch.randn(2, 5, 6)
    torch.testing.assert_close(ours(x), theirs._ff_block(x))


def test_dropout_falls_on_the_activations_and_on_nothing_at_test():
    layer = FeedForward(4, 1000, Euclidean(), dropout=0.5)
    nn.init.eye_(layer.linear2.weight)
    x = torch.randn(1, 4)
    kept = layer.manifold.point(layer.dropout(F.relu(layer.linear1(x))))
    assert 300 < (kept == 0).sum() < 900
    assert torch.equal(layer.eval()(x), layer.linear2(F.relu(layer.linear1(x))))


def test_maxout_has_absolute_values_and_hats():
    layer = Maxout(1, 1, 3, Euclidean())
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0], [-1.0], [0.0]]))
        layer.bias.copy_(torch.tensor([0.0, 0.0, 0.5]))
    x = torch.linspace(-2, 2, 41)[:, None]
    torch.testing.assert_close(layer(x), x.abs().clamp_min(0.5))
