"""How well a box was followed."""

import numpy as np
import torch

from horosphere.extras import require

NEAR = 5.0  # pixels


def centre_scores(found: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Mean distance of points from the truth in pixels, and the share that is nearer than 5.   (N, 2), (N, 2)

    >>> centre_scores(np.array([[0.0, 0.0], [3.0, 4.0]]), np.zeros((2, 2)))
    {'distance': 2.5, 'near': 0.5}
    """
    distance = np.linalg.norm(found - truth, axis=1)
    return {"distance": float(distance.mean()), "near": float((distance < NEAR).mean())}


def mean_overlap(found: np.ndarray, truth: np.ndarray) -> float:
    """Mean intersection over union of boxes with theirs in the truth.   (T, 4), (T, 4)

    >>> round(mean_overlap(np.array([[0.0, 0, 2, 2]]), np.array([[1.0, 0, 3, 2]])), 4)
    0.3333
    """
    require("torchvision")
    from torchvision.ops import box_iou

    return float(box_iou(torch.from_numpy(found), torch.from_numpy(truth)).diagonal().mean())
