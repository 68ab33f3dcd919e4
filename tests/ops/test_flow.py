"""Flow and tracking: laws of warping and pyramids, slow explicit references, OpenCV, scikit-image's stereo pair."""

import math

import numpy as np
import pytest
import scipy.ndimage
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.evaluate.flow import endpoint_error
from horosphere.ops import flow as ops
from horosphere.ops.flow import FLAT, finer, horn_schunck, lucas_kanade, pyramid, smaller_eigenvalue, track, warp

METHODS = {"lucas_kanade": lucas_kanade, "horn_schunck": horn_schunck}
dense = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
shifts = pytest.mark.parametrize("shift", [(0.3, -0.4), (2.6, 1.25), (-5.5, 3.25)])


def scene(shift=(0.0, 0.0), height=65, width=81):
    """Waves of 30 pixels and more, moved by a shift.   (1, 1, H, W) in fp64"""
    x = torch.arange(width, dtype=torch.float64) - shift[0]
    y = (torch.arange(height, dtype=torch.float64) - shift[1])[:, None]
    waves = 0.15 * (x / 5 + y / 9).sin() + 0.15 * (y / 6 - x / 11).cos() + 0.1 * (x / 8).cos() * (y / 7).sin()
    return (0.5 + waves)[None, None]


def noise(*shape, seed=0):
    """Smooth enough that a pixel's neighbours say where it went."""
    sharp = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return F.avg_pool2d(F.pad(sharp, (1, 1, 1, 1), mode="replicate"), 3, 1)


def constant(shift, like):
    return torch.tensor(shift, dtype=like.dtype).view(1, 2, 1, 1).expand(len(like), 2, *like.shape[-2:])


def within(field, by):
    return field[..., by:-by, by:-by]


def mean_slopes(a, b):
    """I_x and I_y, of both pictures."""
    return torch.gradient((a + b) / 2, dim=(3, 2))


def grey(name):
    skimage = pytest.importorskip("skimage", reason="its photographs come with scikit-image")
    picture = getattr(skimage.data, name)()
    return torch.from_numpy(np.ascontiguousarray(picture))[None, None].double() / 255


# -- moving pictures --------------------------------------------------------------------------------------------------


def test_a_warp_looks_where_the_flow_points():
    impulse = torch.zeros(1, 1, 7, 9)
    impulse[..., 3, 5] = 1
    assert warp(impulse, constant((2.0, 0.0), impulse)).nonzero()[0, -2:].tolist() == [3, 3]
    assert warp(impulse, constant((0.0, -1.0), impulse)).nonzero()[0, -2:].tolist() == [4, 5]
    assert_close(warp(impulse, torch.zeros(1, 2, 7, 9)), impulse, atol=1e-5, rtol=0)


