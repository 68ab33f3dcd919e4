"""Motion between two pictures: Lucas and Kanade, Horn and Schunck, and the tracker of Kanade, Lucas and Tomasi.

All three start from one equation a pixel, which holds for small motion: I_x u + I_y v + I_t = 0. One equation has two
unknowns, so each method adds something. Lucas and Kanade share a motion over a window. Horn and Schunck ask each motion
to be near the mean of its neighbours. Both then minimise the same quadratic form a pixel, and `_toward` solves it:

    uᵀ J u + 2 qᵀ u + λ |u - prior|²        J: squares of slopes (2 x 2), q: slopes times change in time

                        J and q are of      prior                         λ
    Lucas-Kanade        a window            the last flow                 FLAT, so that flat places keep what they had
    Horn-Schunck        a pixel             the mean of four neighbours   α

Large motion goes through a pyramid. Pixel i of a level lies at pixel 2i of the finer level, and both are whole numbers:
no level is shifted by a part of a pixel. Slopes are averaged over both pictures, of the second where the flow points
to: the error of linearising is then of third order, not second. A pixel whose flow leaves the picture has no equation.
"""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from horosphere.errors import UserError
from horosphere.ops.checks import need_pictures

# squared brightness a pixel: a slope of one grey level of 255. Added to J, it is also the floor of the smaller
# eigenvalue, so the determinant is never less than FLAT².
FLAT = (1 / 255) ** 2
SMALLEST = 4  # pixels of the shorter side at the coarsest level: slopes and blurs still have neighbours
STEPS = 10  # of the tracker at each level, at most
SETTLED = 3e-3  # pixels: a point whose step is shorter is done with a level


# -- moving pictures --------------------------------------------------------------------------------------------------


def warp(picture: Tensor, flow: Tensor) -> Tensor:
    """The second picture as the first saw it.   (B, C, H, W), (B, 2, H, W) -> (B, C, H, W)

    out(x, y) = picture(x + u, y + v), by linear interpolation of the four pixels around.
    Convention: u to the right, v down, in pixels. Beyond the border the nearest pixel counts, as OpenCV's
    BORDER_REPLICATE. It equals cv2.remap of the places x + u, y + v.

    >>> ramp = torch.arange(5.0).expand(1, 1, 4, 5)
    >>> warp(ramp, torch.tensor([0.5, 0.0]).view(1, 2, 1, 1).expand(1, 2, 4, 5))[0, 0, 0]
    tensor([0.5000, 1.5000, 2.5000, 3.5000, 4.0000])
    """
    if flow.ndim != 4 or picture.ndim != 4 or flow.shape != (len(picture), 2, *picture.shape[-2:]):
        raise UserError(
            f"warp takes pictures (B, C, H, W) and a flow (B, 2, H, W); these are {tuple(picture.shape)} and "
            f"{tuple(flow.shape)}. Give both one batch and one size."
        )
    need_pictures(picture)
    if picture.dtype != flow.dtype:
        raise UserError(f"warp of pictures in {picture.dtype} by a flow in {flow.dtype}: give both in one dtype")
    return _sample(picture, (_places(flow) + flow).movedim(1, -1))


def pyramid(picture: Tensor, levels: int) -> list[Tensor]:
    """The picture and its halves, the finest first.   (B, C, H, W) -> [(B, C, ⌈H/2ˡ⌉, ⌈W/2ˡ⌉)]

    Blurred by (1, 4, 6, 4, 1)/16 along both axes; then every second pixel, from the first one.
    Convention: pixel i of a level lies at pixel 2i of the finer one, as in cv2.pyrDown. `finer` is the way back.

    >>> [tuple(level.shape) for level in pyramid(torch.zeros(1, 3, 20, 33), 3)]
    [(1, 3, 20, 33), (1, 3, 10, 17), (1, 3, 5, 9)]
    """
    _enough_room(picture, levels)
    made = [picture]
    for _ in range(levels - 1):
        padded = F.pad(made[-1], (2, 2, 2, 2), mode="reflect")
        made.append(_halved(_halved(padded.mT).mT))
    return made


