"""Filters: ours against scipy and scikit-image; kornia's, which we use as they are, pinned to their conventions.

Impulses, ramps and shifts come first: a wrong sign, factor or axis fails there.
"""

import math

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch.autograd import gradcheck
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.ops.filters import cmyk, from_cmyk, high_pass, laplacian_of_gaussian, prewitt

kornia = pytest.importorskip("kornia", reason="half of the filters are kornia's")
from kornia import color, feature, filters  # noqa: E402

SCIPY = {"reflect": "mirror", "replicate": "nearest", "circular": "wrap", "constant": "constant"}  # names of borders
INSIDE = (..., slice(20, -20), slice(20, -20))


def gauss(x, sigma, border="reflect"):
    return filters.gaussian_blur2d(x, 2 * round(4 * sigma) + 1, (sigma, sigma), border)


LINEAR = {
    "high-pass": high_pass,
    "high-pass 5": lambda x: high_pass(x, 5),
    "prewitt x": lambda x: prewitt(x)[:, :, 0],
    "prewitt y": lambda x: prewitt(x)[:, :, 1],
    "laplacian of a gaussian": lambda x: laplacian_of_gaussian(x, 0.7),
    "average": lambda x: filters.box_blur(x, 3),
    "gaussian": lambda x: gauss(x, 0.8),
    "sharpening": lambda x: filters.unsharp_mask(x, 5, (1.0, 1.0)),
    "sobel x": lambda x: filters.spatial_gradient(x)[:, :, 0],
    "sobel y": lambda x: filters.spatial_gradient(x)[:, :, 1],
    "difference x": lambda x: filters.spatial_gradient(x, "diff")[:, :, 0],
    "laplacian": lambda x: filters.laplacian(x, 3),
    "difference of gaussians": lambda x: feature.dog_response(torch.stack([gauss(x, 0.7), gauss(x, 0.9)], 2))[:, :, 0],
}
WITHOUT_BRIGHTNESS = {name for name in LINEAR if name not in ("average", "gaussian", "sharpening")}


