"""Can an embedding tell a relation that it has not seen from pairs that are none?"""

import numpy as np
import torch
from torch import Tensor

from horosphere.evaluate.neighbours import AT_ONCE
from horosphere.evaluate.ranking import Places, places
from horosphere.geometry import Manifold
from horosphere.models.node_embedding import Relations


@torch.no_grad()
def link_places(points: Tensor, manifold: Manifold, held: np.ndarray, relations: np.ndarray) -> Places:
    """Where v stands, by its distance from u, among all nodes that u is not related to.   (N, d), (H, 2), (P, 2) -> H

    `auc` and `hit_at` of `evaluate.ranking` make scores of it. Filtered: no other relation of u, known or held out,
    competes, and u itself does not.

    held: the pairs (u, v). relations: all that there are, those among them.
    One matrix product finds the nodes that may be before v, and `dist` decides, as in `neighbours.nearest`.

    >>> from horosphere.evaluate.ranking import auc, hit_at
    >>> from horosphere.geometry import Euclidean
    >>> points = torch.tensor([[0.0], [1.0], [2.0], [3.0]])  # 0 is related to 2; 1 is nearer, 3 is not
    >>> places = link_places(points, Euclidean(), np.array([(0, 2)]), np.array([(0, 2)]))
    >>> auc(places), hit_at(places, 1), hit_at(places, 2)
    (0.5, 0.0, 1.0)
    """
    points, table = points.double(), Relations(relations, len(points), points.device)
    pairs = torch.from_numpy(np.ascontiguousarray(held)).to(points.device)
    parts = [_block(points, manifold, part, table) for part in pairs.split(max(1, AT_ONCE // len(points)))]
    before, level = (torch.cat(counts) for counts in zip(*parts, strict=True))
    return Places(before, level, len(points) - 1 - table.counts[pairs[:, 0]])


def _block(points: Tensor, manifold: Manifold, pairs: Tensor, table: Relations) -> tuple[Tensor, Tensor]:
    """How many competitors are nearer than v, and how many as near.   (B, 2) -> (B,), (B,)"""
    u, v = pairs.unbind(1)
    length = manifold.dist(points[u], points[v])
    near = manifold.pairwise(points[u], points) <= manifold.pairwise_reach(points[u], points, length)[:, None]
    related = table.batch(u)
    near[related["row"], related["related"]] = False
    near.scatter_(1, u[:, None], False)
    row, other = near.nonzero(as_tuple=True)
    cut = zip(row.split(AT_ONCE), other.split(AT_ONCE), strict=True)
    distance = torch.cat([manifold.dist(points[u[i]], points[j]) for i, j in cut])
    before, level = row[distance < length[row]], row[distance == length[row]]
    return torch.bincount(before, minlength=len(u)), torch.bincount(level, minlength=len(u))


def places_without_points(
    learned: np.ndarray, held: np.ndarray, relations: np.ndarray, nodes: int
) -> dict[str, Places]:
    """The same places by counting: what points have to beat.   (P - H, 2), (H, 2), (P, 2) -> {method: H}

    popularity: v scores the number of nodes that are related to it.
    common neighbours: v scores the number of nodes w with (u, w) and (w, v); in a closure each of them implies (u, v).

    >>> from horosphere.evaluate.ranking import auc
    >>> learned, held = np.array([(2, 1), (1, 0), (3, 1)]), np.array([(2, 0)])  # 0 above 1 above 2 and 3
    >>> found = places_without_points(learned, held, np.concatenate([learned, held]), nodes=5)
    >>> {method: round(auc(places), 2) for method, places in found.items()}
    {'popularity': 1.0, 'common neighbours': 1.0}
    """
    from scipy.sparse import csr_array

    linked = csr_array((np.ones(len(learned)), learned.T), shape=(nodes, nodes))
    every, pairs = Relations(relations, nodes), torch.from_numpy(np.ascontiguousarray(held))
    popular = torch.from_numpy(np.asarray(linked.sum(0)))
    found: dict[str, list[Places]] = {"popularity": [], "common neighbours": []}
    for part in pairs.split(max(1, AT_ONCE // nodes)):
        u, v = part.T
        related = every.batch(u)
        candidates = torch.ones(len(u), nodes, dtype=torch.bool)
        candidates[related["row"], related["related"]] = False
        candidates.scatter_(1, u[:, None], False)
        shared = torch.from_numpy((linked[u.numpy()] @ linked).toarray())
        found["popularity"].append(places(popular.expand(len(u), -1), v, candidates))
        found["common neighbours"].append(places(shared, v, candidates))
    return {method: _joined(parts) for method, parts in found.items()}


def _joined(parts: list[Places]) -> Places:
    return Places(*(torch.cat([getattr(part, name) for part in parts]) for name in ("before", "level", "others")))