def _halved(padded: Tensor) -> Tensor:
    """Every second row, blurred by (1, 4, 6, 4, 1)/16: shifted sums, which are faster than a convolution here."""
    count = (padded.shape[-2] - 3) // 2
    taps = [padded[..., k : k + 2 * count - 1 : 2, :] for k in range(5)]
    return (taps[0] + taps[4] + 4 * (taps[1] + taps[3]) + 6 * taps[2]) / 16


def finer(flow: Tensor, height: int, width: int) -> Tensor:
    """A flow of one level for the next finer one of the `pyramid`.   (B, 2, ⌈H/2⌉, ⌈W/2⌉) -> (B, 2, H, W)

    Motion is twice as long in finer pixels: 2 flow(x/2, y/2), by linear interpolation.

    >>> finer(torch.arange(3.0).expand(1, 2, 2, 3), 4, 6)[0, 0, 0]  # pixel x of the finer level is x/2 of this one
    tensor([0., 1., 2., 3., 4., 4.])
    """
    rows, columns = flow.shape[-2:]
    # from corner to corner 2n - 1 pixels lie at the halves of n; an even side has one more, beyond the last
    doubled = 2 * F.interpolate(flow, (2 * rows - 1, 2 * columns - 1), mode="bilinear", align_corners=True)
    return F.pad(doubled, (0, width - 2 * columns + 1, 0, height - 2 * rows + 1), mode="replicate")


# -- flow at every pixel ----------------------------------------------------------------------------------------------


def lucas_kanade(a: Tensor, b: Tensor, window: int = 15, levels: int = 4, iterations: int = 5) -> Tensor:
    """Flow at every pixel, shared over a window around it.   (B, C, H, W), (B, C, H, W) -> (B, 2, H, W)

    Least squares of I_x u + I_y v + I_t = 0 over the window: u = -(Σ ∇I ∇Iᵀ)⁻¹ Σ ∇I I_t, by sums over boxes.
    A pyramid of `levels` goes from coarse to fine; each level warps and solves `iterations` times.
    Convention: b(x + u, y + v) ≈ a(x, y), in pixels. Several channels: the mean of their equations, so a grey picture
    three times over has the flow of one. FLAT is added to both eigenvalues, for brightness from 0 to 1: a flat place
    keeps the flow of the coarser level, an edge gets the motion across it. `smaller_eigenvalue` says where that is.

    >>> x, y = torch.arange(64.0), torch.arange(48.0)[:, None]
    >>> scene = lambda by: (0.5 + 0.2 * ((x - by) / 6).sin() + 0.2 * (y / 5).cos()).view(1, 1, 48, 64)
    >>> flow = lucas_kanade(scene(0.0), scene(1.5))
    >>> flow[0, :, 24, 32].round(decimals=2) + 0.0
    tensor([1.5000, 0.0000])
    """
    _checked(a, b, levels)
    _odd(window)
    flow = a.new_zeros(0)
    for first, second in _levels(a, b, levels):
        flow = _begin(flow, first)
        for _ in range(iterations):
            squares, mixed = _equations(first, second, flow)
            flow = _applied(*_toward(_box_mean(squares, window), _box_mean(mixed, window), FLAT), flow)
    return flow


def smaller_eigenvalue(picture: Tensor, window: int = 15) -> Tensor:
    """Where Lucas and Kanade's answer holds: the smaller eigenvalue of the mean of ∇I ∇Iᵀ.   (B, C, H, W) -> (B, H, W)

    It is 0 on flat places and along straight edges. Answers hold where it is well above FLAT.
    Convention: squared brightness a pixel, a mean over the window. Pixels beyond the border count as flat.

    >>> x = torch.arange(32.0)
    >>> edge = x.gt(16).float().expand(1, 1, 32, 32)
    >>> corner = edge * edge.mT
    >>> bool(smaller_eigenvalue(edge).max() < FLAT), bool(smaller_eigenvalue(corner)[0, 16, 16] > FLAT)
    (True, True)
    """
    _checked(picture, picture, 1)
    _odd(window)
    slope_x, slope_y = torch.gradient(picture, dim=(-1, -2))
    return _smaller(*_box_mean(_products(slope_x, slope_y), window).unbind(1))


