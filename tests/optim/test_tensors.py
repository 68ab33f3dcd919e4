"""Every shape a parameter can have, alone or among others, with gradients dense, sparse, late or missing."""

import pytest
import torch
from torch import nn

from horosphere.geometry import Euclidean, Lorentz, Poincare
from horosphere.nn import Embedding
from horosphere.optim import RiemannianAdam, RiemannianSGD, param_groups, riemannian
from tests.optim import reference
from tests.optim.samples import CURVED, DIM, OPTIMIZERS, gradient, group, manifold, points

optimizers = pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS)
curved = pytest.mark.parametrize("name", CURVED)


def step(optimizer, m, params, targets, times=3):
    for _ in range(times):
        for p, target in zip(params, targets, strict=True):
            p.grad = gradient(m, p, target)
        optimizer.step()


@curved
@optimizers
def test_stepped_together_is_stepped_alone(optimizer, options, name):
    m = manifold(name)
    sizes = [1, 4, 2, 7]
    together = [nn.Parameter(points(m, n, seed=n)) for n in sizes]
    targets = [points(m, n, seed=10 + n) for n in sizes]
    alone = [nn.Parameter(p.detach().clone()) for p in together]
    step(optimizer(group(together, m), **options), m, together, targets)
    for p, q, target in zip(together, alone, targets, strict=True):
        step(optimizer(group([q], m), **options), m, [q], [target])
        torch.testing.assert_close(p, q, rtol=1e-14, atol=1e-14)


@curved
@optimizers
def test_large_tensors_take_the_same_step(optimizer, options, name, monkeypatch):
    """Large ones are moved where they are, small ones in a copy."""
    m = manifold(name)
    many, few = [[nn.Parameter(points(m, n, seed=n)) for n in (5, 8)] for _ in range(2)]
    targets = [points(m, n, seed=10 + n) for n in (5, 8)]
    step(optimizer(group(few, m), **options), m, few, targets)
    monkeypatch.setattr(riemannian, "SMALL_ROWS", 6)
    step(optimizer(group(many, m), **options), m, many, targets)
    for p, q in zip(many, few, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-14, atol=1e-14)


@curved
@optimizers
def test_small_tensors_that_agree_move_at_once(optimizer, options, name, monkeypatch):
    """Launches cost more than arithmetic there. A large one, one of another dtype and a late one move by themselves."""
    m, moved = manifold(name), []
    flow = type(m).flow_
    monkeypatch.setattr(type(m), "flow_", lambda self, x, v, t: moved.append(len(x)) or flow(self, x, v, t))
    monkeypatch.setattr(riemannian, "SMALL_ROWS", 6)
    params = [nn.Parameter(points(m, n, seed=n)) for n in (1, 6, 5, 3, 2)]
    params[3].data = params[3].data.float()
    stepping = optimizer(group(params, m), **options)
    for taking_part, expected in ((params[:-1], [1 + 5, 3, 6]), (params, [1 + 5, 2, 3, 6])):
        for p in taking_part:
            p.grad = gradient(m, p, points(m, len(p), seed=9, dtype=p.dtype))
        stepping.step()
        assert sorted(moved) == sorted(expected)
        moved.clear()


SHAPES = {
    "one point": lambda x: x[0].clone(),
    "batch of tables": lambda x: x.view(2, 3, 2, DIM).clone(),
    "transposed": lambda x: x.mT.contiguous().mT,
    "permuted batch": lambda x: x.view(3, 4, DIM).permute(1, 0, 2),
    "no rows": lambda x: x[:0].clone(),
}


