"""A tree as a run that nothing trains: placed by Sarkar's construction, judged, and written like any other."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from torch import Tensor

from horosphere.data.graph import write_edges, write_labels
from horosphere.errors import UserError
from horosphere.geometry import Manifold
from horosphere.measure import exactness, reconstruction
from horosphere.measure.sample import sample
from horosphere.models.exact_tree import FARTHEST, ExactTree, require_hyperbolic
from horosphere.models.node_embedding import write_points
from horosphere.progress import progress
from horosphere.runs import About, made_with, require_place, write_ready
from horosphere.tasks.nodes import POINTS, NodeData, Nodes
from horosphere.train.engine import Place
from horosphere.train.recipe import Recipe

PLACING = ("geometry", "dim", "curvature", "graph", "unique", "unweighted", "rank_nodes")  # settings that count here
DISTANCES = 10**8  # that are measured where nobody says from how many nodes: seconds, and all of 10,000 nodes


def place_exactly(recipe: Recipe, place: Place, edge_length: float | None = None) -> list[list[str]]:
    """Place the tree of a recipe of the task `nodes`, and keep it in a folder. Rows for people.

    The run's points are float64 coordinates. Where these cannot hold the tree, they have shorter edges, and the rows
    say what that costs.
    """
    task, begun = recipe.task, time.perf_counter()
    assert isinstance(task, Nodes)
    config = task.configuration()
    manifold = config.manifold()
    require_hyperbolic(manifold)
    require_place(place.folder, resume=False, overwrite=place.overwrite)
    data: NodeData = task.open_data()
    try:
        exact = ExactTree(data.graph, config.dim, edge_length)
    except UserError as error:
        raise UserError(f"{task.data}: {error}") from None
    nodes = min(task.rank_nodes or max(1, DISTANCES // len(exact)), len(exact))
    with progress("measuring", nodes, place.quiet) as update:
        score = exactness(exact, nodes=nodes, progress=lambda done, total: update(done, "nodes"))
    seconds = time.perf_counter() - begun

    points = exact.within().points(manifold)
    facts = {"parameters": points.numel(), **task.facts(data)}
    about = About(task.kind, recipe.sections(recipe.engine), facts, made_with())

    def fill(folder: Path) -> None:
        write_labels(folder, data.graph.labels)
        write_edges(folder, data.graph)
        write_points(points, manifold, folder / POINTS)

    write_ready(place.folder, about, fill, place.overwrite)
    return [
        *task.about(facts),
        *_of_tree(exact),
        *score.rows(),
        ["measured", f"from {nodes:,} nodes{' drawn at random' * (nodes < len(exact))} to all, in {seconds:.1f} s"],
        ["points", _of_points(exact, points, manifold, nodes)],
    ]


def _of_tree(exact: ExactTree) -> list[list[str]]:
    dropped, rows = exact.tree.dropped, []
    if dropped:
        what = f"{dropped:,} edge{'s' * (dropped > 1)} dropped"
        rows.append(["spanning tree", f"the first parent of each node; {what}"])
    if exact.tree.joined:
        rows.append(["roots", "several: a common one joins them"])
    rows.append(["edge length", f"{exact.edge_length:.4g} radii of curvature"])
    rows.append(["depth", f"{exact.depth} edges: the tree reaches to radius {exact.radius:,.1f}"])
    return rows


def _of_points(exact: ExactTree, points: Tensor, manifold: Manifold, nodes: int) -> str:
    """What the coordinates keep."""
    neighbours = np.stack(exact.tree.kept().adjacency().nonzero(), 1).astype(np.int64)
    chosen = sample(np.arange(len(exact)), nodes, seed=0)
    kept = reconstruction(points, manifold, neighbours, nodes=chosen).map
    length = exact.within().edge_length
    if length == exact.edge_length:
        return f"of this edge length: mAP {kept:.3f}"
    return f"of edge length {length:.3g}, which float64 holds (radius {FARTHEST:g}): mAP {kept:.3f}"
