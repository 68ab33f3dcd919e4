"""Pictures in two dimensions of points in any number of them: which directions they keep, and at which radius.

The page moves a chart by exact isometries, so a chart is given in coordinates that lose nothing far out: the space
components on the hyperboloid of curvature -1, a place in the plane, or a unit vector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from horosphere.data import Graph
from horosphere.data.spanning import SpanningTree
from horosphere.evaluate.neighbours import nearest
from horosphere.geometry import Lorentz, Manifold, Product, Sphere
from horosphere.models.exact_tree import ExactTree
from horosphere.models.node_embedding import NodeEmbedding, NodeEmbeddingConfig, Relations
from horosphere.optim import RiemannianAdam, param_groups
from horosphere.optim.schedules import share_of_peak

Kind = Literal["hyperbolic", "flat", "sphere"]
LONGEST, SHORTEST = 2.0, 0.5  # of an edge in the picture of a tree: longer ones keep distances better, and show less
ROUND = 1e-4  # by which lengths of points on a sphere may differ from each other
NEAR = 10  # nearest points that a trained map keeps near
MAPPED = 20_000  # points that are mapped so, at most: their neighbours are found first, which takes seconds there
STEPS, BATCH, NEGATIVES, PACE = 300, 2_048, 256, 0.15  # the pace is the longest step, in radii of curvature
START = 0.3  # radii of curvature that the map is wide at the start


@dataclass(frozen=True)
class Chart:
    """A picture that is computed when it is first looked at."""

    name: str
    kind: Kind
    unit: float  # true length of one unit of the picture
    note: str  # what the picture keeps
    place: Callable[[], np.ndarray]  # -> (N, 2), of a sphere (N, 3), float64

    @cached_property
    def coordinates(self) -> np.ndarray:
        return np.ascontiguousarray(self.place(), dtype="<f8")


def charts_of(points: Tensor, manifold: Manifold, graph: Graph | None = None) -> list[Chart]:
    """All charts of points (N, d), the one to begin with first.

    >>> from horosphere.geometry import Lorentz
    >>> L = Lorentz(c=4.0)
    >>> [chart] = charts_of(L.lift(torch.tensor([[1.0, 0.0], [0.0, 2.0]])), L)
    >>> chart.name, chart.kind, chart.unit  # a unit of the picture is half as long in this space
    ('as it is', 'hyperbolic', 0.5)
    >>> np.round(np.arcsinh(np.linalg.norm(chart.coordinates, axis=1)) * chart.unit, 5)
    array([1., 2.])
    """
    points = points.detach().double().cpu()
    if not isinstance(manifold, Product):
        return [*_charts_of_part(points, manifold), *_charts_of_tree(graph, points, manifold)]
    parts = zip(manifold.split(points), manifold.factors, strict=True)
    charts = [
        _charts_of_part(own, factor, f" of part {number}, {type(factor).__name__.lower()}")
        for number, (own, factor) in enumerate(parts, start=1)
    ]
    return [*chain(*charts), *_charts_of_tree(graph, points, manifold)]


def _charts_of_part(points: Tensor, manifold: Manifold, of: str = "") -> list[Chart]:
    """Those of one geometry."""
    if isinstance(manifold, Sphere):
        return _charts_of_sphere(points, manifold, of)
    flat = manifold.flat
    kind: Kind = "flat" if flat else "hyperbolic"
    unit = 1.0 if flat else float(manifold.c) ** -0.5
    logs = manifold.lower(points).numpy()
    dim = logs.shape[1]
    if flat and not on_sphere(logs):
        logs = logs - (logs.min(0) + logs.max(0)) / 2  # flat space has no middle: that of the points is shown
    if dim <= 2:
        return [Chart(f"as it is{of}", kind, unit, "exact", lambda: _placed(kind, _wide(logs), unit))]
    charts = []
    if flat and on_sphere(logs):
        seen = "directions exact" if dim == 3 else f"directions projected from {dim} dimensions onto three"
        note = f"points of one length: {seen}; true distances are straight, not along the sphere"
        charts.append(Chart(f"sphere{of}", "sphere", 1.0, note, lambda: _round(logs)))
    share = _share(logs)
    seen = f"on the two principal directions of {dim}, which hold {share:.0%} of squared length"
    if flat:
        charts.append(Chart(f"principal plane{of}", kind, unit, f"seen {seen}", lambda: logs @ _axes(logs, 2)))
    else:
        note = f"radius exact; direction {seen}"
        charts.append(Chart(f"principal plane{of}", kind, unit, note, lambda: _placed(kind, _turned(logs), unit)))
    if NEAR < len(points) <= MAPPED:
        note = f"trained: each point's {NEAR} nearest in all {dim} dimensions stay near; radii and distances do not"
        charts.append(Chart(f"neighbour map{of}", kind, unit, note, lambda: neighbour_map(points, manifold)))
    return charts


def _charts_of_sphere(points: Tensor, manifold: Sphere, of: str) -> list[Chart]:
    """Unit vectors with the origin in front; of more than two dimensions what three directions hold of them."""
    unit, dim = float(manifold.c) ** -0.5, points.shape[1]
    vectors = manifold.vector(points).numpy()
    if dim <= 2:
        whole = np.insert(vectors, [1] * (2 - dim), 0.0, axis=1)  # a circle is an equator
        return [Chart(f"as it is{of}", "sphere", unit, "exact", lambda: whole)]
    note = f"directions projected from {dim + 1} dimensions onto three"
    return [Chart(f"principal sphere{of}", "sphere", unit, note, lambda: _round(vectors))]


def _charts_of_tree(graph: Graph | None, points: Tensor, manifold: Manifold) -> list[Chart]:
    """Where a hierarchy decides the direction, and where it decides all."""
    if graph is None or not graph.directed or not len(graph.edges):
        return []
    exact = _sarkar(graph)
    note = f"the tree alone, by Sarkar's construction: an edge is {exact.edge_length:.2g} long"
    tree = Chart("tree", "hyperbolic", 1.0, note, lambda: exact.points(Lorentz()).numpy())
    if isinstance(manifold, (Product, Sphere)) or manifold.flat:
        return [tree]
    unit = float(manifold.c) ** -0.5
    note = "radius exact; direction by the place in the tree"
    fan = Chart(
        "branches", "hyperbolic", unit, note, lambda: _placed("hyperbolic", _fanned(points, manifold, graph), unit)
    )
    return [fan, tree]


# -- directions -------------------------------------------------------------------------------------------------------


def _wide(logs: np.ndarray) -> np.ndarray:
    """One dimension is a line in the picture."""
    return np.pad(logs, ((0, 0), (0, 2 - logs.shape[1])))


def _axes(logs: np.ndarray, count: int) -> np.ndarray:
    """The directions in which points reach farthest from the origin.   (N, d) -> (d, count)"""
    _, directions = np.linalg.eigh(logs.T @ logs)
    axes = directions[:, ::-1][:, :count]
    signs = np.sign(axes[np.abs(axes).argmax(0), range(count)])  # else each library turns the picture as it likes
    return axes * signs


def _share(logs: np.ndarray) -> float:
    """Of squared length, what two axes hold."""
    powers = np.linalg.eigvalsh(logs.T @ logs)
    return float(powers[-2:].sum() / powers.sum()) if powers.sum() else 1.0


def _turned(logs: np.ndarray) -> np.ndarray:
    """Directions seen on the principal plane, at the full length."""
    seen = logs @ _axes(logs, 2)
    return _lengthened(seen, np.linalg.norm(logs, axis=1))


def _lengthened(directions: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Vectors of these lengths; where there is no direction, to the right.   (N, 2), (N,) -> (N, 2)"""
    now = np.linalg.norm(directions, axis=1, keepdims=True)
    right = np.tile([1.0, 0.0], (len(directions), 1))
    return lengths[:, None] * np.divide(directions, now, out=right, where=now > 0)


