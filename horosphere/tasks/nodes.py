"""Nodes of a tree or graph as points of a manifold: related ones near, others far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from horosphere import catalogue
from horosphere.data import Graph, read_graph
from horosphere.data.builtin import BUILTIN, builtin_graph
from horosphere.data.graph import EDGES, read_edges, read_labels, write_edges, write_labels
from horosphere.data.held_out import hold_out
from horosphere.data.order import Part, half
from horosphere.errors import UserError, choices, one_line
from horosphere.evaluate.links import link_places, places_without_points
from horosphere.evaluate.metric import Metric
from horosphere.evaluate.neighbours import nearest
from horosphere.evaluate.ranking import Places, auc, hit_at
from horosphere.files import digest
from horosphere.geometry import GEOMETRIES, Manifold
from horosphere.geometry.manifold import Curved
from horosphere.measure import Delta, delta, depth_correlation, distortion, radius, reconstruction
from horosphere.measure.sample import sample
from horosphere.models.distances import EXPONENT, DistanceEmbedding, PathLengths
from horosphere.models.exact_tree import require_hyperbolic, starting_tree
from horosphere.models.node_embedding import NodeEmbedding, NodeEmbeddingConfig, Relations, read_points, write_points
from horosphere.models.out_of_sample import PACE, place_new
from horosphere.optim import param_groups
from horosphere.progress import progress
from horosphere.runs import About, Run, made_with, write_ready
from horosphere.settings import Count, Decay, Range, Size, convert
from horosphere.train.config import EngineConfig
from horosphere.train.task import CompareOptions, Task
from horosphere.train.vectors import Vectors

# learning rate of log c: it moves all points at once, and must not leave before they have found their places
CURVATURE_PACE = 1e-3
# where all distances are fitted: learning rates of points, in mean path lengths, and of log c, as shares of lr
DISTANCE_PACE = 0.3
SOURCES = 128  # of a step there, at most
POINTS = "points.safetensors"
PERFECT = "1 is perfect"
HITS = 10  # Hits@10


@dataclass(frozen=True)
class NodeData:
    graph: Graph
    relations: np.ndarray  # (P, 2), all there are
    learned: np.ndarray  # (P - H, 2), the pairs to bring together
    held: np.ndarray  # (H, 2), those that no step sees
    ranked: np.ndarray | None = None  # the nodes that scores are of; None: all
    paths: PathLengths | None = None  # where all distances are fitted

    @property
    def subjects(self) -> np.ndarray:
        """The nodes that have relations to learn."""
        return np.unique(self.learned[:, 0])


@dataclass(frozen=True)
class NodesOptions(CompareOptions):
    geometries: tuple[str, ...] = GEOMETRIES  # separated by commas


@dataclass(kw_only=True)
class Nodes(Task[NodeData]):
    """The loss and its settings are those of `models.node_embedding`; a row is a node with all its relations."""

    kind = "nodes"
    unit = "nodes"
    sizes = "dims"
    mark = POINTS
    options = NodesOptions
    then = "horosphere neighbors {run} NODE"
    metrics = (
        Metric("distortion", "average distortion", 4, "low", "judged", "0 is perfect"),
        Metric("worst", "worst distortion", 2, "low", "detail", PERFECT),
        Metric("link_auc", "AUC held out", 3, "high", "judged", "0.5 is chance"),
        Metric("link_hits", f"Hits@{HITS} held out", 3, "high", "judged"),
        Metric("map", "mAP", 3, "high", "judged", PERFECT),
        Metric("mean_rank", "mean rank", 2, "low", "judged", PERFECT),
        Metric("radius_mean", "mean radius", 2, "high", "detail"),
        Metric("radius_max", "largest radius", 2, "high", "detail"),
        Metric("radius_depth_correlation", "radius follows depth", 2, "high", "detail", "rank correlation"),
    )

    model: str = "embedding"
    objective: Literal["ranking", "distortion"] = "ranking"  # relations near, others far; or distances as in the graph
    graph: bool = False  # an undirected graph: cycles are fine
    unique: bool = False  # drop repeated edges instead of refusing them
    unweighted: bool = False  # drop the weights of edges instead of refusing them
    on: Literal["closure", "edges"] = "closure"  # relate a node to all its ancestors, or to its parents only
    holdout: Decay = 0.0  # share of the relations that no step sees, to be predicted: AUC and Hits@10
    negatives: Size = 256  # random nodes that a step pushes away; with distortion, those it measures to
    # p of what is fitted, the mean of |d/d_G - 1|^p: 1 is the average, more spares the worst; none: 1.25
    exponent: Annotated[float, Range(least=1, most=8)] | None = None
    place: Literal["random", "tree"] = "random"  # where points begin; tree: by Sarkar's construction
    rank_nodes: Count | None = None  # how many nodes are ranked in an evaluation; none: all

    def check(self, engine: EngineConfig) -> None:
        if engine.precision == "bf16":
            raise UserError("precision=bf16: points are float64, which siblings far out need; leave it out")
        if self.objective == "distortion":
            self._check_distortion()
        elif self.exponent is not None:
            raise UserError(f"exponent={self.exponent:g} is of objective=distortion: leave it out")
        if self.place == "tree":
            require_hyperbolic(self.configuration().manifold())
            if self.start is not None:
                raise UserError(f"place=tree and start={self.start}: both say where points begin; leave one out")

    def _check_distortion(self) -> None:
        idle = {"holdout": self.holdout, "place": self.place != "random" and self.place}
        for name, value in idle.items():
            if value:
                raise UserError(
                    f"{name}={value} is of objective=ranking, and objective=distortion fits distances: leave it out"
                )

    def configuration(self) -> NodeEmbeddingConfig:
        config: NodeEmbeddingConfig = super().configuration()
        if config.learn_curvature is None:
            return replace(config, learn_curvature=self.objective == "distortion")
        return config

    # -- the training -----------------------------------------------------------------------------------------------

    def open_data(self) -> NodeData:
        if self.data.startswith(BUILTIN):
            graph = builtin_graph(self.data)
        else:
            dropped = {"unique": self.unique, "unweighted": self.unweighted}
            graph = read_graph(self.data, directed=not self.graph, weighted=self.objective == "distortion", **dropped)
        if not len(graph.edges):
            raise UserError(f"{self.data}: the graph has no edges, so there is nothing to learn")
        try:
            relations = self.relations_of(graph)
            if self.objective == "distortion":
                return NodeData(graph, relations, relations, relations[:0], paths=PathLengths(graph))
            learned, held = relations, relations[:0]
            if self.holdout:
                learned, held = hold_out(relations, self.holdout, len(graph))
            return NodeData(graph, relations, learned, held)
        except UserError as error:
            raise UserError(f"{self.data}: {error}") from None

    def relations_of(self, graph: Graph) -> np.ndarray:
        """What is related, as `on` says; of distances, the ends of edges.   -> (P, 2)"""
        if self.objective == "distortion":
            return np.concatenate([graph.edges, graph.edges[:, ::-1]])
        return graph.edges if graph.directed and self.on == "edges" else graph.relations()

    def parted(self, data: NodeData, part: Part) -> NodeData:
        """Half of the nodes that are ranked, and of the links held out. Every node and relation is learned."""
        nodes = half(np.unique(data.relations), part)
        return replace(data, held=half(data.held, part), ranked=nodes)

    def rows(self, data: NodeData) -> int:
        return len(data.subjects)

    def natural_batch(self, data: NodeData) -> int:
        """An eighth of the nodes, 32 to 2048; 128 at most where all have pairs with many."""
        return min(2048 if data.paths is None else SOURCES, max(32, len(data.subjects) // 8))

    def facts(self, data: NodeData) -> dict[str, Any]:
        sizes: dict[str, Any] = {
            "nodes": len(data.graph),
            "edges": len(data.graph.edges),
            "relations": len(data.relations),
        }
        sizes |= {"held": len(data.held)} if len(data.held) else {}
        sizes |= {"several_parents": data.graph.several_parents()} if data.graph.directed else {}
        if data.paths is not None:
            sizes |= {"mean_path": data.paths.mean, "without_path": data.paths.without()}
        lengths = [] if data.graph.lengths is None else [data.graph.lengths.tobytes()]
        same = digest("\n".join(data.graph.labels), data.learned.tobytes(), *lengths)
        return {**sizes, "directed": data.graph.directed, "digest": same}

    def build(self, data: NodeData) -> NodeEmbedding:
        model = self._network(len(data.graph), None if data.paths is None else data.paths.mean)
        if self.start is not None:
            self._begin_with(model, data.graph.labels, Run.open(self.start, self.kind).load())
        elif self.place == "tree":
            model.table.weight.data.copy_(starting_tree(data.graph, self.configuration().dim).points(model.manifold))
        return model

    def _network(self, nodes: int, unit: float | None) -> NodeEmbedding:
        """unit: the mean path length, where distances are fitted."""
        if unit is None:
            return NodeEmbedding(nodes, self.configuration())
        return DistanceEmbedding(nodes, self.configuration(), unit, self.exponent or EXPONENT)

    def _begin_with(self, model: NodeEmbedding, labels: list[str], given: Embedded) -> None:
        if given.labels != labels or given.config != self.configuration():
            what = "other nodes, dimensions, geometry or curvature"
            raise UserError(f"start={self.start}: a run of {what}; give one of the same")
        model.table.weight.data.copy_(given.points)
        model.manifold.load_state_dict(given.manifold.state_dict())

    def ready(self, data: NodeData) -> None:
        super().ready(data)
        self.relations = Relations(data.learned, len(data.graph), self.world.device)
        self.mean_relations = len(data.learned) / len(self.relations.subjects)

    def begin(self, folder: Path) -> None:
        write_labels(folder, self.opened.graph.labels)
        if not (folder / EDGES).is_file():  # a run that goes on has the same ones
            write_edges(folder, self.opened.graph)

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """nodes (B,), their relations row (P,), related (P,), and negatives (K,) for all of them, on the device."""
        if self.opened.paths is not None:
            return self._pairs(self.opened.paths, step, rows)
        subjects, device, random = self.relations.subjects, self.world.device, (self.engine.seed, step)
        chosen = torch.from_numpy(self.drawn(step, rows, len(subjects))).to(device)
        others = np.random.default_rng(random).integers(len(self.opened.graph), size=self.negatives)
        negatives = torch.from_numpy(np.unique(others)).to(device)
        return {**self.relations.batch(subjects[chosen]), "negatives": negatives}

    def _pairs(self, paths: PathLengths, step: int, rows: range) -> dict[str, Tensor]:
        """sources (B,), targets (K,) for all of them, and lengths (B, K) of the paths between them."""
        nodes, random = len(self.opened.graph), np.random.default_rng((self.engine.seed, step))
        sources = self.opened.subjects[self.drawn(step, rows, len(self.opened.subjects))]
        targets = random.choice(nodes, min(nodes, self.negatives), replace=False, shuffle=False)
        arrays = {"sources": sources, "targets": targets, "lengths": paths.block(sources, targets)}
        return {name: torch.from_numpy(array).to(self.world.device) for name, array in arrays.items()}

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean over relations, with a fixed number of them a node: so it does not depend on how a batch is cut.

        Of distances, the mean over nodes of that over their pairs.
        """
        if self.opened.paths is not None:
            return model(**batch).mean(), {}
        return model(**batch).sum() / (len(batch["nodes"]) * self.mean_relations), {}

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """The learning rate is in curvature radii, so that steps are as long in every geometry; or in path lengths."""
        groups, curvature = param_groups(model), set(model.manifold.parameters())  # type: ignore[union-attr]
        of_curvature, of_points = CURVATURE_PACE / self.engine.lr, self.configuration().radius
        if isinstance(model, DistanceEmbedding):
            of_curvature, of_points = DISTANCE_PACE, DISTANCE_PACE * model.unit
        for group in groups:
            group["lr_scale"] = of_curvature if curvature.issuperset(group["params"]) else of_points
        return groups

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        """How well the points know their graph, what was held out of it, and how far out they lie."""
        network, graph = cast(NodeEmbedding, model), self.opened.graph
        points, manifold = network.points, network.manifold
        if self.opened.paths is not None:
            return self._distances(points, manifold, self.opened.paths)
        with progress("ranking", self.rank_nodes or len(graph), self.quiet) as update:
            how: Any = {"nodes": self._ranked(), "device": self.world.device}
            how["progress"] = lambda done, total: update(done, "nodes")
            score = reconstruction(points, manifold, self.opened.relations, **how)
        spread = radius(points, manifold)
        scores = {"mean_rank": score.mean_rank, "map": score.map, "radius_mean": spread.mean, "radius_max": spread.max}
        if graph.directed:
            scores["radius_depth_correlation"] = depth_correlation(points, manifold, graph.depth())
        if len(self.opened.held):
            scores |= _link_scores(link_places(points, manifold, self._asked(), self.opened.relations))
        return scores

    def _ranked(self) -> np.ndarray | int | None:
        """The nodes that are ranked, or how many of them."""
        ranked = self.opened.ranked
        return self.rank_nodes if ranked is None else sample(ranked, self.rank_nodes or len(ranked), seed=0)

    def _distances(self, points: Tensor, manifold: Manifold, paths: PathLengths) -> dict[str, float]:
        """In the units of the graph: nothing is rescaled."""
        graph, ranked = paths.graph, self._ranked()
        nodes = len(graph) if ranked is None else ranked
        found = distortion(points, manifold, graph, nodes=nodes, rescale=False, lengths=paths.rows)
        spread = radius(points, manifold)
        scores = {"distortion": found.average, "radius_mean": spread.mean, "radius_max": spread.max}
        scores |= {"worst": found.worst} if found.worst < np.inf else {}
        all_linked = 2 * len(graph.edges) == len(graph) * (len(graph) - 1)  # then no node is farther than a neighbour
        return scores if all_linked else {**scores, "map": found.map}

    def baselines(self) -> dict[str, dict[str, float]]:
        """Of links held out: what counting finds, without points."""
        data = self.opened
        if not len(data.held):
            return {}
        found = places_without_points(data.learned, self._asked(), data.relations, len(data.graph))
        return {method: _link_scores(placed) for method, placed in found.items()}

    def _asked(self) -> np.ndarray:
        """The links held out that are ranked.   -> (H, 2)"""
        held = self.opened.held
        return held[sample(np.arange(len(held)), self.rank_nodes or len(held), seed=0)]

    # -- the points -------------------------------------------------------------------------------------------------

    def export(self, folder: Path, network: nn.Module) -> None:
        model = cast(NodeEmbedding, network)
        write_points(model.points, model.manifold, folder / POINTS)

    def rebuild(self, run: Run) -> NodeEmbedding:
        return self._network(len(read_labels(run.folder)), run.about.facts.get("mean_path"))

    def read_export(self, network: nn.Module, folder: Path) -> None:
        read_points(cast(NodeEmbedding, network), folder / POINTS)

    def trained(self, network: nn.Module, run: Run) -> Embedded:
        model, labels = cast(NodeEmbedding, network), read_labels(run.folder)
        graph = read_edges(run.folder, labels, bool(run.about.facts.get("directed", True)))
        space = model.manifold.requires_grad_(False)
        return Embedded(model.points, labels, space, self.configuration(), self, graph, run.about)

    @classmethod
    def vectors(cls, run: Run) -> Vectors:
        embedded: Embedded = cls.load(run)
        return Vectors(embedded.labels, embedded.points, embedded.manifold, embedded.graph)

    # -- for people and studies -------------------------------------------------------------------------------------

    def graph_of(self, run: Run) -> tuple[Graph, np.ndarray]:
        """The graph of a run, which must have the same nodes still, and its relations."""
        data = self.open_data()
        if data.graph.labels != read_labels(run.folder):
            raise UserError(f"{self.data} has other nodes than {run.folder}: give the graph it was trained on")
        return data.graph, data.relations

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        config = self.configuration()
        sizes = [["nodes", f"{facts['nodes']:,}"]]
        if (mean := facts.get("mean_path")) is None:
            sizes.append(["relations", f"{facts['relations']:,}"])
        else:
            sizes += [["edges", f"{facts['edges']:,}"], ["mean distance", f"{mean:.4g}"]]
        if count := facts.get("without_path"):
            sizes.append(["left out", f"{count:,} pair{'s' * (count > 1)} without a path"])
        if count := facts.get("several_parents"):
            sizes.append(["several parents", f"{count:,} node{'s have' if count > 1 else ' has'} more than one"])
        if count := facts.get("held"):
            sizes.append(["held out", f"{count:,} of the relations, which no step sees"])
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
        first = next(iter(points.values()))
        graph = first.graph or first.task.open_data().graph
        return Charted(graph, delta(graph), points)


