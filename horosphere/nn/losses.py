"""Losses of classics. Each is a pure function of scores, and a score is an inner product or a signed distance alike."""

import torch
import torch.nn.functional as F
from torch import Tensor


def masked_bce(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Binary cross-entropy over the candidates of each row that count.   3 x (..., K) -> (...)

    Σ M·softplus(-(2L - 1)P)/Σ M: the mean of a row over its own candidates, so that rows of any length weigh alike.
    A row without candidates has no loss.

    >>> logits = torch.tensor([[1.1, -2.2, 3.3, -4.4], [1.1, -2.2, 3.3, -4.4]])
    >>> labels = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0]])
    >>> masked_bce(logits, labels, mask=torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]))
    tensor([0.9352, 1.8462])
    """
    each = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none")
    counts = mask.to(logits.dtype)
    return (each * counts).sum(-1) / counts.sum(-1).clamp_min(1)


def bpr(better: Tensor, worse: Tensor) -> Tensor:
    """Bayesian personalised ranking: the mean of -log σ(better - worse).   (...), (...) -> ()

    Its penalty λ|θ|² is the optimizer's `weight_decay`.

    >>> bpr(torch.tensor([2.0, 0.0]), torch.tensor([0.0, 0.0]))
    tensor(0.4100)
    """
    return -F.logsigmoid(better - worse).mean()


def hinge(better: Tensor, worse: Tensor | float = 0.0, margin: float = 1.0) -> Tensor:
    """The mean of max(margin - better + worse, 0): `better` should lead by the margin.   (...), (...) -> ()

    Of two items it ranks them. Of y·f(x), with y = ±1 and nothing else, it is the loss of support vectors.

    >>> hinge(torch.tensor([2.0, 0.5, -1.0]))  # beyond the margin, within it, on the wrong side
    tensor(0.8333)
    """
    return F.relu(margin - better + worse).mean()


def perceptron(scores: Tensor) -> Tensor:
    """The mean of max(-y·f(x), 0), of scores y·f(x) with y = ±1.   (...) -> ()

    A score of 0 is a mistake and has a gradient: weights begin at 0, where torch's relu would never learn.

    >>> scores = torch.tensor([2.0, 0.0, -1.0], requires_grad=True)
    >>> loss = perceptron(scores)
    >>> loss.backward()
    >>> loss.detach(), (scores.grad < 0).tolist()
    (tensor(0.3333), [False, True, True])
    """
    return torch.where(scores <= 0, -scores, 0.0).mean()


def against_the_rest(logits: Tensor, labels: Tensor) -> Tensor:
    """y·f of each class against all others, y = 1 for the row's own and -1 else.   (..., K), (...) -> (..., K)

    >>> against_the_rest(torch.tensor([[3.0, -2.0, 1.0]]), torch.tensor([0]))
    tensor([[ 3.,  2., -1.]])
    """
    return (2 * F.one_hot(labels, logits.shape[-1]) - 1) * logits
