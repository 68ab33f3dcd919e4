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

from horosphere.data.tables import LARGEST, Scaling, Schema
from horosphere.errors import UserError, one_line
from horosphere.geometry import GEOMETRIES
from horosphere.models.config import InAnyGeometry
from horosphere.models.linear import SoftmaxRegression
from horosphere.models.mlp import MLP, MLPConfig, ProductMLP, ProductMLPConfig, unit_curvature
from horosphere.models.table_model import Sizes, TableModel
from horosphere.nn.near import farthest, in_radii
from horosphere.settings import Amount, Count, Positive, Size, convert
from horosphere.tasks.tables import Rows, TableData, Tables
from horosphere.train.config import EngineConfig
from horosphere.train.engine import learn

ALONE = tuple(name for name in GEOMETRIES if name != "product")


class HyperbolicClassifier(ClassifierMixin, BaseEstimator):
    """A network of points and one hyperplane a class, as a classifier of scikit-learn.

    Columns are scaled to mean 0 and variance 1 first. Rows become points, `hidden` are the widths of rectified layers
    between them and the classes; none of them makes it logistic regression. It is trained by Adam over a cosine
    schedule, in float64 on the CPU.

    geometry: "lorentz", "poincare", "sphere", or "euclidean", the flat twin. A product such as
    "lorentz:32+euclidean:32" has mixed curvature: hidden layers lie in it, and are as wide as it is.
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
        _require_scalable(x)
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
        if not isinstance(self.geometry, str):
            raise UserError(f'geometry={one_line(self.geometry, 40)}: give its name, as in geometry="lorentz"')
        hidden = self._widths()
        if self.geometry not in ALONE:
            return ProductMLP(sizes, ProductMLPConfig(geometry=self.geometry, hidden=hidden, curvature=c))
        where: Any = {"geometry": self.geometry, "curvature": unit_curvature(sizes.columns) if c is None else c}
        if not hidden:
            return SoftmaxRegression(sizes, InAnyGeometry(**where))
        return MLP(sizes, MLPConfig(hidden=hidden, **where))

    def _widths(self) -> tuple[int, ...]:
        hidden = _plain(self.hidden)
        if not isinstance(hidden, list | tuple):
            how = "give the widths of the layers in a tuple, as in hidden=(64,); () for none"
            raise UserError(f"hidden={one_line(hidden, 40)}: {how}")
        return tuple(convert(_plain(width), Size, "hidden") for width in hidden)

    def _number(self, name: str, kind: Any) -> Any:
        return convert(_plain(getattr(self, name)), kind, name)

    def _task(self, rows: Rows, seed: int) -> Tables:
        """The task of `horosphere train mlp`, with rows that are at hand."""
        numbers = {"lr": Positive, "epochs": Positive, "weight_decay": Amount}
        asked = {name: self._number(name, kind) for name, kind in numbers.items()}
        engine = EngineConfig(**asked, seed=seed, precision="fp32")
        engine.check()
        task = Tables(model="mlp", data="")
        task.engine = engine.for_data(len(rows), min(self._number("batch_size", Count), len(rows)))
        names, unscaled = [str(i) for i in range(rows.x.shape[1])], Scaling(np.zeros(1), np.ones(1))
        schema = Schema(names, "class", [str(name) for name in self.classes_], self.scaling_, unscaled, len(rows))
        task.ready(TableData(rows, Rows(rows.x[:0], rows.y[:0]), schema))
        return task

    def _scaled(self, x: np.ndarray) -> Tensor:
        _require_scalable(x)
        rows = torch.from_numpy(self.scaling_(x))
        out = in_radii(rows, self.network_.lift.manifold)  # type: ignore[union-attr, arg-type]
        if float(out.max()) > farthest(rows.dtype):
            row = int(out.argmax())
            column = int(rows[row].abs().argmax())
            far = f"{abs(float(rows[row, column])):.3g} standard deviations from the mean of fit"
            how = f'too far for a point in {self.geometry}; check its unit, or take geometry="euclidean"'
            raise UserError(f"X, row {row}: column {column} is {x[row, column]:.3g}, {far}, {how}")
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


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy as Python's."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _require_scalable(x: np.ndarray) -> None:
    """Complain about numbers whose squares may be none: they have no standard deviation.   (N, F)"""
    if (large := np.abs(x) > LARGEST).any():
        row, column = np.argwhere(large)[0]
        what = f"column {column} is {x[row, column]:.3g}, and numbers up to {LARGEST:g} can be scaled"
        raise UserError(f"X, row {row}: {what}; divide the column, or leave out the row")
