"""Curved convolutions, pools and norms: their definitions, their limits, the same at every scale, and wrong inputs."""

import copy

import pytest
import torch
from torch import nn

from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz, Poincare, Product, lorentz_to_poincare
from horosphere.nn import (
    Activation,
    AvgPool2d,
    BatchNorm1d,
    BatchNorm2d,
    Conv1d,
    Conv2d,
    ConvClassifier,
    Dropout,
    Flatten,
    GlobalAvgPool2d,
    LayerNorm,
    MaxOverTime,
    MaxPool1d,
    MaxPool2d,
    concat,
    hyperplane_logits,
)
from tests.nn import pictures_reference as reference
from tests.nn.samples import CURVATURES

curvatures = pytest.mark.parametrize("c", CURVATURES)
models = pytest.mark.parametrize("model", [Lorentz, Poincare])
CHANNELS = 3


def pictures(m, *shape, std=0.7, seed=0):
    """Points along dim 1.   -> (B, CHANNELS, …)"""
    generator = torch.Generator().manual_seed(seed)
    batch, *places = shape
    return m.random(batch, *places, CHANNELS, std=std, generator=generator, dtype=torch.float64).movedim(-1, 1)


def in_general_position(module, seed=0):
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.3 * torch.randn(p.shape))
    return module.double()


def as_points(x):
    """(B, C, …) -> (N, C)"""
    return x.flatten(2).mT.flatten(0, 1)


# Definitions


@curvatures
@models
@pytest.mark.parametrize(("kernel", "padding"), [(1, 0), (3, 1)])
def test_a_classifier_of_places_measures_the_distances_of_patches_to_hyperplanes(model, kernel, padding, c):
    m = model(c=c)
    x, layer = pictures(m, 2, 5, 6), in_general_position(ConvClassifier(CHANNELS, 4, kernel, m, padding=padding))
    free = m.free(x.movedim(1, -1)).movedim(-1, 1)
    patches = m.point(nn.functional.unfold(free, kernel, padding=padding).mT)
    expected = hyperplane_logits(patches, layer.weight.flatten(1), layer.bias, m).mT.unflatten(2, (5, 6))
    torch.testing.assert_close(layer(x), expected)


def test_a_classifier_of_places_goes_over_to_the_convolution():
    x, layer = pictures(Euclidean(), 2, 5, 6), in_general_position(ConvClassifier(CHANNELS, 4, 3, Lorentz(c=1e-8)))
    torch.testing.assert_close(layer(x), nn.functional.conv2d(x, layer.weight, layer.bias), atol=1e-6, rtol=1e-6)
    with pytest.raises(UserError, match="ConvClassifier: x of shape"):
        layer(x[:, :2])
    with pytest.raises(UserError, match="ConvClassifier on a product"):
        ConvClassifier(4, 2, 1, Product((Lorentz(), 2), (Euclidean(), 2)))


@curvatures
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (1, 2, 2), (3, 0, 2)])
def test_conv2d_is_linear_of_the_patch(stride, padding, dilation, c):
    L = Lorentz(c)
    conv = in_general_position(Conv2d(CHANNELS, 4, (3, 2), L, stride, padding, dilation))
    x = pictures(L, 2, 7, 6)
    expected = [
        reference.conv2d(one, conv.weight, conv.time_weight, conv.bias, L, stride, padding, dilation) for one in x
    ]
    torch.testing.assert_close(conv(x), torch.stack(expected))


@curvatures
def test_conv1d_is_conv2d_of_one_row(c):
    L = Lorentz(c)
    one = in_general_position(Conv1d(CHANNELS, 4, 3, L, stride=2, padding=1))
    two = Conv2d(CHANNELS, 4, (1, 3), L, stride=(1, 2), padding=(0, 1)).double()
    two.load_state_dict({name: p.view(two.state_dict()[name].shape) for name, p in one.state_dict().items()})
    x = pictures(L, 2, 9)
    torch.testing.assert_close(one(x), two(x.unsqueeze(2)).squeeze(2))


