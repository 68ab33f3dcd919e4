"""Branches of a hierarchy."""

import numpy as np

from horosphere.measure.branches import branch_of


def test_a_branch_of_nearly_all_is_parted_further():
    """a - b - (c, d, e): nearly all lies below a and below b."""
    edges = np.array([(1, 0), (2, 1), (3, 1), (4, 1), (5, 2), (6, 3), (7, 4)])
    branch, below = branch_of(edges, np.array([0, 1, 2, 2, 2, 3, 3, 3]), list("abcdefgh"))
    assert branch == ["", "", "c", "d", "e", "c", "d", "e"]
    assert below.tolist() == [8, 7, 2, 2, 2, 1, 1, 1]