@pytest.mark.parametrize("large", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
@curved
@optimizers
def test_any_shape_is_its_rows(optimizer, options, name, shape, large, monkeypatch):
    monkeypatch.setattr(riemannian, "SMALL_ROWS", 0 if large else 4096)
    m, shaped = manifold(name), SHAPES[shape]
    p, target = nn.Parameter(shaped(points(m, 12, seed=1))), shaped(points(m, 12, seed=2))
    rows, row_target = nn.Parameter(p.detach().reshape(-1, DIM).clone()), target.reshape(-1, DIM)
    other = nn.Parameter(points(m, 2, seed=3))  # company: small ones are stepped together
    step(optimizer(group([p, other], m), **options), m, [p, other], [target, other.detach().clone()])
    step(optimizer(group([rows], m), **options), m, [rows], [row_target])
    torch.testing.assert_close(p.detach().reshape(-1, DIM), rows.detach(), rtol=1e-13, atol=1e-13)


@optimizers
def test_late_and_missing_gradients(optimizer, options):
    """A parameter counts its own steps; one without a gradient stays, and keeps no state."""
    m = Lorentz()
    early, late, never = (nn.Parameter(points(m, seed=s)) for s in range(3))
    untouched, target = never.detach().clone(), points(m, seed=9)
    optimizers = optimizer(group([early, late, never], m), **options)
    step(optimizers, m, [early], [target], times=2)
    step(optimizers, m, [early, late], [target, target], times=2)
    for p, times, seed in ((early, 4, 0), (late, 2, 1)):
        alone = nn.Parameter(points(m, seed=seed))
        step(optimizer(group([alone], m), **options), m, [alone], [target], times)
        torch.testing.assert_close(p, alone, rtol=1e-14, atol=1e-14)
        assert optimizers.state[p]["step"] == times
    assert torch.equal(never, untouched)
    assert never not in optimizers.state


@curved
@optimizers
def test_maximize_is_minimizing_the_opposite(optimizer, options, name):
    m = manifold(name)
    up, down = (nn.Parameter(points(m, seed=1)) for _ in range(2))
    target = points(m, seed=2)
    climbing, falling = optimizer(group([up], m), maximize=True, **options), optimizer(group([down], m), **options)
    for _ in range(3):
        up.grad, down.grad = gradient(m, up, target), -gradient(m, down, target)
        climbing.step()
        falling.step()
    assert torch.equal(up, down)


def test_momentum_may_begin_later():
    m = Lorentz()
    p, target = nn.Parameter(points(m, seed=1)), points(m, seed=2)
    optimizer = RiemannianSGD(group([p], m), lr=0.01)
    step(optimizer, m, [p], [target], times=2)
    optimizer.param_groups[0]["momentum"] = 0.9
    x, slow = p.detach().clone(), reference.SGD(m, 0.01, 0.9)
    for _ in range(3):
        step(optimizer, m, [p], [target], times=1)
        x = slow.step(x, gradient(m, x, target))
    torch.testing.assert_close(p.detach(), x)


# Sparse gradients

VISITS = [[0, 3], [3, 3, 5], [1], [0, 5, 0, 0]]  # rows of a table of 8, some twice


def sparse_table(m):
    torch.manual_seed(0)
    return Embedding(8, DIM, m, sparse=True, dtype=torch.float64)


def visit(table, optimizer, m, rows):
    optimizer.zero_grad()
    m.sqdist(table(torch.tensor(rows)), torch.ones(DIM, dtype=torch.float64) / 10).sum().backward()
    assert table.weight.grad.is_sparse
    optimizer.step()


def test_sparse_flat_adam_is_torchs():
    m = Euclidean()
    a, b = sparse_table(m), sparse_table(m)
    ours = RiemannianAdam(param_groups(a), lr=0.1, eps=1e-30)  # SparseAdam adds eps before it corrects the bias
    torchs = torch.optim.SparseAdam(b.parameters(), lr=0.1, eps=1e-30)
    for rows in VISITS:
        visit(a, ours, m, rows)
        visit(b, torchs, m, rows)
        torch.testing.assert_close(a.weight, b.weight)


def test_sparse_flat_sgd_is_torchs():
    m = Euclidean()
    a, b = sparse_table(m), sparse_table(m)
    ours, torchs = RiemannianSGD(param_groups(a), lr=0.1), torch.optim.SGD(b.parameters(), lr=0.1)
    for rows in VISITS:
        visit(a, ours, m, rows)
        visit(b, torchs, m, rows)
        torch.testing.assert_close(a.weight, b.weight)


@pytest.mark.parametrize("m", [Euclidean(), Lorentz(0.5), Poincare(2.0)])
@pytest.mark.parametrize(("optimizer", "textbook", "options"), [
    (RiemannianSGD, reference.SGD, {"lr": 0.05, "momentum": 0.9}),
    (RiemannianSGD, reference.SGD, {"lr": 0.05}),
    (RiemannianAdam, reference.Adam, {"lr": 0.1}),
    (RiemannianAdam, reference.Adam, {"lr": 0.1, "amsgrad": True, "maximize": True}),
])  # fmt: skip
def test_sparse_gradients_move_the_rows_they_touch(m, optimizer, textbook, options):
    table = sparse_table(m)
    fast, slow, x = optimizer(param_groups(table), **options), textbook(m, **options), table.weight.detach().clone()
    for rows in VISITS:
        before = {k: v.clone() for k, v in fast.state[table.weight].items() if k != "step"}
        visit(table, fast, m, rows)
        x = slow.step(x, table.weight.grad.to_dense(), rows=torch.tensor(rows).unique())
        torch.testing.assert_close(table.weight.detach(), x, rtol=1e-10, atol=1e-10)
        others = torch.tensor([i not in rows for i in range(8)])
        for name, kept in before.items():
            assert torch.equal(fast.state[table.weight][name][others], kept[others])
        assert torch.equal(table.weight.detach()[6:], sparse_table(m).weight.detach()[6:])


@curved
@optimizers
def test_sparse_tables_stepped_together_are_stepped_alone(optimizer, options, name):
    """Beside a dense one, all of one group."""
    m = manifold(name)
    options = {**options, "nesterov": False} if "nesterov" in options else options
    targets = {n: points(m, 8, seed=n) for n in range(3)}

    def steps(names):
        params = {n: nn.Parameter(points(m, 8, seed=10 + n)) for n in names}
        stepping = optimizer(group(list(params.values()), m), **options)
        for rows in VISITS:
            for n, p in params.items():
                grad = gradient(m, p, targets[n])
                if n:
                    at = torch.tensor(rows).unique()
                    grad = torch.sparse_coo_tensor(at[None], grad[at], p.shape, check_invariants=True)
                p.grad = grad
            stepping.step()
        return params

    for n, p in steps([0, 1, 2]).items():
        torch.testing.assert_close(p, steps([n])[n], rtol=1e-14, atol=1e-14)


def test_sparse_gradients_refuse_what_would_touch_every_row():
    m = Euclidean()
    for optimizer in (
        RiemannianAdam(sparse_table(m).parameters(), weight_decay=0.1),
        RiemannianSGD(sparse_table(m).parameters(), weight_decay=0.1),
        RiemannianSGD(sparse_table(m).parameters(), momentum=0.9, nesterov=True),
    ):
        (p,) = optimizer.param_groups[0]["params"]
        p.grad = torch.sparse_coo_tensor([[1]], torch.ones(1, DIM, dtype=torch.float64), p.shape, check_invariants=True)
        with pytest.raises(ValueError, match="rows they touch"):
            optimizer.step()
        assert p.grad.is_sparse  # given back
        assert not optimizer.state[p]
