"""Trees in hyperbolic space without a training (Sarkar 2011; De Sa, Gu, Ré, Sala 2018), at any depth in float64.

All edges have one length ℓ, and the edges at a node are as far apart as they can be. Coordinates of the whole tree need
digits that grow with its radius: from r = 36 on the next float64 direction is farther than the next node. So no node
knows where it is. It knows only the unit vector u, in its parent's frame, that leads to it. In its own frame -e1 leads
back.

A distance is found on the way. Let the source be seen from a node at distance ρ in direction m, at an angle γ from the
next step, and let a = e^-ρ, k = e^-ℓ. A step away from the source is a boost, a scaling of light-cone coordinates. In
units of e^(ρ+ℓ), so that nothing overflows, the source is then seen at

    back  = sin²(γ/2) + a² cos²(γ/2)        ahead = cos²(γ/2) + a² sin²(γ/2)
    time  = (back + k² ahead)/2             along = (k² ahead - back)/2         across = k (1 - a²)/2 sin γ
    ρ'    = ρ + ℓ + log(time + |(along, across)|)                               m' = (along, across)/|(along, across)|

ρ' comes from sums of positive terms. An error of m shrinks by e^-ℓ in every step. So depth costs no digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from horosphere.data.graph import Graph
from horosphere.data.spanning import SpanningTree
from horosphere.errors import UserError
from horosphere.geometry import Lorentz, Manifold, Poincare
from horosphere.geometry.codes import spherical_code, widest_angle

# radius to which float64 coordinates hold a tree: mammals' edges are then right to 1e-5, in the ball to 1e-2
FARTHEST = 34.0
WORST = 1.1  # distortion that an edge length is chosen for
LEAST = 1.0  # edge length of a path, which any length embeds without distortion
START = 0.4  # of the separating length, an edge at the start of a training: the best of four on WordNet's mammals
ENTRIES = 2**20  # distances at once: with all between, 100 MB in two dimensions


class ExactTree:
    """Sarkar's placement of a tree, in units of the radius of curvature; of a graph its spanning tree.

    edge_length: none takes one at which no distance is more than 1/1.1 shorter than its path in the tree.

    >>> tree = ExactTree(Graph(["animal", "dog", "cat", "poodle"], [(1, 0), (2, 0), (3, 1)]), edge_length=5.0)
    >>> tree.distances([3]).round(decimals=2)  # the way to the cat bends nowhere
    tensor([[10.,  5., 15.,  0.]], dtype=torch.float64)
    """

    def __init__(self, graph: Graph, dim: int = 2, edge_length: float | None = None):
        if dim < 2:
            raise UserError(f"a tree has no room on a line: dim={dim}; give 2 or more")
        if edge_length is not None and not 0 < edge_length < math.inf:
            raise UserError(f"edge_length={edge_length:g}: it must be positive and finite")
        self.tree, self.dim = SpanningTree.of(graph), dim
        self.edge_length = self.natural_length if edge_length is None else float(edge_length)

    def __len__(self) -> int:
        return len(self.tree.graph)

    def __repr__(self) -> str:
        return f"ExactTree({len(self)} nodes, {self.dim} dimensions, edge_length={self.edge_length:.4g})"

    # -- lengths ------------------------------------------------------------------------------------------------------

    @cached_property
    def narrowest(self) -> float:
        """The smallest angle between two edges at a node."""
        parent = self.tree.parent
        around = np.bincount(parent[parent >= 0], minlength=len(parent)) + (parent >= 0)
        return min(widest_angle(int(count), self.dim) for count in np.unique(around))

    @property
    def separating_length(self) -> float:
        """From this edge length on every node's neighbours are nearer than all other nodes: mAP is 1.

        2 acosh(1/sin(γ/2)): the perpendicular bisectors of edges that meet at an angle of γ or more then do not cross.
        So every node has a cell of its own that holds a ball of radius ℓ/2, and who is not a neighbour lies beyond a
        third cell.
        """
        return 2 * math.acosh(max(1.0, 1 / math.sin(self.narrowest / 2)))

    @property
    def natural_length(self) -> float:
        """A turn by an angle γ makes a path shorter than its edges by -2 log sin(γ/2): at most 1 - 1/1.1 of an edge."""
        shorter = -2 * math.log(math.sin(self.narrowest / 2))
        return max(shorter / (1 - 1 / WORST), self.separating_length, LEAST)

    @property
    def depth(self) -> int:
        """Edges between the root and the farthest node."""
        return len(self.tree.levels) - 1

    @property
    def radius(self) -> float:
        """From the root to the farthest node."""
        return float(self._from(self.tree.levels[0]).max())

    def at(self, edge_length: float) -> ExactTree:
        """The same directions with edges of another length."""
        other = copy(self)
        other.edge_length = edge_length
        return other

    def within(self, radius: float = FARTHEST) -> ExactTree:
        """With shorter edges where the tree would reach farther; by itself as far as float64 coordinates hold it."""
        return self.at(min(self.edge_length, radius / max(1, self.depth)))

    # -- distances ----------------------------------------------------------------------------------------------------

    def distances(self, nodes: Sequence[int] | np.ndarray) -> Tensor:
        """From these nodes to all.   (S,) -> (S, N) float64"""
        return torch.cat([torch.empty(0, len(self), dtype=torch.float64), *self.blocks(nodes)])

    def blocks(self, nodes: Sequence[int] | np.ndarray) -> Iterator[Tensor]:
        """`distances`, a few rows at a time: memory that does not grow with the nodes asked for."""
        sources = np.asarray(nodes, dtype=np.int64).reshape(-1)
        if len(outside := sources[(sources < 0) | (sources >= len(self))]):
            raise UserError(f"there is no node {outside[0]}: the {len(self)} nodes count from 0")
        rows = max(1, ENTRIES // len(self.tree.parent))
        for start in range(0, len(sources), rows):
            yield self._from(sources[start : start + rows])[:, : len(self)]

    def _from(self, sources: np.ndarray) -> Tensor:
        """(S,) -> (S, N): up from each source to the root, and from there down to all that is not on the way up."""
        tree, climbed = self.tree, {step[0]: step[1:] for step in self._climb(sources)}
        found = torch.empty(len(sources), len(tree.parent), dtype=torch.float64)
        seen = _Seen.here(len(sources), 1, self.dim)
        for level, nodes in enumerate(tree.levels):
            if level:
                from_parent = seen.take(torch.from_numpy(self._place[tree.parent[nodes]]))
                seen = from_parent.turned(self._mirror[:, None, nodes]).stepped(self.edge_length)
            rows, on_the_way, on_way_up = climbed[level]
            seen.put(rows, torch.from_numpy(self._place[on_the_way]), on_way_up)
            found[:, torch.from_numpy(nodes)] = seen.distance
        return found

    def _climb(self, sources: np.ndarray) -> Iterator[tuple[int, Tensor, np.ndarray, _Seen]]:
        """(level, rows (R,), nodes (R,), the source seen from there (R,)), from the deepest source up to the root.

        At every level one node for each source that is as deep: the source itself, or its ancestor.
        """
        tree, nodes = self.tree, sources.copy()
        rows, seen = np.zeros(0, np.int64), _Seen.here(0, 1, self.dim)
        for level in range(len(tree.levels) - 1, -1, -1):
            if len(rows):
                mirror = self._mirror[:, nodes[rows], None]
                seen = seen.facing_back().stepped(self.edge_length).facing_back().turned(mirror)
                nodes[rows] = tree.parent[nodes[rows]]
            new = np.flatnonzero(tree.depth[sources] == level)
            rows, seen = np.concatenate([rows, new]), seen.joined(_Seen.here(len(new), 1, self.dim))
            yield level, torch.from_numpy(rows), nodes[rows], seen

    # -- points -------------------------------------------------------------------------------------------------------

    def polar(self) -> tuple[Tensor, Tensor]:
        """Distance from the root, and direction there, of every node.   -> (N,), (N, d)

        Directions of what lies deep in the same branch are the same float64 numbers: these are no distances.
        """
        *_, (_, rows, _, seen) = self._climb(np.arange(len(self)))
        distance, direction = torch.empty(len(self), dtype=torch.float64), torch.empty(len(self), self.dim).double()
        distance[rows], direction[rows] = seen.distance[:, 0], seen.direction[:, :, 0].T
        return distance, direction

    def points(self, manifold: Manifold) -> Tensor:
        """The nodes on a Lorentz or Poincaré manifold, the root at the origin.   -> (N, d) float64

        Beyond radius 34 float64 loses nodes: take the points of `within()`.
        """
        require_hyperbolic(manifold)
        distance, direction = self.polar()
        return manifold.lift(direction * (distance / math.sqrt(float(manifold.c)))[:, None]).detach()

    # -- the frames ---------------------------------------------------------------------------------------------------

    @cached_property
    def _mirror(self) -> Tensor:
        """(d, N): the unit vector h whose reflection x - 2 h(h·x) takes u of a node to e1; u is known by it."""
        tree, u = self.tree, np.zeros((len(self.tree.parent), self.dim))
        for nodes in tree.levels[1:]:
            above = tree.parent[nodes]
            family = np.flatnonzero(np.diff(above, prepend=-2))
            for start, end in zip(family, np.append(family[1:], len(nodes)), strict=True):
                back = int(tree.parent[above[start]] >= 0)  # the way to the parent's own parent takes a place
                u[nodes[start:end]] = spherical_code(int(end - start) + back, self.dim)[back:]
        u[:, 0] -= 1
        length = np.linalg.norm(u, axis=1, keepdims=True)
        aside = np.eye(self.dim)[-1]  # any across e1, for u = e1 itself
        return torch.from_numpy(np.where(length > 0, u / np.where(length > 0, length, 1), aside).T.copy())

    @cached_property
    def _place(self) -> np.ndarray:
        """Of each node, its place within its level."""
        place = np.empty(len(self.tree.parent), np.int64)
        for nodes in self.tree.levels:
            place[nodes] = np.arange(len(nodes))
        return place


def starting_tree(graph: Graph, dim: int) -> ExactTree:
    """The tree with edges so short that a training can still move its points."""
    tree = ExactTree(graph, dim)
    return tree.at(START * tree.separating_length).within()


def require_hyperbolic(manifold: Manifold) -> None:
    """Complain of what is not one space of curvature below 0."""
    if not isinstance(manifold, (Lorentz, Poincare)):
        raise UserError(f"{manifold}: a tree is placed in one hyperbolic space; use geometry=lorentz or poincare")


@dataclass
class _Seen:
    """What is seen of sources from nodes, in the frame of each node: S rows for the sources, n columns for the nodes.

    A path up has one node for each source, in the one column there is.
    """

    distance: Tensor  # ρ (S, n)
    near: Tensor  # e^-ρ (S, n)
    direction: Tensor  # m (d, S, n)

    @staticmethod
    def here(rows: int, columns: int, dim: int) -> _Seen:
        """From where the sources are: the direction is any."""
        zero = torch.zeros(rows, columns, dtype=torch.float64)
        direction = torch.zeros(dim, rows, columns, dtype=torch.float64)
        direction[0] = -1
        return _Seen(zero, zero + 1, direction)

    def take(self, columns: Tensor) -> _Seen:
        return _Seen(self.distance[:, columns], self.near[:, columns], self.direction[:, :, columns])

    def put(self, rows: Tensor, columns: Tensor, seen: _Seen) -> None:
        """Of some sources, what is seen from one node each."""
        self.distance[rows, columns], self.near[rows, columns] = seen.distance[:, 0], seen.near[:, 0]
        self.direction[:, rows, columns] = seen.direction[:, :, 0]

    def joined(self, other: _Seen) -> _Seen:
        """More sources."""
        direction = torch.cat([self.direction, other.direction], 1)
        return _Seen(torch.cat([self.distance, other.distance]), torch.cat([self.near, other.near]), direction)

    def turned(self, mirror: Tensor) -> _Seen:
        """In frames reflected by unit vectors h (d, 1, n), or (d, S, 1) where each source has a node of its own."""
        return _Seen(self.distance, self.near, self.direction - 2 * mirror * (mirror * self.direction).sum(0))

    def facing_back(self) -> _Seen:
        """With e1 for -e1."""
        direction = self.direction.clone()
        direction[0].neg_()
        return _Seen(self.distance, self.near, direction)

    def stepped(self, length: float) -> _Seen:
        """From one step along e1, see above. The frame is carried along."""
        along, across = self.direction[0], self.direction[1:]
        sine_sq, near_sq, k = across.square().sum(0), self.near.square(), math.exp(-length)
        half = torch.where(along > 0, sine_sq / (2 + 2 * along), (1 - along) / 2)  # sin²(γ/2) to the last digit
        back, ahead = half + near_sq * (1 - half), 1 - half + near_sq * half
        along, share = (k * k * ahead - back) / 2, k * (1 - near_sq) / 2
        norm = (along.square() + share.square() * sine_sq).sqrt()
        grown = (back + k * k * ahead) / 2 + norm
        direction = torch.cat([(along / norm)[None], (share / norm) * across])
        return _Seen(self.distance + length + grown.log(), self.near * k / grown, direction)