def test_a_picture_without_a_batch():
    conv, x = in_general_position(Conv2d(CHANNELS, 4, 3, Poincare())), pictures(Poincare(), 1, 5, 5)
    torch.testing.assert_close(conv(x[0]), conv(x)[0])


def test_padding_by_name():
    L = Lorentz()
    same, one = (in_general_position(Conv2d(CHANNELS, 4, 3, L, padding=padding)) for padding in ("same", 1))
    one.load_state_dict(same.state_dict())
    x = pictures(L, 2, 5, 5)
    torch.testing.assert_close(same(x), one(x))


@curvatures
@models
def test_average_pool_is_the_midpoint(model, c):
    m = model(c)
    x = pictures(m, 2, 5, 6)
    for kernel, stride, padding in ((2, 2, 0), (3, 2, 1)):
        expected = torch.stack([reference.average_pool(one, m, kernel, stride, padding) for one in x])
        torch.testing.assert_close(AvgPool2d(kernel, m, stride, padding)(x), expected)
    torch.testing.assert_close(GlobalAvgPool2d(m)(x), m.midpoint(x.flatten(2).mT))


@curvatures
def test_average_of_far_points_is_no_farther(c):
    """fp32: -c<z, z> cancels to noise; its floor holds the mean inside."""
    L = Lorentz(c)
    far = L.lift(torch.full((1, 1, 4, 4, CHANNELS), 14 / (3 * c) ** 0.5)).movedim(-1, 2)[0]
    mean = GlobalAvgPool2d(L)(far)
    assert (L.dist0(mean) <= 14.01 / c**0.5).all()


@curvatures
@models
def test_batch_norm_is_by_the_manifolds_functions(model, c):
    m = model(c)
    norm = in_general_position(BatchNorm2d(CHANNELS, m))
    x = pictures(m, 4, 3, 2)
    expected, centre, variance = reference.batch_norm(as_points(x), norm.weight, m.point(norm.bias), m)
    torch.testing.assert_close(as_points(norm(x)), expected)
    origin = torch.zeros(CHANNELS, dtype=torch.float64)
    torch.testing.assert_close(m.point(norm.running_mean), m.geodesic(origin, centre, 0.1))
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * variance * 24 / 23)
    assert norm.num_batches_tracked == 1


@models
def test_batch_norm_at_rest_uses_what_it_remembers(model):
    m = model()
    norm, x = in_general_position(BatchNorm1d(CHANNELS, m, momentum=1.0)), pictures(m, 40).detach()
    y = norm(x)
    torch.testing.assert_close(norm.running_mean, m.free(m.midpoint(x)))
    norm.running_var.mul_(39 / 40)
    torch.testing.assert_close(norm.eval()(x), y)
    assert norm.num_batches_tracked == 1


@curvatures
def test_batch_norm_centres_and_scales(c):
    """γ = 1, β = 0: after it a coordinate of `lower` has mean square 1; the centroid is near the origin."""
    L = Lorentz(c)
    far = L.translate(pictures(L, 500).detach(), L.lift(torch.tensor([3.0, -1.0, 0.5]).double() / c**0.5))
    v = L.lower(BatchNorm1d(CHANNELS, L).double()(far))
    torch.testing.assert_close(v.square().mean(0), torch.ones(CHANNELS).double(), rtol=1e-3, atol=0)


@models
def test_free_batch_norm_is_torchs_of_free_coordinates(model):
    m = model(0.5)
    ours, torchs = BatchNorm2d(CHANNELS, m, form="free").double(), nn.BatchNorm2d(CHANNELS).double()
    x = pictures(m, 4, 3, 3)
    torch.testing.assert_close(
        ours(x), m.point(torchs(m.free(x.movedim(1, -1)).movedim(-1, 1)).movedim(1, -1)).movedim(-1, 1)
    )
    torch.testing.assert_close(ours.running_mean, torchs.running_mean)


