"""On Euclidean() each layer is its torch counterpart, bit for bit: weights from a seed, outputs, gradients."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from horosphere.geometry import Euclidean
from horosphere.nn import Classifier, Embedding, FeedForward, Lift, Linear, Lower, Maxout, Residual, RMSNorm

M = Euclidean()


class TorchMaxout(nn.Linear):
    def forward(self, x):
        return torch.stack(super().forward(x).chunk(3, -1)).amax(0)


def two_linear(activation):
    """As the positions of an encoder's layer go through torch's."""
    return nn.Sequential(OrderedDict(linear1=nn.Linear(6, 9), activation=activation, linear2=nn.Linear(9, 6)))


TWINS = {
    "linear": (lambda: Linear(6, 4, M), lambda: nn.Linear(6, 4)),
    "linear without bias": (lambda: Linear(6, 4, M, bias=False), lambda: nn.Linear(6, 4, bias=False)),
    "classifier": (lambda: Classifier(6, 4, M), lambda: nn.Linear(6, 4)),
    "classifier without bias": (lambda: Classifier(6, 4, M, bias=False), lambda: nn.Linear(6, 4, bias=False)),
    "norm": (lambda: RMSNorm(6, M), lambda: nn.RMSNorm(6)),
    "norm with eps": (lambda: RMSNorm(6, M, eps=0.1), lambda: nn.RMSNorm(6, eps=0.1)),
    "feed forward": (lambda: FeedForward(6, 9, M), lambda: two_linear(nn.ReLU())),
    "feed forward of gelu": (lambda: FeedForward(6, 9, M, nn.GELU()), lambda: two_linear(nn.GELU())),
    "maxout": (lambda: Maxout(6, 4, 3, M), lambda: TorchMaxout(6, 12)),
    "lift": (lambda: Lift(M), lambda: nn.Identity()),
    "lower": (lambda: Lower(M), lambda: nn.Identity()),
}
TABLES = {
    "table": {},
    "padding": {"padding_idx": 2},
    "sparse": {"sparse": True},
    "by frequency": {"scale_grad_by_freq": True},
    "bf16": {"dtype": torch.bfloat16},
    "max norm": {"max_norm": 1.0},
}


def twins(ours, torchs):
    made = []
    for make in (ours, torchs):
        torch.manual_seed(0)
        made.append(make())
    ours, torchs = made
    assert ours.state_dict().keys() == torchs.state_dict().keys()
    assert all(torch.equal(a, b) for a, b in zip(ours.state_dict().values(), torchs.state_dict().values(), strict=True))
    return ours, torchs


def assert_same_run(ours, torchs, x):
    def run(module):
        inputs = x.clone().requires_grad_() if x.is_floating_point() else x
        y = module(inputs)
        leaves = [*module.parameters(), *([inputs] if inputs.requires_grad else [])]
        return [y, *torch.autograd.grad((y * torch.arange(y.shape[-1])).sum(), leaves)]

    for a, b in zip(run(ours), run(torchs), strict=True):
        assert a.is_sparse == b.is_sparse
        assert torch.equal(a.to_dense(), b.to_dense())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", TWINS)
def test_layers(kind, dtype):
    ours, torchs = (module.to(dtype) for module in twins(*TWINS[kind]))
    assert_same_run(ours, torchs, torch.randn(2, 5, 6).to(dtype))


@pytest.mark.parametrize("kind", TABLES)
def test_tables(kind):
    ours, torchs = twins(lambda: Embedding(7, 6, M, **TABLES[kind]), lambda: nn.Embedding(7, 6, **TABLES[kind]))
    assert_same_run(ours, torchs, torch.tensor([[0, 2, 2], [6, 1, 0]]))


@pytest.mark.parametrize("form", ["centroid", "additive"])
def test_residual_is_a_sum(form):
    x, y = torch.randn(2, 5, 6)
    residual = Residual(6, M, form)
    assert torch.equal(residual(x, y), x + y)
    assert not list(residual.parameters())


@pytest.mark.parametrize("std", [0.02, 3.0])
def test_std_is_the_normals(std):
    torch.manual_seed(0)
    weight = Embedding(500, 6, M, std=std).weight
    torch.manual_seed(0)
    assert torch.equal(weight, nn.init.normal_(torch.empty(500, 6), std=std))
