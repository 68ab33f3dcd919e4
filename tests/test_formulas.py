"""Formulas of the notes that torch has already: the right form as a property, and the wrong one where one is printed.

`test_formula[1.02]` is item 1.02. What the house builds itself is tested beside it.
"""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import grad
from torch.testing import assert_close

from horosphere import optim
from horosphere.catalogue import notes
from horosphere.data.order import shuffled
from horosphere.geometry import Euclidean, Lorentz, Poincare, WrappedNormal
from horosphere.nn import Conv2d, Dropout, GlobalAvgPool2d, Linear, MaxPool2d
from horosphere.train.config import EngineConfig

FORMULAS = {}
MANIFOLDS = (Euclidean(), Lorentz(0.5), Poincare(2.0))
X = torch.linspace(-4, 4, 41, dtype=torch.float64)
FAR = torch.tensor([-1e4, 1e4], dtype=torch.float64)


def formula(*ids):
    def keep(function):
        for number in ids:
            assert number not in FORMULAS
            FORMULAS[number] = function
        return function

    return keep


def some(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def differ(a, b, by=1e-2):
    return bool((a - b).abs().max() > by)


# -- activations ------------------------------------------------------------------------------------------------------


@formula("1.02")
def sigmoid():
    """eˣ/(eˣ + 1), the first of softmax([x, 0]). As printed, e⁰/(eˣ + e⁰) is σ(-x)."""
    assert_close(X.sigmoid(), X.exp() / (X.exp() + 1))
    assert_close(X.sigmoid(), torch.stack([X, torch.zeros_like(X)]).softmax(0)[0])
    printed = 1 / (X.exp() + 1)
    assert differ(X.sigmoid(), printed)
    assert_close(printed, (-X).sigmoid())
    assert FAR.sigmoid().tolist() == [0, 1]


@formula("1.03")
def tanh():
    """2σ(2x) - 1"""
    assert_close(X.tanh(), 2 * (2 * X).sigmoid() - 1)
    assert_close(X.tanh(), (X.exp() - (-X).exp()) / (X.exp() + (-X).exp()))
    assert FAR.tanh().tolist() == [-1, 1]


@formula("1.04")
def softmax():
    """A shift of all logits changes nothing. So the largest is taken off first: its plain exponential overflows."""
    z = some(3, 5)
    assert_close(z.softmax(1), z.exp() / z.exp().sum(1, keepdim=True))
    assert_close((z + 1e4).softmax(1), z.softmax(1), rtol=1e-6, atol=1e-9)
    plain = (z + 1e4).exp()
    assert (plain / plain.sum(1, keepdim=True)).isnan().all()


@formula("1.05")
def prelu():
    """max(0, x) + a·min(0, x), with a that is learned: its gradient is Σ min(0, x)."""
    a = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    assert_close(F.prelu(X, a), X.clamp_min(0) + a * X.clamp_max(0))
    assert_close(grad(F.prelu(X, a).sum(), a)[0], X.clamp_max(0).sum()[None])


@formula("1.06")
def leaky_relu():
    assert_close(F.leaky_relu(X, 0.01), X.clamp_min(0) + 0.01 * X.clamp_max(0))
    assert F.leaky_relu(FAR).tolist() == [-100, 1e4]


@formula("1.07")
def elu():
    """α(eˣ - 1) below 0; with α = 1 the slope is continuous there."""
    for alpha in (0.5, 1.0):
        assert_close(F.elu(X, alpha), torch.where(X > 0, X, alpha * X.expm1()))
    x = torch.tensor([-1e-9, 1e-9], dtype=torch.float64, requires_grad=True)
    assert_close(grad(F.elu(x).sum(), x)[0], torch.ones(2).double())
    assert F.elu(FAR).tolist() == [-1, 1e4]


@formula("1.08")
def softplus():
    """log(1 + e^βx)/β, by torch x itself from βx = 20 on; its slope is σ(βx)."""
    for beta in (1.0, 3.0):
        assert_close(F.softplus(X, beta), (beta * X).exp().log1p() / beta)
        x = X.clone().requires_grad_()
        assert_close(grad(F.softplus(x, beta).sum(), x)[0], (beta * X).sigmoid())
    assert F.softplus(torch.tensor(21.0)) == 21
    assert F.softplus(FAR).tolist() == [0, 1e4]


@formula("15.08")
def relus():
    """max(0, x) + a·min(0, x): a = 0, .01, -1 are ReLU, leaky ReLU, |x|. ReLU has no gradient below 0 only."""
    for a, named in ((0.0, F.relu(X)), (0.01, F.leaky_relu(X)), (-1.0, X.abs())):
        assert_close(X.clamp_min(0) + a * X.clamp_max(0), named)
    x = X.clone().requires_grad_()
    assert_close(grad(F.relu(x).sum(), x)[0], (X > 0).double())


@formula("4.06")
def dropout():
    """On activations, divided by 1 - p: their mean is kept in training, and nothing is done at test."""
    for m in MANIFOLDS:
        layer, x = Dropout(0.25, m), m.lift(torch.full((20_000, 1), 0.5))
        free = m.ambient(layer(x))[0]
        torch.manual_seed(0)
        assert_close(free.mean(), m.ambient(x)[0].mean(), rtol=0.02, atol=0)
        assert set(free.round(decimals=4).unique().tolist()) == {
            0.0,
            *(m.ambient(x)[0] / 0.75).round(decimals=4).unique().tolist(),
        }
        assert_close(layer.eval()(x), x)  # not x·p, nor x·(1 - p)


# -- likelihoods ------------------------------------------------------------------------------------------------------


@formula("1.09")
def cross_entropy():
    """-Σ y log ŷ of logits, over n. Of several labels at once it is the wrong loss: no answer brings it to 0."""
    z, labels = some(6, 4), torch.arange(6) % 4
    each = -(F.one_hot(labels, 4) * z.softmax(1).log()).sum(1)
    assert_close(F.cross_entropy(z, labels), each.mean())
    assert differ(F.cross_entropy(z, labels), each.sum())  # as printed, without 1/n
    both = torch.tensor([[1.0, 1.0, 0.0]])
    answers = torch.cat([some(5000, 3).float() * 5, torch.tensor([[50.0, 50.0, -50.0]])])
    least = min(F.cross_entropy(z[None], both).item() for z in answers)
    assert least == pytest.approx(2 * math.log(2), rel=1e-5)
    assert F.binary_cross_entropy_with_logits(answers[-1:], both).item() < 1e-6


@formula("1.10")
def binary_cross_entropy():
    """-[y log ŷ + (1 - y) log(1 - ŷ)]. Without the bracket it is negative at y = 0."""
    p, y = X.sigmoid(), (torch.arange(41) % 2).double()
    right = -(torch.xlogy(y, p) + torch.xlogy(1 - y, 1 - p))
    assert_close(F.binary_cross_entropy(p, y, reduction="none"), right)
    assert_close(F.binary_cross_entropy_with_logits(X, y, reduction="none"), right)
    printed = -y * p.log() + (1 - y) * (1 - p).log()
    assert (printed[y == 0] < 0).all()
    assert (right > 0).all()


@formula("1.12")
def negative_log_likelihood():
    """It takes logarithms of probabilities; with weights the mean divides by their sum."""
    z, labels, weight = some(6, 4), torch.arange(6) % 4, torch.tensor([1.0, 2.0, 3.0, 4.0]).double()
    assert_close(F.nll_loss(z.log_softmax(1), labels), F.cross_entropy(z, labels))
    chosen = -z.log_softmax(1)[torch.arange(6), labels]
    of_rows = weight[labels]
    assert_close(F.nll_loss(z.log_softmax(1), labels, weight), (of_rows * chosen).sum() / of_rows.sum())
    assert F.nll_loss(z.softmax(1), labels) < 0  # of probabilities it is no loss


@formula("15.07")
def log_softmax():
    """z - logsumexp z; the logarithm of a softmax is -∞ where that is 0."""
    z = some(3, 4)
    assert_close(z.log_softmax(1), z - z.logsumexp(1, keepdim=True))
    far = torch.tensor([0.0, 1e4])
    assert far.log_softmax(0).tolist() == [-1e4, 0]
    assert far.softmax(0).log()[0] == -math.inf


@formula("15.05")
def likelihood_as_cost():
    """-log p of a Gaussian is ½(y - f)² and a constant; wrapped around a manifold, ½dist² and its volume."""
    y, f = some(9), some(9, seed=1)
    cost = -torch.distributions.Normal(f, 1.0).log_prob(y)
    assert_close(cost - (y - f).square() / 2, torch.full((9,), math.log(2 * math.pi) / 2).double())
    assert differ((cost - (y - f).square()).diff(), torch.zeros(8))  # without the ½ the rest is not constant
    assert differ((cost + (y - f).square() / 2).diff(), torch.zeros(8))  # nor with the other sign
    for m in MANIFOLDS:
        mean, z = m.lift(some(1, 3)), m.lift(some(9, 3, seed=1))
        volume = m.log_volume(m.lower(m.translate(z, -mean)))
        rest = -WrappedNormal(m, mean, 1.0).log_prob(z) - m.sqdist(mean, z) / 2 - volume
        assert_close(rest, torch.full((9,), 1.5 * math.log(2 * math.pi)).double())


@formula("15.06")
def bernoulli():
    """exp(yz)/Σ exp(y'z) = σ((2y - 1)z). Without exp in the sum it is no distribution."""
    for y in (0.0, 1.0):
        right = (y * X).exp() / (1 + X.exp())
        assert_close(right, ((2 * y - 1) * X).sigmoid())
        assert_close(right.log(), F.logsigmoid((2 * y - 1) * X))
    away = X[X.abs() > 0.1]
    printed = [(y * away).exp() / (0 * away + 1 * away) for y in (0.0, 1.0)]
    assert differ(printed[0] + printed[1], torch.ones_like(away))


# -- products and angles ----------------------------------------------------------------------------------------------


@formula("1.14")
def batched_product():
    """Of any matrices, one pair at a time; word vectors are one use of it."""
    a, b = some(5, 2, 3), some(5, 3, 4, seed=1)
    assert_close(torch.bmm(a, b), torch.stack([x @ y for x, y in zip(a, b, strict=True)]))
    assert torch.bmm(a, b).shape == (5, 2, 4)


@formula("1.21")
def cosine():
    """x·y/(|x||y|) is a similarity. 1 minus it is called a distance, and breaks the triangle; the angle does not."""
    x, y = some(2, 50, 3)
    similar = F.cosine_similarity(x, y)
    assert_close(similar, (x * y).sum(1) / (x.norm(dim=1) * y.norm(dim=1)))
    assert_close(F.cosine_similarity(x, 3 * x), torch.ones(50).double())  # a distance would be 0
    a, b, c = (torch.tensor([math.cos(t), math.sin(t)]).double() for t in (0.0, 0.7, 1.4))
    away = [1 - F.cosine_similarity(p, q, dim=0) for p, q in ((a, b), (b, c), (a, c))]
    assert away[0] + away[1] < away[2]
    angles = [(1 - one).arccos() for one in away]
    assert_close(angles[0] + angles[1], angles[2])


# -- gradients --------------------------------------------------------------------------------------------------------


@formula("3.01")
def matrix_calculus():
    """z = Wx: dL/dW = dL/dz·xᵀ, an outer product."""
    w, x, upstream = some(3, 4), some(4, seed=1), some(3, seed=2)
    jacobian = torch.func.jacrev(lambda w: w @ x)(w)  # (3, 3, 4)
    assert_close(torch.einsum("i,ijk->jk", upstream, jacobian), torch.outer(upstream, x))
    assert_close(torch.func.jacrev(lambda x: w @ x)(x), w)


@formula("3.02")
def gradient_of_a_layer():
    """Z = XW: XᵀdZ and dZWᵀ."""
    x, w, dz = some(5, 3).requires_grad_(), some(3, 4, seed=1).requires_grad_(), some(5, 4, seed=2)
    dx, dw = grad((x @ w * dz).sum(), (x, w))
    assert_close(dw, x.T @ dz)
    assert_close(dx, dz @ w.T)


@formula("3.03")
def gradients_of_activations():
    """σ: g(1 - g). tanh: 1 - g²."""
    x = X.clone().requires_grad_()
    assert_close(grad(x.sigmoid().sum(), x)[0], X.sigmoid() * (1 - X.sigmoid()))
    assert_close(grad(x.tanh().sum(), x)[0], 1 - X.tanh().square())


@formula("3.04")
def gradient_of_softmax_and_cross_entropy():
    """(ŷ - y)/N"""
    z, labels = some(6, 4).requires_grad_(), torch.arange(6) % 4
    expected = (z.softmax(1) - F.one_hot(labels, 4)) / 6
    assert_close(grad(F.cross_entropy(z, labels), z)[0], expected)


@formula("3.05")
def gradient_check():
    """Central differences, in fp64; on a manifold along exp(±εv), where they are ⟨grad, v⟩."""
    for m in MANIFOLDS:
        x, goal, v = m.lift(some(3)).requires_grad_(), m.lift(some(3, seed=1)), some(3, seed=2)
        (g,) = grad(m.sqdist(x, goal), x)
        exact = m.inner(x, m.rgrad(x, g), v)
        assert_close(exact, (g * v).sum())

        def moved(t, m=m, x=x, v=v, goal=goal):
            return m.sqdist(m.exp(x, t * v), goal)

        central = [((moved(e) - moved(-e)) / (2 * e) - exact).abs().item() for e in (1e-2, 1e-3)]
        forward = [((moved(e) - moved(0.0)) / e - exact).abs().item() for e in (1e-2, 1e-3)]
        assert forward[1] == pytest.approx(forward[0] / 10, rel=0.1)  # of order ε
        assert central[1] < max(central[0] / 50, 1e-8)  # of order ε²
    assert torch.autograd.gradcheck(torch.tanh, X[:5].clone().requires_grad_())


@formula("8.10")
def through_time():
    """dL/dh_t = Σ_{i=t}^T (W_hhᵀ)^{T-i} W_qhᵀ dL/do_{T+t-i}. With dL/do_i powers meet other steps."""
    steps, t = 5, 1
    w_hh, w_qh, x, goals = 0.5 * some(3, 3), some(2, 3, seed=1), some(steps, 3, seed=2), some(steps, 2, seed=3)
    h, hidden, outputs = torch.zeros(3).double(), [], []
    for step in range(steps):
        h = (w_hh @ h + x[step]).requires_grad_()
        hidden.append(h)
        outputs.append(w_qh @ h)
    loss = sum((o - goal).square().sum() for o, goal in zip(outputs, goals, strict=True))
    do = [2 * (o - goal) for o, goal in zip(outputs, goals, strict=True)]
    last = steps - 1
    powers = [torch.linalg.matrix_power(w_hh.T, last - i) @ w_qh.T for i in range(steps)]
    right = sum(powers[i] @ do[last + t - i] for i in range(t, steps))
    assert_close(grad(loss, hidden[t])[0], right)
    assert differ(right, sum(powers[i] @ do[i] for i in range(t, steps)))


@formula("15.10")
def back_propagation():
    """The product of Jacobians from the answer to the input: vectors times matrices, never matrices times matrices."""
    layers = [torch.tanh, lambda x: some(4, 3) @ x, torch.sin]
    x = some(3)
    values = [x]
    for layer in layers:
        values.append(layer(values[-1]))
    gradient = torch.ones_like(values[-1])
    for layer, value in zip(reversed(layers), reversed(values[:-1]), strict=True):
        gradient = gradient @ torch.func.jacrev(layer)(value)
    assert_close(torch.func.grad(lambda x: torch.sin(some(4, 3) @ torch.tanh(x)).sum())(x), gradient)


@formula("15.03")
def manifold_hypothesis():
    """Rows of 64 pixels have far fewer directions around them (Levina & Bickel's estimate) than noise of 64 columns."""
    datasets = pytest.importorskip("sklearn.datasets")
    digits = torch.from_numpy(datasets.load_digits().data)[:600]
    dimensions = []
    for rows in (digits, some(600, 64)):
        near = torch.cdist(rows, rows).sort(1).values[:, 1:21]
        each = (near[:, -1:] / near[:, :-1]).log().mean(1).reciprocal()
        dimensions.append(each.median().item())
    assert dimensions[0] < 15 < 20 < dimensions[1]


# -- penalties, beginnings, labels ------------------------------------------------------------------------------------


@formula("4.04")
def l2():
    """λ/2 Σ w² has the gradient λw, each weight its own. SGD's weight_decay is it; of a point, ½dist0² leads home."""
    w, rate, lr = some(4).requires_grad_(), 0.3, 0.1
    (g,) = grad(rate / 2 * w.square().sum(), w)
    assert_close(g, rate * w.detach())
    hessian = torch.func.hessian(lambda w: rate / 2 * w.square().sum())(w.detach())
    assert_close(hessian, rate * torch.eye(4).double())  # "it changes all other gradients": none
    decayed, pulled = (nn.Parameter(w.detach().clone()) for _ in range(2))
    for parameter, how in ((decayed, {"weight_decay": rate}), (pulled, {})):
        optimizer = torch.optim.SGD([parameter], lr=lr, **how)
        penalty = 0 if how else rate / 2 * parameter.square().sum()
        (parameter.sin().sum() + penalty).backward()
        optimizer.step()
    assert_close(decayed, pulled)
    for m in MANIFOLDS:
        x = m.lift(some(3)).requires_grad_()
        assert_close(m.rgrad(x, grad(m.dist0(x).square() / 2, x)[0]), -m.log(x, torch.zeros(3).double()))


@formula("4.05")
def l1():
    """λ Σ|w| has the gradient λ sign w, not λ/2."""
    w = some(4).requires_grad_()
    assert_close(grad(0.3 * w.abs().sum(), w)[0], 0.3 * w.detach().sign())


@formula("4.07")
def beginnings():
    """torch: U(±1/√fan_in), and so ours in every geometry. MXNet's default U(±.07) is no N(0, 1)."""
    for m in MANIFOLDS:
        torch.manual_seed(0)
        weight = Linear(400, 300, m).weight
        assert weight.abs().max() <= 1 / 20
        assert weight.abs().max() > 0.99 / 20
        assert weight.std().item() == pytest.approx(1 / 20 / math.sqrt(3), rel=0.01)
    assert torch.empty(10_000).uniform_(-0.07, 0.07).std() < 0.05


@formula("4.08")
def xavier():
    """U(±√(6/(a + b))): a variance of 2/(a + b), between keeping that of values and that of gradients."""
    weight = nn.init.xavier_uniform_(torch.empty(300, 500))
    assert 0.99 * math.sqrt(6 / 800) < weight.abs().max() <= math.sqrt(6 / 800)
    assert weight.var().item() == pytest.approx(2 / 800, rel=0.01)


@formula("4.10")
def one_hot():
    labels = torch.tensor([2, 0, 1])
    assert torch.equal(F.one_hot(labels, 4), torch.eye(4, dtype=torch.long)[labels])
    assert torch.equal(F.one_hot(labels, 4).argmax(1), labels)


# -- steps ------------------------------------------------------------------------------------------------------------


def descended(make, gradients, start):
    """Where an optimizer leads a parameter whose gradients are these."""
    parameter = nn.Parameter(start.clone())
    optimizer = make([parameter])
    for g in gradients:
        parameter.grad = g.clone()
        optimizer.step()
    return parameter.detach()


def both(name):
    """torch's optimizer and the house's, where it has one."""
    return [getattr(where, prefix + name) for where, prefix in ((torch.optim, ""), (optim, "Riemannian"))]


START, GRADIENTS = some(3), some(6, 3, seed=1)


@formula("4.02", "9.01")
def descent():
    """x -= ηg"""
    for make in both("SGD"):
        assert_close(descended(lambda p, make=make: make(p, lr=0.1), GRADIENTS, START), START - 0.1 * GRADIENTS.sum(0))


@formula("9.02")
def mini_batches():
    """The gradient of a mini-batch is the mean of its rows', and on average that of all data ("batch" descent)."""
    x, y, w = some(12, 3), some(12, seed=1), some(3, seed=2)

    def slope(rows):
        return torch.func.grad(lambda w: (x[rows] @ w - y[rows]).square().mean() / 2)(w)

    whole = slope(torch.arange(12))
    parts = torch.stack([slope(rows) for rows in torch.arange(12).split(4)])
    assert_close(parts.mean(0), whole)
    assert differ(parts[0], whole)
    assert_close(parts[0], torch.stack([slope(torch.tensor([row])) for row in range(4)]).mean(0))


@formula("4.12")
def epochs():
    """A pass has each row once, in a new order; ⌈rows/batch⌉ steps make one."""
    passes = [shuffled(10, 10 * epoch, 10 * epoch + 10, seed=0) for epoch in range(2)]
    assert [sorted(rows.tolist()) for rows in passes] == [list(range(10))] * 2
    assert not np.array_equal(*passes)
    assert EngineConfig(lr=1.0, epochs=3).for_data(10, 4).steps == 9


@formula("9.03")
def schedules():
    """torch's cosine, and steps that multiply."""
    from horosphere.optim.schedules import cosine, stairs

    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10, eta_min=0.1)
    for step in range(10):
        assert theirs.get_last_lr()[0] == pytest.approx(cosine(step / 10, 0.1))
        optimizer.step()
        theirs.step()
    assert [stairs(done, 0.01) for done in (0.0, 0.5, 0.9)] == pytest.approx([1, 0.1, 0.01])