def horn_schunck(
    a: Tensor,
    b: Tensor,
    alpha: float = 1e-3,
    levels: int = 4,
    warps: int = 5,
    sweeps: int = 100,
    median: int = 5,
) -> Tensor:
    """A smooth flow at every pixel.   (B, C, H, W), (B, C, H, W) -> (B, 2, H, W)

    The least of Σ (I_x u + I_y v + I_t)² + α(|∇u|² + |∇v|²), by sweeps over all pixels at once:
    u = ū - I_x(I_x ū + I_y v̄ + I_t)/(I_x² + I_y² + α), v alike, where ū is the mean of the four neighbours.
    Each level of a pyramid linearises `warps` times at the flow it has. After each, a median over `median` x `median`
    pixels removes the outliers that squares let in. levels=1, warps=1, median=1 is the method of 1981.
    Convention: b(x + u, y + v) ≈ a(x, y), in pixels. |∇u|² is a quarter of the squared differences to the neighbours,
    so that α stands in the update as it is. α is in squared brightness: pictures from 0 to 255 need 255² times as
    much. Several channels: the mean of their equations.

    >>> x, y = torch.arange(64.0), torch.arange(48.0)[:, None]
    >>> scene = lambda by: (0.5 + 0.2 * ((x - by) / 6).sin() + 0.2 * (y / 5).cos()).view(1, 1, 48, 64)
    >>> flow = horn_schunck(scene(0.0), scene(1.5))
    >>> flow[0, :, 24, 32].round(decimals=1) + 0.0
    tensor([1.5000, 0.0000])
    """
    _checked(a, b, levels)
    if not 0 < alpha < math.inf:
        raise UserError(f"alpha is {alpha}: Horn and Schunck's weight of smoothness is above 0, for example 1e-3.")
    if median < 1 or median % 2 == 0:
        raise UserError(f"median is {median}: a window around a pixel has an odd side. Use 5, or 1 for none.")
    flow = a.new_zeros(0)
    for first, second in _levels(a, b, levels):
        flow = _begin(flow, first)
        for _ in range(warps):
            same, other, offset = _toward(*_equations(first, second, flow), alpha)
            same, other = same / 4, other / 4  # so that a sum of four neighbours stands for their mean
            for _ in range(sweeps):
                flow = _applied(same, other, offset, _neighbours(flow))
            flow = _median(flow, median)
    return flow


# -- points -----------------------------------------------------------------------------------------------------------


def track(a: Tensor, b: Tensor, points: Tensor, window: int = 15, levels: int = 3) -> tuple[Tensor, Tensor]:
    """Where points of the first picture went.   pictures (B, C, H, W), points (B, N, 2) -> (B, N, 2), found (B, N)

    Steps of -(Σ ∇I ∇Iᵀ)⁻¹ Σ ∇I I_t over the window around each point, on every level of a pyramid.
    Convention: points are (x, y) with pixel centres at whole numbers, as cv2.calcOpticalFlowPyrLK; its maxLevel is
    levels - 1. A point is found if it stays inside the picture and its window is not flat (the smaller eigenvalue of
    its slopes is above FLAT). A window that crosses the border counts only what lies inside.

    >>> x, y = torch.arange(64.0), torch.arange(48.0)[:, None]
    >>> scene = lambda by: (0.5 + 0.2 * ((x - by) / 6).sin() + 0.2 * (y / 5).cos()).view(1, 1, 48, 64)
    >>> points, found = track(scene(0.0), scene(1.5), torch.tensor([[[30.0, 20.0]]]))
    >>> points.round(decimals=2), found
    (tensor([[[31.5000, 20.0000]]]), tensor([[True]]))
    """
    _checked(a, b, levels)
    _odd(window)
    if points.ndim != 3 or len(points) != len(a) or points.shape[-1] != 2:
        raise UserError(f"points to track are (B, N, 2), B = {len(a)} here; these are {tuple(points.shape)}.")
    if not bool(points.isfinite().all()):
        raise UserError("points to track: some are NaN or infinite. Drop them first.")
    points = points.to(a)  # points are often fp32 or whole numbers, from a detector
    rows = torch.arange(len(a), device=a.device).repeat_interleave(points.shape[1])  # the picture of each point
    start = points.flatten(0, 1)
    shift, eigenvalue = torch.zeros_like(start), start[:, 0]
    pictures = zip(reversed(pyramid(a, levels)), reversed(pyramid(b, levels)), strict=True)
    for level, (first, second) in zip(reversed(range(levels)), pictures, strict=True):
        shift, eigenvalue = _followed(first, second, rows, start / 2**level, 2 * shift, window)
    moved = points + shift.view_as(points)
    return moved, _inside(points, a) & _inside(moved, b) & (eigenvalue > FLAT).view(points.shape[:2])


