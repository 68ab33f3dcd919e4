"""Points of a picture that another picture of the same thing has too, and the map between them. Most of it is kornia's.

SIFT here is `kornia.feature.SIFTFeatureScaleSpace`, which finds places between pixels. tests/ops/test_features.py
pins it and its neighbours to OpenCV.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from horosphere.errors import UserError, choices
from horosphere.extras import require
from horosphere.ops.checks import need_pictures
from horosphere.ops.features import noble
from horosphere.ops.hough import peaks

RESPONSES = ("harris", "gftt", "noble")
FAINT = 0.01  # of the strongest corner's answer: less is none
# A disc of radius r answers at σ = r/√2. kornia looks at 6σ around it, σ of the finer of two Gaussians, 2^(1/3) apart.
RADIUS = math.sqrt(2) * 2 ** (1 / 6) / 6
CONTRAST = 1e-3  # brightness between two Gaussians: less is the noise of a flat place
MOST_DRAWS = 10  # rounds of RANSAC, of some thousand draws each
FEWEST = 3  # pairs: an affine map has six unknowns


class Features(NamedTuple):
    """Points of one picture, the strongest first."""

    points: Tensor  # (N, 2) as (x, y)
    scales: Tensor  # (N,) radii of the blobs in pixels
    turns: Tensor  # (N,) radians from the x axis towards the y axis
    descriptors: Tensor  # (N, 128)


def corners(x: Tensor, method: str = "harris", count: int = 200, apart: int = 5) -> Tensor:
    """The strongest corners of one picture.   (1, 1, H, W) -> (N, 2) as (x, y), the strongest first

    Maxima of Harris' det M - 0.04 tr²M, of Kanade and Tomasi's smaller eigenvalue (gftt), or of Noble's det M/tr M,
    over `apart` pixels each way. What is below `FAINT` of the strongest is none.

    Convention: whole pixels; slopes are Sobel's, as in kornia's harris_response.

    >>> corner = torch.zeros(1, 1, 15, 15)
    >>> corner[..., 7:, 7:] = 1
    >>> corners(corner, "noble").tolist()
    [[7.0, 7.0]]
    """
    need_pictures(x, channels=1)
    _need_one(x)
    if method not in RESPONSES:
        raise UserError(f"method={method}: {choices(method, RESPONSES)}")
    require("kornia")
    from kornia.feature import gftt_response, harris_response

    known: dict[str, Callable[[Tensor], Tensor]] = {"harris": harris_response, "gftt": gftt_response, "noble": noble}
    answer = known[method](x)[0]
    strongest = float(answer.max())
    if strongest <= 0:
        return x.new_zeros(0, 2)
    return peaks(answer, FAINT * strongest, apart)[:count, [2, 1]].to(x)


def sift(x: Tensor, count: int = 1000) -> Features:
    """Points that follow turns and changes of scale, and what is around them (Lowe 2004).   (1, 1, H, W)

    >>> sift(torch.rand(1, 1, 64, 64, generator=torch.Generator().manual_seed(0)), count=5).descriptors.shape
    torch.Size([5, 128])
    """
    require("kornia")
    from kornia.feature import SIFTFeatureScaleSpace, get_laf_center, get_laf_orientation, get_laf_scale

    need_pictures(x, channels=1)
    _need_one(x)
    with torch.no_grad():
        frames, strength, descriptors = SIFTFeatureScaleSpace(count)(x)
    order = strength[0].argsort(descending=True, stable=True)
    order = order[strength[0, order] > CONTRAST]  # kornia fills up with what is none
    frames = frames[:, order]
    turns = -torch.deg2rad(get_laf_orientation(frames)[0, :, 0])  # kornia's go counter-clockwise on screen
    radii = RADIUS * get_laf_scale(frames)[0, :, 0, 0]
    return Features(get_laf_center(frames)[0], radii, turns, descriptors[0, order])


def match(first: Features, second: Features, ratio: float = 0.8) -> tuple[Tensor, Tensor]:
    """Points that are each other's nearest by their descriptors, clearly nearer than the next.   -> (M, 2), (M, 2)

    Clearly: the nearest is at most `ratio` times as far as the second nearest, in both directions.

    >>> features = sift(torch.rand(1, 1, 64, 64, generator=torch.Generator().manual_seed(0)), count=5)
    >>> here, there = match(features, features)
    >>> bool((here == there).all()), len(here)
    (True, 5)
    """
    require("kornia")
    from kornia.feature import match_smnn

    if min(len(first.points), len(second.points)) < 2:  # a second nearest is needed
        return first.points[:0], second.points[:0]
    _, pairs = match_smnn(first.descriptors, second.descriptors, ratio)
    return first.points[pairs[:, 0]], second.points[pairs[:, 1]]


def affine_between(here: Tensor, there: Tensor, within: float = 2.0) -> tuple[Tensor, Tensor]:
    """The affine map that most pairs of points agree on.   (M, 2), (M, 2) -> map (2, 3), agree (M,)

    RANSAC: maps through 3 pairs, drawn again and again; then least squares of the pairs that lie `within` pixels.
    Convention: there ≈ map[:, :2] here + map[:, 2]. The draws are the same at every call.

    >>> here = 100 * torch.rand(30, 2, generator=torch.Generator().manual_seed(0))
    >>> there = here @ torch.tensor([[1.1, 0.2], [-0.1, 0.9]]).T + torch.tensor([3.0, -7.0])
    >>> map, agree = affine_between(here, torch.cat([there[:20], here[20:].flip(0)]))
    >>> map.round(decimals=3), int(agree.sum())
    (tensor([[ 1.1000,  0.2000,  3.0000],
            [-0.1000,  0.9000, -7.0000]]), 20)
    """
    require("kornia")
    from kornia.geometry import RANSAC, find_affine

    if len(here) < FEWEST or here.shape != there.shape:
        raise UserError(f"{len(here)} pairs of points: an affine map needs {FEWEST} or more")
    here, there = here.double(), there.double()
    _, agree = RANSAC("affine", inl_th=within, seed=0, max_iter=MOST_DRAWS)(here, there)
    if int(agree.sum()) < FEWEST:
        raise UserError(f"{len(here)} pairs of points: no {FEWEST} of them agree on an affine map")
    fitted = find_affine(here[None, agree], there[None, agree])[0, :2]
    if not bool(fitted.isfinite().all()):
        raise UserError(f"{int(agree.sum())} pairs of points lie on a line, or are one: they fix no affine map")
    return fitted.float(), agree


def _need_one(x: Tensor) -> None:
    if len(x) != 1:
        raise UserError(f"{len(x)} pictures: give one, (1, 1, H, W)")
