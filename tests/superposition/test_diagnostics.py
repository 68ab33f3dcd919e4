import math

import pytest
import torch

from horosphere.superposition import diagnostics
from horosphere.superposition.diagnostics import dead_fraction, overlaps, random_overlap, represented, welch


def explicit(W):
    W = W.double()
    W = W[W.norm(dim=1) > 0]
    unit = W / W.norm(dim=1, keepdim=True)
    squares = (unit @ unit.T).square()[~torch.eye(len(W), dtype=torch.bool)]
    return squares.mean().item(), squares.var(correction=0).item()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("n", "m"), [(50, 3), (7, 20), (128, 31)])
def test_overlaps_are_the_explicit_ones(monkeypatch, n, m, seed):
    torch.manual_seed(seed)
    W = torch.randn(n, m) * torch.rand(n, 1)
    W[3] = 0
    monkeypatch.setattr(diagnostics, "PAIRS_AT_ONCE", 5 * n)  # several blocks, the last one short
    assert overlaps(W) == pytest.approx(explicit(W), rel=1e-4)
    strong = W.norm(dim=1) > W.norm(dim=1).median()
    assert overlaps(W, strong) == pytest.approx(explicit(W[strong]), rel=1e-4)


def test_too_few_rows_have_no_overlap():
    assert all(math.isnan(value) for value in overlaps(torch.eye(3)[:1]))
    assert overlaps(torch.eye(3)) == pytest.approx((0.0, 0.0), abs=1e-12)


@pytest.mark.parametrize("m", [2, 5, 17])
def test_a_simplex_attains_the_welch_bound(m):
    n = m + 1
    vectors = torch.linalg.qr(torch.cat([torch.ones(n, 1), torch.randn(n, m)], 1).double())[0][
        :, 1:
    ]  # rows: a simplex in the plane across (1 … 1)
    mean, variance = overlaps(vectors)
    assert mean == pytest.approx(welch(n, m))
    assert mean == pytest.approx(1 / m**2)
    assert variance == pytest.approx(0, abs=1e-7)


def test_nothing_is_below_the_welch_bound_and_random_rows_are_near_one_over_m():
    W = torch.randn(3000, 20)
    mean, variance = overlaps(W)
    assert mean >= welch(3000, 20)
    assert (mean, variance) == pytest.approx(random_overlap(20), rel=0.02)
    assert welch(5, 8) == 0


def test_represented_and_dead():
    W = torch.diag(torch.tensor([0.4, 0.6, 1.2, 0.0]))
    assert represented(W, 0.5) == 0.5
    assert represented(W, 1.0) == 0.25
    b = torch.tensor([-0.33, -0.71, -2.87, 0.0])  # 2|W|² = 0.32, 0.72, 2.88, 0
    assert dead_fraction(W, b) == 0.5