def _followed(
    first: Tensor, second: Tensor, rows: Tensor, start: Tensor, shift: Tensor, window: int
) -> tuple[Tensor, Tensor]:
    """The shift of each point on one level, and the smaller eigenvalue there.   (P, 2), (P, 2) -> (P, 2), (P,)

    Slopes are the first picture's, so their squares are summed once. They are Scharr's, which smooth across: with plain
    differences one corner in a hundred went astray on a photograph. Points that have settled are left out of the next
    step.
    """
    fields = torch.cat([first, *_scharr(first)], 1)
    brightness, slope_x, slope_y = _patches(fields, rows, start, window).chunk(3, 1)  # (P, C, window, window)
    counts = _window_inside(start, first, window)
    slopes = torch.stack([(slope * counts).flatten(1) for slope in (slope_x, slope_y)], 1)  # (P, 2, C window²)
    tensor = slopes @ slopes.mT / slopes.shape[-1]
    squares = torch.stack([tensor[:, 0, 0], tensor[:, 0, 1], tensor[:, 1, 1]], 1)
    smaller = _smaller(*squares.unbind(1))
    moving = torch.arange(len(start), device=start.device)
    for _ in range(STEPS):
        places = (start + shift)[moving]
        change = (_patches(second, rows[moving], places, window) - brightness) * _window_inside(places, second, window)
        mixed = (slopes * change.flatten(1)[:, None]).mean(-1)
        _, _, step = _toward(squares, mixed, FLAT)
        shift = shift.index_add(0, moving, step)
        unsettled = torch.linalg.vector_norm(step.detach(), dim=-1) > SETTLED
        if not bool(unsettled.any()):
            break
        moving, brightness, slopes, squares = (z[unsettled] for z in (moving, brightness, slopes, squares))
    return shift, smaller


def _scharr(picture: Tensor) -> list[Tensor]:
    """Slopes along x and y, each averaged across by (3, 10, 3)/16.   (B, C, H, W) -> 2 x (B, C, H, W)"""
    slopes = torch.gradient(picture, dim=(-1, -2))
    padded = F.pad(slopes[0], (0, 0, 1, 1), mode="replicate"), F.pad(slopes[1], (1, 1, 0, 0), mode="replicate")
    lengths = (-2, picture.shape[-2]), (-1, picture.shape[-1])
    return [
        (3 * z.narrow(axis, 0, n) + 10 * z.narrow(axis, 1, n) + 3 * z.narrow(axis, 2, n)) / 16
        for z, (axis, n) in zip(padded, lengths, strict=True)
    ]


# -- one pixel's equations --------------------------------------------------------------------------------------------


