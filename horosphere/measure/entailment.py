"""Graded entailment of words: how far is X a kind of Y? HyperLex (Vulić et al. 2017) holds what people say."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from horosphere.measure.ranks import rank_correlation
from horosphere.models.radial import radial_angle


def graded_entailment(specific: Tensor, general: Tensor, root: Tensor, scores: Sequence[float]) -> float:
    """Spearman's correlation of people's scores of "X is a kind of Y" and -Ξ_r(Y, X).   (N, D), (N, D), (D,)"""
    angles = radial_angle(general, specific, root)
    return rank_correlation(np.asarray(scores), -angles.detach().double().cpu().numpy())
