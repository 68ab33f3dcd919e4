"""A batch that two processes share is normalised as one: outputs, gradients, running statistics."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from horosphere.geometry import Lorentz, Poincare
from horosphere.nn import BatchNorm2d

ROWS = (3, 5)  # of each process


def norm(form, model):
    made = BatchNorm2d(4, model(0.7, learn=True), form=form).double()
    torch.manual_seed(0)
    with torch.no_grad():
        for p in made.parameters():
            p.add_(0.3 * torch.randn(p.shape))
    return made


def whole_batch(model):
    x = model(0.7).random(sum(ROWS), 3, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x.movedim(-1, 1)


def results(layer, x):
    """y, gradient of x, gradients of parameters, running statistics."""
    x = x.detach().clone().requires_grad_()
    y = layer(x)
    weights = torch.linspace(-1, 1, y[0].numel(), dtype=torch.float64).view(y[0].shape)
    gradients = torch.autograd.grad((y.square() * weights).sum(), [x, *layer.parameters()], allow_unused=True)
    gradients = [g if g is not None else torch.zeros(1, dtype=torch.float64) for g in gradients]
    return [y.detach(), *gradients, layer.running_mean, layer.running_var]


def worker(rank, address, form, model, queue):
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    torch.set_num_threads(1)
    mine = whole_batch(model).split(ROWS)[rank]
    queue.put((rank, [t.numpy() for t in results(norm(form, model), mine)]))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("form", ["centred", "free"])
@pytest.mark.parametrize("model", [Lorentz, Poincare])
def test_two_processes_are_one(form, model, tmp_path):
    context = mp.get_context("spawn")
    queue = context.Queue()
    processes = [
        context.Process(target=worker, args=(rank, f"file://{tmp_path}/meet", form, model, queue)) for rank in (0, 1)
    ]
    for process in processes:
        process.start()
    parts = dict(queue.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(60)
    one, other = ([torch.from_numpy(a) for a in parts[rank]] for rank in (0, 1))
    expected = results(norm(form, model), whole_batch(model))
    joined = [torch.cat(pair) for pair in zip(one[:2], other[:2], strict=True)]
    summed = [a + b for a, b in zip(one[2:-2], other[2:-2], strict=True)]  # each has its share of a gradient
    torch.testing.assert_close([*joined, *summed, *one[-2:]], expected)
    torch.testing.assert_close(one[-2:], other[-2:])
    assert isinstance(norm(form, model), nn.BatchNorm2d)
