"""What a function of pictures may be given, and the one line a user reads where it is something else."""

import torch
from torch import Tensor

from horosphere.errors import UserError, choices

BORDERS = ("reflect", "replicate", "circular", "constant")


def need_pictures(x: Tensor, channels: int | None = None) -> None:
    """Complain unless x is (B, C, H, W) of floating point, with so many channels where a number is given.

    >>> need_pictures(torch.rand(2, 1, 8, 8), channels=3)
    Traceback (most recent call last):
    horosphere.errors.UserError: pictures of shape (2, 1, 8, 8) have 1 channel where 3 are needed: give (B, 3, H, W)
    """
    shape = tuple(x.shape)
    if x.ndim != 4:
        raise UserError(f"pictures of shape {shape}: give (B, C, H, W), such as x[None, None] of one grey picture")
    if not x.is_floating_point():
        raise UserError(f"pictures of {x.dtype}: give brightness from 0 to 1 in fp32 or fp64, such as x / 255")
    if channels is not None and x.shape[1] != channels:
        have = f"{x.shape[1]} channel" + ("s" if x.shape[1] != 1 else "")
        need = f"{channels} {'are' if channels != 1 else 'is'} needed"
        raise UserError(f"pictures of shape {shape} have {have} where {need}: give (B, {channels}, H, W)")


def need_border(x: Tensor, border: str, reach: int) -> None:
    """Complain about a border that there is not, or about pictures too small to be mirrored `reach` pixels deep."""
    if border not in BORDERS:
        raise UserError(f"border={border}: {choices(border, BORDERS)}")
    least = {"reflect": reach + 1, "circular": reach}.get(border, 1)
    if min(x.shape[-2:]) < least:
        size = f"{x.shape[-2]} x {x.shape[-1]}"
        raise UserError(
            f"pictures of {size} are too small for border={border} here: give {least} pixels a side or more"
        )


def need_points(points: Tensor, x: Tensor) -> None:
    """Complain unless points are (B, N, 2) as (x, y) within the pictures x."""
    if points.ndim != 3 or points.shape[-1] != 2 or len(points) != len(x):
        raise UserError(f"points of shape {tuple(points.shape)}: give ({len(x)}, N, 2) as (x, y), N for each picture")
    edge = torch.tensor([x.shape[-1] - 0.5, x.shape[-2] - 0.5], device=points.device)
    outside = ~((points >= -0.5) & (points < edge)).all(-1)
    if outside.any():
        picture, point = outside.nonzero()[0].tolist()
        place = "({:g}, {:g})".format(*points[picture, point].tolist())
        raise UserError(
            f"point {point} of picture {picture} at {place} lies outside its {x.shape[-1]} x {x.shape[-2]} pixels: "
            "give (x, y) with x to the right and y down"
        )
