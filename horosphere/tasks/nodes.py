"""Nodes of a tree or graph as points of a manifold: related ones near, others far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from horosphere import catalogue
from horosphere.data import Graph, read_graph
from horosphere.data.builtin import BUILTIN, builtin_graph
from horosphere.data.graph import read_labels, write_labels
from horosphere.errors import UserError
from horosphere.evaluate.metric import Metric
from horosphere.files import digest
from horosphere.geometry import GEOMETRIES, Manifold
from horosphere.geometry.manifold import Curved
from horosphere.measure import Delta, delta, depth_correlation, radius, reconstruction
from horosphere.models.node_embedding import NodeEmbedding, NodeEmbeddingConfig, Relations, read_points, write_points
from horosphere.optim import param_groups
from horosphere.progress import progress
from horosphere.runs import Run
from horosphere.settings import Count, Size
from horosphere.train.config import EngineConfig
from horosphere.train.task import CompareOptions, Task

# learning rate of log c: it moves all points at once, and must not leave before they have found their places
CURVATURE_PACE = 1e-3
POINTS = "points.safetensors"
PERFECT = "1 is perfect"


@dataclass(frozen=True)
class NodeData:
    graph: Graph
    relations: np.ndarray  # (P, 2), the pairs to bring together

    @property
    def subjects(self) -> np.ndarray:
        """The nodes that have relations."""
        return np.unique(self.relations[:, 0])


@dataclass(frozen=True)
class NodesOptions(CompareOptions):
    geometries: tuple[str, ...] = GEOMETRIES  # separated by commas


@dataclass(kw_only=True)
class Nodes(Task[NodeData]):
    """The loss and its settings are those of `models.node_embedding`; a row is a node with all its relations."""

    kind = "nodes"
    unit = "nodes"
    mark = POINTS
    options = NodesOptions
    metrics = (
        Metric("map", "mAP", 3, "high", "judged", PERFECT),
        Metric("mean_rank", "mean rank", 2, "low", "judged", PERFECT),
        Metric("radius_mean", "mean radius", 2, "high", "detail"),
        Metric("radius_max", "largest radius", 2, "high", "detail"),
        Metric("radius_depth_correlation", "radius follows depth", 2, "high", "detail", "rank correlation"),
    )

    model: str = "embedding"
    graph: bool = False  # an undirected graph: cycles are fine
    unique: bool = False  # drop repeated edges instead of refusing them
    unweighted: bool = False  # drop the weights of edges instead of refusing them
    on: Literal["closure", "edges"] = "closure"  # relate a node to all its ancestors, or to its parents only
    negatives: Size = 256  # random nodes that a step pushes away
    rank_nodes: Count | None = None  # how many nodes are ranked in an evaluation; none: all

    def check(self, engine: EngineConfig) -> None:
        if engine.precision == "bf16":
            raise UserError("precision=bf16: points are float64, which siblings far out need; leave it out")

    # -- the training -----------------------------------------------------------------------------------------------

    def open_data(self) -> NodeData:
        if self.data.startswith(BUILTIN):
            graph = builtin_graph(self.data)
        else:
            dropped = {"unique": self.unique, "unweighted": self.unweighted}
            graph = read_graph(self.data, directed=not self.graph, **dropped)
        if not len(graph.edges):
            raise UserError(f"{self.data}: the graph has no edges, so there is nothing to learn")
        try:
            return NodeData(graph, graph.edges if graph.directed and self.on == "edges" else graph.relations())
        except UserError as error:
            raise UserError(f"{self.data}: {error}") from None

    def rows(self, data: NodeData) -> int:
        return len(data.subjects)

    def natural_batch(self, data: NodeData) -> int:
        """An eighth of the nodes, 32 to 2048."""
        return min(2048, max(32, len(data.subjects) // 8))

    def facts(self, data: NodeData) -> dict[str, Any]:
        sizes = {"nodes": len(data.graph), "edges": len(data.graph.edges), "relations": len(data.relations)}
        same = digest("\n".join(data.graph.labels), data.relations.tobytes())
        return {**sizes, "directed": data.graph.directed, "digest": same}

    def build(self, data: NodeData) -> NodeEmbedding:
        model = NodeEmbedding(len(data.graph), self.configuration())
        if self.start is not None:
            self._begin_with(model, data.graph.labels, Run.open(self.start, self.kind).load())
        return model

    def _begin_with(self, model: NodeEmbedding, labels: list[str], given: Embedded) -> None:
        if given.labels != labels or given.config != self.configuration():
            what = "other nodes, dimensions, geometry or curvature"
            raise UserError(f"start={self.start}: a run of {what}; give one of the same")
        model.table.weight.data.copy_(given.points)
        model.manifold.load_state_dict(given.manifold.state_dict())

    def ready(self, data: NodeData) -> None:
        super().ready(data)
        self.relations = Relations(data.relations, len(data.graph), self.world.device)
        self.mean_relations = len(data.relations) / len(self.relations.subjects)

    def begin(self, folder: Path) -> None:
        write_labels(folder, self.opened.graph.labels)

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """nodes (B,), their relations row (P,), related (P,), and negatives (K,) for all of them, on the device."""
        subjects, device, random = self.relations.subjects, self.world.device, (self.engine.seed, step)
        chosen = torch.from_numpy(self.drawn(step, rows, len(subjects))).to(device)
        others = np.random.default_rng(random).integers(len(self.opened.graph), size=self.negatives)
        negatives = torch.from_numpy(np.unique(others)).to(device)
        return {**self.relations.batch(subjects[chosen]), "negatives": negatives}

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean over relations, with a fixed number of them a node: so it does not depend on how a batch is cut."""
        return model(**batch).sum() / (len(batch["nodes"]) * self.mean_relations), {}

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """The learning rate is in curvature radii, so that steps are as long in every geometry."""
        groups, curvature = param_groups(model), set(model.manifold.parameters())  # type: ignore[union-attr]
        for group in groups:
            is_curvature = curvature.issuperset(group["params"])
            group["lr_scale"] = CURVATURE_PACE / self.engine.lr if is_curvature else self.configuration().radius
        return groups

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        """How well the points know their graph, and how far out they lie."""
        network, graph = cast(NodeEmbedding, model), self.opened.graph
        points, manifold = network.points, network.manifold
        with progress("ranking", self.rank_nodes or len(graph), self.quiet) as update:
            how: Any = {"nodes": self.rank_nodes, "device": self.world.device}
            how["progress"] = lambda done, total: update(done, "nodes")
            score = reconstruction(points, manifold, self.opened.relations, **how)
        spread = radius(points, manifold)
        scores = {"mean_rank": score.mean_rank, "map": score.map, "radius_mean": spread.mean, "radius_max": spread.max}
        if graph.directed:
            scores["radius_depth_correlation"] = depth_correlation(points, manifold, graph.depth())
        return scores

    # -- the points -------------------------------------------------------------------------------------------------

    def export(self, folder: Path, network: nn.Module) -> None:
        write_points(cast(NodeEmbedding, network), folder / POINTS)

    def rebuild(self, run: Run) -> NodeEmbedding:
        return NodeEmbedding(len(read_labels(run.folder)), self.configuration())

    def read_export(self, network: nn.Module, folder: Path) -> None:
        read_points(cast(NodeEmbedding, network), folder / POINTS)

    def trained(self, network: nn.Module, run: Run) -> Embedded:
        model = cast(NodeEmbedding, network)
        return Embedded(
            model.points, read_labels(run.folder), model.manifold.requires_grad_(False), self.configuration(), self
        )

    # -- for people and studies -------------------------------------------------------------------------------------

    def graph_of(self, run: Run) -> tuple[Graph, np.ndarray]:
        """The graph of a run, which must have the same nodes still, and its relations."""
        data = self.open_data()
        if data.graph.labels != read_labels(run.folder):
            raise UserError(f"{self.data} has other nodes than {run.folder}: give the graph it was trained on")
        return data.graph, data.relations

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        config = self.configuration()
        sizes = [["nodes", f"{facts['nodes']:,}"], ["relations", f"{facts['relations']:,}"]]
        ranked = self.rank_nodes is not None and self.rank_nodes < facts["nodes"]
        sizes += [["ranked", f"{self.rank_nodes:,} of the nodes, drawn at random"]] if ranked else []
        return [*sizes, ["geometry", f"{config.geometry}, {config.dim} dimension{'s' * (config.dim > 1)}"]]

    def comparison(self, options: CompareOptions) -> catalogue.Comparison:
        names = options.geometries
        if not names:
            raise UserError(f"geometries= names none; choose from {', '.join(GEOMETRIES)}")
        return catalogue.comparison_of_geometries(tuple(dict.fromkeys(names)))

    def check_study(self, options: CompareOptions, data: NodeData) -> None:
        delta(data.graph)  # of too few nodes there is nothing to say

    @classmethod
    def examine(cls, runs: Mapping[str, Run]) -> Charted:
        """Where the nodes went: the points of the runs, and how tree-like the graph is."""
        points = {name: run.load() for name, run in runs.items()}
        graph = next(iter(points.values())).task.open_data().graph
        return Charted(graph, delta(graph), points)


@dataclass(frozen=True)
class Embedded:
    """Points (N, d) float64 on a manifold, with the labels of their nodes."""

    points: Tensor
    labels: list[str]
    manifold: Manifold
    config: NodeEmbeddingConfig
    task: Nodes

    def curvatures(self) -> list[float]:
        """Of the curved parts."""
        return [-float(m.c) for m in self.manifold.modules() if isinstance(m, Curved)]


@dataclass(frozen=True)
class Charted:
    """What the runs of a study made of one graph."""

    graph: Graph
    delta: Delta
    points: dict[str, Embedded]