@formula("9.04")
def momentum():
    """v = γv + g, x -= ηv. With η inside v it is the same while η stays; when η changes it is not."""

    def by_hand(rates, inside):
        x, v = START.clone(), torch.zeros(3).double()
        for g, rate in zip(GRADIENTS, rates, strict=True):
            v = 0.9 * v + (rate * g if inside else g)
            x = x - (v if inside else rate * v)
        return x

    constant = [0.1] * 6
    for make in both("SGD"):
        found = descended(lambda p, make=make: make(p, lr=0.1, momentum=0.9), GRADIENTS, START)
        assert_close(found, by_hand(constant, inside=False))
    assert_close(by_hand(constant, True), by_hand(constant, False))
    falling = [0.1 * 0.5**i for i in range(6)]
    assert differ(by_hand(falling, True), by_hand(falling, False))


@formula("9.05")
def adagrad():
    """s += g², x -= ηg/(√s + ε). The notes have ε inside the root."""
    small = 1e-3 * GRADIENTS
    for make in both("Adagrad"):
        found = descended(lambda p, make=make: make(p, lr=0.1, eps=1e-6), small, START)
        assert_close(found, scaled(small, 0.1, 1e-6, inside=False))
        assert differ(found, scaled(small, 0.1, 1e-6, inside=True), 1e-3)