def _placed(kind: Kind, plane: np.ndarray, unit: float) -> np.ndarray:
    """Places of vectors at the origin, in units of the picture: sinh(r/unit) in the direction of the vector."""
    if kind == "flat":
        return plane / unit
    lengths = np.linalg.norm(plane, axis=1)
    return _lengthened(plane, np.sinh(lengths / unit))


def on_sphere(logs: np.ndarray) -> bool:
    """Whether flat points all lie equally far from the origin: more than two, else it says nothing."""
    return len(logs) > 2 and of_one_length(np.linalg.norm(logs, axis=1))


def of_one_length(lengths: np.ndarray) -> bool:
    return bool(lengths.min() > 0 and np.ptp(lengths) <= ROUND * lengths.mean())


def _round(logs: np.ndarray) -> np.ndarray:
    seen = logs if logs.shape[1] == 3 else logs @ _axes(logs, 3)
    lengths = np.linalg.norm(seen, axis=1, keepdims=True)
    return np.divide(seen, lengths, out=np.tile([0.0, 0.0, 1.0], (len(seen), 1)), where=lengths > 0)


# -- trees ------------------------------------------------------------------------------------------------------------


def _leaves_below(tree: SpanningTree) -> np.ndarray:
    """Leaves of each subtree; a leaf has itself.   -> (N,)"""
    leaves = np.zeros(len(tree.parent))
    for nodes in tree.levels[::-1]:
        leaves[nodes] = np.maximum(leaves[nodes], 1)
        below = nodes[tree.parent[nodes] >= 0]
        np.add.at(leaves, tree.parent[below], leaves[below])
    return leaves


