"""Perceptron, regressions and support vectors beside scikit-learn's and the normal equations; curved, distances."""

import math

import numpy as np
import pytest
import torch
from torch.optim import LBFGS

from horosphere.data.tables import Scaling, open_table
from horosphere.geometry import Lorentz
from horosphere.models.config import InAnyGeometry
from horosphere.models.linear import SVM, LinearRegression, Perceptron, SoftmaxRegression, SVMConfig
from horosphere.models.table_model import Sizes

pytest.importorskip("sklearn")
NO_NOISE = torch.zeros(1, 0)
CURVED = ["lorentz", "poincare"]


def rows(name, scale=Scaling.standard):
    """(x, y) in fp64."""
    table = open_table(f"builtin:{name}")
    y = table.numbers if name == "diabetes" else table.labels
    return torch.from_numpy(scale(table.x)(table.x)), torch.from_numpy(y)


def minimised(model, x, y, steps=200):
    """All rows at once, to the bottom."""
    optimizer = LBFGS(model.parameters(), max_iter=steps, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = model.loss(x, y, NO_NOISE)
        loss.backward()
        return loss

    optimizer.step(closure)
    return model


def made(cls, x, answers, config=None):
    return cls(Sizes(x.shape[1], answers, len(x)), config or InAnyGeometry()).double()


# -- flat -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["iris", "wine"])
def test_the_perceptron_makes_the_mistakes_of_sklearns(name):
    """The same rows in the same order, one at a time: the same planes, on separable data without mistakes at last."""
    from sklearn.linear_model import Perceptron as Theirs

    x, y = rows(name)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    passes = {"iris": 5, "wine": 20}[name]
    theirs = Theirs(shuffle=False, max_iter=passes, tol=None, eta0=1.0).fit(x.numpy(), y.numpy())
    model = made(Perceptron, x, 3)
    descent, mistakes = torch.optim.SGD(model.parameters(), lr=1.0), []
    for _ in range(passes):
        mistakes.append(0)
        for row in range(len(x)):
            loss = model.loss(x[row : row + 1], y[row : row + 1], NO_NOISE)
            descent.zero_grad()
            loss.backward()
            mistakes[-1] += any(p.grad.any() for p in model.parameters())
            descent.step()
    np.testing.assert_allclose(model.planes.weight.detach(), theirs.coef_, atol=1e-9)
    np.testing.assert_allclose(model.planes.bias.detach(), theirs.intercept_, atol=1e-9)
    assert (model(x).argmax(1).numpy() == theirs.predict(x.numpy())).all()
    if name == "wine":
        assert mistakes[-1] == 0


def test_two_kinds_of_iris_are_separated_without_a_mistake():
    x, y = rows("iris")
    setosa = (y == 0).long()
    model, descent = made(Perceptron, x, 2), None
    descent = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(10):
        for row in torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).split(1):
            descent.zero_grad()
            model.loss(x[row], setosa[row], NO_NOISE).backward()
            descent.step()
    assert (model(x).argmax(1) == setosa).all()
    assert model.loss(x, setosa, NO_NOISE) == 0