@models
def test_functions_of_free_coordinates(model):
    m = model(2.0)
    u = torch.randn(4, CHANNELS, 6, dtype=torch.float64)
    x = m.point(u.mT).mT
    free = lambda y: m.free(y.movedim(1, -1)).movedim(-1, 1)  # noqa: E731
    torch.testing.assert_close(free(Activation("tanh", m, dim=1)(x)), u.tanh())
    torch.testing.assert_close(free(MaxPool1d(2, m)(x)), nn.functional.max_pool1d(u, 2))
    torch.testing.assert_close(m.free(MaxOverTime(m)(x)), u.amax(-1))
    torch.testing.assert_close(m.free(Flatten(m)(x)), u.flatten(1))
    torch.testing.assert_close(free(concat((x, x), m, dim=1)), torch.cat((u, u), 1))
    torch.testing.assert_close(
        m.free(LayerNorm(CHANNELS, m).double()(x.mT)), nn.functional.layer_norm(u.mT, (CHANNELS,))
    )
    torch.manual_seed(0)
    dropped = free(Dropout(0.5, m, dim=1)(x))
    torch.manual_seed(0)
    torch.testing.assert_close(dropped, nn.functional.dropout(u, 0.5))


def test_max_over_time_stops_at_the_length():
    m = Poincare()
    x = m.point(torch.randn(3, 5, 2)).mT
    short = MaxOverTime(m)(x, torch.tensor([2, 5, 1]))
    torch.testing.assert_close(short[0], MaxOverTime(m)(x[:1, :, :2])[0])
    torch.testing.assert_close(short[1], MaxOverTime(m)(x[1:2])[0])
    assert MaxOverTime(m)(x, torch.tensor([0, 1, 1])).isfinite().all()  # an empty row is a point


# Laws

LAYERS = {
    "conv": lambda m: Conv2d(CHANNELS, 4, 3, m, padding=1),
    "average pool": lambda m: AvgPool2d(2, m),
    "global pool": lambda m: GlobalAvgPool2d(m),
    "max pool": lambda m: MaxPool2d(2, m),
    "relu": lambda m: Activation("relu", m, dim=1),
    "batch norm": lambda m: BatchNorm2d(CHANNELS, m),
    "free batch norm": lambda m: BatchNorm2d(CHANNELS, m, form="free"),
    "flatten": lambda m: Flatten(m),
}
kinds = pytest.mark.parametrize("kind", LAYERS)


def made(kind, m, time=True):
    """In general position; without the weights of the time, which grows as 1/√c, if `time` is off."""
    torch.manual_seed(1)
    layer = in_general_position(LAYERS[kind](m))
    if not time and getattr(layer, "time_weight", None) is not None:
        nn.init.zeros_(layer.time_weight)
    return layer


@kinds
@models
def test_flat_limit(kind, model):
    """H1: as c falls by 10, the distance to the flat twin falls by 10."""
    v = torch.randn(2, CHANNELS, 6, 6, dtype=torch.float64)
    flat = made(kind, Euclidean())(v)
    gaps = []
    for c in (1e-3, 1e-4):
        m = model(c)
        y = made(kind, m, time=False)(m.point(v.movedim(1, -1)).movedim(-1, 1))
        gaps.append((m.free(y.movedim(1, -1)).movedim(-1, 1) - flat).abs().max().item())
    assert gaps[0] < 0.05
    assert gaps[1] < max(0.11 * gaps[0], 1e-12)


