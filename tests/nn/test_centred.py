"""Every form of the centred batch norm's passes against the manifold's own functions and autograd, in fp64."""

import pytest
import torch

from horosphere.geometry import Lorentz
from horosphere.nn import BatchNorm2d, centred
from horosphere.nn.centred import by_torch
from tests.nn import pictures_reference as reference

C = [0.1, 1.0, 4.0]
CHANNELS = 3


def forms():
    pytest.importorskip("numba", reason="the passes on the CPU are compiled by numba")
    from horosphere.nn.centred import on_cpu

    return {"torch": by_torch, "cpu": on_cpu}


def maps(c, size=(4, 5)):
    """Pictures of points: at the origin, around it, far from it."""
    torch.manual_seed(0)
    L = Lorentz(c)
    near = torch.randn(3, *size, CHANNELS, dtype=torch.float64) * torch.tensor([0.0, 1e-4, 1.0]).view(-1, 1, 1, 1)
    far = L.translate(L.lift(near), L.lift(torch.full((CHANNELS,), 1.0, dtype=torch.float64)))
    return torch.cat((L.lift(near), far)).movedim(-1, 1).contiguous().requires_grad_()


def parameters(c):
    weight = torch.linspace(0.5, 1.5, CHANNELS, dtype=torch.float64).requires_grad_()
    bias = torch.linspace(-0.4, 0.7, CHANNELS, dtype=torch.float64).requires_grad_()
    return weight, bias, torch.tensor([c], dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("c", C)
@pytest.mark.parametrize("form", ["torch", "cpu"])
def test_passes_are_the_manifolds_functions(form, c, monkeypatch):
    monkeypatch.setattr(centred, "passes", lambda *_: forms()[form])
    L = Lorentz(c, learn=True).double()  # its c is that of fp32
    x, inputs = maps(c), parameters(L.c.item())
    y, mean, variance, count = centred.batch_norm_of_batch(x, *inputs, 1e-5)
    points = x.movedim(1, -1).flatten(0, 2)
    expected, centre, spread = reference.batch_norm(points, inputs[0], inputs[1], L)
    expected = expected.view(*x.movedim(1, -1).shape).movedim(-1, 1)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close([mean, variance], [centre.detach(), spread.detach()])
    assert count == len(points)
    up = torch.randn_like(y)
    ours = torch.autograd.grad((y * up).sum(), [x, *inputs])
    theirs = torch.autograd.grad((expected * up).sum(), [x, *inputs[:2], *L.parameters()])
    by_c = theirs[-1] * torch.autograd.grad(L.c.sum(), list(L.parameters()))[0].reciprocal()
    torch.testing.assert_close(ours, (*theirs[:-1], by_c.view(1)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads(threads):
    pytest.importorskip("numba")
    before = torch.get_num_threads()
    x, norm = maps(1.0).float().detach(), BatchNorm2d(CHANNELS, Lorentz())
    results = []
    for count in (1, threads):
        torch.set_num_threads(count)
        leaf = x.clone().requires_grad_()
        y = norm(leaf)
        results.append((y, *torch.autograd.grad(y.square().sum(), [leaf, *norm.parameters()])))
    torch.set_num_threads(before)
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_maps_in_any_layout_are_normalised_alike():
    """Planes are read by compiled loops, channels-last maps and strided ones by torch."""
    x = maps(0.7).detach()
    norm = BatchNorm2d(CHANNELS, Lorentz(0.7)).double()
    expected = norm(x)
    for other in (x.contiguous(memory_format=torch.channels_last), x.mT.contiguous().mT):
        torch.testing.assert_close(norm(other), expected)
