"""What layers say to a first input that is none of theirs, and that they say it once."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz, Poincare, Product
from horosphere.nn import (
    GRU,
    Activation,
    BatchNorm2d,
    Classifier,
    Conv2d,
    Embedding,
    LayerNorm,
    Lift,
    Linear,
    MultiHeadAttention,
)
from horosphere.optim import RiemannianAdam

L, P = Lorentz(), Poincare()
FEATURES = torch.linspace(-1, 1, 16).view(2, 8)
PICTURES = torch.linspace(-1, 1, 96).view(2, 3, 4, 4)


def chain(*layers):
    return lambda: nn.Sequential(*layers)(FEATURES)


WRONG = {
    "another curvature": (chain(Lift(L), Linear(8, 4, Lorentz(2.0))), "Lorentz(c=2): x holds points of Lorentz(c=1)"),
    "another model": (chain(Lift(L), LayerNorm(8, L), Classifier(8, 2, P)), "x holds points of Lorentz(c=1)"),
    "two learned": (chain(Lift(Lorentz(1, True)), Linear(8, 4, Lorentz(1, True))), "use one manifold"),
    "a product": (chain(Lift(L), LayerNorm(8, Product((Lorentz(), 4), (Lorentz(), 4)))), "Lorentz(c=1) x Lorentz(c=1)"),
    "out of a table": (lambda: Linear(2, 2, P)(Embedding(5, 2, L)(torch.arange(5))), "from Embedding"),
    "of pictures": (lambda: nn.Sequential(Conv2d(3, 3, 3, L), BatchNorm2d(3, Lorentz(2.0)))(PICTURES), "from Conv2d"),
    "of sequences": (lambda: GRU(8, 4, P)(Lift(L)(FEATURES)), "from Lift"),
    "outside the ball": (
        lambda: Linear(8, 4, P)(FEATURES),
        "outside the ball of radius 1; put Lift(manifold) before it",
    ),
    "pixels outside": (lambda: Conv2d(3, 4, 3, P)(PICTURES), "Conv2d: x is"),
    "numpy": (lambda: Linear(8, 4, L)(FEATURES.numpy()), "torch.from_numpy(x).float()"),
    "numpy to lift": (lambda: Lift(L)(FEATURES.numpy()), "torch.from_numpy(x).float()"),
    "list": (lambda: Linear(8, 4, L)(FEATURES.tolist()), "Linear: x is a list; give a tensor, as in torch.tensor(x)"),
    "list to lift": (lambda: Lift(L)(FEATURES.tolist()), "Lift: x is a list; give a tensor, as in torch.tensor(x)"),
    "nothing": (lambda: Linear(8, 4, L)(None), "Linear: x is None; give it as a tensor (..., d)"),
    "name of a table": (lambda: Embedding(5, 2, "lorentz"), "give the manifold, as in Lorentz(c=1.0)"),
    "class": (lambda: Linear(8, 16, Lorentz), "give one of it, as in Lorentz(c=1.0)"),
    "name": (lambda: Linear(8, 16, "lorentz"), "give the manifold, as in Lorentz(c=1.0)"),
    "class of a loop": (lambda: GRU(8, 16, Lorentz), "GRU: the manifold is the class Lorentz"),
    "number": (lambda: MultiHeadAttention(8, 2, 1.0), "float is no manifold"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_misuse_is_said_in_one_line(kind):
    call, says = WRONG[kind]
    with pytest.raises(UserError) as error:
        call()
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("given", [FEATURES.numpy(), FEATURES.tolist(), None], ids=["numpy", "list", "None"])
def test_lift_says_it_of_any_batch(given):
    lift = Lift(L)
    lift(FEATURES)
    with pytest.raises(UserError, match=r"^Lift: x is .*; give (a tensor, as in|it as a tensor)"):
        lift(given)


def test_it_is_said_again():
    layer = Linear(8, 4, P)
    for _ in range(2):
        with pytest.raises(UserError, match="outside the ball"):
            layer(FEATURES)


class ToPoints(nn.Module):
    def forward(self, u):
        return L.point(u)


RIGHT = {
    "one manifold": lambda: chain(Lift(L), Linear(8, 4, L), Activation("relu", L), Classifier(4, 2, L)),
    "equal manifolds": lambda: chain(Lift(Lorentz(2.0)), Linear(8, 4, Lorentz(2.0))),
    "a way between": lambda: chain(Lift(L), Linear(8, 4, L, out_manifold=P), Classifier(4, 2, P)),
    "flat beside curved": lambda: chain(Linear(8, 8, Euclidean()), Lift(L), Linear(8, 4, L)),
    "free coordinates": lambda: chain(Linear(8, 4, L, out_manifold=Euclidean()), ToPoints(), Linear(4, 4, L)),
}


@pytest.mark.parametrize("kind", RIGHT)
def test_right_use_is_silent(kind):
    assert RIGHT[kind]()().isfinite().all()


# Tables that an optimizer of flat space has taken out of the ball


@pytest.mark.parametrize(
    "manifold", [P, Poincare(4.0, learn=True), Product((Euclidean(), 1), (P, 1))], ids=["ball", "learned", "product"]
)
def test_a_table_that_left_the_ball_is_said_whenever_it_is_read(manifold):
    """torch.optim.Adam knows no edge. The distances were NaN, or a classifier's of points that are none."""
    torch.manual_seed(0)
    net = nn.Sequential(Embedding(6, 2, manifold), Classifier(2, 2, manifold))
    with torch.no_grad():
        net[0].weight.mul_(0.5)
    optimizer, which = torch.optim.Adam(net[0].parameters(), lr=0.3), torch.arange(6)
    net(which)

    def train():
        for _ in range(20):
            optimizer.zero_grad()
            net(which)[:, 0].sum().backward()
            optimizer.step()

    with pytest.raises(UserError) as error:
        train()
    assert "times the radius of the ball, and is no point any more; step points with horosphere" in str(error.value)
    assert ("use Lorentz for that" in str(error.value)) == any(True for _ in manifold.parameters())
    with pytest.raises(UserError, match="Embedding: a row lies"):
        net(which)