def test_linear_regression_is_the_normal_equations():
    x, y = rows("diabetes")
    model = minimised(made(LinearRegression, x, 1), x, y)
    with_one = torch.cat([x, torch.ones(len(x), 1)], 1).double()
    expected = torch.linalg.solve(with_one.T @ with_one, with_one.T @ y)
    torch.testing.assert_close(model.planes.weight[0], expected[:-1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model.planes.bias[0], expected[-1], rtol=1e-6, atol=1e-4)
    torch.testing.assert_close(model.loss(x, y, NO_NOISE), (with_one @ expected - y).square().mean() / 2)


def test_softmax_regression_is_sklearns_on_digits():
    """Their penalty is ½|w|²/C over all rows; ours has none, and with theirs added both have one bottom."""
    from sklearn.linear_model import LogisticRegression

    class Penalised(SoftmaxRegression):
        def loss(self, x, y, noise):
            return super().loss(x, y, noise) + self.planes.weight.square().sum() / 2 / len(x)

    x, y = rows("digits", Scaling.of_unit_length)
    theirs = LogisticRegression(C=1.0, tol=1e-8, max_iter=2000).fit(x.numpy(), y.numpy())
    model = minimised(made(Penalised, x, 10), x, y, 500)
    np.testing.assert_allclose(model(x).softmax(1).detach(), theirs.predict_proba(x.numpy()), atol=1e-4)
    centred = theirs.coef_ - theirs.coef_.mean(0)  # a shift of all planes changes no probability
    ours = model.planes.weight - model.planes.weight.mean(0)
    np.testing.assert_allclose(ours.detach(), centred, atol=1e-3)


@pytest.mark.parametrize("cost", [0.1, 10.0])
@pytest.mark.parametrize("bias", [False, True])
def test_svm_has_the_bottom_of_sklearns(cost, bias):
    """LinearSVC(loss="hinge"), and SVC with a linear kernel: LinearSVC would shrink a bias with the weights."""
    from sklearn.svm import SVC, LinearSVC

    x, y = rows("breast_cancer", Scaling.of_unit_length)
    linear = LinearSVC(C=cost, loss="hinge", tol=1e-8, max_iter=10**6, fit_intercept=False)
    theirs = (SVC(kernel="linear", C=cost, tol=1e-8) if bias else linear).fit(x.numpy(), y.numpy())
    model, signs = made(SVM, x, 2, SVMConfig(cost=cost)), 2 * y - 1
    with torch.no_grad():  # two classes: mirrored planes
        weight, offset = torch.tensor(theirs.coef_), torch.as_tensor(theirs.intercept_, dtype=torch.float64)
        model.planes.weight.copy_(torch.cat([-weight, weight]))
        model.planes.bias.copy_(torch.cat([-offset, offset]) if bias else torch.zeros(2))
        by_hand = weight.square().sum() / 2 + cost * (1 - signs * (x @ weight[0] + offset)).clamp_min(0).sum()
        lowest = model.loss(x, y, NO_NOISE).item()
        assert lowest * cost * len(x) / 2 == pytest.approx(by_hand.item())
        draws = torch.Generator().manual_seed(0)
        for _ in range(20):
            other = made(SVM, x, 2, SVMConfig(cost=cost))
            for mine, best in zip(other.parameters(), model.parameters(), strict=True):
                mine.copy_(best + 0.03 * best.norm() * torch.randn(best.shape, generator=draws, dtype=torch.float64))
            assert other.loss(x, y, NO_NOISE) > lowest


# -- curved -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [Perceptron, SoftmaxRegression, LinearRegression])
def test_in_a_nearly_flat_space_a_model_is_its_flat_twin(cls):
    x = torch.randn(9, 4, dtype=torch.float64)
    flat, errors = made(cls, x, 3 if cls is not LinearRegression else 1), []
    torch.manual_seed(0)
    for p in flat.parameters():
        torch.nn.init.normal_(p)
    for c in (1e-2, 1e-4):
        curved = made(cls, x, flat.planes.out_features, InAnyGeometry(geometry="lorentz", curvature=c))
        curved.load_state_dict(flat.state_dict(), strict=False)
        errors.append((curved(x) - flat(x)).abs().max().item())
    assert errors[1] == pytest.approx(errors[0] / 100, rel=0.2)  # of order c


@pytest.mark.parametrize("c", [0.1, 1.0, 4.0])
def test_curved_linear_regression_is_a_distance_to_a_hyperplane(c):
    L, x = Lorentz(c), torch.randn(7, 3, dtype=torch.float64)
    model = made(LinearRegression, x, 1, InAnyGeometry(geometry="lorentz", curvature=c))
    w, b = torch.tensor([[0.3, -1.2, 0.8]], dtype=torch.float64), torch.tensor([0.7], dtype=torch.float64)
    with torch.no_grad():
        model.planes.weight.copy_(w)
        model.planes.bias.copy_(b)
    length = w.norm()
    foot = L.exp0(-b * w / length**2)  # the plane stands across w at distance -b/|w|
    normal = L.transport(w / length, torch.zeros_like(w), foot)
    torch.testing.assert_close(model(x), length * L.dist_to_hyperplane(L.lift(x), foot, normal))


@pytest.mark.parametrize("geometry", CURVED)
def test_curved_linear_regression_finds_the_plane_that_made_the_numbers(geometry):
    x = torch.randn(200, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    config = InAnyGeometry(geometry=geometry, curvature=1.0)
    truth, model = made(LinearRegression, x, 1, config), made(LinearRegression, x, 1, config)
    with torch.no_grad():
        truth.planes.weight.copy_(torch.tensor([[0.5, -1.0, 0.8]]))
        truth.planes.bias.fill_(0.3)
    y = truth(x).detach()
    minimised(model, x, y)
    assert model.loss(x, y, NO_NOISE) < 1e-8
    torch.testing.assert_close(model.planes.weight, truth.planes.weight, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("geometry", CURVED)
@pytest.mark.parametrize("cls", [Perceptron, SoftmaxRegression, SVM])
def test_curved_planes_separate_what_a_curved_plane_separates(cls, geometry):
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(1))
    L = Lorentz()
    foot = L.exp0(torch.tensor([0.8, 0.0]))
    y = (L.dist_to_hyperplane(L.lift(x), foot, torch.tensor([1.0, 0.0])) > 0).long()
    far = L.dist_to_hyperplane(L.lift(x), foot, torch.tensor([1.0, 0.0])).abs() > 0.1
    x, y = x[far], y[far]
    config = (SVMConfig if cls is SVM else InAnyGeometry)(geometry=geometry, **({"cost": 100.0} if cls is SVM else {}))
    model = cls(Sizes(2, 2, len(x)), config)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(150):
        optimizer.zero_grad()
        model.loss(x, y, NO_NOISE).backward()
        optimizer.step()
    assert (model(x).argmax(1) == y).float().mean() > 0.97


def test_weights_of_zero_have_a_gradient_in_every_geometry():
    x, y = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    for geometry in ("euclidean", *CURVED):
        model = SoftmaxRegression(Sizes(3, 3, 5), InAnyGeometry(geometry=geometry))
        model.loss(x, y, NO_NOISE).backward()
        assert all(p.grad.isfinite().all() and p.grad.any() for p in model.parameters())
        assert model.loss(x, y, NO_NOISE).item() == pytest.approx(math.log(3))
