"""The table and the verdict say what the numbers say, and no more."""

import json
from dataclasses import replace

import pytest

from horosphere.catalogue import Entrant
from horosphere.errors import UserError
from horosphere.evaluate.metric import Metric
from horosphere.study.table import RESULTS, Results, Row, require_same_study

RANK = Metric("rank", "mean rank", 2, "low", "judged")
PRECISION = Metric("map", "mAP", 3, "high", "judged")
BITS = Metric("bits", "bits/byte", 4, "low", "judged")


def row(name, scores, flat=None, twin_of="", ablation_of=""):
    entrant = Entrant(
        name, flat=name == "euclidean" if flat is None else flat, twin_of=twin_of, ablation_of=ablation_of
    )
    return Row(entrant, 1000, scores, [1.26, 1.3, 1.2], 3.14159, "map", [(1, 2.0), (2, 1.0)], ["somewhere"])


def results(rows, metrics, seeds=3):
    return Results("tree", "geometry", "this data", "nodes", "mAP", metrics, rows, seeds, {})


def test_baselines_stand_below_the_rows_and_no_verdict_speaks_of_them():
    rows = [tree("lorentz", 2, 0.9), tree("euclidean", 20, 0.6)]
    plain = results(rows, (PRECISION, RANK))
    beside = replace(plain, baselines={"popularity": {"map": 0.95}})
    assert beside.verdict() == plain.verdict()
    assert beside.best() == plain.best()
    heads, cells = beside.cells()
    assert cells[:-1] == plain.cells()[1]
    assert dict(zip(heads, cells[-1], strict=True)) == {
        **dict.fromkeys(heads, ""),
        "geometry": "popularity",
        PRECISION.head: "0.950",
    }


# -- two metrics: geometries on a tree --------------------------------------------------------------------------------


def tree(name, rank, precision, spread=(0.1, 0.01)):
    """Three seeds with this mean and standard deviation."""
    ranks, precisions = ([mean - s, mean, mean + s] for mean, s in ((rank, spread[0]), (precision, spread[1])))
    return row(name, {"rank": ranks, "map": precisions})


BEYOND = "beyond the spread of seeds"
PAYS, PAYS_NOT = "Curvature pays on this data.", "Curvature does not pay on this data."
DEPENDS = "Whether curvature pays on this data depends on which of them counts."
BOTH = f"Lorentz beats Euclidean {BEYOND}, by 0.300 on mAP and by 18.00 on mean rank. {PAYS}"
UNSEEN = "Curvature is not seen to pay on this data."
WITHIN = "are within the spread of seeds of each other."
TREES = {
    "better on both": ([tree("lorentz", 2, 0.9), tree("euclidean", 20, 0.6)], BOTH),
    "flat space is the rival, not the runner-up": (
        [tree("lorentz", 2, 0.9), tree("poincare", 2, 0.9), tree("euclidean", 20, 0.6)],
        BOTH,
    ),
    "better on one": (
        [tree("lorentz", 2, 0.9), tree("euclidean", 2, 0.6)],
        f"Lorentz beats Euclidean {BEYOND}, by 0.300 on mAP only. {PAYS}",
    ),
    "better on the one it is not sorted by": (
        [tree("lorentz", 2, 0.9), tree("euclidean", 9, 0.9)],
        f"Lorentz beats Euclidean {BEYOND}, by 7.00 on mean rank only. {PAYS}",
    ),
    "better on one, worse on the other": (
        [tree("lorentz", 9, 0.9), tree("euclidean", 2, 0.6)],
        f"Lorentz beats Euclidean {BEYOND} on mAP, Euclidean beats Lorentz on mean rank. {DEPENDS}",
    ),
    "equal on what sorts, worse on the other": (
        [tree("lorentz", 9, 0.9), tree("euclidean", 2, 0.9)],
        f"Euclidean beats Lorentz {BEYOND}, by 7.00 on mean rank only. {PAYS_NOT}",
    ),
    "within the spread": (
        [tree("lorentz", 2, 0.901), tree("euclidean", 2.1, 0.9)],
        f"Lorentz and Euclidean {WITHIN} {UNSEEN}",
    ),
    "flat space is best": (
        [tree("euclidean", 2, 0.9), tree("lorentz", 9, 0.6), tree("product", 9, 0.5)],
        f"Euclidean beats Lorentz {BEYOND}, by 0.300 on mAP and by 7.00 on mean rank. {PAYS_NOT}",
    ),
    "flat space is best by mAP, beaten by rank": (
        [tree("euclidean", 9, 0.9), tree("product", 9, 0.6), tree("lorentz", 2, 0.5)],
        f"Lorentz beats Euclidean {BEYOND} on mean rank, Euclidean beats Lorentz on mAP. {DEPENDS}",
    ),
    "no flat space": (
        [tree("lorentz", 2, 0.9), tree("product", 9, 0.6)],
        f"Lorentz beats Product {BEYOND}, by 0.300 on mAP and by 7.00 on mean rank.",
    ),
}


