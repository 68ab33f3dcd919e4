"""Nodes of a graph as points of a manifold, as a transformer of scikit-learn."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from horosphere.data.in_memory import graph_in_memory
from horosphere.errors import UserError, choices, one_line
from horosphere.models.out_of_sample import place_new
from horosphere.tasks.nodes import NodeData, Nodes
from horosphere.train.engine import learn
from horosphere.train.recipe import Recipe


class HyperbolicEmbedding(BaseEstimator):
    """Points for the nodes of a tree or graph: related ones near, others far. `horosphere embed` in Python.

    geometry: "lorentz", "poincare", "euclidean", "product", or for example "lorentz:6+euclidean:4".
    dim: dimensions. curvature: c, the curvature is -c; "matched" is 3/(d-1)² in d dimensions.
    directed: whether an edge leads from a child to its parent; then a node is related to all its ancestors. None:
    networkx's graphs say it themselves, a sparse matrix does unless it is symmetric, pairs do.
    epochs, lr, negatives: of the training; by themselves those of the recipe `embedding`.
    random_state: as everywhere in scikit-learn; the same number gives the same points.

    After `fit` there are embedding_ (N, d), a row for each node of nodes_, manifold_ with its distances, and graph_.

    >>> tree = [("animal", "thing"), ("plant", "thing"), ("dog", "animal"), ("cat", "animal"), ("rose", "plant")]
    >>> model = HyperbolicEmbedding(dim=2, epochs=50, random_state=0).fit(tree)
    >>> model.embedding_.shape, model.nodes_
    ((6, 2), ['animal', 'thing', 'plant', 'dog', 'cat', 'rose'])
    >>> model.transform([["animal"], ["plant"]]).shape  # two new nodes by their parents
    (2, 2)
    """

    def __init__(
        self,
        geometry: str = "lorentz",
        *,
        dim: int = 10,
        curvature: float | Literal["matched"] = "matched",
        directed: bool | None = None,
        epochs: float = 200,
        lr: float = 0.07,
        negatives: int = 256,
        random_state: Any = None,
    ):
        self.geometry = geometry
        self.dim = dim
        self.curvature = curvature
        self.directed = directed
        self.epochs = epochs
        self.lr = lr
        self.negatives = negatives
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # graphs, and lists of neighbours
        return tags

    def fit(self, graph: Any, y: None = None) -> HyperbolicEmbedding:
        """Learn the points of a graph: networkx's, a sparse adjacency matrix, an edge array (E, 2), or pairs."""
        if self.directed not in (None, True, False):
            raise UserError(f"directed={one_line(self.directed, 40)}: it should be True, False or None")
        self.nodes_, self.graph_ = graph_in_memory(graph, self.directed)
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        relations, task = self.graph_.relations(), self._task()
        data = NodeData(self.graph_, relations, learned=relations, held=relations[:0])
        task.engine = task.engine.for_data(task.rows(data), task.natural_batch(data))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            model = task.build(data)
        task.ready(data)
        learn(model, task)
        self.manifold_, self.embedding_ = model.manifold.requires_grad_(False), model.points.numpy()
        return self

    def _task(self) -> Nodes:
        """The task of the recipe `embedding`, with these settings."""
        names = ("geometry", "dim", "epochs", "lr", "negatives")
        given = [f"{name}={getattr(self, name)}" for name in names]
        given += [] if self.curvature == "matched" else [f"curvature={self.curvature}"]
        recipe = Recipe.read("embedding", ["data=memory", f"seed={self._seed}", *given])
        task: Any = recipe.task
        task.engine = recipe.engine
        return task

    def fit_transform(self, graph: Any, y: None = None) -> np.ndarray:
        """`fit`, and the points of the nodes.   -> (N, d)"""
        return self.fit(graph).embedding_

    def transform(self, neighbours: Sequence[Sequence[Hashable]]) -> np.ndarray:
        """Points for new nodes, each given by the nodes it is related to; the others stay.   M lists -> (M, d)

        In a hierarchy these are its parents, and their ancestors count as well.
        """
        check_is_fitted(self)
        if isinstance(neighbours, str) or not isinstance(neighbours, Iterable):
            how = "give [[…], […]], of each the nodes it is related to"
            raise UserError(f"transform: {type(neighbours).__name__} is no list of new nodes; {how}")
        number = {node: i for i, node in enumerate(self.nodes_)}
        relations = self.graph_.relations()
        above: dict[int, list[int]] = {}
        for node, ancestor in relations.tolist() if self.graph_.directed else ():
            above.setdefault(node, []).append(ancestor)
        rows = []
        for place, names in enumerate(neighbours):
            if isinstance(names, str) or not isinstance(names, Sequence | np.ndarray):
                raise UserError(f"new node {place}: {one_line(names, 40)} is no list of neighbours; give [[…], […]]")
            for name in names:
                if not isinstance(name, Hashable) or name not in number:
                    what = choices(name, [str(node) for node in self.nodes_])
                    raise UserError(f"new node {place} names {one_line(name, 40)}, which is no node; {what}")
            own = [number[name] for name in names]
            rows.append([*own, *(ancestor for node in own for ancestor in above.get(node, ()))])
        points = place_new(
            torch.from_numpy(self.embedding_), self.manifold_, rows, relations=relations, seed=self._seed
        )
        placed: np.ndarray = points.numpy()
        return placed