@kinds
@curvatures
def test_one_map_at_every_scale(kind, c):
    """H2: f_c(x) = f₁(√c x)/√c, biases and γ √c times as long. ε has no scale: it is next to nothing."""
    root = c**0.5
    small, unit = made(kind, Lorentz(c)), made(kind, Lorentz(1.0))
    with torch.no_grad():
        if getattr(unit, "bias", None) is not None:
            unit.bias.mul_(root)
        for norm in (small, unit):
            if hasattr(norm, "eps"):
                norm.eps = 1e-30
        if hasattr(unit, "eps"):
            unit.weight.mul_(root)  # γ is the length of what comes out
    x = pictures(Lorentz(c), 3, 4, 4)
    torch.testing.assert_close(small(x), unit(root * x) / root)


@kinds
@curvatures
def test_ball_and_hyperboloid(kind, c):
    """H3, in pictures: points along dim 1."""
    on_L, on_B = made(kind, Lorentz(c)), made(kind, Poincare(c))
    x = pictures(Lorentz(c), 3, 4, 4)
    to_ball = lambda x: lorentz_to_poincare(x.movedim(1, -1), c).movedim(-1, 1)  # noqa: E731
    torch.testing.assert_close(on_B(to_ball(x)), to_ball(on_L(x)))


@curvatures
@models
def test_pools_move_with_their_points(model, c):
    """H4: a centroid goes where a common translation takes its points."""
    m = model(c)
    x, by = pictures(m, 2, 4, 4), m.lift(torch.tensor([1.0, -0.5, 0.3]).double() / c**0.5)
    moved = m.translate(x.movedim(1, -1), by).movedim(-1, 1)
    torch.testing.assert_close(GlobalAvgPool2d(m)(moved), m.translate(GlobalAvgPool2d(m)(x), by))
    pool = AvgPool2d(2, m)
    torch.testing.assert_close(pool(moved).movedim(1, -1), m.translate(pool(x).movedim(1, -1), by))


@curvatures
@models
def test_batch_norm_does_not_see_how_far_a_batch_is(model, c):
    """H4: distances after the norm stay what they were when a batch moves along a line through the origin and its
    centroid; other translations turn the coordinates whose variances it takes."""
    m = model(c)
    x = pictures(m, 30).detach()
    centred = m.translate(x, -m.midpoint(x))
    norm = BatchNorm1d(CHANNELS, m).double()
    by = m.lift(torch.tensor([1.0, -0.5, 0.3]).double() / c**0.5)
    torch.testing.assert_close(norm(m.translate(centred, by)), norm(centred))


@kinds
@pytest.mark.parametrize("radius", [0.0, 1.0, 5.0])
def test_gradients_everywhere(kind, radius):
    """H5: gradcheck in fp64 at the origin, half-way and far out."""
    m = Lorentz(0.7)
    layer = made(kind, m)
    if kind in ("relu", "max pool") and radius == 0:
        pytest.skip("a kink")
    if radius == 0 and "norm" in kind:
        layer.eval()  # the variance of equal points is 0
    x = pictures(m, 2, 2, 2, std=radius / 3).detach().requires_grad_()
    assert torch.autograd.gradcheck(layer, (x,), atol=1e-4 * max(1.0, x.abs().max().item()))


# Symmetry


@models
def test_pictures_that_shift(model):
    """1.20: in the interior a convolution shifts with its picture; 1.19: the mean of a circular one stays."""
    m = model()
    conv, x = in_general_position(Conv2d(CHANNELS, 4, 3, m)), pictures(m, 1, 8, 8)
    torch.testing.assert_close(conv(x.roll(1, -1))[..., 1:], conv(x)[..., :-1])
    circular = lambda x: conv(nn.functional.pad(x, (1, 1, 1, 1), mode="circular"))  # noqa: E731
    torch.testing.assert_close(GlobalAvgPool2d(m)(circular(x.roll((2, 3), (-2, -1)))), GlobalAvgPool2d(m)(circular(x)))


# Other libraries


