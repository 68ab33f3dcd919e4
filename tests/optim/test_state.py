"""Optimizers are torch's to everything around them: checkpoints, copies, schedules, closures, gradient scaling."""

import copy
import io

import pytest
import torch
from torch import nn

from horosphere.geometry import Lorentz, Manifold, Poincare, Product
from horosphere.optim import RiemannianAdagrad, RiemannianAdam, RiemannianRMSprop, RiemannianSGD, param_groups
from tests.optim.samples import CURVED, OPTIMIZERS, gradient, group, make_net, manifold, points, same, train, values

optimizers = pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS)


def net_on(name):
    return make_net({"lorentz": Lorentz, "learned": lambda: Lorentz(learn=True), "poincare": Poincare}[name]())


@pytest.mark.parametrize("name", ["lorentz", "learned", "poincare"])
@optimizers
def test_a_saved_run_continues_to_the_last_bit(optimizer, options, name):
    net = net_on(name)
    o = optimizer(param_groups(net, weight_decay=0.01), **options)
    train(net, o, 3)
    file = io.BytesIO()
    torch.save({"model": net.state_dict(), "optimizer": o.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    train(net, o, 3, begin=3)

    resumed = net_on(name)
    again = optimizer(param_groups(resumed, weight_decay=0.01), lr=123.0)
    resumed.load_state_dict(saved["model"])
    again.load_state_dict(saved["optimizer"])
    train(resumed, again, 3, begin=3)
    assert same(values(net), values(resumed))
    assert again.param_groups[0]["lr"] == options["lr"]


@optimizers
def test_state_holds_numbers_and_tensors_only(optimizer, options):
    net = make_net()
    o = optimizer(param_groups(net), **options)
    train(net, o, 1)
    state = o.state_dict()

    def leaves(x):
        if isinstance(x, dict):
            return [leaf for v in x.values() for leaf in leaves(v)]
        return [leaf for v in x for leaf in leaves(v)] if isinstance(x, (list, tuple)) else [x]

    assert all(x is None or isinstance(x, (int, float, bool, torch.Tensor)) for x in leaves(state))
    assert not any(isinstance(x, Manifold) for g in o.param_groups for x in g.values())


@optimizers
def test_a_deep_copy_continues_alike(optimizer, options):
    net = make_net(Lorentz(learn=True))
    o = optimizer(param_groups(net), **options)
    train(net, o, 2)
    twin, twin_o = copy.deepcopy((net, o))
    assert twin_o.manifolds[-1] is twin.table.manifold
    before = values(net)
    train(twin, twin_o, 3, begin=2)
    assert same(values(net), before)  # the copy moved alone
    train(net, o, 3, begin=2)
    assert same(values(net), values(twin))


@optimizers
def test_groups_can_be_used_again(optimizer, options):
    net = make_net()
    groups = param_groups(net)
    first, second = optimizer(groups, **options), optimizer(groups, **options)
    assert [m.flat for m in first.manifolds] == [m.flat for m in second.manifolds] == [True, True, False]


@optimizers
def test_a_group_added_later_is_stepped(optimizer, options):
    m = Lorentz()
    a, b = nn.Parameter(points(m, seed=1)), nn.Parameter(points(m, seed=1))
    late = optimizer([nn.Parameter(torch.zeros(3))], **options)
    late.add_param_group({"params": [a], "manifold": m})
    at_once = optimizer(group([b], m), **options)
    for p, o in ((a, late), (b, at_once)):
        p.grad = gradient(m, p, points(m, seed=2))
        o.step()
    assert torch.equal(a, b)
    with pytest.raises(ValueError, match="more than one parameter group"):
        late.add_param_group({"params": [a], "manifold": m})
    late.step()  # the refused group left nothing behind


@pytest.mark.parametrize("name", CURVED)
def test_what_a_manifold_cannot_do_is_refused(name):
    m, p = manifold(name), nn.Parameter(torch.zeros(2, 6))
    with pytest.raises(ValueError, match="weight_decay=0"):
        RiemannianAdam(group([p], m), weight_decay=0.1)
    with pytest.raises(ValueError, match="weight_decay=0"):
        RiemannianSGD([{"params": [p], "manifold": m, "weight_decay": 0.1}])
    with pytest.raises(ValueError, match="nesterov=False"):
        RiemannianSGD(group([p], m), momentum=0.9, nesterov=True)
    for optimizer in (RiemannianAdam, RiemannianSGD):
        with pytest.raises(ValueError, match="differentiable=False"):
            optimizer([p], differentiable=True)


# Schedules, closures


@optimizers
def test_schedules_set_the_step(optimizer, options):
    net = make_net()
    o = optimizer(param_groups(net), **options)
    schedule = torch.optim.lr_scheduler.LambdaLR(o, lambda t: 1.0 if t < 2 else 0.0)
    for t in range(4):
        before = values(net)
        train(net, o, 1, begin=t)
        assert same(values(net), before) == (t >= 2)
        schedule.step()


@optimizers
def test_one_cycle(optimizer, options):
    net = make_net()
    o = optimizer(param_groups(net), **options)
    cycles = not o.defaults.keys().isdisjoint(("momentum", "betas"))  # Adagrad has neither
    schedule = torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=20, cycle_momentum=cycles)
    first = train(net, o, 1)
    for t in range(19):
        last = train(net, o, 1, begin=2 * t)
        schedule.step()
    assert all(p.isfinite().all() for p in net.parameters())
    assert last < first


@pytest.mark.parametrize("lr", [0.1, torch.tensor(0.1)])
def test_lr_may_be_a_tensor(lr):
    m = Lorentz()
    p, q = nn.Parameter(points(m, seed=1)), nn.Parameter(points(m, seed=1))
    for x, rate in ((p, lr), (q, 0.1)):
        x.grad = gradient(m, x, points(m, seed=2))
        RiemannianAdam(group([x], m), lr=rate).step()
    torch.testing.assert_close(p, q, rtol=1e-7, atol=1e-7)


@optimizers
def test_closures_and_zero_grad(optimizer, options):
    m = Lorentz()
    p, q, target = nn.Parameter(points(m, seed=1)), nn.Parameter(points(m, seed=1)), points(m, seed=2)
    by_closure, by_hand = optimizer(group([p], m), **options), optimizer(group([q], m), **options)
    for _ in range(3):

        def closure():
            by_closure.zero_grad()
            loss = m.sqdist(p, target).sum()
            loss.backward()
            return loss

        expected = m.sqdist(q.detach(), target).sum()
        assert by_closure.step(closure) == expected
        q.grad = gradient(m, q, target)
        by_hand.step()
        assert torch.equal(p.grad, q.grad)  # a step gives gradients back
    assert torch.equal(p, q)
    by_closure.zero_grad()
    assert p.grad is None
    by_closure.step()
    assert torch.equal(p, q)


@pytest.mark.parametrize("m", [Lorentz(2.0), Product((Lorentz(), 3), (Poincare(), 3))])
@optimizers
def test_a_step_of_no_length_leaves_lorentz_points(optimizer, options, m):
    """What torch.distributed.checkpoint does to an optimizer to see its state."""
    p = nn.Parameter(points(m, 50))
    before = p.detach().clone()
    p.grad = torch.zeros_like(p)
    optimizer(group([p], m), **{**options, "lr": 0.0}).step()
    torch.testing.assert_close(p.detach(), before, rtol=1e-15, atol=1e-15)


# Half precision


@pytest.mark.parametrize("fused", [False, True])
@optimizers
def test_a_grad_scaler_changes_nothing(optimizer, options, fused):
    net, scaled = make_net(), make_net()
    if fused and optimizer is RiemannianRMSprop:
        pytest.skip("torch's RMSprop has no fused form")
    options = {**options, "fused": True} if fused else dict(options)
    if optimizer is not RiemannianSGD:
        options["eps"] = 1e-30
    o, o_scaled = optimizer(param_groups(net), **options), optimizer(param_groups(scaled), **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    i = torch.arange(7)
    for t in range(3):
        for model, opt in ((net, o), (scaled, o_scaled)):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(i), i % 2)
            (scaler.scale(loss) if model is scaled else loss).backward()
        if t == 1:  # an overflow: the step is skipped whole
            scaled.linear.bias.grad[0] = torch.inf
            before = values(scaled)
        else:
            o.step()
        scaler.step(o_scaled)
        scaler.update()
        if t == 1:
            assert same(values(scaled), before)
    for a, b in zip(values(net), values(scaled), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert scaler.get_scale() == 512.0


@pytest.mark.parametrize("name", CURVED)
@optimizers
def test_bf16_points_find_their_target(optimizer, options, name):
    m = manifold(name)
    p, target = nn.Parameter(points(m, seed=1, dtype=torch.bfloat16)), points(m, seed=2, std=0.3, dtype=torch.bfloat16)
    o = optimizer(group([p], m), **options)
    before = m.dist(p.detach(), target).float().mean()
    for _ in range(30):
        p.grad = gradient(m, p, target)
        o.step()
    assert p.dtype == torch.bfloat16
    assert m.dist(p.detach(), target).float().mean() < before / 2


@pytest.mark.parametrize(
    ("ours", "theirs", "options"),
    [
        (RiemannianAdam, torch.optim.Adam, {}),
        (RiemannianAdam, torch.optim.Adam, {"amsgrad": True}),
        (RiemannianSGD, torch.optim.SGD, {"momentum": 0.9}),
        (RiemannianSGD, torch.optim.SGD, {}),
    ],
)
def test_no_more_is_kept_of_a_point_than_torch_keeps(ours, theirs, options):
    """But for the number of steps, which torch's SGD does not count."""
    p = nn.Parameter(points(Lorentz()))
    made = [ours(group(p, Lorentz()), lr=0.1, **options), theirs([p], lr=0.1, **options)]
    p.grad = torch.ones_like(p)
    for optimizer in made:
        optimizer.step()
    kept, torchs = ({name for name, value in one.state[p].items() if value is not None} for one in made)
    assert kept == torchs | {"step"}


@pytest.mark.parametrize("optimizer", [RiemannianSGD, RiemannianAdam, RiemannianAdagrad, RiemannianRMSprop])
def test_what_is_no_parameters_is_said(optimizer):
    model, name = torch.nn.Sequential(torch.nn.Linear(2, 2)), optimizer.__name__
    for given, what in ((model, "a model"), (None, "None"), (0.1, "a float")):
        with pytest.raises(TypeError) as error:
            optimizer(given, lr=0.1)
        how = f"give parameters, as in {name}(model.parameters()) or {name}(param_groups(model))"
        assert str(error.value) == f"{name}: params is {what}; {how}"
    with pytest.raises(TypeError, match=r"a group's manifold is lorentz; give one, as in Lorentz\(c=1\.0\)"):
        optimizer([{"params": list(model.parameters()), "manifold": "lorentz"}], lr=0.1)
