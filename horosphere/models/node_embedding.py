"""Nodes of a graph as points: related nodes near, others far (Nickel & Kiela 2017, 2018), in any geometry.

    loss(u, v) = -log  e^{-d(u,v)} / (e^{-d(u,v)} + Σ_n e^{-d(u,n)})        over relations (u, v) and negatives n

A step takes some nodes with all their relations, and one set of negatives for all of them. So the distances to the
negatives are one matrix product, and their sum is formed once for each node, not for each relation. Negatives that are
relations of u, or u itself, are left out.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from horosphere.errors import UserError, one_line
from horosphere.files import write_whole
from horosphere.foreign import read_tensors
from horosphere.geometry import Manifold, geometry, matched_curvature
from horosphere.nn import Embedding
from horosphere.settings import Curvature, Size, check

# std of the points at the start: near the origin, where every direction is still open; at most the radius of curvature
START = 1e-3


@dataclass(frozen=True)
class NodeEmbeddingConfig:
    """The same for every geometry, so that geometries compare."""

    geometry: str = "lorentz"  # euclidean, poincare, lorentz, sphere, product, or as lorentz:6+sphere:4
    dim: Size = 10  # dimensions
    # c > 0 of the curved parts: -c, of spheres +c; none: 3/(d-1)² in d dimensions, or as distances are
    curvature: Curvature | None = None
    learn_curvature: bool | None = None  # let training choose the curvature; none: where all distances are fitted

    def __post_init__(self) -> None:
        check(self)
        self.manifold()

    def sized(self, size: int) -> dict[str, Any]:
        """What changes in `size` dimensions."""
        return {"dim": size}

    def manifold(self) -> Manifold:
        return geometry(self.geometry, self.dim, self.curvature, bool(self.learn_curvature))

    @property
    def radius(self) -> float:
        """1/√c: the natural length, the same in every geometry of this dimension, flat ones too."""
        return 1 / math.sqrt(self.curvature or matched_curvature(self.dim))


class NodeEmbedding(nn.Module):
    """A table of N points of a manifold, and the loss that arranges them.

    In float64: far from the origin, where leaves live, a product of float32 coordinates cannot tell siblings apart.

    >>> model = NodeEmbedding(4, NodeEmbeddingConfig("lorentz", dim=2))
    >>> relations = Relations(np.array([(1, 0), (2, 0), (3, 1)]), nodes=4)
    >>> losses = model(**relations.batch(torch.tensor([1, 3])), negatives=torch.tensor([2]))
    >>> [round(loss, 2) for loss in losses.tolist()]  # log 2: at the start all distances are nearly 0
    [0.69, 0.69]
    """

    def __init__(self, nodes: int, config: NodeEmbeddingConfig, std: float = START):
        super().__init__()
        self.manifold = config.manifold().double()  # a learned curvature too: `dist` and `pairwise` must agree
        self.table = Embedding(nodes, config.dim, self.manifold, std=min(std, config.radius), dtype=torch.float64)

    def blocks(self) -> list[nn.Module]:
        return [self]

    @property
    def points(self) -> Tensor:
        """(N, d)"""
        return self.table.weight.detach()

    def forward(self, nodes: Tensor, row: Tensor, related: Tensor, negatives: Tensor) -> Tensor:
        """The loss of each relation of nodes (B,), against distinct negatives (K,).   -> (P,)

        Node nodes[row[i]] is related to related[i]; row and related are (P,).
        """
        points = self.table(nodes)
        near = self.manifold.dist(points[row], self.table(related))
        far = self.manifold.pairwise(points, self.table(negatives))
        return contrast(near, far, row, self.excluded(nodes, row, related, negatives))

    def excluded(self, nodes: Tensor, row: Tensor, related: Tensor, negatives: Tensor) -> Tensor:
        """Which negatives are relations of a node, or the node itself.   -> (B, K) bool"""
        itself = torch.arange(len(nodes), device=nodes.device)
        return among(negatives, torch.cat([row, itself]), torch.cat([related, nodes]), len(nodes), len(self.points))


def contrast(near: Tensor, far: Tensor, row: Tensor, excluded: Tensor) -> Tensor:
    """-log e^{-near}/(e^{-near} + Σ e^{-far}), for each relation.   (P,), (B, K), (P,), (B, K) -> (P,)

    near: the distance of each relation, which is of node row[i]. far: of each node to the negatives, but the excluded.

    >>> near, far = torch.tensor([1.0, 1.0]), torch.tensor([[1.0, 9.0]])
    >>> contrast(near, far, torch.tensor([0, 0]), torch.tensor([[False, True]]))  # log 2
    tensor([0.6931, 0.6931])
    """
    total = (-far).masked_fill(excluded, -torch.inf).logsumexp(-1)
    return torch.logaddexp(-near, total[row]) + near


def among(drawn: Tensor, row: Tensor, numbers: Tensor, rows: int, nodes: int) -> Tensor:
    """Which distinct nodes drawn (K,) belong to a row: node numbers[i] to row[i].   -> (rows, K) bool

    >>> among(torch.tensor([4, 2]), torch.tensor([0, 1, 1]), torch.tensor([2, 2, 3]), rows=2, nodes=5).int()
    tensor([[0, 1],
            [0, 1]], dtype=torch.int32)
    """
    # a node's place among those drawn; nodes not drawn share a last column, which is cut off below
    column = drawn.new_full((nodes,), len(drawn))
    column[drawn] = torch.arange(len(drawn), device=drawn.device)
    found = torch.zeros(rows, len(drawn) + 1, dtype=torch.bool, device=drawn.device)
    found[row, column[numbers]] = True
    return found[:, :-1]


class Relations:
    """Relations (P, 2) as a compressed table on a device: it has all relations of any nodes without a search.

    >>> relations = Relations(np.array([(1, 0), (2, 0), (2, 1)]), nodes=3)
    >>> relations.batch(torch.tensor([2]))["related"]
    tensor([0, 1])
    """

    def __init__(self, pairs: np.ndarray, nodes: int, device: torch.device | str = "cpu"):
        pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        counts = np.bincount(pairs[:, 0], minlength=nodes)
        self.targets = torch.as_tensor(pairs[:, 1].copy(), device=device)
        self.counts = torch.as_tensor(counts, device=device)
        self.starts = torch.as_tensor(np.cumsum(counts) - counts, device=device)
        self.subjects = torch.as_tensor(np.flatnonzero(counts), device=device)  # nodes that have relations

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, nodes: Tensor) -> dict[str, Tensor]:
        """Nodes (B,), and all their relations: row (P,) and related (P,), as `NodeEmbedding` takes them."""
        counts = self.counts[nodes]
        row = torch.repeat_interleave(torch.arange(len(nodes), device=nodes.device), counts)
        within = torch.arange(len(row), device=nodes.device) - (counts.cumsum(0) - counts)[row]
        return {"nodes": nodes, "row": row, "related": self.targets[self.starts[nodes][row] + within]}


# -- points in a file -------------------------------------------------------------------------------------------------


def write_points(points: Tensor, manifold: Manifold, file: Path) -> None:
    """ "points" (N, d), and the curvature where it was learned."""
    curvature = {f"manifold.{name}": tensor for name, tensor in manifold.state_dict().items()}
    write_whole(file, save({"points": points.contiguous(), **curvature}))


def read_points(model: NodeEmbedding, file: Path) -> None:
    """Into a model of as many points."""
    try:
        tensors = read_tensors(file)
        points = tensors.pop("points")
        if points.shape != model.points.shape:
            nodes, dim = model.points.shape
            raise ValueError(f"points {tuple(points.shape)} for {nodes} labels in {dim} dimensions")
        if not points.isfinite().all():
            raise ValueError("not finite")
        model.table.weight.data.copy_(points)
        model.manifold.load_state_dict({name.removeprefix("manifold."): t for name, t in tensors.items()})
    except (LookupError, ValueError, RuntimeError) as error:
        how = "delete it to use the last checkpoint"
        raise UserError(f"{file}: damaged or foreign points ({one_line(error)}); {how}") from error