@pytest.mark.parametrize("case", TREES)
def test_the_verdict_of_geometries(case):
    rows, verdict = TREES[case]
    assert results(rows, (PRECISION, RANK)).verdict() == f"3 seeds. {verdict}"


@pytest.mark.parametrize(("ours", "theirs", "wins"), [(0.11, 0.1, True), (0.21, 0.1, False), (0.1, 0.4, False)])
def test_a_win_is_beyond_both_spreads_together(ours, theirs, wins):
    """The means are 0.3 apart."""
    a, b = [0.9 - ours, 0.9, 0.9 + ours], [0.6 - theirs, 0.6, 0.6 + theirs]
    assert PRECISION.beats(a, b) is wins
    assert BITS.beats(b, a) is wins
    assert not PRECISION.beats(b, a)


# -- one metric: twins and ablations ----------------------------------------------------------------------------------


def twins(**bits):
    entrants = {
        "HELM-D": {},
        "Llama": {"flat": True, "twin_of": "HELM-D"},
        "HELM-MiCE": {},
        "MiCE-Const": {"ablation_of": "HELM-MiCE"},
        "DeepSeek-V3": {"flat": True, "twin_of": "HELM-MiCE"},
    }
    rows = [row(name, {"bits": bits.get(name.replace("-", "_"), [2.0, 2.01])}, **how) for name, how in entrants.items()]
    return results(sorted(rows, key=lambda r: sum(r.scores["bits"])), (BITS,), 2)


@pytest.mark.parametrize(
    ("bits", "said"),
    [
        ({}, ["HELM-D and Llama are within the spread of seeds", "Curvature is not seen to pay on this data."]),
        ({"HELM_D": [1.9, 1.91]}, [f"HELM-D beats Llama {BEYOND}, by 0.1000 on bits/byte.", "in HELM-D only."]),
        ({"HELM_MiCE": [1.9, 1.91]}, [f"HELM-MiCE beats MiCE-Const {BEYOND}", "in HELM-MiCE only."]),
        (
            {"HELM_D": [1.9, 1.91], "HELM_MiCE": [1.8, 1.81]},
            ["HELM-MiCE beats DeepSeek-V3", "Curvature pays on this data."],
        ),
        (
            {"Llama": [1.9, 1.91], "DeepSeek_V3": [1.9, 1.91]},
            ["Llama beats HELM-D", "DeepSeek-V3 beats HELM-MiCE", "not pay"],
        ),
        ({"HELM_D": [1.8, 2.1]}, ["HELM-D and Llama are within", "is not seen to pay"]),
    ],
)
def test_the_verdict_of_twins(bits, said):
    verdict = twins(**bits).verdict()
    assert verdict.startswith("2 seeds. ")
    assert all(words in verdict for words in said)


def test_one_seed_proves_nothing_and_one_entrant_is_alone():
    one = [row("lorentz", {"map": [0.9]}), row("euclidean", {"map": [0.6]})]
    said = results(one, (PRECISION,), 1).verdict()
    assert said == "1 seed: lorentz has the best mAP (0.900), but one run says nothing about chance. Pass --seeds 3."
    assert results(one[:1], (PRECISION,), 1).verdict() == "1 seed of one geometry: nothing to compare."
    assert (
        results([tree("lorentz", 2, 0.9)], (PRECISION,), 3).verdict() == "3 seeds of one geometry: nothing to compare."
    )


def test_what_the_shown_digits_do_not_tell_apart_is_a_tie():
    near = [row("lorentz", {"map": [0.9 + 1e-9] * 2}), row("euclidean", {"map": [0.9] * 2}, flat=True)]
    tie = results(near, (PRECISION,), 2)
    assert tie.verdict().endswith(f"{WITHIN} {UNSEEN}")
    assert not any("best" in line for line in tie.lines())
    lone = [row("lorentz", {"map": [0.9 + 1e-9]}), row("euclidean", {"map": [0.9]}), row("poincare", {"map": [0.5]})]
    one = results(lone, (PRECISION,), 1)
    assert one.verdict().startswith("1 seed: lorentz and euclidean share the best mAP (0.900), ")
    assert [line.endswith("<- best") for line in one.lines()[1:4]] == [True, True, False]


def test_the_curved_entrant_that_wins_most_answers_to_flat_space():
    rows = [tree("lorentz", 9, 0.9), tree("poincare", 1, 0.85), tree("euclidean", 5, 0.8)]
    said = results(rows, (PRECISION, RANK)).verdict()
    assert f"Poincare beats Euclidean {BEYOND}, by 0.050 on mAP and by 4.00 on mean rank. {PAYS}" in said