def test_average_and_norm_of_hypll():
    """H6: hypll's midpoint, on the ball of curvature 1."""
    hypll = pytest.importorskip("hypll.manifolds.poincare_ball.math.stats")
    midpoint = hypll.midpoint
    m = Poincare(1.0)
    x = pictures(m, 2, 3, 3, std=0.3)
    theirs = midpoint(x.flatten(2).mT, torch.tensor(1.0).double(), man_dim=-1, batch_dim=1)
    torch.testing.assert_close(GlobalAvgPool2d(m)(x), theirs, rtol=1e-6, atol=1e-8)


# Machinery


@pytest.mark.parametrize("form", ["centred", "free"])
def test_one_graph_holds_a_block(form):
    L = Lorentz()
    torch.manual_seed(0)
    net = nn.Sequential(
        Conv2d(CHANNELS, 4, 3, L, padding=1),
        BatchNorm2d(4, L, form=form),
        Activation("relu", L, dim=1),
        AvgPool2d(2, L),
    )
    x = torch.randn(2, CHANNELS, 4, 4, requires_grad=True)
    runs = []
    for run in (copy.deepcopy(net), copy.deepcopy(net)):
        y = (torch.compile(run, fullgraph=True, backend="aot_eager") if runs else run)(x)
        runs.append([y, *torch.autograd.grad(y.square().sum(), [x, *run.parameters()]), run[1].running_mean])
    torch.testing.assert_close(*runs, rtol=1e-3, atol=1e-5)


def test_channels_last_stays():
    L = Lorentz()
    x = torch.randn(2, CHANNELS, 4, 4).contiguous(memory_format=torch.channels_last)
    for layer in (BatchNorm2d(CHANNELS, L), Activation("relu", L, dim=1), AvgPool2d(2, L), MaxPool2d(2, L)):
        assert layer(x).is_contiguous(memory_format=torch.channels_last), layer


def test_autocast_keeps_norms_exact():
    L = Lorentz()
    x, norm = torch.randn(8, CHANNELS, 4, 4), BatchNorm2d(CHANNELS, L)
    with torch.autocast("cpu", torch.bfloat16):
        y = norm(x)
    torch.testing.assert_close(y, BatchNorm2d(CHANNELS, L)(x))


# Wrong inputs

PRODUCT = Product((Lorentz(), 2), (Euclidean(), 1))
WRONG = {
    "channels": (lambda: Conv2d(4, 2, 3, Lorentz())(torch.zeros(1, 3, 5, 5)), "Conv2d: x of shape (1, 3, 5, 5) has 3"),
    "channels of rows": (lambda: Conv1d(4, 2, 3, Euclidean())(torch.zeros(3, 5)), "give points of 4"),
    "features": (
        lambda: BatchNorm2d(4, Lorentz())(torch.zeros(2, 3, 5, 5)),
        "(2, 3, 5, 5) has 3",
    ),
    "one point": (lambda: BatchNorm1d(4, Lorentz())(torch.zeros(1, 4)), "one point"),
    "form": (lambda: BatchNorm1d(4, Lorentz(), form="scalar"), 'choose "centred" or "free"'),
    "name": (lambda: Activation("rellu", Lorentz()), "did you mean relu"),
    "share": (lambda: Dropout(1.5, Lorentz()), "between 0 and 1"),
    "conv of a product": (lambda: Conv2d(3, 2, 3, PRODUCT), "Conv2d on a product"),
    "norm of a product": (lambda: BatchNorm2d(3, PRODUCT), "BatchNorm2d on a product"),
    "pool of a product": (lambda: AvgPool2d(2, PRODUCT), "AvgPool2d on a product"),
    "one side of a product": (lambda: concat((torch.zeros(2, 3),) * 2, PRODUCT), "concat on a product"),
    "flat product": (lambda: Flatten(PRODUCT), "Flatten on a product"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_inputs_are_named(kind):
    call, says = WRONG[kind]
    with pytest.raises(UserError) as error:
        call()
    assert says in str(error.value)
    assert "\n" not in str(error.value)
