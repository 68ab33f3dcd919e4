"""`HyperbolicClassifier` beside scikit-learn's own classifiers, cross-validated on scikit-learn's tables.

    python benchmarks/estimators.py

Five folds, three times in another order. In each fold every entrant has three settings to choose from, by a quarter of
the rows it may learn from. Columns are standard for everyone.
"""

import warnings
from statistics import mean, stdev
from typing import Any

import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, RepeatedStratifiedKFold, StratifiedShuffleSplit, cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from horosphere.estimators import HyperbolicClassifier
from horosphere.tables import table_lines

TABLES = {"wine": load_wine, "breast_cancer": load_breast_cancer, "digits": load_digits}
RATES, FOLDS, TIMES = [1e-3, 5e-3, 2e-2], 5, 3


def entrants() -> dict[str, tuple[Any, str, list[float]]]:
    """The estimator, and the setting that is chosen."""
    ours = {
        "lorentz, c matched": HyperbolicClassifier(random_state=0),
        "lorentz, c = 1": HyperbolicClassifier(curvature=1.0, random_state=0),
        "mixed, lorentz:32+euclidean:32": HyperbolicClassifier("lorentz:32+euclidean:32", random_state=0),
        "euclidean, the twin": HyperbolicClassifier("euclidean", random_state=0),
    }
    theirs = {
        "MLPClassifier((64,))": (MLPClassifier((64,), random_state=0), "learning_rate_init", RATES),
        "LogisticRegression": (LogisticRegression(max_iter=1000), "C", [0.01, 0.1, 1.0]),
    }
    return {name: (model, "lr", RATES) for name, model in ours.items()} | theirs


def folds(x: Any, y: Any, entrant: tuple[Any, str, list[float]]) -> list[float]:
    """The accuracy of each fold."""
    model, name, values = entrant
    piped = make_pipeline(StandardScaler(), model)
    setting = f"{type(model).__name__.lower()}__{name}"
    inner = StratifiedShuffleSplit(1, test_size=0.25, random_state=0)
    chosen = GridSearchCV(piped, {setting: values}, cv=inner)
    scores: list[float] = cross_val_score(
        chosen, x, y, cv=RepeatedStratifiedKFold(n_splits=FOLDS, n_repeats=TIMES, random_state=0)
    ).tolist()
    return scores


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    torch.set_num_threads(1)
    rows = []
    for name, entrant in entrants().items():
        cells = []
        for load in TABLES.values():
            scores = folds(*load(return_X_y=True), entrant)
            times = [mean(scores[i : i + FOLDS]) for i in range(0, len(scores), FOLDS)]
            cells.append(f"{mean(times):.3f} ± {stdev(times):.3f}")
        rows.append([name, *cells])
        print(*rows[-1], sep="  ", flush=True)
    print(*table_lines(["classifier", *TABLES], rows), sep="\n")


if __name__ == "__main__":
    main()
