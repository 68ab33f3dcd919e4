"""The table and the verdict say what the numbers say, and no more."""

import pytest

from horosphere.errors import UserError
from horosphere.measure import Delta
from horosphere.train import compare as module
from horosphere.train.compare import Comparison, Row, compare
from horosphere.train.config import EmbedConfig
from tests.train.graphs import binary_tree

TREE = binary_tree(4)
SHORT = EmbedConfig(dim=3, epochs=4, batch=16, negatives=20)


def row(name, rank, precision, spread=(0.1, 0.01)):
    """Three seeds with this mean and standard deviation."""
    metrics = {
        "mean rank": [rank - spread[0], rank, rank + spread[0]],
        "mAP": [precision - spread[1], precision, precision + spread[1]],
    }
    return Row(name, metrics, 1.26, None)


def table(*rows):
    return Comparison(list(rows), EmbedConfig(dim=5), len(rows[0].metrics["mAP"]), 100, Delta(0, 8, 70, True))


def one_seed(r):
    return Row(r.geometry, {m: values[:1] for m, values in r.metrics.items()}, r.seconds, None)


BOTH = "Lorentz beats Euclidean beyond the spread of seeds on both mean rank and mAP."
PAYS_NOT = "Curvature does not pay on this data."
VERDICTS = {
    "better on both": ([row("lorentz", 2, 0.9), row("euclidean", 20, 0.6)], f"3 seeds. {BOTH}"),
    "flat space is the rival, not the runner-up": (
        [row("lorentz", 2, 0.9), row("poincare", 2, 0.9), row("euclidean", 20, 0.6)],
        f"3 seeds. {BOTH}",
    ),
    "better on one": (
        [row("lorentz", 2, 0.9), row("euclidean", 2, 0.6)],
        "3 seeds. Lorentz beats Euclidean beyond the spread of seeds on mAP only.",
    ),
    "better on the one it is not sorted by": (
        [row("lorentz", 2, 0.9), row("euclidean", 9, 0.9)],
        "3 seeds. Lorentz beats Euclidean beyond the spread of seeds on mean rank only.",
    ),
    "better on one, worse on the other": (
        [row("lorentz", 9, 0.9), row("euclidean", 2, 0.6)],
        "3 seeds. Lorentz beats Euclidean beyond the spread of seeds on mAP, Euclidean beats Lorentz on mean rank.",
    ),
    "equal on what sorts, worse on the other": (
        [row("lorentz", 9, 0.9), row("euclidean", 2, 0.9)],
        f"3 seeds. Euclidean beats Lorentz beyond the spread of seeds on mean rank only. {PAYS_NOT}",
    ),
    "within the spread": (
        [row("lorentz", 2, 0.901), row("euclidean", 2.1, 0.9)],
        f"3 seeds. Lorentz and Euclidean are within the spread of seeds of each other. {PAYS_NOT}",
    ),
    "flat space is best": (
        [row("euclidean", 2, 0.9), row("lorentz", 9, 0.6), row("product", 9, 0.5)],
        f"3 seeds. Euclidean beats Lorentz beyond the spread of seeds on both mean rank and mAP. {PAYS_NOT}",
    ),
    "flat space is as good": (
        [row("euclidean", 2, 0.9), row("lorentz", 2, 0.9)],
        f"3 seeds. Euclidean and Lorentz are within the spread of seeds of each other. {PAYS_NOT}",
    ),
    "flat space is best by mAP, beaten by rank": (
        [row("euclidean", 9, 0.9), row("product", 9, 0.6), row("lorentz", 2, 0.5)],
        "3 seeds. Euclidean beats Lorentz beyond the spread of seeds on mAP, Lorentz beats Euclidean on mean rank.",
    ),
    "no flat space": (
        [row("lorentz", 2, 0.9), row("product", 9, 0.6)],
        "3 seeds. Lorentz beats Product beyond the spread of seeds on both mean rank and mAP.",
    ),
    "one geometry": ([row("lorentz", 2, 0.9)], "3 seeds of one geometry: nothing to compare."),
    "one run": ([one_seed(row("lorentz", 2, 0.9))], "1 seed of one geometry: nothing to compare."),
    "one seed": (
        [one_seed(row("lorentz", 2, 0.9)), one_seed(row("euclidean", 9, 0.6))],
        "1 seed: lorentz has the highest mAP, but one run says nothing about chance. Pass --seeds 3.",
    ),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_verdict(case):
    rows, verdict = VERDICTS[case]
    assert table(*rows).verdict() == verdict


def test_cells_are_mean_and_standard_deviation():
    heads, cells = table(row("lorentz", 2, 0.9), row("euclidean", 20, 0.6)).cells()
    assert heads == ["geometry", "dim", "mean rank ↓", "mAP ↑", "time"]
    assert cells[0] == ["lorentz", "5", "2.00 ± 0.10", "0.900 ± 0.010", "1.3 s"]
    assert len(cells) == 2


def test_one_seed_has_no_spread():
    _, cells = table(one_seed(row("lorentz", 2, 0.9))).cells()
    assert cells == [["lorentz", "5", "1.90", "0.890", "1.3 s"]]


def test_from_end_to_end():
    heard = []
    comparison = compare(
        TREE, SHORT, ("euclidean", "lorentz"), seeds=2, progress=lambda done, note: heard.append((done, note))
    )
    assert {r.geometry for r in comparison.rows} == {"euclidean", "lorentz"}
    assert comparison.best.mean("mAP") == max(r.mean("mAP") for r in comparison.rows)
    assert all(len(set(r.metrics[m])) == 2 for r in comparison.rows for m in r.metrics)  # two seeds, two results
    assert all(r.example.config.geometry == r.geometry and r.example.config.seed == 1 for r in comparison.rows)
    assert comparison.relations == len(SHORT.relations(TREE))
    assert comparison.delta.delta == 0
    assert [done for done, _ in heard] == list(range(1, 17))
    assert heard[0][1].startswith("euclidean, seed 1 of 2, loss ")
    assert comparison.verdict().startswith("2 seeds. ")


@pytest.fixture
def untrained(monkeypatch):
    monkeypatch.setattr(module, "embed", lambda *_: pytest.fail("it trained before it complained"))


def test_an_unknown_geometry_fails_before_any_training(untrained):
    with pytest.raises(UserError, match='unknown geometry "spherical"'):
        compare(TREE, SHORT, ("euclidean", "spherical"))


def test_too_small_a_graph_fails_before_any_training(untrained):
    with pytest.raises(UserError, match="at least 4"):
        compare(binary_tree(1), SHORT)
