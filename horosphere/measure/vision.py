"""What a vision model makes of one picture, ready to be drawn: HCFormer's clusters, Hi-Mapper's tree of parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.errors import UserError
from horosphere.geometry import Manifold
from horosphere.models.hcformer import HCFormer
from horosphere.models.himapper import Hierarchy, HiMapper
from horosphere.nn.clustering import ClusterMixer, effective

ANSWERS = 5  # that are told
EVEN = 0.95  # of the centres: a head that spreads over more clusters nothing; untrained ones do over 0.91 to 0.99
DARK = 0.25  # of the light of a picture remains where nobody looks
MEAN_STEPS, MEAN_ERROR = 300, 1e-4  # most steps; error allowed, as a share of the distance to the farthest point

# -- HCFormer ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ClusterMap:
    """One level of a mixer over a picture. Lengths are pixels of the picture as the network saw it, down and across.

    >>> shares = np.full((1, 2, 3, 3), 0.5)  # one head, two centres that share every place
    >>> ClusterMap(1, "patches", "euclidean", shares, (4, 4), np.zeros((2, 2)), np.arange(2), ([], [])).spread
    array([2.])
    """

    stage: int  # from 1
    level: str  # "windows": all windows share the centres; "patches": every window has its own
    geometry: str
    shares: np.ndarray  # (heads, centres, rows, columns): each centre's share of a place; sums to 1 over centres
    cell: tuple[float, float]  # size of a place
    seats: np.ndarray  # (S, 2): middles of the cells whose means the centres are
    seat_centre: np.ndarray  # (S,): the centre of each seat
    edges: tuple[np.ndarray, np.ndarray]  # rows and columns where windows begin

    @property
    def centres(self) -> int:
        return self.shares.shape[1]

    @property
    def spread(self) -> np.ndarray:
        """How many centres a place spreads over, mean over places.   -> (heads,)"""
        return spread_of(self.shares)

    @property
    def even(self) -> bool:
        """Whether no head clusters anything: all spread over nearly all centres."""
        return bool((self.spread > EVEN * self.centres).all())


def spread_of(shares: np.ndarray) -> np.ndarray:
    """exp of the entropy of shares of centres, mean over places.   (heads, centres, rows, columns) -> (heads,)

    >>> spread_of(np.full((1, 4, 2, 2), 0.25))
    array([4.])
    """
    return effective(torch.from_numpy(shares), 1).mean((1, 2)).numpy()


def by_stage(readings: Mapping[str, float]) -> dict[str, dict[int, float]]:
    """Readings of an HCFormer by their name and the number of the stage.

    >>> by_stage({"patch_scale_1": 2.0, "window_scale_1": 1.0, "patch_scale_2": 3.0})
    {'patch_scale': {1: 2.0, 2: 3.0}, 'window_scale': {1: 1.0}}
    """
    stages: dict[str, dict[int, float]] = {}
    for name, value in readings.items():
        what, _, stage = name.rpartition("_")
        stages.setdefault(what, {})[int(stage)] = value
    return stages


def cluster_levels(model: HCFormer, image: Tensor) -> list[ClusterMap]:
    """The clusters in the last block of every stage, coarse to fine.   (3, H, W) -> levels

    The last stage comes first, and windows before their patches.

    >>> from horosphere.models.hcformer import hcformer_config
    >>> model = HCFormer(hcformer_config("hcformer-nano-32"))
    >>> levels = cluster_levels(model, torch.rand(3, 32, 32))
    >>> [level.stage for level in levels], levels[0].level, levels[0].shares.shape
    ([4, 3, 2, 2, 1, 1], 'patches', (8, 4, 4, 4))
    """
    levels = []
    inside = np.array(image.shape[-2:]) - 0.5  # a map may reach beyond its picture
    for stage, blocks in reversed(list(enumerate(model.cluster_maps(image[None])))):
        stride, assignments = model.config.strides[stage], blocks[-1]
        mixer: ClusterMixer = model.stages[stage][-1].mixer  # type: ignore[index]
        size = np.array(assignments.patch.shape[-2:])
        window = -(-size // mixer.windows)  # patches a side; the last may reach beyond the map
        half = window // 2 if mixer.shift else 0 * window  # as far as windows are moved, around the edges
        starts = [np.arange(0, size[i], window[i]) for i in range(2)]
        rows, columns = (stride * np.sort((start + half[i]) % size[i]) for i, start in enumerate(starts))
        if assignments.window is not None:
            shares, (down, across) = assignments.window[0].double().cpu().numpy(), (stride * window).tolist()
            seats, centre = _seats(size, mixer.window_side, 1)
            seats = np.minimum(stride * seats, inside)
            geometry, cell = model.config.window_geometry, (down, across)
            levels.append(ClusterMap(stage + 1, "windows", geometry, shares, cell, seats, centre, (rows, columns)))
        shares = assignments.patch[0].double().cpu().numpy()
        seats, centre = _seats(window * mixer.windows, mixer.side, mixer.windows)
        on_map = (seats < size).all(1)
        seats, centre = np.minimum(stride * ((seats[on_map] + half) % size), inside), centre[on_map]
        geometry, cell = model.config.patch_geometry, (stride, stride)
        levels.append(ClusterMap(stage + 1, "patches", geometry, shares, cell, seats, centre, (rows, columns)))
    return levels


def _seats(extent: np.ndarray, side: int, windows: int) -> tuple[np.ndarray, np.ndarray]:
    """Middles of the side x side cells in each of windows x windows, and the centre each belongs to.

    -> (S, 2), (S,)
    """
    cells = np.arange(side * windows)
    row, column = (grid.ravel() for grid in np.meshgrid(cells, cells, indexing="ij"))
    return (np.stack([row, column], 1) + 0.5) * extent / len(cells), row % side * side + column % side


# -- Hi-Mapper --------------------------------------------------------------------------------------------------------


def node_names(parents: Tensor) -> list[str]:
    """A, B, … at the top; A1, A2 for the children of A; A11, A12 for those of A1.

    >>> node_names(torch.tensor([2, 2, -1, -1]))
    ['A1', 'A2', 'A', 'B']
    """
    names = [""] * len(parents)
    children: dict[int, int] = {}
    for node in range(len(parents) - 1, -1, -1):  # parents have larger numbers than their children
        parent = int(parents[node])
        children[parent] = children.get(parent, 0) + 1
    for node in range(len(parents) - 1, -1, -1):
        parent = int(parents[node])
        number, children[parent] = children[parent], children[parent] - 1
        letter = ascii_uppercase[(number - 1) % 26] * ((number + 25) // 26)  # AA follows Z
        names[node] = letter if parent < 0 else f"{names[parent]}{number}"
    return names


def branches(parents: Tensor) -> np.ndarray:
    """Number of the top node above each node, from 0.   (nodes,) -> (nodes,)

    >>> branches(torch.tensor([2, 3, -1, -1]))
    array([0, 1, 0, 1])
    """
    above = parents.cpu().numpy()
    tops = np.flatnonzero(above < 0)
    node = np.arange(len(above))
    while (above[node] >= 0).any():
        node = np.where(above[node] >= 0, above[node], node)
    return np.searchsorted(tops, node)


@torch.no_grad()
def mean_point(points: Tensor, manifold: Manifold) -> Tensor:
    """Fréchet mean, where Σ log(mean, x) = 0 and the sum of squared distances is least.   (N, d) -> (d,)

    The Lorentz centroid would weigh points by cosh of their distance, so that one far out pulls it all the way.
    A step is 1/(1 + √c·farthest), the inverse of the largest curvature of that sum.

    >>> from horosphere.geometry import Lorentz
    >>> mean_point(torch.tensor([[3.0, 0.0], [-3.0, 0.0]]), Lorentz())
    tensor([0., 0.])
    """
    mean = torch.zeros_like(points[0])
    for _ in range(MEAN_STEPS):
        towards = manifold.log(mean.expand_as(points), points).mean(0)
        farthest = float(manifold.dist(mean.expand_as(points), points).max())
        if float(manifold.norm(mean, towards)) <= MEAN_ERROR * farthest:
            break
        mean = manifold.exp(mean, towards / (1 + float(manifold.c) ** 0.5 * farthest))
    return mean


def require_one_image(hierarchy: Hierarchy) -> None:
    """Refuse the hierarchy of a batch: it is drawn and counted one image at a time."""
    if (count := len(hierarchy.points)) != 1:
        raise UserError(f"a hierarchy of {count} images: take them one by one, model.hierarchy(x[:1])")


@dataclass(frozen=True)
class TreeLevel:
    """Means over the nodes of one level of an image's tree."""

    nodes: int
    seen: float  # share of the picture a node looks at: exp of its attention's entropy, over the number of places
    to_origin: float
    to_parent: float | None
    to_others: float | None  # of the same level


