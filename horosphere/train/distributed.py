"""One process or many: which one this is, what they tell each other, and how a model is spread over them."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor, init_device_mesh

from horosphere.errors import UserError

T = TypeVar("T")
PATIENCE = timedelta(minutes=30)  # of those who wait while one writes a checkpoint; torchrun itself ends all at once


@dataclass(frozen=True)
class World:
    """This process among `size`. Files and reports are the business of the main one."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def from_main(self, work: Callable[[], Any]) -> Any:
        """What `work` returns in the main process (it must fit JSON), in every process. Its failure is everyone's."""
        if self.size == 1:
            return work()
        answer: dict[str, Any] = {}
        failure: Exception | None = None
        if self.is_main:
            try:
                answer = {"value": work()}
            except Exception as error:
                answer, failure = {"failure": str(error)}, error
        answer = self._told(answer)
        if failure:
            raise failure
        if "failure" in answer:
            raise UserError(answer["failure"])
        return answer["value"]

    def main_first(self, work: Callable[[], T]) -> T:
        """What `work` returns in each process. The main one goes first: what it fetches or caches, the others find."""
        if self.size == 1:
            return work()
        first: list[T] = []
        self.from_main(lambda: first.append(work()))
        return first[0] if first else work()

    def failure(self, mine: Exception | None) -> str | None:
        """What the last process to fail complained of, in every process; None where none has failed."""
        if self.size == 1:
            return None if mine is None else str(mine)
        last = torch.tensor(-1 if mine is None else self.rank)
        dist.all_reduce(last, dist.ReduceOp.MAX)
        return None if last < 0 else self._told({"failure": str(mine)}, int(last))["failure"]

    def _told(self, message: dict[str, Any], by: int = 0) -> dict[str, Any]:
        """What one process says, in every process. As JSON in a tensor: torch's own way to send objects is pickle."""
        data = torch.frombuffer(bytearray(json.dumps(message).encode()), dtype=torch.uint8)
        size = torch.tensor(len(data))
        dist.broadcast(size, by)
        data = data if self.rank == by else torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(data, by)
        told: dict[str, Any] = json.loads(data.numpy().tobytes())
        return told

    def any(self, flag: bool) -> bool:
        """Whether it holds in any process. Asked between hosts, so that no accelerator is waited for."""
        if self.size == 1:
            return flag
        flags = torch.tensor(int(flag))
        dist.all_reduce(flags)
        return bool(flags)

    def sum(self, values: Tensor) -> Tensor:
        """Sum over the processes, in place.   (...) -> (...)"""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def mean(self, values: Tensor) -> Tensor:
        return self.sum(values) / self.size


@contextmanager
def world(device: str = "auto") -> Iterator[World]:
    """This process as torchrun started it, or alone, without a process group. `device`: cpu, cuda, cuda:1 or auto."""
    start = {"WORLD_SIZE": 1, "RANK": 0, "LOCAL_RANK": 0}
    size, rank, local = (int(os.environ.get(name, default)) for name, default in start.items())
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if size == 1:
        yield World(device=torch.device(kind))
        return
    if ":" in kind:
        raise UserError(f"device {kind}: each of {size} processes takes its own device; say {kind.partition(':')[0]}")
    here, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", 1)), torch.cuda.device_count()
    if kind == "cuda" and here > gpus:
        how = f"start one for each with --nproc-per-node {gpus}, or pass --device cpu"
        raise UserError(f"{here} processes for {gpus} GPUs: {how}")
    mine = torch.device(kind, local) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(mine)
    dist.init_process_group("cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo", timeout=PATIENCE)
    together = False
    try:
        yield World(rank, size, mine)
        together = True
    except (UserError, SystemExit):
        together = True
        raise
    finally:
        if together:  # who failed alone would wait to say goodbye to the others, who wait for it
            dist.destroy_process_group()


def shard(model: nn.Module, units: Sequence[nn.Module], world: World) -> None:
    """FSDP2, in place: each unit by itself, the rest with the root. All begin with the weights of the main process.

    A parameter that several units share, or a unit and the rest (a learned curvature, tied weights), goes to the root,
    which stays gathered from the first forward to the end of the backward.
    """
    with torch.no_grad():
        for t in (*model.parameters(), *model.buffers()):
            dist.broadcast(t, 0)
    mesh = init_device_mesh(world.device.type, (world.size,))
    outside = set(_parameters_outside(model, set(units)))
    users = Counter(p for unit in units for p in unit.parameters())
    # a dict: its order is the same in every process
    common = {p: None for p, count in users.items() if count > 1 or p in outside}
    # a scalar cannot be sharded; one that is frozen need not be
    scalars = {p for p in model.parameters() if not p.ndim and not p.requires_grad}
    for unit in units:
        fully_shard(unit, mesh=mesh, ignored_params={*common, *scalars})
    # the root looks for its parameters outside the units only: for that moment it is handed those of several units
    model.add_module("_common", nn.ParameterList(common))
    fully_shard(model, mesh=mesh, reshard_after_forward=False, ignored_params=scalars)
    del model._common


def _parameters_outside(module: nn.Module, units: set[nn.Module]) -> Iterator[nn.Parameter]:
    if module not in units:
        yield from module.parameters(recurse=False)
        for child in module.children():
            yield from _parameters_outside(child, units)


def gather(model: nn.Module) -> None:
    """Make a sharded model whole, until `reshard`: for methods beside its forward, which would see shards."""
    for m in model.modules():
        if isinstance(m, FSDPModule):
            m.unshard()


def reshard(model: nn.Module) -> None:
    """Give back what a forward without a backward has left gathered: the parameters of a model are its shards again."""
    for m in model.modules():
        if isinstance(m, FSDPModule):
            m.reshard()


def local(t: Tensor) -> Tensor:
    """The part of a tensor that this process holds: all of an ordinary one."""
    return t.to_local() if isinstance(t, DTensor) else t


def whole(t: Tensor) -> Tensor:
    """All of a tensor, in every process; all must ask."""
    return t.full_tensor() if isinstance(t, DTensor) else t


def spread(t: Tensor | None, shape: Sequence[int], dtype: torch.dtype, like: Tensor, world: World) -> Tensor:
    """The main process's tensor (others pass None), cut as `like` is, in every process. A scalar stays on the CPU."""
    device = world.device if shape else torch.device("cpu")
    full = torch.empty(tuple(shape), dtype=dtype, device=device) if t is None else t.to(device)
    if isinstance(like, DTensor) and shape:
        return distribute_tensor(full, like.device_mesh, like.placements)
    if world.size > 1:
        dist.broadcast(full, 0)
    return full


def norms(tensors: Sequence[Tensor | None], world: World) -> Tensor:
    """Length of each tensor as a whole, 0 for None.   N tensors -> (N,)   Without waiting for the accelerator."""
    mine = [None if t is None else local(t.detach()) for t in tensors]
    lengths = iter(torch._foreach_norm([t for t in mine if t is not None]))
    zero = torch.zeros((), device=world.device)
    stacked = torch.stack([zero if t is None else next(lengths).float() for t in mine])
    # with several processes, `shard` has cut every parameter
    return world.sum(stacked.square()).sqrt() if world.size > 1 else stacked
