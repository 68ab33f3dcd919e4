"""Boxes that may hold an object, whatever it is: the nodes of a tree of regions."""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush

import numpy as np
import torch
from torch import Tensor

from horosphere.errors import UserError
from horosphere.extras import require

COLOURS, SLOPES, DIRECTIONS = 25, 10, 8  # bins of a colour and of a slope, and directions of slopes, as in the paper


def selective_search(
    picture: Tensor, scale: float = 100.0, sigma: float = 0.5, smallest: int = 20
) -> tuple[Tensor, Tensor]:
    """Regions of a picture, merged two by two until one is left (Uijlings et al. 2013).

    (1 or 3, H, W) -> boxes (N, 4), tree (N,): the number of each node's parent, -1 for the last, the whole picture

    Those neighbours merge first that are most alike, by colour + texture + size + fill: Σ min of two histograms of
    colours, Σ min of two of slopes, 1 - both areas/picture, 1 - (box around both - both areas)/picture.
    The N = 2R - 1 nodes are the R first regions, then larger and larger ones. Several nodes may have one box.

    scale, sigma, smallest: of the first regions, by scikit-image's `felzenszwalb`. A larger scale gives fewer and
    larger ones; sigma is a Gaussian's; a region of fewer pixels than `smallest` is given to a neighbour.

    Convention: boxes in pixels, where pixel i covers [i, i + 1). Colours are HSV. OpenCV's selective search joins
    several colour spaces and scales; join the boxes of several calls for that. All of it runs on the CPU.

    >>> picture = torch.zeros(3, 40, 60)
    >>> picture[0, 10:30, 20:50] = 1  # a red rectangle
    >>> boxes, tree = selective_search(picture, sigma=0)
    >>> boxes.tolist(), tree.tolist()
    ([[0.0, 0.0, 60.0, 40.0], [20.0, 10.0, 50.0, 30.0], [0.0, 0.0, 60.0, 40.0]], [2, 2, -1])
    """
    require("skimage")
    from skimage.segmentation import felzenszwalb

    if picture.ndim != 3 or picture.shape[0] not in (1, 3):
        raise UserError(f"a picture of shape {tuple(picture.shape)}; selective search takes one of (1 or 3, H, W)")
    if picture.numel() == 0 or not picture.is_floating_point() or not bool(picture.isfinite().all()):
        what = f"{picture.dtype}, {picture.shape[2]} x {picture.shape[1]} pixels"
        raise UserError(f"a picture of {what}: give finite brightness from 0 to 1 in fp32 or fp64, such as x / 255")
    image = picture.detach().cpu().double().expand(3, -1, -1).permute(1, 2, 0).numpy()
    first = felzenszwalb(image, scale, sigma, smallest)
    boxes, tree = _merged(first, _histograms(image, first))
    return torch.from_numpy(boxes), torch.from_numpy(tree)


def tree_lines(tree: Tensor) -> list[str]:
    """The edges of a tree as lines "child<TAB>parent", as `horosphere embed` reads them; nodes are called by number.

    Path("regions.tsv").write_text("\\n".join(tree_lines(tree))), then `horosphere embed regions.tsv`.

    >>> tree_lines(torch.tensor([2, 2, -1]))
    ['0\\t2', '1\\t2']
    """
    return [f"{child}\t{parent}" for child, parent in enumerate(tree.tolist()) if parent >= 0]


def _merged(first: np.ndarray, histograms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(H, W) numbers of R regions, (R, D) -> (2R - 1, 4) float32, (2R - 1,) int64"""
    count, width = histograms.shape
    nodes = 2 * count - 1
    size, box, shape = np.zeros(nodes), np.zeros((nodes, 4)), np.zeros((nodes, width))
    size[:count], box[:count], shape[:count] = np.bincount(first.ravel()), _boxes(first, count), histograms
    tree, beside = np.full(nodes, -1), _neighbours(first, count)

    def unlike(node: int, others: list[int]) -> list[tuple[float, int, int]]:
        """Minus how alike a node is to each of the others. Size and fill sum to 2 - box around both/picture."""
        around = np.maximum(box[node, 2:], box[others, 2:]) - np.minimum(box[node, :2], box[others, :2])
        values = around.prod(1) / first.size - np.minimum(shape[node], shape[others]).sum(1)
        return [(value, node, other) for value, other in zip(values.tolist(), others, strict=True)]

    queue = [pair for node, others in enumerate(beside) for pair in unlike(node, sorted(n for n in others if n > node))]
    heapify(queue)
    for new in range(count, nodes):
        _, a, b = heappop(queue)
        while tree[a] >= 0 or tree[b] >= 0:  # one of them is in a larger region by now
            _, a, b = heappop(queue)
        tree[[a, b]] = new
        size[new] = size[a] + size[b]
        shape[new] = (size[a] * shape[a] + size[b] * shape[b]) / size[new]
        box[new] = *np.minimum(box[a, :2], box[b, :2]), *np.maximum(box[a, 2:], box[b, 2:])
        beside.append((beside[a] | beside[b]) - {a, b})
        for other in beside[new]:
            beside[other] = (beside[other] - {a, b}) | {new}
        for pair in unlike(new, sorted(beside[new])):
            heappush(queue, pair)
    return box.astype(np.float32), tree


def _boxes(first: np.ndarray, count: int) -> np.ndarray:
    """-> (R, 4) left, top, right, bottom"""
    from scipy.ndimage import find_objects

    return np.array([(x.start, y.start, x.stop, y.stop) for y, x in find_objects(first + 1, count)])


def _neighbours(first: np.ndarray, count: int) -> list[set[int]]:
    """The regions that touch each region along a side of a pixel."""
    sides = ((first[:, 1:], first[:, :-1]), (first[1:], first[:-1]))
    pairs = np.unique(np.concatenate([np.stack([a[a != b], b[a != b]], 1) for a, b in sides]), axis=0)
    beside: list[set[int]] = [set() for _ in range(count)]
    for a, b in pairs.tolist():
        beside[a].add(b)
        beside[b].add(a)
    return beside


def _histograms(image: np.ndarray, first: np.ndarray) -> np.ndarray:
    """How often a region has each colour, and each slope in each direction; both sum to 1.

    (H, W, 3), (H, W) -> (R, D)
    """
    from scipy.ndimage import gaussian_filter
    from skimage.color import rgb2hsv

    turns = 2 * math.pi * np.arange(DIRECTIONS) / DIRECTIONS
    down, right = (gaussian_filter(image, 1.0, order=order, axes=(0, 1)) for order in ((1, 0), (0, 1)))
    slopes = np.cos(turns) * right[..., None] + np.sin(turns) * down[..., None]  # (H, W, 3, 8)
    steepest = max(float(slopes.max()), np.finfo(np.float64).tiny)
    parts = [
        _shares(first, rgb2hsv(image), COLOURS),
        _shares(first, (slopes / steepest).reshape(*first.shape, -1), SLOPES),
    ]
    return np.concatenate(parts, 1)


def _shares(first: np.ndarray, values: np.ndarray, bins: int) -> np.ndarray:
    """(H, W), (H, W, C) from 0 to 1 -> (R, C·bins)"""
    which = (values * bins).astype(np.int64).clip(0, bins - 1)
    count, channels = int(first.max()) + 1, values.shape[2]
    cells = (first[..., None] * channels + np.arange(channels)) * bins + which
    totals = np.bincount(cells.ravel(), minlength=count * channels * bins).reshape(count, -1)
    return totals / totals.sum(1, keepdims=True)