def tree_numbers(hierarchy: Hierarchy) -> list[TreeLevel]:
    """The levels of an image's tree, the top first.

    >>> from horosphere.models.himapper import HiMapper, HiMapperConfig
    >>> model = HiMapper("hcformer-nano-32", num_classes=10, config=HiMapperConfig(leaves=8, levels=3)).eval()
    >>> [level.nodes for level in tree_numbers(model.hierarchy(torch.rand(1, 3, 32, 32)))]
    [2, 4, 8]
    """
    require_one_image(hierarchy)
    points, levels, parents, m = hierarchy.points[0].double(), hierarchy.levels, hierarchy.parents, hierarchy.manifold
    numbers = []
    with torch.no_grad():
        seen = shares_seen(hierarchy.attention[0].double())
        distance, radius = m.pairwise(points, points), m.dist0(points)
        for level in range(int(levels.max()), -1, -1):
            nodes = torch.nonzero(levels == level)[:, 0]
            count, top = len(nodes), bool((parents[nodes] < 0).all())
            to_parent = None if top else float(distance[nodes, parents[nodes]].mean())
            to_others = float(distance[nodes][:, nodes].sum() / (count * (count - 1))) if count > 1 else None
            share, to_origin = float(seen[nodes].mean()), float(radius[nodes].mean())
            numbers.append(TreeLevel(count, share, to_origin, to_parent, to_others))
    return numbers


