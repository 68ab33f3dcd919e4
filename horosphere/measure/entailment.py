"""Graded entailment of words: how far is X a kind of Y? HyperLex (Vulić et al. 2017) holds what people say."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from horosphere.measure.ranks import rank_correlation


def graded_entailment(angles: Tensor, scores: Sequence[float]) -> float:
    """Spearman's correlation of people's scores of "X is a kind of Y" and -Ξ(Y, X).   (N,) -> ρ

    >>> import torch
    >>> graded_entailment(torch.tensor([0.1, 0.5, 2.0]), [6.0, 3.0, 0.0])
    1.0
    """
    return rank_correlation(np.asarray(scores), -angles.detach().double().cpu().numpy())