def test_a_table_that_stays_in_the_ball_is_silent():
    torch.manual_seed(0)
    net = nn.Sequential(Embedding(6, 2, P, padding_idx=0), Classifier(2, 2, P))
    optimizer = RiemannianAdam(net.parameters(), lr=1.0)
    for _ in range(50):
        optimizer.zero_grad()
        net(torch.arange(6))[:, 0].sum().backward()
        optimizer.step()
    assert net(torch.arange(6)).isfinite().all()
    assert net[0](torch.arange(0)).shape == (0, 2)


def test_compiled_tables_do_not_look():
    table = Embedding(6, 2, P)
    with torch.no_grad():
        table.weight.fill_(2.0)
    assert torch.compile(table, fullgraph=True, backend="eager")(torch.arange(6)).shape == (6, 2)
    assert torch.vmap(table)(torch.arange(6)).shape == (6, 2)


def hooks(layer):
    return len(layer._forward_pre_hooks) + len(layer._forward_hooks)


def test_after_the_first_call_nothing_is_left():
    layer = Linear(8, 4, L)
    assert hooks(layer) == 2
    layer(FEATURES)
    assert hooks(layer) == 0


def test_copies_and_compiled_layers_and_vmap_work_before_the_first_call():
    net = nn.Sequential(Lift(P).fit(FEATURES), Linear(8, 4, P), Classifier(4, 2, P))
    expected = copy.deepcopy(net)(FEATURES)
    compiled = torch.compile(copy.deepcopy(net), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(FEATURES), expected)
    torch.testing.assert_close(torch.vmap(copy.deepcopy(net))(FEATURES), expected)
    assert copy.deepcopy(net).to("meta")(FEATURES.to("meta")).shape == (2, 2)
    assert hooks(net[1]) == 2


def test_nothing_is_kept_alive():
    from horosphere.nn import first_call

    before = len(first_call._made)
    chain(Lift(L), Linear(8, 4, L))()
    assert len(first_call._made) == before


def test_empty_batches_pass():
    assert Linear(8, 4, P)(torch.from_numpy(np.zeros((0, 8), dtype=np.float32))).shape == (0, 4)