def _link_scores(placed: Places) -> dict[str, float]:
    """Where no pair has ten competitors every one is a hit, and Hits@10 says nothing."""
    told = int(placed.others.max()) >= HITS
    return {"link_auc": auc(placed)} | ({"link_hits": hit_at(placed, HITS)} if told else {})


@dataclass(frozen=True, eq=False)
class Embedded:
    """Points (N, d) float64 on a manifold, with the labels of their nodes: what `Run.open(folder).load()` gives."""

    points: Tensor
    labels: list[str]
    manifold: Manifold
    config: NodeEmbeddingConfig
    task: Nodes
    graph: Graph | None = None  # None: of a run that has not kept its edges
    about: About | None = None  # what its run says of itself

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[str]:
        """The nodes, by name."""
        return iter(self.labels)

    def __contains__(self, node: object) -> bool:
        return isinstance(node, str) and node in self._numbers

    def __getitem__(self, node: str) -> Tensor:
        """The point of a node, in the coordinates of its manifold.   -> (d,)"""
        return self.points[self.number(node)]

    def number(self, node: str) -> int:
        """Its row in `points` and `labels`."""
        if not isinstance(node, str):
            raise UserError(f"{one_line(node, 40)} is no name of a node; give the text that the data call it")
        if node not in self._numbers:
            raise UserError(f'there is no node "{node}"; {choices(node, self.labels)}')
        return self._numbers[node]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.labels)}

    def neighbors(self, node: str, k: int = 10) -> list[tuple[str, float]]:
        """The k nearest other nodes and their distances, the nearest first."""
        k = convert(k, Count, "k")
        at = torch.tensor([self.number(node)])
        distances, numbers = nearest(self.points[at], self.points, self.manifold, k, but=at)
        return [(self.labels[i], d) for i, d in zip(numbers[0].tolist(), distances[0].tolist(), strict=True)]

    def surroundings(self, node: str, k: int = 10) -> dict[str, Any]:
        """Its neighbours, each with what it is to the node, and where the node stands in its graph."""
        found: list[dict[str, Any]] = [{"node": name, "distance": d} for name, d in self.neighbors(node, k)]
        if self.graph is None:
            return {"node": node, "neighbors": found}
        i = self.number(node)
        kin = {name: [self.labels[j] for j in nodes] for name, nodes in self.graph.kin_of(i).items()}
        found = [{**one, "is": self.graph.kinship(i, self.number(one["node"]))} for one in found]
        return {"node": node, **kin, "neighbors": found}

    def add(self, node: str, parents: Sequence[str]) -> Embedded:
        """An embedding with one more node, below these parents; in a graph, linked to these nodes. This one stays.

        The points that are there do not move: `models.out_of_sample.place_new` finds the place of the new one.
        """
        if not isinstance(node, str):
            said = one_line(node, 40)
            raise UserError(f'add({said}, …): a node is called by a text; give one, as in add("{said}", …)')
        if not node.strip():
            raise UserError("add(…): the name of the new node is empty; give one")
        if node in self:
            raise UserError(f'there is a node "{node}" already; give the new one another name')
        if self.task.objective == "distortion":
            raise UserError(
                "a node is added by ranking its relations, and this run fits distances; embed the graph again"
            )
        if self.graph is None:
            raise UserError("this run has not kept its edges, so nodes cannot be added; embed the graph again")
        parents = list(parents) if isinstance(parents, Iterable) and not isinstance(parents, str) else []
        if not parents:
            raise UserError(f'add("{node}", parents=…): give a list of nodes that are there, at least one')
        above = list(dict.fromkeys(self.number(parent) for parent in parents))
        related = set(above)
        if self.graph.directed and self.task.on == "closure":
            related |= {ancestor for parent in above for ancestor in self.graph.ancestors_of(parent)}
        how: Any = {"relations": self.task.relations_of(self.graph), "negatives": self.task.negatives}
        point = place_new(self.points, self.manifold, [sorted(related)], pace=PACE * self.config.radius, **how)
        edges = np.concatenate([self.graph.edges, [(len(self), parent) for parent in above]])
        labels = [*self.labels, node]
        graph = Graph(labels, edges, self.graph.directed)
        return replace(self, points=torch.cat([self.points, point]), labels=labels, graph=graph)

    def save(self, folder: str | Path) -> Run:
        """Write it as a run: `horosphere neighbors` and `export` take it, and `start=` of a training on the same nodes.

        It has no scores and no checkpoints. So it cannot be resumed, and nothing that is there is replaced.
        """
        if self.about is None:
            raise UserError("only an embedding that Run.open(…).load() gave, or its add(…), can be saved")
        facts = self.about.facts
        if self.graph is not None:
            relations = self.task.relations_of(self.graph)
            now = self.task.facts(NodeData(self.graph, relations, learned=relations, held=relations[:0]))
            added = len(self) - self.about.count("nodes") + facts.get("added", 0)
            facts = {"parameters": self.points.numel(), **now, "added": added}
        about = replace(self.about, facts=facts, made_with=made_with())
        return write_ready(Path(folder), about, self._write)

    def _write(self, folder: Path) -> None:
        write_labels(folder, self.labels)
        if self.graph is not None:
            write_edges(folder, self.graph)
        write_points(self.points, self.manifold, folder / POINTS)

    def curvatures(self) -> list[float]:
        """Of the curved parts."""
        return [m.sign * float(m.c) for m in self.manifold.modules() if isinstance(m, Curved)]


@dataclass(frozen=True)
class Charted:
    """What the runs of a study made of one graph."""

    graph: Graph
    delta: Delta
    points: dict[str, Embedded]