def _levels(a: Tensor, b: Tensor, levels: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The `_fields` of both pictures, the coarsest level first."""
    for first, second in zip(reversed(pyramid(a, levels)), reversed(pyramid(b, levels)), strict=True):
        yield _fields(first), _fields(second)


def _fields(picture: Tensor) -> Tensor:
    """Brightness, its second differences and its slopes, each along x and y.   (B, C, H, W) -> (B, 5C, H, W)"""
    bend_x = F.pad(picture.diff(n=2, dim=-1), (1, 1))  # at the border no bend: a ramp goes on there
    bend_y = F.pad(picture.diff(n=2, dim=-2), (0, 0, 1, 1))
    return torch.cat([picture, bend_x, bend_y, *torch.gradient(picture, dim=(-1, -2))], 1)


def _between(fields: Tensor, points: Tensor) -> list[Tensor]:
    """Brightness and slopes between pixels.   fields (B, 5C, H, W), points (B, P, Q, 2) -> 3 x (B, C, P, Q)

    Brightness is linear less s(1 - s)/2 of the second difference, s the part of a pixel: Catmull and Rom's cubic along
    each axis. Linear alone flattens bends, which moves the answer by some hundredths of a pixel. torch's own cubic does
    not reproduce a ramp, which moves it by up to 0.05.
    """
    weight_x, weight_y = ((part * (1 - part) / 2)[:, None] for part in (points - points.detach().floor()).unbind(-1))
    linear, bend_x, bend_y, *slopes = _sample(fields, points).chunk(5, 1)
    return [linear - weight_x * bend_x - weight_y * bend_y, *slopes]


def _begin(flow: Tensor, level: Tensor) -> Tensor:
    """The flow of the coarser level for this one; where there is none, no motion."""
    batch, _, height, width = level.shape
    return finer(flow, height, width) if flow.numel() else level.new_zeros(batch, 2, height, width)


def _equations(first: Tensor, second: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
    """J (B, 3, H, W) and q (B, 2, H, W) of each pixel, linearised at this flow.

    The unknown is the whole flow, not what is added to it: g·(u - flow) + I_t = 0. So a window may hold several flows.
    """
    places = (_places(flow) + flow).movedim(1, -1)
    brightness, _, _, *slopes = first.chunk(5, 1)
    moved, *moved_slopes = _between(second, places)
    slope_x, slope_y = ((here + there) / 2 for here, there in zip(slopes, moved_slopes, strict=True))
    offset = moved - brightness - slope_x * flow[:, :1] - slope_y * flow[:, 1:]
    counts = _inside(places, first)[:, None]
    mixed = torch.stack([(slope_x * offset).mean(1), (slope_y * offset).mean(1)], 1)
    return _products(slope_x, slope_y) * counts, mixed * counts


def _products(slope_x: Tensor, slope_y: Tensor) -> Tensor:
    """J as its three numbers xx, xy, yy, the mean over channels.   (B, C, ...), (B, C, ...) -> (B, 3, ...)"""
    pairs = (slope_x, slope_x), (slope_x, slope_y), (slope_y, slope_y)
    return torch.stack([(p * q).mean(1) for p, q in pairs], 1)


def _toward(squares: Tensor, mixed: Tensor, weight: float) -> tuple[Tensor, Tensor, Tensor]:
    """How the least of uᵀJu + 2qᵀu + λ|u - prior|² follows from the prior: P prior + s, as P's diagonal, P's other, s.

    u = (J + λ)⁻¹ (λ prior - q): P = λ(J + λ)⁻¹ and s = -(J + λ)⁻¹ q, in closed form. The determinant is at least λ².
    (B, 3, ...), (B, 2, ...) -> (B, 2, ...), (B, 1, ...), (B, 2, ...)
    """
    xx, xy, yy = squares.split(1, 1)
    # det J is not negative; rounding may make it so along an edge
    determinant = (xx * yy - xy * xy).clamp_min(0) + weight * (xx + yy) + weight**2
    adjugate = torch.cat([yy, xx], 1) + weight
    offset = (xy * mixed.flip(1) - adjugate * mixed) / determinant
    return weight * adjugate / determinant, -weight * xy / determinant, offset


def _applied(same: Tensor, other: Tensor, offset: Tensor, prior: Tensor) -> Tensor:
    return torch.addcmul(torch.addcmul(offset, same, prior), other, prior.flip(1))


def _smaller(xx: Tensor, xy: Tensor, yy: Tensor) -> Tensor:
    """The smaller eigenvalue of a symmetric 2 x 2 matrix."""
    return (xx + yy) / 2 - torch.hypot((xx - yy) / 2, xy)


# -- sums, medians and samples ----------------------------------------------------------------------------------------


def _neighbours(flow: Tensor) -> Tensor:
    """The sum of the four neighbours; beyond the border stands the pixel itself: no slope across it.

    Four shifted additions: on a CPU a convolution with the same kernel takes five times as long or more.
    """
    padded = F.pad(flow, (1, 1, 1, 1), mode="replicate")
    along_x = padded[..., 1:-1, :-2] + padded[..., 1:-1, 2:]
    return along_x + padded[..., :-2, 1:-1] + padded[..., 2:, 1:-1]


def _box_mean(field: Tensor, window: int) -> Tensor:
    """The mean over a window around each pixel, where zeros lie beyond the border.   (B, C, H, W) -> (B, C, H, W)"""
    reach = window // 2
    padded = F.pad(field, (reach, reach, reach, reach))
    return _running_sum(_running_sum(padded, window, -2), window, -1) / window**2


def _running_sum(field: Tensor, window: int, axis: int) -> Tensor:
    """Sums of `window` numbers in a row, by doubling: blocks of 1, 2, 4, … are added up to the window.

    A cumulative sum takes as long, but its differences lose the digits that small sums need.
    """
    length = field.shape[axis] - window + 1
    block, size, begin = field, 1, 0
    parts = []
    while True:
        if window & size:
            parts.append(block.narrow(axis, begin, length))
            begin += size
        if 2 * size > window:
            return sum(parts[1:], parts[0])
        longer = block.shape[axis] - size
        block = block.narrow(axis, 0, longer) + block.narrow(axis, size, longer)
        size *= 2


def _median(field: Tensor, window: int) -> Tensor:
    """The median over a window around each pixel; the border is repeated.   (B, C, H, W) -> (B, C, H, W)

    A network of exchanges. Of n numbers, just over half, drop the smallest and the largest: neither is the median. Take
    the next number in, and go on. Each exchange is one pass over all pixels, so there is no sort a pixel.
    """
    reach, (height, width) = window // 2, field.shape[-2:]
    padded = F.pad(field, (reach, reach, reach, reach), mode="replicate")
    waiting = [padded[..., i : i + height, j : j + width] for i in range(window) for j in range(window)]
    kept = [waiting.pop() for _ in range(min(window**2, window**2 // 2 + 2))]

    def exchange(low: int, high: int) -> None:
        kept[low], kept[high] = torch.minimum(kept[low], kept[high]), torch.maximum(kept[low], kept[high])

    while (count := len(kept)) > 1:
        for i in range(count // 2):
            exchange(i, count - 1 - i)  # the smallest is now in the first half, the largest in the second
        for i in range(1, (count + 1) // 2):
            exchange(0, i)
        for i in range(count // 2, count - 1):
            exchange(i, count - 1)
        kept = kept[1:-1] + ([waiting.pop()] if waiting else [])
    return kept[0]


def _places(flow: Tensor) -> Tensor:
    """x and y of each pixel.   (2, H, W)"""
    y, x = (torch.arange(side, dtype=flow.dtype, device=flow.device) for side in flow.shape[-2:])
    return torch.stack(torch.meshgrid(x, y, indexing="xy"))


def _inside(points: Tensor, picture: Tensor) -> Tensor:
    """Which points lie between the centres of the outermost pixels.   (..., 2) -> (...)"""
    height, width = picture.shape[-2:]
    x, y = points.unbind(-1)
    return (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)


def _sample(picture: Tensor, points: Tensor) -> Tensor:
    """The picture between its pixels, by linear interpolation.   (B, C, H, W), points (B, P, Q, 2) -> (B, C, P, Q)"""
    height, width = picture.shape[-2:]
    x, y = points.unbind(-1)
    # align_corners: -1 and 1 are the centres of the outermost pixels, so whole numbers stay whole
    grid = torch.stack([x * (2 / max(1, width - 1)) - 1, y * (2 / max(1, height - 1)) - 1], -1)
    return F.grid_sample(picture, grid, mode="bilinear", padding_mode="border", align_corners=True)


def _patches(picture: Tensor, rows: Tensor, centres: Tensor, window: int) -> Tensor:
    """Windows around points, by Catmull and Rom's cubic.   (B, C, H, W), (P,), (P, 2) -> (P, C, window, window)

    All pixels of a window lie at the same part of a pixel: whole pixels are taken once, then weighed by four numbers
    along x and four along y. That is less than half of the time of a sample for each.
    """
    (batch, channels, height, width), reach = picture.shape, window // 2
    whole = centres.detach().floor()
    taps = torch.arange(-reach - 1, reach + 3, dtype=centres.dtype, device=centres.device)
    x, y = ((whole[:, axis, None] + taps).clamp(0, side - 1).long() for axis, side in ((0, width), (1, height)))
    index = (rows[:, None] * height + y)[:, :, None] * width + x[:, None]
    planes = picture.transpose(0, 1).reshape(channels, batch * height * width)
    taken = planes.index_select(1, index.flatten()).view(channels, *index.shape)
    part = centres - whole
    for axis, s in ((-1, part[:, 0, None, None]), (-2, part[:, 1, None, None])):
        first, second = s * (1 - s) ** 2 / 2, s**2 * (1 - s) / 2  # of the second differences at either side
        before, here, after, beyond = (taken.narrow(axis, k, window) for k in range(4))
        taken = torch.addcmul(
            torch.addcmul(-first * before, 1 - s + 2 * first - second, here), s - first + 2 * second, after
        )
        taken = torch.addcmul(taken, -second, beyond)
    return taken.transpose(0, 1)


def _window_inside(centres: Tensor, picture: Tensor, window: int) -> Tensor:
    """Which pixels of the windows around points lie inside the picture, 1 or 0.   (P, 2) -> (P, 1, window, window)"""
    height, width = picture.shape[-2:]
    reach = torch.arange(window, dtype=centres.dtype, device=centres.device) - window // 2
    x, y = (centres[:, :1] + reach), (centres[:, 1:] + reach)
    across, down = (x >= 0) & (x <= width - 1), (y >= 0) & (y <= height - 1)
    return (down[:, None, :, None] & across[:, None, None, :]).to(centres.dtype)


# -- what is refused --------------------------------------------------------------------------------------------------


def _checked(a: Tensor, b: Tensor, levels: int) -> None:
    if a.ndim != 4 or a.dtype not in (torch.float32, torch.float64):
        raise UserError(
            f"pictures are (B, C, H, W) in fp32 or fp64; the first is {tuple(a.shape)} in {a.dtype}. "
            "Bytes become brightness by .float() / 255."
        )
    if a.shape != b.shape or a.dtype != b.dtype:
        raise UserError(
            f"the two pictures differ: {tuple(a.shape)} in {a.dtype} and {tuple(b.shape)} in {b.dtype}. "
            "Flow needs two of one size, with as many channels."
        )
    _enough_room(a, levels)
    for picture, name in ((a, "first"), (b, "second")):
        if not bool(picture.sum().isfinite()):  # one NaN or infinity is enough, and a sum is read once
            raise UserError(f"the {name} picture has NaN or infinite pixels. Fill them before asking for its flow.")


def _enough_room(picture: Tensor, levels: int) -> None:
    if levels < 1:
        raise UserError(f"levels is {levels}: a pyramid has one level at least, the picture itself.")
    height, width = picture.shape[-2:]
    room = max(0, math.ceil(math.log2(max(1, min(height, width)) / (SMALLEST - 1))))  # levels with SMALLEST or more
    if levels > room:
        raise UserError(
            f"a picture of {height} x {width} pixels is too small for levels={levels}: the coarsest level needs "
            f"{SMALLEST} pixels a side. Use {f'levels={room} or ' if room else ''}a larger picture."
        )


def _odd(window: int) -> None:
    if window < 3 or window % 2 == 0:
        raise UserError(f"window is {window}: a window around a pixel has an odd side of 3 or more, for example 15.")
