"""Edges with their directions: kornia's Canny, and the chains of weak pixels that hang on a strong one."""

import math

import torch
from torch import Tensor

from horosphere.errors import UserError
from horosphere.extras import require
from horosphere.ops.checks import need_border, need_pictures

EIGHT = [[1, 1, 1], [1, 1, 1], [1, 1, 1]]  # a pixel's neighbours in a chain, and itself
RAW = 8  # Sobel's raw slope of a ramp of 1 a pixel
STEEP, LEAST = 0.1, 0.1  # of the pixels are steep where nobody says what is; a lesser raw slope is flat to the eye


def canny(x: Tensor, low: float | None = None, high: float | None = None, sigma: float = 1.0) -> tuple[Tensor, Tensor]:
    """Thin edges, and which way it gets brighter there.   (B, 1, H, W) -> edges, direction (B, 1, H, W)

    Pixels whose slope is the largest across the edge, and above `high`, or above `low` in a chain with such a pixel.
    Edges are 0 or 1. A direction is atan2(g_y, g_x) in radians, of every pixel. Without `high` it is what the steepest
    tenth of the pixels of all pictures exceed; without `low` it is half of `high`.

    Convention: thresholds are of Sobel's raw slope, 8 times the brightness a pixel, as OpenCV's divided by 255. Edges
    are kornia's canny, pixel for pixel. Its own chains grow by a pixel a pass: here they are labelled at once, on the
    CPU.

    >>> step = torch.zeros(1, 1, 9, 9)
    >>> step[..., 5:] = 1  # it gets brighter to the right
    >>> edges, direction = canny(step)
    >>> edges[0, 0, 4].nonzero().flatten().tolist(), round(direction[0, 0, 4, 4].item(), 4)
    ([5], 0.0)
    """
    require("kornia")
    from kornia import filters
    from scipy.ndimage import label

    need_pictures(x, channels=1)
    reach = max(1, round(3 * sigma))
    need_border(x, "reflect", reach)
    kernel, scale = (2 * reach + 1,) * 2, (sigma, sigma)
    slope_x, slope_y = filters.spatial_gradient(filters.gaussian_blur2d(x, kernel, scale)).unbind(2)
    if high is None:
        steepness = RAW * torch.hypot(slope_x, slope_y)
        high = max(LEAST, float(steepness.flatten().kthvalue(math.ceil((1 - STEEP) * x.numel())).values))
        high = high if low is None else max(low, high)
    low = high / 2 if low is None else low
    if not 0 < low <= high:
        raise UserError(f"low={low:g} high={high:g}: thresholds of edges are above 0, and low is not above high")
    _, strength = filters.canny(x, low, high, kernel, scale, hysteresis=False)
    edges = torch.zeros_like(x)
    for picture, levels in enumerate(strength[:, 0].cpu()):
        chains, count = label(levels.numpy() > 0, EIGHT)
        numbers = torch.from_numpy(chains).long()
        strong = torch.zeros(count + 1, dtype=torch.bool)
        strong[numbers[levels == 1]] = True
        edges[picture, 0] = strong[numbers].to(x)
    return edges, torch.atan2(slope_y, slope_x)
