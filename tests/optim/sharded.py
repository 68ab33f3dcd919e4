"""What two processes do for test_sharded.py: a module of its own, since each imports it by name."""

import os
import traceback
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

from horosphere.geometry import Lorentz
from horosphere.nn import Embedding
from horosphere.optim import RiemannianAdam, RiemannianSGD, param_groups
from tests.optim.samples import Net, make_net, train

PROCESSES = 2
STEPS = 3


def make(rows: int, learn: bool = False) -> Net:
    return make_net(Lorentz(0.7, learn=learn), rows)


def optimizer_of(net: nn.Module, sgd: bool = False) -> torch.optim.Optimizer:
    groups = param_groups(net, weight_decay=0.01)
    return RiemannianSGD(groups, lr=0.1, momentum=0.9) if sgd else RiemannianAdam(groups, lr=0.05, amsgrad=True)


def whole(net: nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: p.full_tensor() if isinstance(p, DTensor) else p.detach().clone() for name, p in net.named_parameters()
    }


def trained(rows: int, sgd: bool, learn: bool, steps: int = STEPS, shard: bool = True) -> dict[str, torch.Tensor]:
    net = make(rows, learn)
    if shard:
        fully_shard(net)
    train(net, optimizer_of(net, sgd), steps, rows)
    return whole(net)


def round_trip(sgd: bool, flatten: bool) -> dict[str, torch.Tensor]:
    """Trained, its state taken and set on another that has never stepped, trained on."""
    options = StateDictOptions(flatten_optimizer_state_dict=flatten)
    net = fully_shard(make(5, learn=True))
    optimizer = optimizer_of(net, sgd)
    train(net, optimizer, STEPS, 5)
    model_state, optimizer_state = get_state_dict(net, optimizer, options=options)
    fresh = fully_shard(make_net(Lorentz(0.7, learn=True), 5, seed=1))
    again = optimizer_of(fresh, sgd)
    set_state_dict(fresh, again, model_state_dict=model_state, optim_state_dict=optimizer_state, options=options)
    train(fresh, again, STEPS, 5, begin=STEPS)
    return whole(fresh)


def save(folder: str) -> None:
    """A checkpoint of two processes, for one to read."""
    net = fully_shard(make(5))
    optimizer = optimizer_of(net)
    train(net, optimizer, STEPS, 5)
    model_state, optimizer_state = get_state_dict(net, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder)


def sharded_on_the_last_axis() -> str:
    net = fully_shard(nn.Sequential(Embedding(4, 4, Lorentz())), shard_placement_fn=lambda p: Shard(1))
    net(torch.arange(4)).sum().backward()
    try:
        optimizer_of(net).step()
    except ValueError as error:
        return str(error)
    return "no error"


def gradient_still_to_be_summed() -> torch.Tensor:
    """A replicated table whose gradient each process has a part of."""
    mesh = init_device_mesh("cpu", (PROCESSES,))
    p = nn.Parameter(distribute_tensor(torch.ones(2, 3), mesh, [Replicate()]))
    distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)]).mm(p).sum().backward()
    RiemannianSGD([{"params": [p], "manifold": Lorentz()}], lr=0.1).step()
    return p.full_tensor()


def reset(learn: bool) -> bool:
    """What a model made on the meta device needs: points again, and in every process its own."""
    net = fully_shard(Embedding(50, 4, Lorentz(learn=learn), std=3.0))
    net.to_empty(device="cpu")
    net.reset_parameters()
    x = net.weight.full_tensor()
    return bool(x.isfinite().all() and 4 < Lorentz().dist0(x).mean() < 8)


def work(rank: int, folder: str) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=PROCESSES)
    cases: dict[str, Callable[[], object]] = {
        **{
            f"trained {rows} {sgd} {learn}": lambda rows=rows, sgd=sgd, learn=learn: trained(rows, sgd, learn)
            for rows in (6, 5, 1)
            for sgd in (True, False)
            for learn in (True, False)
        },
        **{
            f"round trip {sgd} {flat}": lambda sgd=sgd, flat=flat: round_trip(sgd, flat)
            for sgd in (True, False)
            for flat in (True, False)
        },
        "save": lambda: save(f"{folder}/checkpoint"),
        "last axis": sharded_on_the_last_axis,
        "partial": gradient_still_to_be_summed,
        **{f"reset {learn}": lambda learn=learn: reset(learn) for learn in (True, False)},
    }
    results = {}
    for name, case in cases.items():
        try:
            results[name] = case()
        except Exception:
            results[name] = RuntimeError(traceback.format_exc())
        dist.barrier()
    if rank == 0:
        torch.save(results, f"{folder}/results.pt")
    dist.destroy_process_group()