def scaled(gradients, lr, eps, inside, keep=None):
    x, s = START.clone(), torch.zeros(3).double()
    for g in gradients:
        s = s + g.square() if keep is None else keep * s + (1 - keep) * g.square()
        x = x - lr * g / ((s + eps).sqrt() if inside else s.sqrt() + eps)
    return x


@formula("9.06")
def rmsprop():
    """s = γs + (1 - γ)g², x -= ηg/(√s + ε)"""
    small = 1e-3 * GRADIENTS
    for make in both("RMSprop"):
        found = descended(lambda p, make=make: make(p, lr=0.1, alpha=0.9, eps=1e-6), small, START)
        assert_close(found, scaled(small, 0.1, 1e-6, inside=False, keep=0.9))
        assert differ(found, scaled(small, 0.1, 1e-6, inside=True, keep=0.9), 1e-3)


@formula("9.07")
def adadelta():
    """g' = √((Δ + ε)/(s + ε))·g from the Δ of the step before; only then Δ = ρΔ + (1 - ρ)g'²."""

    def by_hand(delta_first):
        x, s, delta = START.clone(), torch.zeros(3).double(), torch.zeros(3).double()
        for g in GRADIENTS:
            s = 0.9 * s + 0.1 * g.square()
            if delta_first:
                delta = 0.9 * delta + 0.1 * g.square()
            step = ((delta + 1e-3) / (s + 1e-3)).sqrt() * g
            x = x - step
            if not delta_first:
                delta = 0.9 * delta + 0.1 * step.square()
        return x

    found = descended(lambda p: torch.optim.Adadelta(p, lr=1.0, rho=0.9, eps=1e-3), GRADIENTS, START)
    assert_close(found, by_hand(delta_first=False))
    assert differ(found, by_hand(delta_first=True))