def some(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def ramp(x=0.0, y=0.0, size=13):
    """A picture whose brightness grows by x to the right and by y downwards, a pixel."""
    rows, columns = torch.meshgrid(torch.arange(float(size)), torch.arange(float(size)), indexing="ij")
    return (x * columns + y * rows).double()[None, None]


def impulse(size=13):
    x = torch.zeros(1, 1, size, size, dtype=torch.float64)
    x[..., size // 2, size // 2] = 1
    return x


@pytest.fixture(scope="module")
def camera():
    data = pytest.importorskip("skimage.data", reason="its photographs are what libraries are compared on")
    return data.camera() / 255


def tensor(picture):
    return torch.tensor(picture, dtype=torch.float64)[None, None]


def same(ours, theirs, atol):
    np.testing.assert_allclose(ours.squeeze().numpy(), theirs, rtol=0, atol=atol)


# -- laws of linear filters (14.10) -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LINEAR)
def test_linear(name):
    h, f, g = LINEAR[name], some(2, 1, 16, 17), some(2, 1, 16, 17, seed=1)
    assert_close(h(2 * f - 3 * g), 2 * h(f) - 3 * h(g))


def test_the_median_is_not_linear():
    f, g = some(1, 1, 9, 9), some(1, 1, 9, 9, seed=1)
    apart = filters.median_blur(f + g, 3) - filters.median_blur(f, 3) - filters.median_blur(g, 3)
    assert apart.abs().max() > 0.1


@pytest.mark.parametrize("name", LINEAR)
def test_an_impulse_gives_the_kernel_and_the_kernel_gives_the_filter(name):
    """Filtering is convolution with the answer to an impulse: f∗h, the flipped kernel of 1.18."""
    h, f = LINEAR[name], some(1, 1, 31, 31)
    kernel = h(impulse())[0, 0].numpy()
    expected = ndimage.convolve(f[0, 0].numpy(), kernel)
    same(h(f)[..., 7:-7, 7:-7], expected[7:-7, 7:-7], atol=1e-14)
    assert abs(kernel.sum() - (name not in WITHOUT_BRIGHTNESS)) < 1e-12


@pytest.mark.parametrize("name", [*LINEAR, "median"])
def test_a_shift_goes_through(name):
    h = LINEAR.get(name, lambda x: filters.median_blur(x, 3))
    f = some(1, 1, 24, 24)
    moved = f.roll((2, 3), (2, 3))
    assert_close(h(moved)[..., 8:-6, 9:-6], h(f).roll((2, 3), (2, 3))[..., 8:-6, 9:-6])


@pytest.mark.parametrize("name", [*LINEAR, "median", "cmyk"])
def test_a_batch_is_its_pictures_one_by_one(name):
    h = LINEAR.get(name, lambda x: filters.median_blur(x, 3)) if name != "cmyk" else cmyk
    x = some(3, 3, 14, 15)
    assert_close(h(x), torch.cat([h(picture[None]) for picture in x]))
    if name != "cmyk":  # channels too are filtered one by one
        assert_close(h(x), torch.cat([h(x[:, [c]]) for c in range(3)], 1))


@pytest.mark.parametrize("name", LINEAR)
def test_slopes(name):
    """Derivatives point right and down; what bends has no slope and what is flat nothing at all."""
    h, middle = LINEAR[name], (0, 0, 6, 6)
    answers = [h(ramp(x=1))[middle].item(), h(ramp(y=1))[middle].item(), h(ramp() + 1)[middle].item()]
    expected = {
        "prewitt x": [2, 0, 0], "prewitt y": [0, 2, 0],
        "sobel x": [1, 0, 0], "sobel y": [0, 1, 0], "difference x": [1, 0, 0],
        "average": [6, 6, 1], "gaussian": [6, 6, 1], "sharpening": [6, 6, 1],
    }.get(name, [0, 0, 0])  # fmt: skip
    assert answers == pytest.approx(expected, abs=1e-12)


# -- ours -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("border", SCIPY)
def test_high_pass(camera, border):
    """14.08: the notes print +1/(k² - 1), whose sum is 2."""
    for size in (3, 5):
        kernel = np.full((size, size), -1 / (size**2 - 1))
        kernel[size // 2, size // 2] = 1
        assert abs(kernel.sum()) < 1e-15
        ours = high_pass(tensor(camera), size, border)
        same(ours, ndimage.correlate(camera, kernel, mode=SCIPY[border]), atol=2e-15)
    sharper = impulse() + high_pass(impulse())  # the identity plus a high-pass: not a high-pass, its sum is 1
    assert sharper.sum().item() == pytest.approx(1)


@pytest.mark.parametrize("border", SCIPY)
def test_prewitt(camera, border):
    """14.12, 14.14: the kernel with rows 1, 0, -1 measures the slope downwards; the notes call it horizontal."""
    ours = prewitt(tensor(camera), border)[0, 0]
    same(ours[0], ndimage.prewitt(camera, 1, mode=SCIPY[border]) / 3, atol=1e-15)
    same(ours[1], ndimage.prewitt(camera, 0, mode=SCIPY[border]) / 3, atol=1e-15)


def test_prewitt_is_scikit_images(camera):
    skimage = pytest.importorskip("skimage.filters")
    ours = prewitt(tensor(camera), "replicate")[0, 0]
    np.testing.assert_allclose(ours[0][1:-1, 1:-1], skimage.prewitt_v(camera)[1:-1, 1:-1], rtol=0, atol=1e-15)
    np.testing.assert_allclose(ours[1][1:-1, 1:-1], skimage.prewitt_h(camera)[1:-1, 1:-1], rtol=0, atol=1e-15)
    length = ours.norm(dim=0) / math.sqrt(2)
    np.testing.assert_allclose(length[1:-1, 1:-1], skimage.prewitt(camera)[1:-1, 1:-1], rtol=0, atol=1e-15)


@pytest.mark.parametrize(("sigma", "atol"), [(1.0, 2e-6), (2.0, 3e-8), (4.0, 2e-8)])
@pytest.mark.parametrize("border", SCIPY)
def test_laplacian_of_gaussian(camera, sigma, atol, border):
    """14.24. scipy samples G″ as it is, so at 4σ, its default, flat pictures do not give 0."""
    ours = laplacian_of_gaussian(tensor(camera), sigma, border)
    same(ours, ndimage.gaussian_laplace(camera, sigma, mode=SCIPY[border], truncate=6), atol=atol)
    same(ours[INSIDE], ndimage.gaussian_laplace(camera, sigma, mode="mirror")[20:-20, 20:-20], atol=2e-4)
    flat = np.ones((60, 60))
    assert laplacian_of_gaussian(tensor(flat), sigma).abs().max() < 1e-14
    assert abs(ndimage.gaussian_laplace(flat, sigma)[30, 30]) > 1e-5


@pytest.mark.parametrize("sigma", [0.1, 0.3, 0.5, 1.0, 2.5])
def test_laplacian_of_gaussian_of_a_bowl_is_4_at_every_scale(sigma):
    middle = 20.0
    bowl = (ramp(x=1, size=41) - middle) ** 2 + (ramp(y=1, size=41) - middle) ** 2
    assert laplacian_of_gaussian(bowl, sigma)[0, 0, 20, 20].item() == pytest.approx(4, abs=1e-9)


def test_kernel_of_the_laplacian_of_a_gaussian():
    sigma, reach = 1.5, 8
    r2 = (ramp(x=1, size=2 * reach + 1) - reach) ** 2 + (ramp(y=1, size=2 * reach + 1) - reach) ** 2
    s = r2 / (2 * sigma**2)
    printed = -(1 - s) * (-s).exp() / (math.pi * sigma**4)
    point = torch.nn.functional.pad(impulse(1), (reach + 9,) * 4)
    kernel = laplacian_of_gaussian(point, sigma)[..., 9:-9, 9:-9]
    assert_close(kernel, printed, rtol=0, atol=1e-8)
    assert kernel[0, 0, reach, reach] < 0
    smallest = laplacian_of_gaussian(impulse(), 0.1)[0, 0, 5:8, 5:8]  # a cross: what is left of it at σ = 0
    assert_close(smallest, torch.tensor([[0, 1, 0], [1, -4, 1], [0, 1, 0]]).double(), rtol=0, atol=1e-12)


def test_the_laplacian_of_a_gaussian_finds_the_scale_of_a_disc():
    radius, scales = 8, torch.arange(3.0, 9.0, 0.1)
    disc = ((ramp(x=1, size=129) - 64) ** 2 + (ramp(y=1, size=129) - 64) ** 2 <= radius**2).double()
    strength = torch.tensor([s**2 * laplacian_of_gaussian(disc, s)[0, 0, 64, 64] for s in scales.tolist()])
    assert strength.max() < 0  # bright: negative
    assert scales[strength.argmin()].item() == pytest.approx(radius / math.sqrt(2), abs=0.15)


def test_cmyk():
    """14.05: the notes leave k out. Colours by hand, black among them; a round trip; Pillow uses no black ink."""
    by_hand = {  # light -> ink
        (1, 1, 1): (0, 0, 0, 0), (0, 0, 0): (0, 0, 0, 1), (1, 0, 0): (0, 1, 1, 0), (0.5, 0.25, 0): (0, 0.5, 1, 0.5),
    }  # fmt: skip
    for light, ink in by_hand.items():
        assert cmyk(torch.tensor(light).double().view(1, 3, 1, 1)).flatten().tolist() == list(ink)
    x = some(2, 3, 8, 9)
    x[:, :, 0] = 0
    assert_close(from_cmyk(cmyk(x)), x, rtol=0, atol=1e-15)
    assert ((cmyk(x) >= 0) & (cmyk(x) <= 1)).all()
    image = pytest.importorskip("PIL.Image")
    pixel = (cmyk(torch.tensor([200, 100, 50]).view(1, 3, 1, 1) / 255).flatten() * 255).round().int().tolist()
    assert image.new("RGB", (1, 1), (200, 100, 50)).convert("CMYK").getpixel((0, 0)) == (55, 155, 205, 0)
    assert pixel == [0, 128, 191, 55]


def test_black_has_a_gradient():
    x = torch.zeros(1, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    from_cmyk(cmyk(x)).sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(
    "function",
    [high_pass, prewitt, lambda x: laplacian_of_gaussian(x, 0.6), cmyk, lambda x: from_cmyk(cmyk(x))],
    ids=["high_pass", "prewitt", "laplacian_of_gaussian", "cmyk", "from_cmyk"],
)
def test_gradients(function):
    assert gradcheck(function, some(1, 3, 6, 6).add(0.1).requires_grad_())


@pytest.mark.parametrize("function", [high_pass, prewitt, lambda x: laplacian_of_gaussian(x, 1.0), cmyk])
def test_single_precision_is_near_double(function):
    x = some(2, 3, 20, 20)
    assert function(x.float()).dtype == torch.float32
    assert_close(function(x.float()).double(), function(x), rtol=0, atol=2e-6)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("function", [high_pass, prewitt, lambda x: laplacian_of_gaussian(x, 1.0), cmyk])
def test_on_a_gpu(function):
    x = some(2, 3, 20, 20)
    assert_close(function(x.cuda()).cpu(), function(x))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: cmyk(torch.rand(1, 1, 4, 4)), "have 1 channel where 3 are needed: give (B, 3, H, W)"),
        (lambda: from_cmyk(torch.rand(1, 3, 4, 4)), "have 3 channels where 4 are needed"),
        (lambda: prewitt(torch.rand(4, 4)), "pictures of shape (4, 4): give (B, C, H, W)"),
        (lambda: high_pass(torch.zeros(1, 1, 4, 4, dtype=torch.uint8)), "pictures of torch.uint8: give brightness"),
        (lambda: high_pass(torch.rand(1, 1, 9, 9), 4), "size=4: a window needs a centre"),
        (lambda: high_pass(torch.rand(1, 1, 9, 9), 3, "reflct"), "border=reflct: did you mean"),
        (lambda: laplacian_of_gaussian(torch.rand(1, 1, 9, 9), 2.0), "9 x 9 are too small for border=reflect here"),
        (lambda: laplacian_of_gaussian(torch.rand(1, 1, 9, 9), 0.0), "sigma=0.0: the scale"),
    ],
)
def test_mistakes_are_one_line(call, said):
    with pytest.raises(UserError) as error:
        call()
    assert said in str(error.value)
    assert "\n" not in str(error.value)


# -- kornia's, as they are --------------------------------------------------------------------------------------------


def test_average(camera):
    """14.06"""
    ours = filters.box_blur(tensor(camera), 5)
    same(ours, ndimage.uniform_filter(camera, 5, mode="mirror"), atol=3e-14)  # scipy's runs along a sum
    cv2 = pytest.importorskip("cv2")
    same(ours, cv2.blur(camera, (5, 5), borderType=cv2.BORDER_REFLECT_101), atol=3e-15)


def test_gaussian(camera):
    """14.07: sampled and renormalised. As it is, a Gaussian of σ = ½ would brighten the picture by 6 %."""
    same(gauss(tensor(camera), 2.0), ndimage.gaussian_filter(camera, 2, mode="mirror"), atol=1e-15)
    places = np.arange(-2, 3)
    sampled = np.exp(-(places**2) / (2 * 0.5**2)) / (0.5 * math.sqrt(2 * math.pi))
    assert sampled.sum() ** 2 > 1.02
    kernel = filters.get_gaussian_kernel1d(5, 0.5, dtype=torch.float64)[0].numpy()
    np.testing.assert_allclose(kernel, sampled / sampled.sum(), atol=1e-15)


def test_sharpening(camera):
    """14.08: x + (x - Gaussian of x). A flat picture stays."""
    x = tensor(camera)
    assert_close(filters.unsharp_mask(x, 17, (2.0, 2.0)), 2 * x - gauss(x, 2.0))
    assert_close(filters.unsharp_mask(ramp() + 0.3, 5, (1.0, 1.0)), ramp() + 0.3)


def test_median(camera):
    """14.09"""
    same(
        filters.median_blur(tensor(camera)[..., :128, :128], 3),
        ndimage.median_filter(camera[:128, :128], 3, mode="mirror"),
        atol=0,
    )


def test_differences():
    """14.11: forward, backward and central; only the central one is exact on x². As printed, backward is forward."""
    x = torch.arange(9.0).double()
    f = x**2
    forward, backward, central = f[2:] - f[1:-1], f[1:-1] - f[:-2], torch.gradient(f)[0][1:-1]
    assert_close(central, 2 * x[1:-1])
    assert_close(forward, 2 * x[1:-1] + 1)
    assert_close(backward, 2 * x[1:-1] - 1)
    assert_close(central, (forward + backward) / 2)
    square = ramp(x=1) ** 2
    assert_close(filters.spatial_gradient(square, "diff")[0, 0, 0, 5, 1:-1], 2 * square[0, 0, 5, 1:-1].sqrt())


def test_sobel(camera):
    """14.13: kornia's is the derivative; scikit-image's is twice, OpenCV's and scipy's 8 times that."""
    slopes, raw = (
        filters.spatial_gradient(tensor(camera))[0, 0],
        filters.spatial_gradient(tensor(camera), normalized=False),
    )
    inside = (slice(1, -1), slice(1, -1))
    for axis, slope in ((1, slopes[0]), (0, slopes[1])):
        np.testing.assert_allclose(8 * slope[inside], ndimage.sobel(camera, axis)[inside], atol=2e-15)
    assert_close(raw[0, 0], 8 * slopes)
    assert_close(filters.sobel(tensor(camera), eps=0)[0, 0], slopes.norm(dim=0))
    skimage = pytest.importorskip("skimage.filters")
    np.testing.assert_allclose(2 * slopes[0][inside], skimage.sobel_v(camera)[inside], rtol=0, atol=1e-15)
    np.testing.assert_allclose(2 * slopes[1][inside], skimage.sobel_h(camera)[inside], rtol=0, atol=1e-15)
    cv2 = pytest.importorskip("cv2")
    np.testing.assert_allclose(raw[0, 0, 0][inside], cv2.Sobel(camera, cv2.CV_64F, 1, 0)[inside], rtol=0, atol=1e-15)


def test_direction_of_the_slope():
    """14.14: atan2(g_y, g_x), from the x axis towards the y axis, which points down."""
    for x, y in ((1, 0), (0, 1), (-1, 0), (0, -1), (3, 4), (-2, 1)):
        for slopes in (prewitt(ramp(x, y)), filters.spatial_gradient(ramp(x, y))):
            g_x, g_y = slopes[0, 0, :, 6, 6]
            assert torch.atan2(g_y, g_x).item() == pytest.approx(math.atan2(y, x))


def near(edges, others):
    """The share of edges that have one of the others within a pixel."""
    return ndimage.binary_dilation(others, np.ones((3, 3)))[edges].mean()


def f1(a, b):
    return 2 / (1 / near(a, b) + 1 / near(b, a))


def test_canny(camera):
    """14.15: thresholds are of Sobel's raw slope, as in scikit-image and OpenCV; edges agree within a pixel."""
    edges = filters.canny(tensor(camera), 0.1, 0.2, (17, 17), (2.0, 2.0))[1][0, 0].numpy() > 0
    skimage = pytest.importorskip("skimage.feature")
    assert f1(edges, skimage.canny(camera, 2, 0.1, 0.2)) > 0.98
    cv2 = pytest.importorskip("cv2")
    soft = np.round(cv2.GaussianBlur(camera, (17, 17), 2) * 255).astype(np.uint8)
    assert f1(edges, cv2.Canny(soft, 0.1 * 255, 0.2 * 255, L2gradient=True) > 0) > 0.98
    assert f1(edges, cv2.Canny(soft, 0.2 * 255, 0.4 * 255, L2gradient=True) > 0) < 0.9  # other thresholds, other edges


def test_canny_thins_and_joins():
    """An edge is one pixel wide, and a weak part of it stays because it hangs on a strong one."""
    fading = (ramp(x=1, size=21) > 9.5) * (1 - ramp(y=0.04, size=21))  # a step that fades downwards
    _, edges = filters.canny(fading, 0.3, 1.5)
    assert (edges[0, 0, 2:-2].sum(1) == 1).all()
    _, strong = filters.canny(fading, 1.499, 1.5)
    assert strong[0, 0, :8].sum() == 8
    assert strong[0, 0, 12:].sum() == 0
    _, weak = filters.canny(fading[..., 12:, :], 0.3, 1.5)  # without the strong part
    assert weak.sum() == 0


def test_laplacian(camera):
    """1.17 in kornia: 3 x 3 ones around -8 is 3Δ, and its default divides by 16 more."""
    bowl = (ramp(x=1) - 6) ** 2 + (ramp(y=1) - 6) ** 2
    assert filters.laplacian(bowl, 3, normalized=False)[0, 0, 6, 6].item() / 3 == 4
    assert filters.laplacian(bowl, 3)[0, 0, 6, 6].item() * 16 / 3 == 4
    kernel = np.ones((3, 3)) / 3
    kernel[1, 1] = -8 / 3
    ours = filters.laplacian(tensor(camera), 3, normalized=False) / 3
    same(ours, ndimage.convolve(camera, kernel, mode="mirror"), atol=2e-15)


def test_difference_of_gaussians(camera):
    """14.25: G(kσ) - G(σ) ≈ (k - 1)σ²ΔG, because ∂G/∂σ = σΔG. As printed, Δ², it is another picture."""
    sigma, k, x = 2.0, 1.01, tensor(camera)
    stack = torch.stack([filters.gaussian_blur2d(x, 25, (s, s)) for s in (sigma, k * sigma)], 2)
    difference = feature.dog_response(stack)[:, :, 0][INSIDE]
    expected = (k - 1) * sigma**2 * laplacian_of_gaussian(x, sigma)
    assert 4e-3 < difference.abs().max() < 4.2e-3
    assert (difference - expected[INSIDE]).abs().max() < 2.8e-5
    twice = (k - 1) * sigma**2 * laplacian_of_gaussian(laplacian_of_gaussian(x, sigma), 0.3)
    assert (difference - twice[INSIDE]).abs().max() > 1e-3


def test_bayer():
    """14.01: green lies on one diagonal of a square of four. The notes have red there. The names are OpenCV's."""
    data = pytest.importorskip("skimage.data", reason="its photographs")
    astronaut = tensor(data.astronaut() / 255)[0].permute(0, 3, 1, 2)
    colours = torch.eye(3, dtype=torch.float64)[:, :, None, None].expand(3, 3, 4, 4)  # red, green, blue
    red, green, blue = color.rgb_to_raw(colours, color.CFA.BG)[:, 0, :2, :2]
    assert red.tolist() == [[1, 0], [0, 0]]
    assert green.tolist() == [[0, 1], [1, 0]]
    assert blue.tolist() == [[0, 0], [0, 1]]
    raw = color.rgb_to_raw(astronaut, color.CFA.BG)
    back = color.raw_to_rgb(raw, color.CFA.BG)
    assert -10 * (back - astronaut).square().mean().log10().item() == pytest.approx(30.6, abs=0.05)  # decibels
    assert_close(color.rgb_to_raw(back, color.CFA.BG), raw)  # what was measured stays
    cv2 = pytest.importorskip("cv2")
    theirs = cv2.cvtColor((raw[0, 0].numpy() * 255).round().astype(np.uint8), cv2.COLOR_BayerBG2RGB)
    off = np.abs(back[0].permute(1, 2, 0).numpy() * 255 - theirs)[2:-2, 2:-2]
    assert off.max() <= 0.5 + 1e-9  # OpenCV rounds
    other = color.raw_to_rgb(raw, color.CFA.RG)[0].permute(1, 2, 0).numpy() * 255
    assert np.abs(other - theirs)[2:-2, 2:-2].mean() > 30


@pytest.mark.parametrize("steps", [2, 16, 256])
def test_quantisation(steps):
    """14.03: rounded to the nearest of some steps, brightness is wrong by half a step at most."""
    x = some(1, 1, 64, 64)
    step = 1 / (steps - 1)
    error = ((x / step).round() * step - x).abs()
    assert error.max() <= step / 2 + 1e-15
    assert error.max() > 0.48 * step
    assert error.square().mean().sqrt().item() == pytest.approx(step / math.sqrt(12), rel=0.03)  # as of uniform noise


def test_rgba():
    """14.04: colour and opacity, in this order; the notes print RBGA."""
    x = some(1, 3, 4, 5)
    alpha = torch.full((1, 1, 4, 5), 0.25, dtype=torch.float64)
    assert_close(color.rgba_to_rgb(torch.cat([x, torch.ones_like(alpha)], 1)), x)
    assert_close(color.rgba_to_rgb(torch.cat([x, alpha], 1)), 0.25 * x + 0.75)  # on white
    assert_close(color.rgba_to_rgb(torch.cat([x, alpha], 1), (0.0, 0.0, 0.0)), 0.25 * x)
    assert_close(color.rgb_to_rgba(x, 0.25)[:, :3], x)