def _fanned(points: Tensor, manifold: Manifold, graph: Graph) -> np.ndarray:
    """Each subtree has its own sector, as wide as it has leaves; the distance from the origin is the true one."""
    tree = SpanningTree.of(graph)
    parent, leaves = tree.parent, _leaves_below(tree)
    begin, width = np.zeros(len(parent)), 2 * np.pi * leaves / leaves[tree.levels[0]]
    for nodes in tree.levels[1:]:
        ends = np.cumsum(width[nodes])
        above = parent[nodes]
        family = np.flatnonzero(np.diff(above, prepend=-2))  # brothers and sisters lie side by side
        before = np.repeat((ends - width[nodes])[family], np.diff(np.append(family, len(nodes))))
        begin[nodes] = begin[above] + ends - width[nodes] - before
    angle = (begin + width / 2)[: len(graph)]
    radius = manifold.dist0(points).numpy()
    return radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)


def _sarkar(graph: Graph) -> ExactTree:
    """With edges as long as families ask for, and as short as the depth does."""
    tree = ExactTree(graph)
    return tree.at(float(np.clip(tree.at(tree.separating_length).within().edge_length, SHORTEST, LONGEST)))


# -- a trained map ----------------------------------------------------------------------------------------------------


def neighbour_map(points: Tensor, manifold: Manifold, seed: int = 0) -> np.ndarray:
    """Two dimensions in which what is near lies near: the graph of nearest points, embedded as any other graph.

    It begins as the principal plane, drawn small. A seed decides everything.
    """
    count, flat = len(points), manifold.flat
    near = nearest(points, points, manifold, NEAR, but=torch.arange(count))[1]
    pairs = torch.stack([torch.arange(count).repeat_interleave(near.shape[1]), near.flatten()], 1).numpy()
    config = NodeEmbeddingConfig("euclidean" if flat else "lorentz", dim=2)
    model, relations = NodeEmbedding(count, config), Relations(pairs, count)
    seen = _turned(manifold.lower(points).numpy())
    model.table.weight.data.copy_(torch.from_numpy(config.radius * START * seen / np.abs(seen).max(initial=1e-9)))
    optimizer = RiemannianAdam(param_groups(model), lr=PACE * config.radius)
    generator = torch.Generator().manual_seed(seed)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = PACE * config.radius * share_of_peak(step, STEPS, warmup=0.05, final=0.02)
        nodes = torch.randperm(count, generator=generator)[:BATCH]
        negatives = torch.randint(count, (NEGATIVES,), generator=generator).unique()
        with torch.enable_grad():
            loss = model(**relations.batch(nodes), negatives=negatives).sum() / len(nodes)
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
    x = model.points.numpy()
    return x if flat else x * float(model.manifold.c) ** 0.5  # in units of the radius of curvature