@formula("9.08")
def adam():
    """Means of g and g², each divided by 1 - βᵗ; 0 ≤ β < 1, so 1 is refused."""
    x, first, second = START.clone(), torch.zeros(3).double(), torch.zeros(3).double()
    for t, g in enumerate(GRADIENTS, 1):
        first, second = 0.9 * first + 0.1 * g, 0.99 * second + 0.01 * g.square()
        x = x - 0.1 * (first / (1 - 0.9**t)) / ((second / (1 - 0.99**t)).sqrt() + 1e-8)
    for make in both("Adam"):
        assert_close(descended(lambda p, make=make: make(p, lr=0.1, betas=(0.9, 0.99)), GRADIENTS, START), x)
        with pytest.raises(ValueError, match="beta"):
            make([nn.Parameter(torch.zeros(1))], lr=0.1, betas=(0.9, 1.0))


@formula("1.13")
def moving_average():
    """γy + (1 - γ)x: without correction its weights sum to 1 - γᵗ. Of points, a step along the geodesic."""
    y, steps = torch.zeros(1), 12
    for _ in range(steps):
        y = 0.8 * y + 0.2
    assert y.item() == pytest.approx(1 - 0.8**steps)
    for m in MANIFOLDS:
        a, b = m.lift(some(2, 3))
        mean = m.geodesic(a, b, 0.2)
        assert_close(m.dist(a, mean), 0.2 * m.dist(a, b))
        if m.flat:
            assert_close(mean, 0.8 * a + 0.2 * b)


