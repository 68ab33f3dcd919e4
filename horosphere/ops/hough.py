"""Hough transforms: every edge pixel votes for all lines, or circles, that it may lie on. Peaks are what is there."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from horosphere.errors import UserError

# Votes worked on at a time: a few times 8 bytes of memory each. On the CPU they stay in the cache.
CELLS = {"cpu": 1 << 18, "cuda": 1 << 26}
WEAK = 0.3  # of the strongest: what has less is none
PARTLY = 0.35  # of a circle; chosen on scikit-image's coins: the last coin has 0.41, false circles have less than this
SCATTER = 0.05  # of a radius that votes lie beside their centre, along each axis
ALIKE = 0.5  # radii that two circles are apart, in centre and radius together, to be two


def hough_lines(edges: Tensor, angles: int = 180) -> tuple[Tensor, Tensor, Tensor]:
    """Votes of edge pixels for straight lines.   (B, 1, H, W) -> votes (B, R, A), rho (R,), theta (A,)

    A pixel that is not 0 votes once an angle, for the ρ nearest to x cos θ + y sin θ. `votes[b, i, j]` is the number of
    pixels on the line x cos(theta[j]) + y sin(theta[j]) = rho[i].

    Convention: θ goes from -π/2 to π/2, without the latter; ρ in whole pixels from -D to D, D the diagonal rounded up.
    Votes are equal to scikit-image's hough_line, cell for cell; halves are rounded away from 0.

    >>> edges = torch.zeros(1, 1, 20, 30)
    >>> edges[..., 12, :] = 1  # y = 12
    >>> votes, rho, theta = hough_lines(edges)
    >>> _, i, j = (votes == votes.max()).nonzero()[0]
    >>> votes[0, i, j].item(), rho[i].item(), round(math.degrees(theta[j]))
    (30, -12.0, -90)
    """
    _need_edges(edges)
    if angles < 1:
        raise UserError(f"angles={angles}: lines need one angle or more")
    pictures, (height, width), device = len(edges), edges.shape[-2:], edges.device
    furthest = math.ceil(math.hypot(height, width))
    rhos = 2 * furthest + 1
    rho = torch.arange(-furthest, furthest + 1, device=device, dtype=torch.float64)
    theta = torch.arange(angles, dtype=torch.float64) * (math.pi / angles) - math.pi / 2
    # Made on the CPU: a GPU's cosine of 60° has another last bit, and half pixels would be rounded another way.
    along = (torch.arange(width)[:, None] * theta.cos()).to(device)
    down = (torch.arange(height)[:, None] * theta.sin()).to(device)

    # Cells are numbered (picture, angle, ρ) while votes are counted. All pictures share the table of a pixel's cells.
    number = torch.int32 if pictures * angles * rhos < 2**31 else torch.int64
    first_cell = furthest + rhos * torch.arange(angles, device=device, dtype=number)
    votes = torch.zeros(pictures * angles * rhos, device=device, dtype=torch.int32)
    one, half = votes.new_ones(()), rho.new_tensor(0.5)
    on = edges.flatten(1) != 0
    some = max(1, CELLS.get(device.type, CELLS["cuda"]) // angles)  # pixels at a time
    used = on.any(0).nonzero()[:, 0]
    for pixels in used.split(some):
        distance = along.index_select(0, pixels % width).add_(down.index_select(0, pixels // width))
        distance.add_(torch.copysign(half, distance))  # and cut off: halves go away from 0
        table = distance.to(number).add_(first_cell)
        picture, row = on.index_select(1, pixels).nonzero(as_tuple=True)
        start = (picture * (angles * rhos)).to(number)[:, None]
        for rows, starts in zip(row.split(some), start.split(some), strict=True):
            cell = table.index_select(0, rows).add_(starts).flatten()
            votes.index_add_(0, cell, one.expand(len(cell)))
    return votes.view(pictures, angles, rhos).transpose(1, 2), rho, theta.to(device)


def hough_circles(edges: Tensor, direction: Tensor, radii: Sequence[float] | Tensor) -> Tensor:
    """Votes of edge pixels for centres of circles.   (B, 1, H, W), (B, 1, H, W) -> (B, K, H, W)

    `direction` is the angle θ of the slope at each pixel. A pixel that is not 0 votes for a = x ∓ r cos θ,
    b = y ∓ r sin θ with each radius r: with both signs, since a disc may be brighter or darker than what is around it.

    Convention: θ = atan2(g_y, g_x) in radians. `votes[b, k, y, x]` is for the centre (x, y) and radii[k]; centres
    outside the picture are not counted. scikit-image's hough_circle takes no direction: every pixel votes for a whole
    circle of centres.

    >>> turn = torch.arange(0, 2 * math.pi, 0.05)
    >>> x, y = (30 + 12 * turn.cos()).round().long(), (25 + 12 * turn.sin()).round().long()
    >>> edges, direction = torch.zeros(1, 1, 50, 60), torch.zeros(1, 1, 50, 60)
    >>> edges[0, 0, y, x], direction[0, 0, y, x] = 1.0, turn
    >>> votes = hough_circles(edges, direction, radii=[10, 11, 12, 13])
    >>> (votes == votes.max()).nonzero().tolist()  # picture, radius, y, x
    [[0, 2, 25, 30]]
    """
    _need_edges(edges)
    if direction.shape != edges.shape:
        raise UserError(
            f"directions of shape {tuple(direction.shape)} for edges of {tuple(edges.shape)}: give one a pixel"
        )
    device, (height, width) = edges.device, edges.shape[-2:]
    r = torch.as_tensor(radii, device=device, dtype=torch.float64)
    if r.ndim != 1 or len(r) == 0 or not (r > 0).all():
        raise UserError(f"radii={radii}: give a list of lengths in pixels, each more than 0")
    votes = torch.zeros(len(edges) * len(r) * height * width, device=device, dtype=torch.int64)
    signed = torch.cat([-r, r])
    plane = torch.arange(len(r), device=device).repeat(2) * (height * width)
    picture, _, y, x = edges.nonzero(as_tuple=True)
    theta = direction[picture, 0, y, x].double()
    places = torch.stack([x.double(), y.double(), theta.cos(), theta.sin()], 1)
    start = picture * (len(r) * height * width)
    most = CELLS.get(device.type, CELLS["cuda"]) // (2 * len(r)) + 1
    for some, starts in zip(places.split(most), start.split(most), strict=True):
        x_of, y_of, cos, sin = some[..., None].unbind(1)
        a, b = torch.addcmul(x_of, signed, cos).round_().long(), torch.addcmul(y_of, signed, sin).round_().long()
        inside = (a >= 0) & (a < width) & (b >= 0) & (b < height)
        cell = (starts[:, None] + plane + b * width + a)[inside]
        votes.index_add_(0, cell, torch.ones_like(cell))
    return votes.view(len(edges), len(r), height, width)


def peaks(votes: Tensor, threshold: float, reach: int = 1) -> Tensor:
    """Cells that no neighbour exceeds.   (B, R, A) -> (P, 3);  (B, K, H, W) -> (P, 4)

    A row is a peak: the picture, then the indices of the cell. Neighbours are at most `reach` cells away along every
    axis: 8 of them in two dimensions and 26 in three at reach 1. A peak has `threshold` votes or more.

    Convention: rows are sorted by picture, then by votes, the most first, then by place in memory. Of equal neighbours
    the first in memory is the peak. Axes end: θ near -π/2 and near π/2 are not neighbours.

    >>> votes = torch.tensor([[[0, 2, 0, 5], [1, 1, 5, 0], [9, 0, 0, 0]]])
    >>> peaks(votes, threshold=2).tolist()
    [[0, 2, 0], [0, 0, 3]]
    """
    if votes.ndim not in (3, 4):
        raise UserError(f"votes of shape {tuple(votes.shape)}: give (B, R, A) of lines or (B, K, H, W) of circles")
    if reach < 1:
        raise UserError(f"reach={reach}: the nearest neighbours are one cell away")
    pool = F.max_pool2d if votes.ndim == 3 else F.max_pool3d

    def largest_around(cells: Tensor) -> Tensor:
        return pool(cells[:, None], 2 * reach + 1, stride=1, padding=reach)[:, 0]

    height = votes.double()
    highest = (height >= threshold) & (height == largest_around(height))
    earliness = torch.arange(votes.shape[1:].numel(), 0, -1, device=votes.device, dtype=torch.float64).view(
        votes.shape[1:]
    )
    earliness = torch.where(highest, earliness, 0.0)
    found = (highest & (earliness == largest_around(earliness))).nonzero()
    by_votes = height[tuple(found.T)].argsort(descending=True, stable=True)
    found = found[by_votes]
    return found[found[:, 0].argsort(stable=True)]


# -- the strongest ----------------------------------------------------------------------------------------------------


def strongest_lines(edges: Tensor, count: int = 10, angles: int = 180, reach: int = 10) -> Tensor:
    """The lines of one picture with the most votes.   (1, 1, H, W) -> (N, 3) as (ρ, θ, votes), the most first

    Lines are as `hough_lines` has them. Within `reach` cells of a line, along ρ and θ, only the strongest counts; also
    across θ = ±π/2, where (ρ, θ) and (-ρ, θ + π) are one line. Lines with less than `WEAK` of the most votes are none.

    >>> edges = torch.zeros(1, 1, 40, 30)
    >>> edges[..., 12, :] = 1  # y = 12 is x cos(-90°) + y sin(-90°) = -12, and nearly so at 89°
    >>> strongest_lines(edges)[:, [0, 2]].tolist()
    [[-12.0, 30.0]]
    """
    _need_one(edges)
    votes, rho, theta = hough_lines(edges, angles)
    around = min(reach, angles)
    turned = votes.flip(1)  # by half a turn
    wide = torch.cat([turned[..., angles - around :], votes, turned[..., :around]], -1)
    found = peaks(wide, threshold=max(1.0, WEAK * float(votes.max())), reach=reach)[:, 1:]
    found = found[(found[:, 1] >= around) & (found[:, 1] < around + angles)][:count]
    i, j = found[:, 0], found[:, 1] - around
    return torch.stack([rho[i], theta[j], votes[0, i, j].double()], 1)


def strongest_circles(edges: Tensor, direction: Tensor, radii: Sequence[int], count: int = 10) -> Tensor:
    """The most complete circles of one picture.   (1, 1, H, W) twice -> (N, 4) as (x, y, radius, share)

    The share is the votes near a circle's centre, weighed less the farther they are, divided by 2πr. It is at most 1
    for the edge of a disc and 2 for a stroke, which has two edges. What is near grows with the radius: an error of the
    direction scatters votes by so much. Of circles that are much alike, in centre and radius, the most complete one
    counts. Shares below `PARTLY`, or below `WEAK` of the largest, are none.

    >>> turn = torch.arange(0, 2 * math.pi, 0.05)
    >>> x, y = (30 + 12 * turn.cos()).round().long(), (25 + 12 * turn.sin()).round().long()
    >>> edges, direction = torch.zeros(1, 1, 50, 60), torch.zeros(1, 1, 50, 60)
    >>> edges[0, 0, y, x], direction[0, 0, y, x] = 1.0, turn
    >>> strongest_circles(edges, direction, radii=range(10, 15))[:, :3].tolist()
    [[30.0, 25.0, 12.0]]
    """
    _need_one(edges)
    votes = hough_circles(edges, direction, radii)
    shares = torch.empty(votes.shape, device=votes.device)
    for k, radius in enumerate(radii):
        side = 2 * round(SCATTER * radius) + 3
        near = votes[:, k, None].float()
        for _ in range(2):  # twice: a pyramid of weights, whose peak is the centre's, and not a plateau
            near = F.avg_pool2d(near, side, stride=1, padding=side // 2)
        shares[:, k] = near[:, 0] * side**2 / (2 * math.pi * radius)
    _, k, y, x = peaks(shares, threshold=max(PARTLY, WEAK * float(shares.max()))).T
    share = shares[0, k, y, x]
    found = torch.stack([x, y, torch.as_tensor(radii, device=k.device)[k]], 1).double()
    kept: list[int] = []
    for i in share.argsort(descending=True, stable=True).tolist():
        apart = torch.linalg.vector_norm(found[kept] - found[i], dim=1)
        if bool((apart > ALIKE * torch.maximum(found[kept, 2], found[i, 2])).all()):
            kept.append(i)
        if len(kept) == count:
            break
    return torch.cat([found[kept], share[kept, None].double()], 1)


def _need_one(edges: Tensor) -> None:
    _need_edges(edges)
    if len(edges) != 1:
        raise UserError(f"edges of {len(edges)} pictures: give one, (1, 1, H, W)")


def _need_edges(edges: Tensor) -> None:
    if edges.ndim != 4 or edges.shape[1] != 1:
        raise UserError(f"edges of shape {tuple(edges.shape)}: give (B, 1, H, W), 0 where there is no edge")
