"""Directions of many dimensions in a plane: what pictures of points share."""

from __future__ import annotations

import numpy as np

PLANAR = 0.9  # share of squared length in two axes from which a projection on them shows what there is
LINKED = 2_000  # directions that are clustered at once: their distances are a matrix


def in_a_plane(tangent: np.ndarray) -> tuple[np.ndarray, str]:
    """Directions as seen from the origin, of length 1, and what they keep.   (N, d) -> (N, 2), note

    Exact in two dimensions. Beyond, the projection on the two principal axes if these hold nearly all; else directions
    are put in a row, like beside like, which goes once around.
    """
    plane, kept = (tangent, "angle exact") if tangent.shape[-1] <= 2 else _plane(tangent)
    plane = np.pad(plane, ((0, 0), (0, 2 - plane.shape[-1])))  # one dimension, or one point
    length = np.linalg.norm(plane, axis=-1, keepdims=True)
    right = np.tile([1.0, 0.0], (len(plane), 1))  # where a point is seen end-on
    return np.divide(plane, length, out=right, where=length > 0), kept


def _plane(tangent: np.ndarray) -> tuple[np.ndarray, str]:
    count, dim = tangent.shape
    _, lengths, axes = np.linalg.svd(tangent, full_matrices=False)
    power = lengths**2
    share = power[:2].sum() / power.sum() if power.any() else 1.0
    if share >= PLANAR:
        projected = f"angle projected from {dim} dimensions ({100 * share:.0f} % of squared length)"
        return tangent @ axes[:2].T, projected
    length = np.linalg.norm(tangent, axis=-1, keepdims=True)
    directions = np.divide(tangent, length, out=np.zeros_like(tangent), where=length > 0)
    order = in_a_row(directions)
    row = directions[order]
    gap = np.arccos(np.clip((row * np.roll(row, -1, 0)).sum(-1), -1, 1))
    gap += gap.mean()  # half as wide as they are, half even: those that are all but the same stay apart
    angle = np.empty(count)
    angle[order] = 2 * np.pi * (np.cumsum(gap) - gap) / gap.sum()
    return np.stack([np.cos(angle), np.sin(angle)], -1), f"angle: {dim} dimensions in a row, like beside like"


def in_a_row(directions: np.ndarray) -> np.ndarray:
    """An order in which directions that are alike lie beside each other.   (N, d) -> (N,)

    The leaves of an average-linkage clustering by angle. More than LINKED are cut in two first, again and again, along
    their principal axis.

    >>> in_a_row(np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1]]))  # the second lies apart
    array([1, 0, 2], dtype=int32)
    """
    from scipy.cluster.hierarchy import leaves_list, linkage

    if len(directions) < 3:
        return np.arange(len(directions))
    if len(directions) <= LINKED:
        cosines = directions @ directions.T
        return leaves_list(linkage(np.arccos(np.clip(cosines[np.triu_indices(len(directions), 1)], -1, 1)), "average"))
    centred = directions - directions.mean(0)
    along = np.argsort(centred @ np.linalg.svd(centred, full_matrices=False)[2][0], kind="stable")
    halves = np.array_split(along, 2)
    return np.concatenate([half[in_a_row(directions[half])] for half in halves])