@formula("8.05")
def clipping_by_value():
    """min(max(g, -θ), θ) for each number. It turns the gradient; clipping by norm shortens it."""
    by_value, by_norm = (nn.Parameter(torch.zeros(3)) for _ in range(2))
    for parameter in (by_value, by_norm):
        parameter.grad = torch.tensor([3.0, -0.5, 0.1])
    nn.utils.clip_grad_value_([by_value], 1.0)
    nn.utils.clip_grad_norm_([by_norm], 1.0)
    assert_close(by_value.grad, torch.tensor([1.0, -0.5, 0.1]))
    given = torch.tensor([3.0, -0.5, 0.1])
    assert F.cosine_similarity(by_norm.grad, given, dim=0).item() == pytest.approx(1)
    assert F.cosine_similarity(by_value.grad, given, dim=0).item() < 0.96


# -- words ------------------------------------------------------------------------------------------------------------

SENTENCES = ["the cat saw the dog", "the dog slept", "a cat and a cat"]


@formula("11.01")
def bag_of_words():
    """Counts of words, whatever their order."""
    text = pytest.importorskip("sklearn.feature_extraction.text")
    vectorizer = text.CountVectorizer(token_pattern=r"\w+")
    counts = vectorizer.fit_transform(SENTENCES).toarray()
    for word, column in vectorizer.vocabulary_.items():
        assert counts[:, column].tolist() == [sentence.split().count(word) for sentence in SENTENCES]
    backwards = [" ".join(reversed(sentence.split())) for sentence in SENTENCES]
    assert np.array_equal(vectorizer.transform(backwards).toarray(), counts)