def family(**ranks):
    """HELM-D against Llama and HELM-MiCE against DeepSeek-V3, each pair with its (mAP, rank) of the curved one."""
    rows = []
    for (curved, flat), (map_, rank) in zip((("D", "Llama"), ("M", "DeepSeek")), ranks.values(), strict=True):
        rows += [tree(curved, rank, map_), replace(tree(flat, 5, 0.8))]
        rows[-1] = replace(rows[-1], entrant=replace(rows[-1].entrant, flat=True, twin_of=curved))
    return results(rows, (PRECISION, RANK)).verdict()


BETTER, WORSE, EVEN, MIXED = (0.9, 1), (0.7, 9), (0.8, 5), (0.9, 9)
CONCLUSIONS = [
    (BETTER, BETTER, "Curvature pays on this data."),
    (WORSE, WORSE, "Curvature does not pay on this data."),
    (WORSE, EVEN, "Curvature is not seen to pay on this data."),
    (BETTER, EVEN, "Curvature pays on this data in D only."),
    (MIXED, MIXED, "Whether curvature pays on this data depends on which of them counts."),
    (MIXED, EVEN, "On this data it is not seen to pay in the others; in D that depends on which score counts."),
    (BETTER, MIXED, "On this data it pays in D; in M that depends on which score counts."),
]


@pytest.mark.parametrize(("first", "second", "said"), CONCLUSIONS)
def test_the_conclusion_of_two_pairs(first, second, said):
    assert family(first=first, second=second).endswith(said)


# -- the table --------------------------------------------------------------------------------------------------------


def test_cells_are_mean_and_standard_deviation():
    detail = Metric("radius", "radius", 1, "high", "detail")
    heads, cells = results([tree("lorentz", 2, 0.9), tree("euclidean", 20, 0.6)], (PRECISION, RANK, detail)).cells()
    assert heads == ["geometry", "parameters", "mAP ↑", "mean rank ↓", "ms/step", "time"]
    assert cells[0] == ["lorentz", "1,000", "0.900 ± 0.010", "2.00 ± 0.10", "3.14", "1.3 s"]


def test_slow_steps_are_whole_milliseconds():
    slow = replace(row("lorentz", {"map": [0.9]}), step_ms=12345.6)
    assert results([slow], (PRECISION,), 1).cells()[1][0][-2] == "12,346"


def test_one_seed_has_no_spread():
    _, cells = results([row("lorentz", {"map": [0.9]})], (PRECISION,), 1).cells()
    assert cells[0][2] == "0.900"


def test_lines_fit_a_terminal_and_mark_the_best():
    head, best, other, verdict = results(
        [tree("lorentz", 2, 0.9), tree("euclidean", 20, 0.6)], (PRECISION, RANK)
    ).lines()
    assert best.endswith("   <- best")
    assert len(head) == len(other) == len(best) - len("   <- best") < 100
    assert verdict.startswith("3 seeds. ")


def test_what_is_kept_is_what_was_said(tmp_path):
    results = twins(HELM_D=[1.9, 1.91])
    results.save(tmp_path, {"HELM-D": ["helm-d-tiny", "lr=1"]})
    kept = json.loads((tmp_path / RESULTS).read_text())
    assert kept["verdict"] == results.verdict()
    assert [r["entrant"]["name"] for r in kept["rows"]] == [r.name for r in results.rows]
    assert kept["rows"][0]["scores"] == results.rows[0].scores


def test_results_are_replaced_unasked_only_by_those_that_have_them_too(tmp_path):
    asked, file = {"a": ["recipe", "lr=1"], "b": ["recipe", "lr=2"]}, tmp_path / RESULTS
    require_same_study(file, asked, overwrite=False)
    twins(HELM_D=[1.9, 1.91]).save(tmp_path, asked)
    require_same_study(file, asked, overwrite=False)
    require_same_study(file, {**asked, "c": ["another"]}, overwrite=False)
    for other in ({"a": asked["a"]}, {**asked, "a": ["recipe", "lr=3"]}, {}):
        with pytest.raises(UserError, match="is of another study: choose another --out, or pass --overwrite"):
            require_same_study(file, other, overwrite=False)
        require_same_study(file, other, overwrite=True)
    for damage in ("", "[]", '{"asked": 3}', "{}", '{"asked": [1]}', "\0"):
        file.write_text(damage)
        with pytest.raises(UserError, match="another study"):
            require_same_study(file, asked, overwrite=False)


def test_a_pair_that_is_an_ablation_too_is_told_of_once():
    rows = [row("part", {"bits": [1.0, 1.0]}, ablation_of="whole"), row("whole", {"bits": [2.0, 2.0]})]
    assert results(rows, (BITS,), seeds=2).verdict().count("beats") == 1
