"""`HyperbolicClassifier`: scikit-learn's own checks, and what they do not know of geometry."""

import pickle
import sys

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", minversion="1.6")

from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from horosphere.errors import NotFinite, UserError
from horosphere.estimators import HyperbolicClassifier
from horosphere.geometry import Lorentz, Product

SHORT = {"epochs": 15, "hidden": (16,), "lr": 2e-2}
WINE = load_wine(return_X_y=True)


def expected_failures(estimator):
    """None: every check of scikit-learn that yields for a classifier applies."""
    return {}


@parametrize_with_checks(
    [
        HyperbolicClassifier(**SHORT),
        HyperbolicClassifier("euclidean", epochs=15, hidden=()),
        HyperbolicClassifier("lorentz:8+poincare:4+euclidean:4", **SHORT),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("geometry", ["lorentz", "poincare", "euclidean", "lorentz:8+euclidean:8"])
def test_unscaled_rows_are_learned_in_every_geometry(geometry):
    """Wine as it comes: lengths of several hundred."""
    assert cross_val_score(HyperbolicClassifier(geometry, **SHORT, random_state=0), *WINE, cv=3).mean() > 0.95


def test_flat_and_without_hidden_layers_it_is_logistic_regression():
    x, y = load_iris(return_X_y=True)
    ours = HyperbolicClassifier("euclidean", hidden=(), epochs=1500, lr=0.03, weight_decay=0.0, random_state=0)
    theirs = make_pipeline(StandardScaler(), LogisticRegression(C=np.inf, max_iter=10_000))
    # the optimum without a penalty lies far out, and both are on their way: they agree on the classes
    assert (ours.fit(x, y).predict(x) == theirs.fit(x, y).predict(x)).mean() > 0.98


def test_curvature():
    x, y = WINE
    matched = HyperbolicClassifier(epochs=1).fit(x, y).manifold_
    assert isinstance(matched, Lorentz)
    assert matched.c == pytest.approx(1 / 13)
    assert HyperbolicClassifier(curvature=0.3, epochs=1).fit(x, y).manifold_.c == 0.3
    mixed = HyperbolicClassifier("lorentz:4+poincare:12", hidden=(16,), epochs=1).fit(x, y).manifold_
    assert isinstance(mixed, Product)
    assert [factor.c for factor in mixed.factors] == pytest.approx([1 / 4, 1 / 12])


def test_random_state_decides_everything_and_touches_no_other_randomness():
    make = HyperbolicClassifier(**SHORT, random_state=3)
    torch.manual_seed(0)
    before = torch.rand(1)
    torch.manual_seed(0)
    first = make.fit(*WINE).predict_proba(WINE[0])
    assert torch.equal(torch.rand(1), before)
    torch.manual_seed(99)
    assert np.array_equal(clone(make).fit(*WINE).predict_proba(WINE[0]), first)
    other = clone(make).set_params(random_state=4).fit(*WINE).predict_proba(WINE[0])
    assert not np.array_equal(other, first)


def test_it_is_searched_in_a_pipeline_and_pickled():
    piped = make_pipeline(StandardScaler(), HyperbolicClassifier(**SHORT, random_state=0))
    grid = {"hyperbolicclassifier__geometry": ["lorentz", "euclidean"], "hyperbolicclassifier__lr": [1e-5, 1e-2]}
    found = GridSearchCV(piped, grid, cv=2).fit(*WINE)
    assert found.best_params_["hyperbolicclassifier__lr"] == 1e-2
    again = pickle.loads(pickle.dumps(found))
    assert np.array_equal(again.predict_proba(WINE[0]), found.predict_proba(WINE[0]))


def test_names_of_classes_come_back():
    y = np.array(["red", "white", "rosé"])[WINE[1]]
    model = HyperbolicClassifier(**SHORT, random_state=0).fit(WINE[0], y)
    assert model.classes_.tolist() == ["red", "rosé", "white"]
    assert model.score(WINE[0], y) > 0.95
    np.testing.assert_allclose(model.predict_proba(WINE[0]).sum(1), 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"geometry": "torus"}, "unknown geometry"),
        ({"geometry": "lorentz:8+euclidean:9"}, "has 17 dimensions, not 16"),
        ({"geometry": "product", "hidden": (8, 16)}, "one width"),
        ({"curvature": -1.0}, "curvature"),
        ({"lr": 0.0}, "lr"),
        ({"epochs": 0}, "epochs"),
        ({"hidden": 64}, r"^hidden=64: give the widths of the layers in a tuple, as in hidden=\(64,\); \(\) for none$"),
        ({"hidden": "64"}, "^hidden=64: give the widths"),
        ({"hidden": None}, "^hidden=None: give the widths"),
        ({"hidden": (2.5,)}, "^hidden=2.5: it should be a whole number$"),
        ({"geometry": None}, '^geometry=None: give its name, as in geometry="lorentz"$'),
        ({"geometry": Lorentz()}, "give its name"),
        ({"epochs": "long"}, "^epochs=long: it should be a number"),
        ({"lr": None}, "^lr=None: it should be a number$"),
        ({"weight_decay": "x"}, "^weight_decay=x: it should be a number$"),
        ({"batch_size": 0}, "^batch_size=0: it goes from 1 to 1e9$"),
        ({"batch_size": 2.5}, "^batch_size=2.5: it should be a whole number$"),
    ],
)
def test_settings_that_are_none_are_said(settings, message):
    with pytest.raises(UserError, match=message):
        HyperbolicClassifier(**(SHORT | settings)).fit(*WINE)


