"""Formulas of the notes about pictures that torch, torchvision or kornia have already, as properties.

`test_formula[1.17]` is item 1.17. Filters and features are held by tests/ops.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import signal
from torch import nn
from torch.autograd import grad
from torch.testing import assert_close

from horosphere.catalogue import notes
from horosphere.data.dense_batches import cut
from horosphere.geometry import Euclidean, Lorentz, Poincare
from horosphere.nn import Conv2d
from tests.test_formulas import differ, some

FORMULAS = {}


def formula(number):
    def keep(function):
        assert number not in FORMULAS
        FORMULAS[number] = function
        return function

    return keep


@formula("1.11")
def smooth_l1():
    """½d²/β for |d| < β, else |d| - β/2: value and slope meet at β.

    As printed, αd² below 1 and |d| - α above with any α: it jumps by 2α - 1 at 1, but for α = ½.
    """
    d = torch.linspace(-4, 4, 801, dtype=torch.float64, requires_grad=True)
    for beta in (0.5, 1.0, 2.0):
        loss = F.smooth_l1_loss(d, torch.zeros_like(d), beta=beta, reduction="none")
        assert_close(loss, torch.where(d.abs() < beta, d**2 / (2 * beta), d.abs() - beta / 2))
        slope = grad(loss.sum(), d)[0]
        assert slope.diff().abs().max() < 0.011 / beta  # no jump
        assert_close(beta * loss, F.huber_loss(d, torch.zeros_like(d), delta=beta, reduction="none"))

    def printed(d, alpha):
        return torch.where(d.abs() < 1, alpha * d**2, d.abs() - alpha)

    sides = torch.tensor([1 - 1e-9, 1 + 1e-9], dtype=torch.float64)
    for alpha in (0.3, 0.5, 1.0):
        below, above = printed(sides, alpha).tolist()
        assert below - above == pytest.approx(2 * alpha - 1, abs=1e-8)
    assert_close(F.smooth_l1_loss(d, torch.zeros_like(d), reduction="none"), printed(d, 0.5))


@formula("1.17")
def laplace():
    """∂²f/∂x² + ∂²f/∂y², in any dimension the trace of the Hessian: 4 of x² + y², 0 of what is harmonic."""
    from torch.func import hessian

    point = some(2)

    def at(f):
        return hessian(f)(point).trace().item()

    assert at(lambda p: p.square().sum()) == pytest.approx(4)
    assert at(lambda p: p[0] ** 2 - p[1] ** 2) == pytest.approx(0)
    assert at(lambda p: p.square().sum().log()) == pytest.approx(0, abs=1e-12)  # log r² in the plane
    turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64)

    def wave(p):
        return (p[0] * 2).sin() * p[1].exp()

    turned = hessian(lambda q: wave(turn.T @ q))(turn @ point).trace()
    assert_close(turned, hessian(wave)(point).trace())  # it has no directions


@formula("1.18")
def convolution():
    """(f∗g)(x) = Σ f(τ)g(x - τ): flipped. It commutes, associates, and a difference may be taken of either factor.

    Layers correlate. In one channel of flat space two of them commute all the same; on the hyperboloid they do not.
    """
    f, g, h = (some(n, seed=n).numpy() for n in (9, 4, 5))
    by_hand = [sum(f[t] * g[x - t] for t in range(9) if 0 <= x - t < 4) for x in range(12)]
    np.testing.assert_allclose(signal.convolve(f, g), by_hand, atol=1e-12)
    np.testing.assert_allclose(signal.convolve(f, g), signal.convolve(g, f), atol=1e-12)
    left, right = signal.convolve(signal.convolve(f, g), h), signal.convolve(f, signal.convolve(g, h))
    np.testing.assert_allclose(left, right, atol=1e-12)
    slope = np.array([1.0, -1.0])  # a difference is a convolution, so (f∗g)' = f'∗g = f∗g'
    for either in (signal.convolve(signal.convolve(f, slope), g), signal.convolve(f, signal.convolve(g, slope))):
        np.testing.assert_allclose(np.diff(signal.convolve(f, g)), either[1:-1], atol=1e-12)
    layer = F.conv1d(torch.tensor(f)[None, None], torch.tensor(g)[None, None])[0, 0].numpy()
    np.testing.assert_allclose(layer, signal.correlate(f, g, mode="valid"), atol=1e-12)
    assert np.abs(layer - signal.convolve(f, g, mode="valid")).max() > 0.1
    for m, commutes in ((Euclidean(), True), (Lorentz(0.5), False), (Poincare(2.0), False)):
        first, second = one_channel(m, 1), one_channel(m, 2)
        x = m.lift(some(1, 6, 6, 1)).permute(0, 3, 1, 2).contiguous()
        assert differ(around(first, around(second, x)), around(second, around(first, x)), by=1e-3) != commutes


def one_channel(m, seed):
    torch.manual_seed(seed)
    layer = Conv2d(1, 1, 3, m, bias=False).double()
    for p in layer.parameters():
        nn.init.normal_(p, std=0.4)
    return layer


def around(conv, x):
    return conv(F.pad(x, (1, 1, 1, 1), mode="circular"))


@formula("10.01")
def flips():
    """With probability p; p = 1 is torch.flip. Left and right by `flip=true`, up and down by torchvision."""
    v2 = pytest.importorskip("torchvision.transforms.v2", reason="its transforms")
    x = some(3, 6, 7)
    for transform, axis in ((v2.RandomHorizontalFlip, 2), (v2.RandomVerticalFlip, 1)):
        assert torch.equal(transform(p=1)(x), x.flip(axis))
        assert torch.equal(transform(p=0)(x), x)
        often = np.mean([torch.equal(transform(p=0.3)(x), x.flip(axis)) for _ in range(400)])
        assert often == pytest.approx(0.3, abs=0.08)


@formula("10.02")
def random_crops():
    """A tenth to all of the area, sides of a ratio from ½ to 2, evenly in its logarithm; then resized."""
    v2 = pytest.importorskip("torchvision.transforms.v2", reason="its transforms")
    y, x = torch.meshgrid(torch.arange(200.0), torch.arange(200.0), indexing="ij")
    crop = v2.RandomResizedCrop((16, 16), scale=(0.1, 1.0), ratio=(0.5, 2.0), antialias=False)
    windows = torch.stack(
        [crop(torch.stack([y, x])) for _ in range(400)]
    )  # of coordinates: they say which window it was
    sides = (
        torch.stack([windows[:, 0, -1, 8] - windows[:, 0, 0, 8], windows[:, 1, 8, -1] - windows[:, 1, 8, 0]]) * 16 / 15
    )
    area, ratio = sides.prod(0) / 200**2, sides[1] / sides[0]
    assert 0.08 < area.min() < 0.15
    assert 0.9 < area.max() < 1.05
    assert 0.45 < ratio.min() < 0.6
    assert 1.7 < ratio.max() < 2.2
    assert ratio.log().mean().abs() < 0.06  # as often tall as wide


@formula("10.03")
def colour_jitter():
    """Brightness, contrast, saturation and hue, each by its own range; nothing at 0."""
    v2 = pytest.importorskip("torchvision.transforms.v2", reason="its transforms")
    x = some(3, 8, 8).float().sigmoid()
    assert torch.equal(v2.ColorJitter(0, 0, 0, 0)(x), x)
    ratios = torch.tensor([(v2.ColorJitter(brightness=0.5)(0.5 * x) / (0.5 * x)).mean() for _ in range(200)])
    assert 0.5 <= ratios.min() < 0.6
    assert 1.4 < ratios.max() <= 1.5 + 1e-5
    grey = x.mean(0, keepdim=True).expand(3, 8, 8)
    assert_close(v2.ColorJitter(saturation=0.5, hue=0.5)(grey), grey, rtol=0, atol=1e-3)  # grey has neither
    assert_close(v2.functional.adjust_hue(v2.functional.adjust_hue(x, 0.3), -0.3), x, rtol=0, atol=1e-5)
    assert_close(v2.functional.adjust_contrast(grey, 0.0), grey.mean().expand(3, 8, 8), rtol=0, atol=1e-3)


@formula("10.24")
def crops_of_masks():
    """Picture and mask by one window; at scale=1,1 pixels are copied, not stretched."""
    numbers = np.arange(40 * 60).reshape(40, 60) % 251
    image = np.repeat(numbers[..., None], 3, 2).astype(np.uint8)
    seen = set()
    for seed in range(20):
        draws = np.random.default_rng(seed).random(4)
        window, mask = cut(image, numbers.astype(np.int16), 40, (1.0, 1.0), True, draws)
        assert np.array_equal(window[..., 0], mask)
        columns = {tuple(numbers[0, left : left + 40]) for left in range(21)}
        assert tuple(mask[0]) in columns or tuple(mask[0, ::-1]) in columns
        seen.add(tuple(mask[0]))
    assert len(seen) > 10


@formula("10.26")
def transposed_convolution():
    """The adjoint: ⟨conv x, y⟩ = ⟨x, convᵀ y⟩. So it is the gradient of a convolution. It does not undo one."""
    for stride, padding in ((1, 0), (2, 1), (3, 2)):
        kernel, x = some(4, 3, 4, 4), some(2, 3, 13, 13, seed=1).requires_grad_()
        there = F.conv2d(x, kernel, stride=stride, padding=padding)
        y = some(*there.shape, seed=2)
        rest = (13 + 2 * padding - 4) % stride  # rows that no window reaches
        back = F.conv_transpose2d(y, kernel, stride=stride, padding=padding, output_padding=rest)
        assert back.shape == x.shape
        assert_close((there * y).sum(), (x * back).sum())
        assert_close(grad(there, x, y)[0], back)
    assert differ(F.conv_transpose2d(F.conv2d(x, kernel), kernel), x)
    assert F.conv_transpose2d(torch.ones(1, 1, 10, 15), torch.ones(1, 1, 64, 64), stride=32, padding=16).shape[2:] == (
        320,
        480,
    )


@formula("10.28")
def content():
    """The mean of squares: of maps, so their number does not matter. Its gradient pulls straight at the target."""
    x, target = some(2, 5, 7).requires_grad_(), some(2, 5, 7, seed=1)
    loss = F.mse_loss(x, target)
    assert_close(loss, (x - target).square().sum() / x.numel())
    assert_close(grad(loss, x)[0], 2 * (x - target) / x.numel())
    assert_close(F.mse_loss(x.repeat(3, 1, 1), target.repeat(3, 1, 1)), loss)


@formula("10.30")
def total_variation():
    """Σ|Δx| + |Δy|. kornia's is the sum, d2l's half of each mean. 0 of a flat picture, its height of a step a row."""
    losses = pytest.importorskip("kornia.losses", reason="total_variation")
    x = some(2, 3, 8, 9)
    down, across = x.diff(dim=-2).abs(), x.diff(dim=-1).abs()
    assert_close(losses.total_variation(x), down.sum((-2, -1)) + across.sum((-2, -1)))
    means = losses.total_variation(x, reduction="mean")
    assert_close(means, down.mean((-2, -1)) + across.mean((-2, -1)))
    assert_close(0.5 * (down.mean() + across.mean()), 0.5 * means.mean())  # d2l's
    step = torch.zeros(1, 6, 6)
    step[..., 3:] = 0.7
    assert losses.total_variation(step).item() == pytest.approx(6 * 0.7)
    assert losses.total_variation(torch.full((1, 6, 6), 0.3)).item() == 0
    ramp = torch.linspace(0, 0.7, 6).expand(1, 6, 6)
    assert losses.total_variation(ramp).item() == pytest.approx(6 * 0.7)  # steps or ramps: the same; noise: more
    data = pytest.importorskip("skimage.data", reason="a photograph")
    photograph = torch.tensor(data.camera() / 255)
    assert losses.total_variation(photograph[None]).item() == pytest.approx(13_573.21, abs=0.01)


@pytest.mark.parametrize("number", FORMULAS)
def test_formula(number):
    torch.manual_seed(0)
    FORMULAS[number]()


def test_items_that_name_this_file_are_here():
    named = {number for number, item in notes.items().items() if item.test == "tests/test_formulas_pictures.py"}
    assert named <= FORMULAS.keys()
