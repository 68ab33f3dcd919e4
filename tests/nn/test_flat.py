"""On Euclidean() each layer is its torch counterpart, bit for bit: weights from a seed, outputs, gradients."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from horosphere.geometry import Euclidean
from horosphere.nn import (
    GRU,
    LSTM,
    RNN,
    Activation,
    AvgPool2d,
    BatchNorm1d,
    BatchNorm2d,
    Classifier,
    Conv1d,
    Conv2d,
    ConvClassifier,
    Dropout,
    Embedding,
    FeedForward,
    Flatten,
    GlobalAvgPool2d,
    LayerNorm,
    Lift,
    Linear,
    Lower,
    Maxout,
    MaxOverTime,
    MaxPool1d,
    MaxPool2d,
    Residual,
    RMSNorm,
    concat,
)

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
    "relu": (lambda: Activation("relu", M), lambda: nn.ReLU()),
    "sigmoid": (lambda: Activation("sigmoid", M), lambda: nn.Sigmoid()),
    "gelu": (lambda: Activation("gelu", M), lambda: nn.GELU()),
    "layer norm": (lambda: LayerNorm(6, M), lambda: nn.LayerNorm(6)),
    "conv1d": (lambda: Conv1d(5, 4, 3, M, padding=1), lambda: nn.Conv1d(5, 4, 3, padding=1)),
    "conv2d": (
        lambda: Conv2d(2, 4, (3, 2), M, (1, 2), 1, 2, bias=False),
        lambda: nn.Conv2d(2, 4, (3, 2), (1, 2), 1, 2, bias=False),
    ),
    "classifier of places": (lambda: ConvClassifier(2, 4, 3, M, padding=1), lambda: nn.Conv2d(2, 4, 3, padding=1)),
    "max pool 1d": (lambda: MaxPool1d(3, M, 2, 1), lambda: nn.MaxPool1d(3, 2, 1)),
    "max pool 2d": (lambda: MaxPool2d(3, M, 2, 1), lambda: nn.MaxPool2d(3, 2, 1)),
    "average pool": (lambda: AvgPool2d(3, M, 2, 1), lambda: nn.AvgPool2d(3, 2, 1)),
    "flatten": (lambda: Flatten(M), lambda: nn.Flatten()),
    "batch norm": (lambda: BatchNorm1d(5, M), lambda: nn.BatchNorm1d(5)),
    "batch norm at rest": (lambda: BatchNorm1d(5, M).eval(), lambda: nn.BatchNorm1d(5).eval()),
    "free batch norm": (lambda: BatchNorm1d(5, M, form="free"), lambda: nn.BatchNorm1d(5)),
}
RECURRENT = {"rnn": (RNN, nn.RNN), "gru": (GRU, nn.GRU), "lstm": (LSTM, nn.LSTM)}
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}])
@pytest.mark.parametrize("kind", RECURRENT)
def test_recurrent_layers(kind, options, dtype):
    ours, torchs = RECURRENT[kind]
    ours, torchs = (m.to(dtype) for m in twins(lambda: ours(6, 4, M, **options), lambda: torchs(6, 4, **options)))
    x = torch.randn(2, 5, 6).to(dtype)
    assert_same_run(*(nn.Sequential(m, First()) for m in (ours, torchs)), x)
    (_, mine), (_, theirs) = ours(x), torchs(x)
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


class First(nn.Module):
    def forward(self, pair):
        return pair[0]


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


def test_batch_norm_remembers_the_same():
    """Running mean and variance of three batches, bit for bit."""
    ours, torchs = twins(lambda: BatchNorm2d(3, M), lambda: nn.BatchNorm2d(3))
    for _ in range(3):
        x = torch.randn(4, 3, 5, 5)
        assert_same_run(ours, torchs, x)
    assert all(torch.equal(a, b) for a, b in zip(ours.state_dict().values(), torchs.state_dict().values(), strict=True))
    assert_same_run(ours.eval(), torchs.eval(), x)


def test_dropout_draws_the_same():
    x, runs = torch.randn(4, 6), []
    for made in (Dropout(0.3, M), nn.Dropout(0.3)):
        torch.manual_seed(0)
        runs.append(made(x))
    assert torch.equal(*runs)


def test_pools_without_a_window():
    x = torch.randn(2, 3, 4, 5)
    assert torch.equal(GlobalAvgPool2d(M)(x), nn.AdaptiveAvgPool2d(1)(x).flatten(1))
    assert torch.equal(MaxOverTime(M)(x.flatten(2)), nn.AdaptiveMaxPool1d(1)(x.flatten(2)).squeeze(-1))
    assert torch.equal(concat((x, x), M, dim=1), torch.cat((x, x), 1))