def test_warp_is_remap_of_opencv():
    cv2 = pytest.importorskip("cv2", reason="OpenCV is the oracle")
    picture, flow = noise(2, 3, 12, 17).float(), 4 * noise(2, 2, 12, 17, seed=1).float() - 2
    y, x = np.mgrid[:12, :17].astype(np.float32)
    for one, by, moved in zip(picture, flow.numpy(), warp(picture, flow), strict=True):
        channels = np.ascontiguousarray(one.movedim(0, -1).numpy())
        theirs = cv2.remap(channels, x + by[0], y + by[1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        # OpenCV rounds places to 1/32 of a pixel
        assert_close(moved.movedim(0, -1), torch.from_numpy(theirs), atol=0.02, rtol=0)


def test_brightness_between_pixels_is_exact_on_parabolas():
    """The flow's own interpolation is of third order: linear would be off by 1/8 of the second difference."""
    y, x = torch.meshgrid(torch.arange(9.0).double(), torch.arange(11.0).double(), indexing="ij")
    points = 1 + 6 * torch.rand(1, 4, 5, 2, generator=torch.Generator().manual_seed(0)).double()

    def parabola(x, y):
        return 0.3 * x**2 - 0.2 * x * y + 0.1 * y**2 + x

    (brightness, *_) = ops._between(ops._fields(parabola(x, y)[None, None]), points)
    assert_close(brightness[0], parabola(*points.unbind(-1)))
    catmull_rom = ops._between(ops._fields((x**3)[None, None]), points)[0][0, 0]
    s, i = points[0, ..., 0] % 1, points[0, ..., 0].floor()
    before, here, after, beyond = ((i + k) ** 3 for k in (-1, 0, 1, 2))
    hermite = (
        here * (2 * s**3 - 3 * s**2 + 1)
        + (after - before) / 2 * (s**3 - 2 * s**2 + s)
        + after * (3 * s**2 - 2 * s**3)
        + (beyond - here) / 2 * (s**3 - s**2)
    )
    assert_close(catmull_rom, hermite)


@pytest.mark.parametrize("size", [(32, 41), (33, 40)])
def test_pyramid_is_pyrdown_of_opencv(size):
    cv2 = pytest.importorskip("cv2", reason="OpenCV is the oracle")
    picture = noise(2, 3, *size)
    halved = pyramid(picture, 2)[1]
    for plane, half in zip(picture.flatten(0, 1), halved.flatten(0, 1), strict=True):
        assert_close(half, torch.from_numpy(cv2.pyrDown(plane.numpy())))


@pytest.mark.parametrize("size", [(32, 41), (33, 40)])
def test_levels_are_not_shifted(size):
    """Pixel i of a level is pixel 2i of the finer one: ramps stay ramps down, and exactly themselves on the way up."""
    y, x = torch.meshgrid(*(torch.arange(side).double() for side in size), indexing="ij")
    places = torch.stack([x, y])[None]
    for level, coarse in enumerate(pyramid(places, 3)):
        rows, columns = coarse.shape[-2:]
        inner = (..., slice(2, rows - 2), slice(2, columns - 2))  # the border is mirrored there
        assert_close(coarse[inner], (places[..., :rows, :columns] * 2**level)[inner])
    rows, columns = math.ceil(size[0] / 2), math.ceil(size[1] / 2)
    inside = places[..., : 2 * rows - 1, : 2 * columns - 1]
    assert_close(finer(places[..., :rows, :columns], *size)[..., : 2 * rows - 1, : 2 * columns - 1], inside)


@shifts
def test_a_level_halves_the_motion(shift):
    """The flow of a coarse level, carried to the finer one, is the whole motion: its factor is 2, once."""
    a, b = (pyramid(scene(by, 96, 113), 2)[1] for by in ((0.0, 0.0), shift))
    coarse = lucas_kanade(a, b, levels=2)
    assert_close(within(coarse, 16), within(constant(shift, coarse) / 2, 16), atol=0.01, rtol=0)
    fine = finer(coarse, 96, 113)
    assert_close(within(fine, 32), within(constant(shift, fine), 32), atol=0.02, rtol=0)


# -- flow at every pixel ----------------------------------------------------------------------------------------------


def test_brightness_constancy_on_a_ramp():
    """I_x u + I_y v + I_t = 0 for small motion; exact where brightness is linear."""
    x, y, u, v = torch.arange(9.0).double(), torch.arange(7.0).double()[:, None], 0.3, -0.7
    slope_x, slope_y = torch.gradient(0.2 * x + 0.1 * y, dim=(1, 0))
    change = (0.2 * (x - u) + 0.1 * (y - v)) - (0.2 * x + 0.1 * y)
    assert_close(slope_x * u + slope_y * v + change, torch.zeros(7, 9).double())


@dense
@shifts
def test_a_shift_is_recovered(method, shift):
    a, b = scene(), scene(shift)
    found = within(method(a, b), 16)
    assert_close(found, within(constant(shift, a), 16), atol=2e-3, rtol=0)
    assert_close(within(method(b, a), 16), -found, atol=3e-3, rtol=0)


def test_lucas_kanade_is_exact_on_a_parabola():
    """Slopes averaged over both pictures make the linear equation exact there: a shift comes out to the last digits."""
    x, y = torch.arange(101).double() - 50, torch.arange(101).double()[:, None] - 50

    def saddle(u, v):
        return (0.1 * ((x - u) ** 2 + (x - u) * (y - v) - (y - v) ** 2))[None, None]

    flow = lucas_kanade(saddle(0.0, 0.0), saddle(0.37, -0.61), levels=1, iterations=5)
    assert_close(flow[0, :, 50, 50], torch.tensor([0.37, -0.61], dtype=torch.float64), atol=1e-10, rtol=0)


def test_lucas_kanade_is_least_squares_over_the_window():
    """One step, pixel by pixel, by numpy; FLAT is two more rows for each pixel of the window."""
    a, b, window = noise(1, 2, 12, 14), noise(1, 2, 12, 14, seed=1), 5
    flow = lucas_kanade(a, b, window, levels=1, iterations=1)
    slope_x, slope_y = (slope.numpy() for slope in mean_slopes(a, b))
    change = (b - a).numpy()
    for y, x in [(0, 0), (3, 13), (6, 7), (11, 5)]:
        here = (0, slice(None), slice(max(0, y - 2), y + 3), slice(max(0, x - 2), x + 3))
        rows = np.stack([slope_x[here].ravel(), slope_y[here].ravel()], 1)
        ridge = np.sqrt(2 * window**2 * FLAT) * np.eye(2)  # two channels
        answer = np.linalg.lstsq(
            np.concatenate([rows, ridge]), np.concatenate([-change[here].ravel(), np.zeros(2)]), rcond=None
        )
        assert_close(flow[0, :, y, x], torch.from_numpy(answer[0]))


def test_flat_places_and_edges():
    """Nothing is known on a flat place. Across an edge motion is known, along it it is not."""
    flat = torch.full((1, 1, 32, 32), 0.5)
    assert lucas_kanade(flat, flat).eq(0).all()
    assert horn_schunck(flat, flat).eq(0).all()
    x = torch.arange(48).double()
    edge, moved = (torch.sigmoid((x - at) / 2).expand(1, 1, 48, 48) for at in (24.0, 24.8))
    flow = lucas_kanade(edge, moved)[0, :, 24, 24]
    assert_close(flow, torch.tensor([0.8, 0.0]).double(), atol=2e-3, rtol=0)
    turned = lucas_kanade(edge.mT, moved.mT)[0, :, 24, 24]
    assert_close(turned, torch.tensor([0.0, 0.8]).double(), atol=2e-3, rtol=0)


def test_a_flat_place_keeps_the_flow_of_the_coarser_level():
    """A window that sees nothing at the finest level has the motion that larger windows saw."""
    a, b = scene(), scene((2.0, 1.0))
    a[..., 28:37, 36:45], b[..., 29:38, 38:47] = 0.5, 0.5
    flow = lucas_kanade(a, b, window=5)[0, :, 32, 40]
    assert_close(flow, torch.tensor([2.0, 1.0]).double(), atol=0.3, rtol=0)


def test_smaller_eigenvalue_by_eigvalsh():
    picture, window = noise(2, 3, 10, 11), 5
    slope_x, slope_y = torch.gradient(picture, dim=(3, 2))
    slopes = F.pad(torch.stack([slope_x, slope_y], 1), (2, 2, 2, 2))
    windows = slopes.unfold(3, window, 1).unfold(4, window, 1)  # (B, 2, C, H, W, window, window)
    tensor = torch.einsum("bichwxy,bjchwxy->bhwij", windows, windows) / (3 * window**2)
    assert_close(smaller_eigenvalue(picture, window), torch.linalg.eigvalsh(tensor)[..., 0])


@dense
def test_laws_of_both_methods(method):
    """x and y have one treatment; channels that say the same say it once; pictures of a batch do not see each other."""
    a, b = noise(3, 1, 33, 41), noise(3, 1, 33, 41, seed=1)
    flow = method(a, b)
    assert_close(method(a.mT, b.mT), flow.mT.flip(1))
    assert_close(method(a.flip(-1), b.flip(-1)), flow.flip(-1) * torch.tensor([-1, 1]).view(2, 1, 1))
    assert_close(method(a.expand(-1, 3, -1, -1), b.expand(-1, 3, -1, -1)), flow)
    assert_close(torch.cat([method(p[None], q[None]) for p, q in zip(a, b, strict=True)]), flow)
    assert method(a.float(), b.float()).dtype == torch.float32


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_gpu_equals_cpu():
    a, b = scene(), scene((2.6, 1.25))
    points = torch.tensor([[[30.0, 20.0], [50.5, 40.25]]]).double()
    for method in METHODS.values():
        assert_close(method(a.cuda(), b.cuda()).cpu(), method(a, b))
    for ours, theirs in zip(track(a.cuda(), b.cuda(), points.cuda()), track(a, b, points), strict=True):
        assert_close(ours.cpu(), theirs)


# -- Horn and Schunck -------------------------------------------------------------------------------------------------

ALPHA = 0.01
CLASSIC = {"alpha": ALPHA, "levels": 1, "warps": 1, "median": 1}


def energy(flow, a, b):
    """Σ (I_x u + I_y v + I_t)² + α/4 of squared differences to the right and downwards."""
    slope_x, slope_y = mean_slopes(a, b)
    data = (slope_x * flow[:, :1] + slope_y * flow[:, 1:] + b - a).square().sum()
    return data + ALPHA / 4 * (flow.diff(dim=-1).square().sum() + flow.diff(dim=-2).square().sum())


def test_energy_falls_each_sweep():
    a, b = noise(1, 1, 12, 15), noise(1, 1, 12, 15, seed=1)
    energies = torch.stack([energy(horn_schunck(a, b, **CLASSIC, sweeps=n), a, b) for n in range(40)])
    assert (energies.diff() < 0).all()


def test_sweeps_end_where_the_equations_hold():
    """The slope of the energy goes to 0, and the flow to the answer of the whole linear system."""
    a, b = noise(1, 1, 7, 9), noise(1, 1, 7, 9, seed=1)

    def residual(flow):
        return torch.func.grad(energy)(flow, a, b)

    few, many = (residual(horn_schunck(a, b, **CLASSIC, sweeps=n)).abs().max() for n in (10, 2000))
    assert many < 1e-12 < few
    zero = torch.zeros(1, 2, 7, 9).double()
    system = torch.func.hessian(energy)(zero, a, b).view(126, 126)
    exact = torch.linalg.solve(system, -residual(zero).flatten()).view_as(zero)
    assert_close(horn_schunck(a, b, **CLASSIC, sweeps=2000), exact)


def test_a_sweep_is_the_formula():
    """u = ū - I_x(I_x ū + I_y v̄ + I_t)/(I_x² + I_y² + α), v alike."""
    a, b = noise(1, 1, 8, 9), noise(1, 1, 8, 9, seed=1)
    before, after = (horn_schunck(a, b, **CLASSIC, sweeps=n) for n in (3, 4))
    mean = F.conv2d(
        F.pad(before, (1, 1, 1, 1), mode="replicate"),
        torch.tensor([[0, 1, 0], [1, 0, 1], [0, 1, 0]]).double().expand(2, 1, 3, 3) / 4,
        groups=2,
    )
    slopes = torch.cat(mean_slopes(a, b), 1)
    misfit = (slopes * mean).sum(1, keepdim=True) + b - a
    assert_close(after, mean - slopes * misfit / (slopes.square().sum(1, keepdim=True) + ALPHA))


def test_alpha_is_in_squared_brightness():
    a, b = noise(1, 1, 32, 32), noise(1, 1, 32, 32, seed=1)
    assert_close(horn_schunck(255 * a, 255 * b, alpha=255**2 * 1e-3), horn_schunck(a, b, alpha=1e-3))


def test_euler_and_lagrange_give_the_equations():
    """∂L/∂u - d/dt ∂L/∂u' = 0. Of ½u'² it is u'' = 0; of the energy above, Horn and Schunck's two equations."""
    sympy = pytest.importorskip("sympy", reason="it comes with torch")
    from sympy.calculus.euler import euler_equations

    t, x, y, alpha = sympy.symbols("t x y alpha", positive=True)
    path = sympy.Function("u")(t)
    (straight,) = euler_equations(path.diff(t) ** 2 / 2, path, t)
    assert sympy.simplify(straight.lhs + path.diff(t, 2)) == 0

    u, v = sympy.Function("u")(x, y), sympy.Function("v")(x, y)
    slope_x, slope_y, change = (sympy.Function(name)(x, y) for name in ("I_x", "I_y", "I_t"))
    misfit = slope_x * u + slope_y * v + change
    smooth = sum(part.diff(axis) ** 2 for part in (u, v) for axis in (x, y))
    equations = euler_equations(misfit**2 + alpha * smooth, [u, v], [x, y])
    for equation, part, slope in zip(equations, (u, v), (slope_x, slope_y), strict=True):
        laplacian = part.diff(x, 2) + part.diff(y, 2)
        assert sympy.simplify(equation.lhs / 2 - (slope * misfit - alpha * laplacian)) == 0

    # Δu is 4(ū - u) on a grid; the 4 goes into α, as in the code. The two equations of a pixel give the printed update.
    a, b, mean_u, mean_v, I_x, I_y, I_t = sympy.symbols("a b mean_u mean_v I_x I_y I_t")
    left = I_x * a + I_y * b + I_t
    solved = sympy.solve([I_x * left - alpha * (mean_u - a), I_y * left - alpha * (mean_v - b)], [a, b])
    step = (I_x * mean_u + I_y * mean_v + I_t) / (I_x**2 + I_y**2 + alpha)
    assert sympy.simplify(solved[a] - (mean_u - I_x * step)) == 0
    assert sympy.simplify(solved[b] - (mean_v - I_y * step)) == 0


# -- what they are made of --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 3, 5, 7])
def test_median_is_scipys(window):
    field = torch.randn(2, 2, 9, 12, generator=torch.Generator().manual_seed(0))
    theirs = scipy.ndimage.median_filter(field.numpy(), (1, 1, window, window), mode="nearest")
    assert torch.equal(ops._median(field, window), torch.from_numpy(theirs))


@pytest.mark.parametrize("window", [3, 5, 15, 21])
def test_box_mean_is_pooling(window):
    field = torch.randn(2, 3, 17, 12, generator=torch.Generator().manual_seed(0)).double()
    assert_close(ops._box_mean(field, window), F.avg_pool2d(field, window, 1, window // 2))


def test_gradients():
    a, b = noise(1, 2, 8, 9).requires_grad_(), noise(1, 2, 8, 9, seed=1).requires_grad_()
    flow = (noise(1, 2, 8, 9, seed=2) - 0.5).requires_grad_()
    points = torch.tensor([[[3.3, 4.2], [5.6, 3.1]]]).double().requires_grad_()
    assert gradcheck(warp, (a, flow), fast_mode=True)
    assert gradcheck(lambda p, q: lucas_kanade(p, q, window=5, levels=2, iterations=2), (a, b), fast_mode=True)
    assert gradcheck(lambda p, q: horn_schunck(p, q, levels=2, warps=2, sweeps=4), (a, b), fast_mode=True)
    assert gradcheck(lambda p, q, r: track(p, q, r, window=5, levels=1)[0], (a, b, points), fast_mode=True)


# -- points -----------------------------------------------------------------------------------------------------------


@shifts
def test_track_finds_a_shift(shift):
    a, b = scene(), scene(shift)
    points = 16 + torch.rand(1, 40, 2, generator=torch.Generator().manual_seed(0)).double() * torch.tensor([48, 32])
    moved, found = track(a, b, points)
    assert found.all()
    assert_close(moved, points + torch.tensor(shift).double(), atol=2e-3, rtol=0)
    whole, _ = track(a, b, points.round().long())
    assert_close(whole, points.round() + torch.tensor(shift).double(), atol=2e-3, rtol=0)
    assert track(a, b, points[:, :0])[0].shape == (1, 0, 2)
    assert_close(track(a.expand(2, 3, -1, -1), b.expand(2, 3, -1, -1), points.expand(2, -1, -1))[0][1], moved[0])


def test_track_says_what_it_lost():
    a, b = scene(), scene((6.0, 0.0))
    points = torch.tensor([[[40.0, 30.0], [78.0, 30.0], [-3.0, 10.0]]]).double()
    assert track(a, b, points)[1].tolist() == [[True, False, False]]  # leaves on the right; was never inside
    flat = torch.full_like(a, 0.5)
    assert track(flat, flat, points)[1].tolist() == [[False, False, False]]


def test_track_beside_opencv():
    """A photograph, shifted, turned and stretched a little: the same points, and the true ones."""
    cv2 = pytest.importorskip("cv2", reason="OpenCV is the oracle")
    photograph = (grey("camera")[0, 0].numpy() * 255).astype(np.uint8)
    affine = np.array([[1.01, 0.02, -6.3], [-0.015, 0.99, 4.8]])
    moved = cv2.warpAffine(photograph, affine, photograph.shape[::-1], flags=cv2.INTER_CUBIC)
    corners = cv2.goodFeaturesToTrack(photograph[40:-40, 40:-40], 200, 0.01, 8)[:, 0] + 40
    theirs, status, _ = cv2.calcOpticalFlowPyrLK(photograph, moved, corners, None, winSize=(15, 15), maxLevel=2)
    pictures = (torch.from_numpy(z)[None, None].double() / 255 for z in (photograph, moved))
    ours, found = track(*pictures, torch.from_numpy(corners).double()[None])
    both = (status[:, 0] == 1) & found[0].numpy()
    difference = np.linalg.norm(ours[0].numpy() - theirs, axis=1)[both]
    assert both.mean() > 0.95
    assert np.median(difference) < 0.02
    assert np.quantile(difference, 0.95) < 0.1
    truth = corners @ affine[:, :2].T + affine[:, 2]
    mine, other = (np.linalg.norm(z - truth, axis=1)[both].mean() for z in (ours[0].numpy(), theirs))
    assert mine < 1.1 * other


# -- a real pair ------------------------------------------------------------------------------------------------------


def test_the_stereo_pair():
    """scikit-image's motorcycle at a quarter: mean endpoint error over the pixels whose disparity is known."""
    skimage = pytest.importorskip("skimage", reason="the pair comes with scikit-image")
    from skimage.color import rgb2gray
    from skimage.transform import resize

    left, right, disparity = skimage.data.stereo_motorcycle()
    a, b = (torch.from_numpy(resize(rgb2gray(z), (125, 185), anti_aliasing=True))[None, None] for z in (left, right))
    horizontal = -torch.from_numpy(disparity[:500:4, :740:4]).double() / 4
    truth = torch.stack([horizontal, torch.zeros_like(horizontal)])[None]
    a, b, truth = a.float(), b.float(), truth.float()

    def error(flow):
        return float(endpoint_error(flow, truth))

    assert error(torch.zeros_like(truth)) == pytest.approx(8.56, abs=0.01)
    assert error(lucas_kanade(a, b)) < 1.3
    assert error(horn_schunck(a, b)) < 1.0
    assert error(lucas_kanade(a, b, levels=1)) > 5  # what the pyramid is for


# -- what is refused --------------------------------------------------------------------------------------------------

PICTURE = torch.zeros(1, 1, 40, 40)
HOLE = torch.full((1, 1, 40, 40), torch.nan)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: lucas_kanade(PICTURE, torch.zeros(1, 1, 40, 41)), r"differ: \(1, 1, 40, 40\)"),
        (lambda: horn_schunck(PICTURE, torch.zeros(1, 3, 40, 40)), "as many channels"),
        (lambda: track(PICTURE, PICTURE.double(), torch.zeros(1, 2, 2)), "differ"),
        (lambda: lucas_kanade(PICTURE[0], PICTURE[0]), r"pictures are \(B, C, H, W\)"),
        (lambda: lucas_kanade(PICTURE.byte(), PICTURE.byte()), "float"),
        (lambda: lucas_kanade(PICTURE, PICTURE, levels=5), "40 x 40 pixels is too small for levels=5.* Use levels=4"),
        (lambda: horn_schunck(PICTURE[..., :3], PICTURE[..., :3]), "Use a larger picture"),
        (lambda: pyramid(PICTURE, 0), "one level at least"),
        (lambda: lucas_kanade(HOLE, PICTURE), "the first picture has NaN"),
        (lambda: horn_schunck(PICTURE, HOLE), "the second picture has NaN"),
        (lambda: lucas_kanade(PICTURE, PICTURE, window=4), "odd side"),
        (lambda: horn_schunck(PICTURE, PICTURE, alpha=0.0), "above 0"),
        (lambda: horn_schunck(PICTURE, PICTURE, median=2), "odd side"),
        (lambda: track(PICTURE, PICTURE, torch.zeros(2, 5, 2)), r"\(B, N, 2\), B = 1"),
        (lambda: track(PICTURE, PICTURE, torch.full((1, 1, 2), torch.nan)), "NaN"),
        (lambda: warp(PICTURE, torch.zeros(1, 1, 40, 40)), "a flow"),
    ],
)
def test_what_is_refused(ask, says):
    with pytest.raises(UserError, match=says):
        ask()


@pytest.mark.parametrize("side", range(4, 40))
def test_the_levels_that_a_message_offers_are_the_most_that_fit(side):
    with pytest.raises(UserError, match="too small") as refused:
        pyramid(torch.zeros(1, 1, side, 50), 9)
    offered = int(str(refused.value).partition("Use levels=")[2].split()[0])
    assert min(pyramid(torch.zeros(1, 1, side, 50), offered)[-1].shape[-2:]) >= ops.SMALLEST
    assert math.ceil(side / 2**offered) < ops.SMALLEST


def test_a_picture_of_one_pixel_stays_what_it_is():
    pixel = torch.rand(2, 1, 1, 1)
    assert_close(warp(pixel, torch.ones(2, 2, 1, 1)), pixel)
    row = torch.arange(5.0).view(1, 1, 1, 5)
    assert_close(warp(row, torch.ones(1, 2, 1, 5)), torch.tensor([1.0, 2, 3, 4, 4]).view(1, 1, 1, 5))


def test_pictures_and_flow_of_two_dtypes_are_refused():
    with pytest.raises(UserError, match="in one dtype"):
        warp(torch.rand(1, 1, 4, 4), torch.zeros(1, 2, 4, 4, dtype=torch.float64))
    with pytest.raises(UserError, match="brightness from 0 to 1"):
        warp(torch.ones(1, 1, 4, 4, dtype=torch.uint8), torch.zeros(1, 2, 4, 4))
