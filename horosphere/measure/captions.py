"""What towers make of captions: how far out each lies, in which direction, and the walk of a picture through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from horosphere.data.captions import Captions
from horosphere.evaluate.hierarcaps import retrieve


@dataclass(frozen=True, eq=False)
class CaptionMap:
    """N chains of L captions and M pictures, as polar coordinates around the root, and walks of some pictures."""

    radii: np.ndarray  # (N, L)
    angles: np.ndarray  # (N, L) in a plane through the root, radians
    picture_radii: np.ndarray  # (M,); empty where the towers see no pictures
    picture_angles: np.ndarray
    walks: dict[int, list[str]]  # of a picture, by its number: captions from general to specific


def caption_map(
    texts: Tensor, radii: Tensor, images: Tensor | None, image_radii: Tensor | None, root: Tensor
) -> CaptionMap:
    """Directions are those of the two widest axes of the captions.   (N, L, D), (N, L), (M, D), (M,), (D,)

    >>> texts = torch.tensor([[[1.0, 0.0], [2.0, 0.0]], [[0.0, 1.0], [0.0, 3.0]]])
    >>> mapped = caption_map(texts, texts.norm(dim=-1), None, None, torch.zeros(2))
    >>> mapped.radii.tolist(), mapped.picture_radii.tolist()
    ([[1.0, 2.0], [1.0, 3.0]], [])
    """
    away = torch.nn.functional.normalize((texts - root).double(), dim=-1).flatten(0, 1)
    _, _, axes = torch.linalg.svd(away - away.mean(0), full_matrices=False)

    def angles(points: Tensor) -> np.ndarray:
        plane = (torch.nn.functional.normalize((points - root).double(), dim=-1) - away.mean(0)) @ axes[:2].T
        return torch.atan2(plane[..., 1], plane[..., 0]).cpu().numpy()

    none = np.empty(0)
    return CaptionMap(
        radii.double().cpu().numpy(),
        angles(texts),
        none if image_radii is None else image_radii.double().cpu().numpy(),
        none if images is None else angles(images),
        {},
    )


def walks(alike: Tensor, radii: Tensor, captions: Captions, pictures: Sequence[int]) -> dict[int, list[str]]:
    """The captions that these pictures retrieve, from general to specific.   (N, L, M), (N, L)

    >>> from pathlib import Path
    >>> captions = Captions([("dog", "poodle"), ("cat", "tabby")], [Path("a.jpg"), Path("b.jpg")], np.array([0, 1]))
    >>> alike = torch.tensor([[[0.6, 0.1], [0.9, 0.1]], [[0.1, 0.6], [0.1, 0.9]]])
    >>> walks(alike, torch.tensor([[1.0, 2.0], [1.0, 2.0]]), captions, [0])
    {0: ['dog', 'poodle']}
    """
    words, flat = captions.texts, alike.flatten(0, 1)
    return {n: [words[place] for place in retrieve(flat[:, n], radii.flatten())] for n in pictures}
