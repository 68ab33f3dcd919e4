"""Corners and descriptors that kornia does not have: Noble's corners, HOG, BRIEF, SURF.

Harris, Kanade-Tomasi, SIFT, matching and RANSAC are kornia's: `kornia.feature`, pinned by tests/ops/test_features.py.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from horosphere.errors import UserError
from horosphere.extras import require
from horosphere.ops.checks import need_border, need_pictures, need_points

BARELY = 1e-5  # scikit-image's ε of a norm: descriptors of flat patches are near 0, not noise blown up to length 1
SURF_GAUSS = 3.3  # standard deviation of SURF's weights, in units of the scale


def noble(x: Tensor, sigma: float = 1.0) -> Tensor:
    """How much of a corner every pixel is, without Harris' free k.   (B, C, H, W) -> (B, C, H, W)

    det M/(tr M + ε), M = G_σ ∗ ∇x∇xᵀ with Sobel's slopes. It is half the harmonic mean of M's two eigenvalues; ε is
    the least number of the dtype, so that 0/0 is 0.

    Convention: slopes in brightness a pixel and borders as kornia's harris_response. scikit-image's
    corner_harris(method="eps") is twice this, and has Sobel's slopes 8 times as large: 128 times ours.

    >>> corner = torch.zeros(1, 1, 15, 15)
    >>> corner[..., 7:, 7:] = 1
    >>> (noble(corner) == noble(corner).max()).nonzero()[0].tolist()
    [0, 0, 7, 7]
    """
    require("kornia")
    from kornia.filters import gaussian_blur2d, spatial_gradient

    need_pictures(x)
    if not sigma > 0:
        raise UserError(f"sigma={sigma}: the window of a corner is more than 0 pixels")
    reach = max(1, round(4 * sigma))
    need_border(x, "reflect", reach)
    slope_x, slope_y = spatial_gradient(x).unbind(2)
    products = torch.cat([slope_x**2, slope_y**2, slope_x * slope_y], 1)
    xx, yy, xy = gaussian_blur2d(products, 2 * reach + 1, (sigma, sigma)).chunk(3, 1)
    return (xx * yy - xy**2) / (xx + yy + torch.finfo(x.dtype).tiny)


def hog(x: Tensor, cell: int = 8, block: int = 2, bins: int = 9) -> Tensor:
    """Histograms of oriented gradients.   (B, C, H, W) -> (B, D)

    A cell of cell x cell pixels has a histogram of the slopes' directions, a pixel weighed by the length of its slope.
    A block of block x block cells is divided by √(|v|² + ε²). D = blocks down · blocks across · block² · bins.

    Convention: scikit-image's hog with block_norm="L2". Directions are unsigned, from 0 to π. A slope is
    x(j+1) - x(j-1), and 0 at the border. Of several channels the one with the longest slope counts. Pixels beyond
    whole cells are left out.

    >>> ramp = torch.arange(16.0).expand(1, 1, 16, 16)
    >>> hog(ramp).shape, hog(ramp)[0, :9].round(decimals=3)  # every slope points to the right: the first bin
    (torch.Size([1, 36]), tensor([0.5000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000]))
    """
    need_pictures(x)
    if min(cell, block, bins) < 1:
        raise UserError(f"cell={cell}, block={block}, bins={bins}: each is 1 or more")
    pictures, channels, height, width = x.shape
    down, across = height // cell, width // cell
    if min(down, across) < block:
        raise UserError(f"pictures of {height} x {width}: one block of HOG needs {block * cell} pixels a side")
    slope_x = F.pad(x[..., 2:] - x[..., :-2], (1, 1))
    slope_y = F.pad(x[..., 2:, :] - x[..., :-2, :], (0, 0, 1, 1))
    if channels > 1:
        longest = torch.hypot(slope_x, slope_y).argmax(1, keepdim=True)
        slope_x, slope_y = slope_x.gather(1, longest), slope_y.gather(1, longest)
    whole = (slice(None), slice(down * cell), slice(across * cell))
    slope_x, slope_y = slope_x[:, 0][whole], slope_y[:, 0][whole]
    # Whole turns first, of 2·bins bins and one for the angle π itself: opposite directions are added afterwards.
    # A direction on the edge of two bins, such as 45° of 8, is in the upper one: a hair more than its rounding error.
    hair = 2 * bins * torch.finfo(x.dtype).eps
    turn = torch.atan2(slope_y, slope_x).detach().mul_(bins / math.pi).add_(hair).floor_()
    turn = turn.nan_to_num_().long()  # a NaN has a bin as well, where its length shows it
    first = bins + (2 * bins + 1) * torch.arange(down * across, device=x.device).view(down, 1, across, 1)
    index = turn.view(pictures, down, cell, across, cell).add_(first).flatten(1)
    length = (slope_x**2 + slope_y**2 + torch.finfo(x.dtype).tiny).sqrt()  # tiny: else flat pixels have no gradient
    turns = x.new_zeros(pictures, down * across * (2 * bins + 1)).scatter_add_(1, index, length.flatten(1))
    behind, ahead, last = turns.view(pictures, down, across, 2 * bins + 1).split([bins, bins, 1], -1)
    cells = (behind + ahead + F.pad(last, (0, bins - 1))) / cell**2
    blocks = cells.unfold(1, block, 1).unfold(2, block, 1).permute(0, 1, 2, 4, 5, 3)
    norm = (blocks.square().sum((3, 4, 5), keepdim=True) + BARELY**2).sqrt()
    return (blocks / norm).flatten(1)


def brief(x: Tensor, points: Tensor, pairs: Tensor, sigma: float = 1.0, border: str = "reflect") -> Tensor:
    """Bits of which of two pixels near a point is brighter.   (B, 1, H, W), (B, N, 2), (P, 2, 2) -> (B, N, P) bool

    Bit p is y(point + pairs[p, 0]) < y(point + pairs[p, 1]) in the picture y that a Gaussian has smoothed. Descriptors
    are compared by the number of bits that differ, `(a != b).sum(-1)`. They follow shifts, not turns or scales.

    Convention: points and pairs are (x, y); points are rounded to pixels. scikit-image's positions are (row, column),
    and it leaves out points nearer to the border than half a patch; here the border says what lies outside.

    >>> generator = torch.Generator().manual_seed(0)
    >>> picture = torch.rand(1, 1, 64, 64, generator=generator)
    >>> pairs = (torch.randn(256, 2, 2, generator=generator) * 5).round().long()
    >>> here = brief(picture, torch.tensor([[[30, 30]]]), pairs)
    >>> there = brief(picture.roll((2, 3), (2, 3)), torch.tensor([[[33, 32]]]), pairs)
    >>> here.shape, int((here != there).sum())
    (torch.Size([1, 1, 256]), 0)
    """
    require("kornia")
    from kornia.filters import gaussian_blur2d

    need_pictures(x, channels=1)
    need_points(points, x)
    if pairs.numel() == 0 or pairs.shape[1:] != (2, 2) or pairs.is_floating_point():
        raise UserError(
            f"pairs of shape {tuple(pairs.shape)}, {pairs.dtype}: give whole numbers (P, 2, 2): pair, end, (x, y)"
        )
    around, reach = round(4 * sigma), int(pairs.abs().max())
    need_border(x, border, max(around, reach))
    smooth = gaussian_blur2d(x, 2 * around + 1, (sigma, sigma), border) if around else x
    padded = F.pad(smooth, (reach,) * 4, mode=border)[:, 0]
    column, row = (points.round().long()[:, :, None, None] + pairs + reach).unbind(-1)  # (B, N, P, 2)
    picture = torch.arange(len(x), device=x.device).view(-1, 1, 1, 1)
    first, second = padded[picture, row, column].unbind(-1)
    return first < second


def surf(x: Tensor, points: Tensor, scale: float = 1.0, border: str = "reflect") -> Tensor:
    """Sums of Haar responses around points, upright.   (B, 1, H, W), (B, N, 2) -> (B, N, 64)

    A square of 20 x 20 samples, `scale` pixels apart, in 4 x 4 parts of 5 x 5. A part gives Σdx, Σdy, Σ|dx|, Σ|dy| of
    Haar responses of side 2·scale, weighed by a Gaussian of 3.3·scale. The whole is divided by √(|v|² + ε²).

    Convention: parts go row by row; dx is positive where it gets brighter to the right, dy downwards. Points and scale
    may be fractions: a pixel is a square of even brightness. Upright: it follows shifts and small turns only.

    >>> ramp = torch.arange(40.0).expand(1, 1, 40, 40) / 40
    >>> surf(ramp, torch.tensor([[[20.0, 20.0]]])).view(4, 4, 4)[1, 1]  # dx and |dx| alike, no dy
    tensor([0.3463, 0.0000, 0.3463, 0.0000])
    """
    need_pictures(x, channels=1)
    need_points(points, x)
    if not scale > 0:
        raise UserError(f"scale={scale}: samples are more than 0 pixels apart")
    reach = math.ceil(10.5 * scale) + 1
    need_border(x, border, reach)
    # Sums of all pixels above and to the left of a corner. In fp32 their differences would have no digits left.
    corners = F.pad(F.pad(x.double(), (reach,) * 4, mode=border).cumsum(2).cumsum(3), (1, 0, 1, 0))
    steps = scale * (torch.arange(22, device=x.device, dtype=torch.float64) - 10.5) + 0.5 + reach
    size = torch.tensor([corners.shape[-1] - 1, corners.shape[-2] - 1], device=x.device)
    places = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), -1) + points.double()[:, :, None, None]
    grid = (2 * places / size - 1).flatten(1, 2)  # (B, N·22, 22, 2)
    sums = F.grid_sample(corners, grid, align_corners=True).view(*points.shape[:2], 22, 22)
    squares = sums.diff(dim=-1).diff(dim=-2)  # the brightness of 21 x 21 squares of side `scale`
    dx = squares[..., 1:, :].add(squares[..., :-1, :]).diff(dim=-1)
    dy = squares[..., 1:].add(squares[..., :-1]).diff(dim=-2)
    near = torch.exp(-((torch.arange(20, device=x.device).double() - 9.5) ** 2) / (2 * SURF_GAUSS**2))
    d = torch.stack([dx, dy], -1) * (near[:, None] * near)[..., None] / scale**2
    parts = torch.cat([d, d.abs()], -1).unflatten(-3, (4, 5)).unflatten(-2, (4, 5)).sum((-4, -2)).flatten(2)
    return (parts / (parts.square().sum(-1, keepdim=True) + BARELY**2).sqrt()).to(x.dtype)
