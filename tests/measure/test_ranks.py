"""Rank correlation is scipy's."""

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from horosphere.measure.ranks import rank_correlation, ranks


@pytest.mark.parametrize("most", [3, 20, 10**6])
def test_it_is_scipys_with_ties_and_without(most):
    random = np.random.default_rng(most)
    a, b = random.integers(0, most, (2, 200)) * 1.0
    assert ranks(a).tolist() == rankdata(a).tolist()
    assert rank_correlation(a, a + b) == pytest.approx(spearmanr(a, a + b).statistic, abs=1e-12)
