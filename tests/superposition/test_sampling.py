import numpy as np
import pytest
import torch
from scipy import stats

from horosphere.superposition.frequencies import frequencies
from horosphere.superposition.sampling import EVALUATION, Sampler, philox, streams
from horosphere.superposition.toy import Toy

SETTINGS = [("power:1", 1.0), ("uniform", 0.3), ("power:1", 2.9), ("linear", 5.0)]
ALPHA = 1e-4  # seeds are fixed: a test that passes once passes always


def samples(law, density, count=40_000, n=12):
    return Sampler(n, law, density, seed=5).batches(0, 40, count // 40)


def dense(batches):
    return torch.cat([batches.dense(k) for k in range(len(batches.rows) - 1)]).numpy()


def test_philox_known_answers():
    """From the authors' test vectors (Random123, kat_vectors)."""
    for counter, key, expected in (
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ):
        words = philox(tuple(np.array([c], np.uint64) for c in counter), key)
        assert tuple(int(word[0]) for word in words) == expected


@pytest.mark.parametrize(("law", "density"), SETTINGS)
def test_each_feature_is_bernoulli(law, density):
    x = dense(samples(law, density))
    p = frequencies(law, 12, density)
    z = ((x > 0).sum(0) - len(x) * p) / np.sqrt(len(x) * p * (1 - p))
    assert stats.chi2.sf((z**2).sum(), 12) > ALPHA


@pytest.mark.parametrize(("law", "density"), SETTINGS)
def test_pairs_are_independent(law, density):
    on = (dense(samples(law, density)) > 0).astype(float)
    p = frequencies(law, 12, density)
    scores = (on - p) / np.sqrt(p * (1 - p))
    correlation = (scores.T @ scores / np.sqrt(len(on)))[np.triu_indices(12, 1)]
    assert stats.chi2.sf((correlation**2).sum(), len(correlation)) > ALPHA


@pytest.mark.parametrize(("law", "density"), SETTINGS)
def test_values_are_uniform_on_0_2_and_do_not_know_their_feature(law, density):
    batches = samples(law, density)
    assert stats.kstest(batches.values, stats.uniform(0, 2).cdf).pvalue > ALPHA
    assert abs(stats.pearsonr(batches.values, batches.features).statistic) * np.sqrt(len(batches.values)) < 4


def test_number_of_active_features_has_the_right_distribution():
    """Poisson-binomial, by convolution: also says that steps and samples do not repeat each other."""
    x = dense(samples("power:1", 2.9))
    expected = np.ones(1)
    for p in frequencies("power:1", 12, 2.9):
        expected = np.convolve(expected, [1 - p, p])
    counts = np.bincount((x > 0).sum(1), minlength=13)
    enough = expected * len(x) > 10
    assert (
        stats.chi2.sf(((counts - len(x) * expected)[enough] ** 2 / (len(x) * expected[enough])).sum(), enough.sum())
        > ALPHA
    )


def test_p_one_is_always_on():
    n, total = 6, (1 / np.arange(1, 7)).sum()
    x = dense(Sampler(n, "power:1", total, 0).batches(3, 4, 500))
    assert (x[:, 0] > 0).all()
    assert 0.4 < (x[:, 1] > 0).mean() < 0.6
    assert stats.kstest(x[:, 0], stats.uniform(0, 2).cdf).pvalue > ALPHA
    assert (dense(Sampler(3, "uniform", 3.0, 0).batches(0, 1, 50)) > 0).all()  # nothing is left to chance


def test_rare_features_come_at_their_rate():
    """exp(-i/40): the last of 600 has p = 1e-8; what is beyond the first 200 has p = 0.0068 in all."""
    batches = Sampler(600, "exponential:40", 1.0, 1).batches(0, 10, 20_000)
    rare, expected = (batches.features >= 200).sum(), 200_000 * frequencies("exponential:40", 600, 1.0)[200:].sum()
    assert abs(rare - expected) < 4 * np.sqrt(expected)


def test_a_batch_depends_on_its_step_alone():
    sampler = Sampler(30, "power:1", 1.0, seed=2**40 + 3)
    together = sampler.batches(7, 5, 64)
    for k in range(5):
        assert torch.equal(together.dense(k), sampler.batches(7 + k, 1, 64).dense())
    assert not torch.equal(together.dense(0), together.dense(1))
    others = (Sampler(30, "power:1", 1.0, 3).batches(7, 1, 64), sampler.batches(7, 1, 64, EVALUATION))
    assert not any(torch.equal(together.dense(0), other.dense()) for other in others)


def test_rows_and_entries_fit_together():
    batches = Sampler(30, "power:1", 0.2, 0).batches(0, 3, 100)
    assert batches.starts[-1] == len(batches.features) == len(batches.values)
    assert (np.diff(batches.starts) > 0).all()
    assert batches.rows[-1] == len(batches.starts) - 1
    x = dense(batches)
    assert x.shape == (300, 30)
    assert (x > 0).sum() == (batches.values > 0).sum()
    assert torch.equal(batches.dense_rows(0, batches.rows[-1]), torch.from_numpy(x[x.sum(1) > 0]))


def test_runs_that_differ_in_width_and_decay_share_a_stream():
    a, b, c = (
        Toy(9, 2, "uniform", gamma=gamma, readout=readout)
        for gamma, readout in ((0.1, "dot"), (-1.0, "dot"), (0.1, "lorentz"))
    )
    places = streams([a, Toy(9, 3, "uniform"), b, c, Toy(9, 2, "uniform", seed=1), Toy(9, 2, "linear")])
    assert list(places.values()) == [[0, 1, 2, 3], [4], [5]]