@formula("11.05")
def tf_idf():
    """tf·log(N/df), and scikit-learn's is larger by tf. log(1/w), w a word's share of all words, is another weight."""
    text = pytest.importorskip("sklearn.feature_extraction.text")
    counts = text.CountVectorizer(token_pattern=r"\w+").fit_transform(SENTENCES).toarray()
    theirs = text.TfidfVectorizer(token_pattern=r"\w+", smooth_idf=False, norm=None).fit_transform(SENTENCES).toarray()
    right = counts * np.log(len(SENTENCES) / (counts > 0).sum(0))
    np.testing.assert_allclose(theirs, right + counts)
    printed = counts * np.log(counts.sum() / counts.sum(0))
    assert np.abs(printed - right).max() > 0.5


# -- shifts -----------------------------------------------------------------------------------------------------------


def pictures(m):
    return m.lift(some(2, 6, 6, 3)).permute(0, 3, 1, 2).contiguous()


def circular(conv, x):
    """A convolution whose picture goes on at the other side."""
    return conv(F.pad(x, (1, 1, 1, 1), mode="circular"))


def convolution(m, **how):
    torch.manual_seed(0)
    conv = Conv2d(3, 4, 3, m, **how).double()
    for p in conv.parameters():
        nn.init.normal_(p, std=0.3)
    return conv


