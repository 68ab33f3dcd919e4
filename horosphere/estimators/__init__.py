"""Estimators for scikit-learn: `pip install 'horosphere[sklearn]'`. Imports nothing by itself."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from horosphere.extras import require

if TYPE_CHECKING:
    from horosphere.estimators.classifier import HyperbolicClassifier
    from horosphere.estimators.embedding import HyperbolicEmbedding

__all__ = ["HyperbolicClassifier", "HyperbolicEmbedding"]

HOME = {"HyperbolicClassifier": "classifier", "HyperbolicEmbedding": "embedding"}


def __getattr__(name: str) -> Any:
    if name not in HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("estimators")
    return getattr(import_module(f"{__name__}.{HOME[name]}"), name)