def test_a_training_that_breaks_is_said():
    with pytest.raises(NotFinite, match="not finite: no checkpoint was saved"):
        HyperbolicClassifier(epochs=5, lr=1e200, weight_decay=0.0).fit(*WINE)


def test_settings_may_be_numbers_and_arrays_of_numpy():
    """As a search over np.arange gives them."""
    plain = HyperbolicClassifier(hidden=(4,), epochs=1, batch_size=16, random_state=0).fit(*WINE)
    given = {"hidden": np.array([4]), "epochs": np.float32(1), "batch_size": np.int64(16)}
    other = HyperbolicClassifier(**given, random_state=0).fit(*WINE)
    assert np.array_equal(other.predict_proba(WINE[0]), plain.predict_proba(WINE[0]))


def test_a_row_beyond_all_others_is_said_in_the_words_of_tables():
    model = HyperbolicClassifier(**SHORT).fit(*WINE)
    x = WINE[0].copy()
    x[7, 12] = 1e9
    with pytest.raises(UserError) as error:
        model.predict(x)
    assert str(error.value) == (
        "X, row 7: column 12 is 1e+09, 3.18e+06 standard deviations from the mean of fit, too far for a point in "
        'lorentz; check its unit, or take geometry="euclidean"'
    )


@pytest.mark.parametrize("geometry", ["lorentz", "euclidean", "lorentz:8+euclidean:8"])
@pytest.mark.parametrize("largest", [1e300, -1.7e308])
@pytest.mark.filterwarnings("error")
def test_numbers_whose_squares_are_none_are_said(geometry, largest):
    """They were scaled to 0, and the model knew nothing."""
    x = WINE[0].copy()
    x[5, 3] = largest
    model = HyperbolicClassifier(geometry, **SHORT)
    says = f"^X, row 5: column 3 is {largest:.3g}, and numbers up to 1e+100 can be scaled; divide the column"
    with pytest.raises(UserError, match=says.replace("+", r"\+")):
        model.fit(x, WINE[1])
    with pytest.raises(UserError, match=says.replace("+", r"\+")):
        model.fit(*WINE).predict(x)


def test_without_scikit_learn_one_line_says_what_to_install(monkeypatch):
    import horosphere.estimators

    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(UserError, match=r"pip install 'horosphere\[sklearn\]'"):
        horosphere.estimators.HyperbolicClassifier  # noqa: B018
    with pytest.raises(AttributeError):
        horosphere.estimators.NothingOfTheKind  # noqa: B018
