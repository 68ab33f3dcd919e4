"""Filters that kornia does not have: high-pass, Prewitt, the Laplacian of a Gaussian; colours of print.

Averages, Gaussians, medians, Sobel, Canny and Laplacians are kornia's, in `kornia.filters`. tests/ops/test_filters.py
pins their conventions.
"""

import torch
from torch import Tensor

from horosphere.errors import UserError
from horosphere.extras import require
from horosphere.ops.checks import need_border, need_pictures

REACH_OF_LOG = 6  # standard deviations: what lies beyond weighs 1e-8


def high_pass(x: Tensor, size: int = 3, border: str = "reflect") -> Tensor:
    """What a window's other pixels do not have.   (B, C, H, W) -> (B, C, H, W)

    A window of k x k pixels: 1 in the centre, -1/(k² - 1) around. That is k²/(k² - 1)·(x - mean of the window).

    Convention: the weights sum to 0, so flat parts become 0. `x + high_pass(x)` sharpens: its weights sum to 1.

    >>> dot = torch.zeros(1, 1, 5, 5)
    >>> dot[..., 2, 2] = 8
    >>> high_pass(dot)[0, 0, 2].round(decimals=4)
    tensor([ 0., -1.,  8., -1.,  0.])
    """
    require("kornia")
    from kornia.filters import box_blur

    need_pictures(x)
    if size < 3 or size % 2 == 0:
        raise UserError(f"size={size}: a window needs a centre and others around it, so give 3, 5, 7, …")
    need_border(x, border, size // 2)
    return (x - box_blur(x, size, border)) * (size**2 / (size**2 - 1))


def prewitt(x: Tensor, border: str = "reflect") -> Tensor:
    """Slopes to the right and down, each averaged over three pixels across.   (B, C, H, W) -> (B, C, 2, H, W)

    g_x = mean of three rows of x(j+1) - x(j-1); g_y the same of columns. The layout is kornia's spatial_gradient.

    Convention: equal to scikit-image's prewitt_v and prewitt_h, which are twice the derivative: a ramp of slope 1 gives
    2. scikit-image's prewitt is the length divided by √2.

    >>> ramp = torch.arange(5.0).expand(1, 1, 5, 5)
    >>> prewitt(ramp)[0, 0, :, 2, 2]
    tensor([2., 0.])
    """
    need_pictures(x)
    need_border(x, border, 1)
    padded = torch.nn.functional.pad(x, (1, 1, 1, 1), mode=border)
    rows = (padded[..., :-2, :] + padded[..., 1:-1, :] + padded[..., 2:, :]) / 3
    columns = (padded[..., :-2] + padded[..., 1:-1] + padded[..., 2:]) / 3
    return torch.stack([rows[..., 2:] - rows[..., :-2], columns[..., 2:, :] - columns[..., :-2, :]], 2)


def laplacian_of_gaussian(x: Tensor, sigma: float, border: str = "reflect") -> Tensor:
    """Curvature of the picture seen at a scale: Δ(G∗x), dark on bright is positive.   (B, C, H, W) -> (B, C, H, W)

    The kernel is -(1/πσ⁴)(1 - r²/2σ²)e^(-r²/2σ²) = G″(x)G(y) + G(x)G″(y), four passes in one dimension.
    Times σ² it can be compared between scales: a bright disc of radius r answers most strongly at σ = r/√2.

    Convention: sampled and cut off, G″ is set right again so that a flat picture and a ramp give 0 and x² gives 2. As σ
    goes to 0 it becomes 1, -2, 1. scipy's gaussian_laplace leaves that out: a flat picture of brightness 1 gives -2e-4.

    >>> y, x = torch.meshgrid(torch.arange(41.0), torch.arange(41.0), indexing="ij")
    >>> bowl = ((x - 20) ** 2 + (y - 20) ** 2).double()[None, None]
    >>> laplacian_of_gaussian(bowl, sigma=1.5)[0, 0, 20, 20]
    tensor(4.0000, dtype=torch.float64)
    """
    require("kornia")
    from kornia.filters import filter2d_separable

    need_pictures(x)
    if not sigma > 0:
        raise UserError(f"sigma={sigma}: the scale of a Gaussian is more than 0 pixels")
    reach = max(1, round(REACH_OF_LOG * sigma))
    need_border(x, border, reach)
    places = torch.arange(-reach, reach + 1, device=x.device, dtype=torch.float64)
    gauss = (-(places**2) / (2 * sigma**2)).exp()
    gauss = gauss / gauss.sum()
    second, fourth = (places**2 * gauss).sum(), (places**4 * gauss).sum()  # moments; σ² and 3σ⁴ of the whole Gaussian
    bend = 2 * (places**2 - second) / (fourth - second**2) * gauss  # (x²/σ⁴ - 1/σ²)G with the moments that there are
    gauss, bend = gauss.to(x.dtype)[None], bend.to(x.dtype)[None]
    return filter2d_separable(x, bend, gauss, border) + filter2d_separable(x, gauss, bend, border)


def cmyk(x: Tensor) -> Tensor:
    """Colours of print from colours of light: cyan, magenta, yellow, black.   (B, 3, H, W) -> (B, 4, H, W)

    k = 1 - max(r, g, b) and c = (1 - r - k)/(1 - k), m and y alike. Black has c = m = y = 0.

    Convention: as much black ink as possible. Pillow's convert("CMYK") uses none: its k is 0 and its c is 1 - r.

    >>> cmyk(torch.tensor([1.0, 0.5, 0.0]).view(1, 3, 1, 1)).flatten()
    tensor([0.0000, 0.5000, 1.0000, 0.0000])
    """
    need_pictures(x, channels=3)
    light = x.amax(1, keepdim=True)  # 1 - k
    black = light == 0
    inks = (light - x) / torch.where(black, torch.ones_like(light), light)  # black: 0/1, not 0/0
    return torch.cat([inks, 1 - light], 1)


def from_cmyk(x: Tensor) -> Tensor:
    """Colours of light from colours of print: r = (1 - c)(1 - k), g and b alike.   (B, 4, H, W) -> (B, 3, H, W)

    >>> orange = torch.tensor([1.0, 0.5, 0.0]).view(1, 3, 1, 1)
    >>> from_cmyk(cmyk(orange)).flatten()
    tensor([1.0000, 0.5000, 0.0000])
    """
    need_pictures(x, channels=4)
    return (1 - x[:, :3]) * (1 - x[:, 3:])
