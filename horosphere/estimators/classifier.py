"""A classifier of rows of numbers, in one geometry or a product of several."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from horosphere.data.tables import Scaling, Schema
from horosphere.geometry import GEOMETRIES
from horosphere.models.config import InAnyGeometry
from horosphere.models.linear import SoftmaxRegression
from horosphere.models.mlp import MLP, MLPConfig, ProductMLP, ProductMLPConfig, unit_curvature
from horosphere.models.table_model import Sizes, TableModel
from horosphere.nn.near import require_near
from horosphere.tasks.tables import Rows, TableData, Tables
from horosphere.train.config import EngineConfig
from horosphere.train.engine import learn

ALONE = tuple(name for name in GEOMETRIES if name != "product")


class HyperbolicClassifier(ClassifierMixin, BaseEstimator):
    """A network of points and one hyperplane a class, as a classifier of scikit-learn.

    Columns are scaled to mean 0 and variance 1 first. Rows become points, `hidden` are the widths of rectified layers
    between them and the classes; none of them makes it logistic regression. It is trained by Adam over a cosine
    schedule, in float64 on the CPU.

    geometry: "lorentz", "poincare", or "euclidean", the flat twin. A product such as "lorentz:32+euclidean:32" has
    mixed curvature: hidden layers lie in it, and are as wide as it is.
    curvature: c, the curvature is -c. "matched" is 1/F for F columns, so that a row of typical length lies one radius
    of curvature from the origin; in a product 1/d for each factor of d dimensions.
    epochs, lr, batch_size, weight_decay: of the training.
    random_state: as everywhere in scikit-learn; the same number gives the same classifier.

    After `fit` there are classes_, n_features_in_, manifold_, and network_, a torch module that takes scaled rows.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = HyperbolicClassifier(epochs=20, random_state=0).fit(X, y)
    >>> model.predict(X[:3]), bool(model.score(X, y) > 0.9)
    (array([0, 0, 0]), True)
    >>> model.manifold_
    Lorentz(c=0.25)
    """

    def __init__(
        self,
        geometry: str = "lorentz",
        *,
        curvature: float | Literal["matched"] = "matched",
        hidden: tuple[int, ...] = (64,),
        epochs: float = 60,
        lr: float = 5e-3,
        batch_size: int = 32,
        weight_decay: float = 0.01,
        random_state: Any = None,
    ):
        self.geometry = geometry
        self.curvature = curvature
        self.hidden = hidden
        self.epochs = epochs
        self.lr = lr
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> HyperbolicClassifier:
        """Learn from rows (N, F) and their classes (N,)."""
        x, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.scaling_ = Scaling.standard(x)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network_ = self._network(Sizes(x.shape[1], len(self.classes_), len(x))).double()
        self.manifold_ = self.network_.manifold
        rows = Rows(self._scaled(x), torch.from_numpy(labels))
        learn(self.network_, self._task(rows, seed))
        return self

    def _network(self, sizes: Sizes) -> TableModel:
        c: Any = None if self.curvature == "matched" else self.curvature
        if self.geometry not in ALONE:
            return ProductMLP(sizes, ProductMLPConfig(geometry=self.geometry, hidden=tuple(self.hidden), curvature=c))
        where: Any = {"geometry": self.geometry, "curvature": unit_curvature(sizes.columns) if c is None else c}
        if not self.hidden:
            return SoftmaxRegression(sizes, InAnyGeometry(**where))
        return MLP(sizes, MLPConfig(hidden=tuple(self.hidden), **where))

    def _task(self, rows: Rows, seed: int) -> Tables:
        """The task of `horosphere train mlp`, with rows that are at hand."""
        engine = EngineConfig(
            lr=self.lr, epochs=self.epochs, weight_decay=self.weight_decay, seed=seed, precision="fp32"
        )
        engine.check()
        task = Tables(model="mlp", data="")
        task.engine = engine.for_data(len(rows), min(self.batch_size, len(rows)))
        names, unscaled = [str(i) for i in range(rows.x.shape[1])], Scaling(np.zeros(1), np.ones(1))
        schema = Schema(names, "class", [str(name) for name in self.classes_], self.scaling_, unscaled, len(rows))
        task.ready(TableData(rows, Rows(rows.x[:0], rows.y[:0]), schema))
        return task

    def _scaled(self, x: np.ndarray) -> Tensor:
        rows = torch.from_numpy(self.scaling_(x))
        require_near(rows, self.network_.lift.manifold)  # type: ignore[union-attr, arg-type]
        return rows

    @torch.no_grad()
    def _logits(self, X: ArrayLike) -> np.ndarray:
        check_is_fitted(self)
        x = validate_data(self, X, dtype=np.float64, reset=False)
        logits: np.ndarray = self.network_(self._scaled(x)).numpy()
        return logits

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The class of each row.   (N, F) -> (N,)"""
        best = self._logits(X).argmax(1)
        classes: np.ndarray = self.classes_[best]
        return classes

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """The probabilities of the classes, in the order of classes_.   (N, F) -> (N, K)"""
        logits = self._logits(X)
        shares = np.exp(logits - logits.max(1, keepdims=True))
        probabilities: np.ndarray = shares / shares.sum(1, keepdims=True)
        return probabilities
