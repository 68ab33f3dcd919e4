"""Kernels: positive definite on all pairs where they are offered, scikit-learn's in flat space, refused where not."""

import numpy as np
import pytest
import torch

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz, Poincare, Product, gaussian_kernel, laplacian_kernel

MANIFOLDS = {"euclidean": Euclidean(), "lorentz": Lorentz(), "poincare": Poincare(), "strong": Lorentz(4.0)}


def points(m, n=40, dim=3, std=1.0):
    return m.random(n, dim, std=std, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("rate", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("name", MANIFOLDS)
def test_a_gram_matrix_is_positive_definite(name, rate):
    m = MANIFOLDS[name]
    gram = laplacian_kernel(points(m), points(m), m, rate)
    torch.testing.assert_close(gram.diagonal(), torch.ones(40, dtype=torch.float64), rtol=0, atol=1e-4)
    assert torch.linalg.eigvalsh((gram + gram.T) / 2).min() > 0


def test_it_is_an_inner_product_of_features():
    """k = ⟨φ, φ⟩ on all pairs, near or far: features by the root of the Gram matrix."""
    L = Lorentz()
    x = points(L)
    gram = laplacian_kernel(x, x, L)
    values, vectors = torch.linalg.eigh((gram + gram.T) / 2)
    features = vectors * values.sqrt()
    torch.testing.assert_close(features @ features.T, gram, atol=1e-6, rtol=0)


def test_the_gaussian_of_a_hyperbolic_distance_is_no_kernel():
    """Some points and some λ have a negative eigenvalue, far beyond rounding."""
    L = Lorentz()
    angles = torch.linspace(0, 2 * np.pi, 9, dtype=torch.float64)[:-1]
    ring = L.exp0(2.0 * torch.stack([angles.cos(), angles.sin()], 1))
    x = torch.cat([torch.zeros(1, 2, dtype=torch.float64), ring])
    lowest = [torch.linalg.eigvalsh((-rate * L.pairwise(x, x).square()).exp()).min() for rate in (0.01, 0.03, 0.1)]
    assert min(lowest) < -1e-3
    assert torch.linalg.eigvalsh(laplacian_kernel(x, x, L, 0.03)).min() > 0


@pytest.mark.parametrize("m", [Lorentz(), Poincare(), Product((Lorentz(), 2), (Euclidean(), 1))], ids=str)
def test_it_is_refused_on_curved_spaces(m):
    with pytest.raises(UserError, match=r"not positive definite on .*; use laplacian_kernel"):
        gaussian_kernel(torch.zeros(1, 3), torch.zeros(1, 3), m)


def test_a_product_is_refused_where_nothing_is_known():
    with pytest.raises(UserError, match="on a product is not known"):
        laplacian_kernel(torch.zeros(1, 3), torch.zeros(1, 3), Product((Lorentz(), 2), (Euclidean(), 1)))


def test_flat_kernels_are_sklearns():
    pairs = pytest.importorskip("sklearn.metrics.pairwise")
    x, y = torch.randn(2, 9, 3, dtype=torch.float64)
    ours = gaussian_kernel(x, y, Euclidean(), 0.3)
    np.testing.assert_allclose(ours, pairs.rbf_kernel(x.numpy(), y.numpy(), gamma=0.3))


def test_support_vectors_take_a_gram_matrix():
    """SVC with our Gaussian is its own, .988 on the rows it was fitted on; and our curved kernel serves it as well."""
    svm = pytest.importorskip("sklearn.svm")
    datasets = pytest.importorskip("sklearn.datasets")
    data = datasets.load_breast_cancer()
    x = torch.from_numpy((data.data - data.data.mean(0)) / data.data.std(0))
    gram = gaussian_kernel(x, x, Euclidean(), 1 / 30)
    ours = svm.SVC(kernel="precomputed").fit(gram.numpy(), data.target)
    theirs = svm.SVC(kernel="rbf", gamma=1 / 30).fit(x.numpy(), data.target)
    assert (ours.predict(gram.numpy()) == theirs.predict(x.numpy())).mean() == 1
    assert theirs.score(x.numpy(), data.target) == pytest.approx(0.988, abs=0.002)
    L = Lorentz()
    at = L.lift(x / 30**0.5)
    curved = laplacian_kernel(at, at, L).numpy()
    assert svm.SVC(kernel="precomputed").fit(curved, data.target).score(curved, data.target) > 0.95