@formula("1.19")
def invariance():
    """A global pool of a circular convolution does not see a shift, in any geometry; a fully connected layer does."""
    for m in MANIFOLDS:
        x, conv, pool = pictures(m), convolution(m), GlobalAvgPool2d(m)
        moved = x.roll((1, 2), (2, 3))
        assert_close(pool(circular(conv, moved)), pool(circular(conv, x)))
        connected = nn.Linear(3 * 36, 4).double()
        assert differ(connected(moved.flatten(1)), connected(x.flatten(1)))


@formula("1.20")
def equivariance():
    """A convolution of stride 1 shifts with its picture: everywhere if circular, else in the interior."""
    for m in MANIFOLDS:
        x, conv = pictures(m), convolution(m)
        moved = x.roll((1, 2), (2, 3))
        assert_close(circular(conv, moved), circular(conv, x).roll((1, 2), (2, 3)))
        padded = convolution(m, padding=1)
        inner = (slice(None), slice(None), slice(2, -1), slice(3, -1))
        assert_close(padded(moved)[inner], padded(x).roll((1, 2), (2, 3))[inner])
        assert differ(padded(moved), padded(x).roll((1, 2), (2, 3)))  # not at the border
        strided = convolution(m, stride=2)
        assert differ(circular(strided, x.roll(1, 3)), circular(strided, x))
        pool = MaxPool2d(3, m, stride=1)
        assert_close(pool(moved)[:, :, 1:, 2:], pool(x)[:, :, :-1, :-2])


# -- a lens -----------------------------------------------------------------------------------------------------------


@formula("14.02")
def thin_lens():
    """1/f = 1/u + 1/v: every ray from a point at u, bent by -height/f, meets the others at v. u = 2f gives v = 2f."""
    f, object_height = 0.05, 0.01
    for u in (2 * f, 3 * f, 0.7):
        v = 1 / (1 / f - 1 / u)
        height = torch.linspace(-0.02, 0.02, 9, dtype=torch.float64)  # where a ray meets the lens
        slope = (height - object_height) / u - height / f
        assert_close(height + slope * v, torch.full_like(height, -object_height * v / u))
    assert_close(1 / (1 / f - 1 / (2 * f)), 2 * f)


# -- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", FORMULAS)
def test_formula(number):
    torch.manual_seed(0)
    FORMULAS[number]()


def test_items_that_name_this_file_are_here():
    named = {number for number, item in notes.items().items() if item.test == "tests/test_formulas.py"}
    assert named <= FORMULAS.keys()
