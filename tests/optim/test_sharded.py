"""FSDP2 over two processes: the steps that one process takes, rows even, uneven or too few; checkpoints that travel."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from horosphere.geometry import Lorentz
from tests.optim.samples import make_net, train
from tests.optim.sharded import PROCESSES, STEPS, make, optimizer_of, trained, whole, work

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="needs torch.distributed with gloo"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Everything two processes do, done once."""
    path = tmp_path_factory.mktemp("sharded")
    torch.multiprocessing.spawn(work, args=(str(path),), nprocs=PROCESSES)
    return path


@pytest.fixture(scope="module")
def result(folder):
    results = torch.load(folder / "results.pt", weights_only=False)

    def of(name):
        if isinstance(results[name], Exception):
            raise results[name]
        return results[name]

    return of


def assert_all_close(a, b):
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-5, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("learn", [True, False])
@pytest.mark.parametrize("sgd", [True, False])
@pytest.mark.parametrize("rows", [6, 5, 1])
def test_sharded_steps_are_those_of_one_process(result, rows, sgd, learn):
    """One row: the other process has none. A learned curvature: every process needs all of it."""
    assert_all_close(result(f"trained {rows} {sgd} {learn}"), trained(rows, sgd, learn, shard=False))


@pytest.mark.parametrize("flatten", [True, False])
@pytest.mark.parametrize("sgd", [True, False])
def test_a_sharded_checkpoint_continues(result, sgd, flatten):
    assert_all_close(result(f"round trip {sgd} {flatten}"), trained(5, sgd, learn=True, steps=2 * STEPS, shard=False))


def test_a_checkpoint_of_two_processes_is_read_by_one(folder, result):
    result("save")
    net = make_net(Lorentz(0.7), 5, seed=1)
    optimizer = optimizer_of(net)
    model_state, optimizer_state = get_state_dict(net, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    dcp.load(state, checkpoint_id=folder / "checkpoint", no_dist=True)
    set_state_dict(net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    train(net, optimizer, STEPS, 5, begin=STEPS)
    assert_all_close(whole(net), trained(5, sgd=False, learn=False, steps=2 * STEPS, shard=False))


def test_half_a_point_is_no_point(result):
    assert "first axis" in result("last axis")


def test_a_gradient_in_parts_is_summed(result):
    p = torch.nn.Parameter(torch.ones(2, 3))
    torch.ones(4, 2).mm(p).sum().backward()
    expected = Lorentz().exp(p.detach(), -0.1 * Lorentz().rgrad(p.detach(), p.grad))
    torch.testing.assert_close(result("partial"), expected)


@pytest.mark.parametrize("learn", [True, False])
def test_a_sharded_table_can_be_made_anew(result, learn):
    assert result(f"reset {learn}")


@pytest.mark.parametrize("sgd", [True, False])
def test_reading_the_state_does_not_move_points(sgd):
    """torch.distributed.checkpoint steps an optimizer that has no state yet, with lr 0."""
    net = make(5)
    before = whole(net)
    optimizer = optimizer_of(net, sgd)
    get_state_dict(net, optimizer)
    assert all(torch.equal(a, b) for a, b in zip(before.values(), whole(net).values(), strict=True))