def shares_seen(attention: Tensor) -> Tensor:
    """exp of the entropy of attention, over the number of places: 1 looks everywhere.   (..., h, w) -> (...)

    >>> shares_seen(torch.tensor([[0.5, 0.5], [0.0, 0.0]]))
    tensor(0.5000)
    """
    return torch.special.entr(attention).sum((-2, -1)).exp() / math.prod(attention.shape[-2:])


def lit(attention: Tensor, picture: np.ndarray) -> np.ndarray:
    """The picture, bright where attention is large and dark elsewhere.   (h, w), (H, W, 3) uint8 -> (H, W, 3) uint8

    >>> lit(torch.tensor([[1.0, 0.0]]), np.full((1, 2, 3), 200, np.uint8))[0, :, 0]
    array([200,  50], dtype=uint8)
    """
    fine = F.interpolate(attention[None, None].double(), picture.shape[:2], mode="bilinear", align_corners=False)[0, 0]
    light = (fine / fine.max()).sqrt().numpy()  # the root, as in plots.vision: a node looks hard at a few places
    return np.rint(picture * (DARK + (1 - DARK) * light[..., None])).astype(np.uint8)


# -- all there is to see -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a model makes of a picture."""

    picture: np.ndarray  # (H, W, 3) uint8: the part that the network sees, perhaps finer
    size: int  # pixels that it sees, from top to bottom
    answers: list[tuple[str, float]]  # likeliest classes and their probabilities; empty for random weights
    clusters: list[ClusterMap]  # coarse to fine; empty without an HCFormer
    tree: Hierarchy | None  # of the one picture; None without a Hi-Mapper

    def rows(self) -> list[list[str]]:
        """The answer as a table: class, probability."""
        return [[name, f"{100 * share:.1f} %"] for name, share in self.answers]

    def remarks(self) -> list[list[str]]:
        """What the pictures cannot show: levels at which every place belongs to all centres alike."""
        even = [f"stage {level.stage} {level.level}" for level in self.clusters if level.even]
        return [["even", f"{', '.join(even)}: every place belongs to all centres alike, nothing is clustered"]][
            : len(even)
        ]


def explain(network: nn.Module, x: Tensor, picture: np.ndarray, classes: Sequence[str] = ()) -> Explanation:
    """Clusters of an HCFormer, the tree of a Hi-Mapper, or both.

    x (3, h, w) normalised, picture (H, W, 3) uint8 of the same part
    """
    # perhaps within a Hi-Mapper
    clustering = next((module for module in network.modules() if isinstance(module, HCFormer)), None)
    if clustering is None and not isinstance(network, HiMapper):
        how = "explain takes runs of HCFormer and Hi-Mapper"
        raise UserError(f"{type(network).__name__} has neither clusters nor a tree to show: {how}")
    network.eval()
    answers: list[tuple[str, float]] = []
    with torch.no_grad():
        if classes:
            likeliest = network(x[None])[0].float().softmax(0).topk(min(ANSWERS, len(classes)))
            answers = [
                (classes[i], share)
                for share, i in zip(likeliest.values.tolist(), likeliest.indices.tolist(), strict=True)
            ]
        clusters = [] if clustering is None else cluster_levels(clustering, x)
        tree = network.hierarchy(x[None]) if isinstance(network, HiMapper) else None
    return Explanation(picture, x.shape[-2], answers, clusters, tree)
