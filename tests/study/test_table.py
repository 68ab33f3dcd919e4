"""The table and the verdict say what the numbers say, and no more."""

import json
from dataclasses import replace

import pytest

from horosphere.catalogue import Entrant
from horosphere.errors import UserError
from horosphere.evaluate.metric import Metric
from horosphere.study.grid import Tuned
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
    """Three seeds with this mean and standard deviation s. Flat space is best where others are not.

    So its differences to others are ±4.3 s.
    """
    turn = name == "euclidean"
    seeds = {
        "rank": [rank - spread[0], rank, rank + spread[0]],
        "map": [precision - spread[1], precision, precision + spread[1]],
    }
    return row(name, {metric: values[turn:] + values[:turn] for metric, values in seeds.items()})


PAIRED = "paired (± is a 95 % interval)"
PAYS, PAYS_NOT = "Curvature pays on this data.", "Curvature does not pay on this data."
DEPENDS = "Whether curvature pays on this data depends on which of them counts."
BOTH = f"Lorentz beats Euclidean by 0.300 ± 0.043 on mAP and 18.00 ± 0.43 on mean rank. {PAYS}"
UNSEEN = "Curvature is not seen to pay on this data."
APART = "cannot be told apart"
TREES = {
    "better on both": ([tree("lorentz", 2, 0.9), tree("euclidean", 20, 0.6)], BOTH),
    "flat space is the rival, not the runner-up": (
        [tree("lorentz", 2, 0.9), tree("poincare", 2, 0.9), tree("euclidean", 20, 0.6)],
        BOTH,
    ),
    "better on one": (
        [tree("lorentz", 2, 0.9), tree("euclidean", 2, 0.6)],
        f"Lorentz beats Euclidean by 0.300 ± 0.043 on mAP only. {PAYS}",
    ),
    "better on the one it is not sorted by": (
        [tree("lorentz", 2, 0.9), tree("euclidean", 9, 0.9)],
        f"Lorentz beats Euclidean by 7.00 ± 0.43 on mean rank only. {PAYS}",
    ),
    "better on one, worse on the other": (
        [tree("lorentz", 9, 0.9), tree("euclidean", 2, 0.6)],
        "Lorentz beats Euclidean by 0.300 ± 0.043 on mAP; Euclidean beats Lorentz by 7.00 ± 0.43 on mean rank. "
        + DEPENDS,
    ),
    "equal on what sorts, worse on the other": (
        [tree("lorentz", 9, 0.9), tree("euclidean", 2, 0.9)],
        f"Euclidean beats Lorentz by 7.00 ± 0.43 on mean rank only. {PAYS_NOT}",
    ),
    "within the spread": (
        [tree("lorentz", 2, 0.901), tree("euclidean", 2.1, 0.9)],
        f"Lorentz and Euclidean {APART} (0.001 ± 0.043 on mAP and 0.10 ± 0.43 on mean rank). {UNSEEN}",
    ),
    "flat space is best": (
        [tree("euclidean", 2, 0.9), tree("lorentz", 9, 0.6), tree("product", 9, 0.5)],
        f"Euclidean beats Lorentz by 0.300 ± 0.043 on mAP and 7.00 ± 0.43 on mean rank. {PAYS_NOT}",
    ),
    "flat space is best by mAP, beaten by rank": (
        [tree("euclidean", 9, 0.9), tree("product", 9, 0.6), tree("lorentz", 2, 0.5)],
        "Lorentz beats Euclidean by 7.00 ± 0.43 on mean rank; Euclidean beats Lorentz by 0.400 ± 0.043 on mAP. "
        + DEPENDS,
    ),
    "no flat space": (
        [tree("lorentz", 2, 0.9), tree("product", 9, 0.6)],
        "Lorentz beats Product by 0.300 ± 0.000 on mAP and 7.00 ± 0.00 on mean rank.",
    ),
}


@pytest.mark.parametrize("case", TREES)
def test_the_verdict_of_geometries(case):
    rows, verdict = TREES[case]
    assert results(rows, (PRECISION, RANK)).verdict() == f"3 seeds, {PAIRED}. {verdict}"


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
        (
            {},
            [
                "HELM-D and Llama cannot be told apart (0.0000 ± 0.0000 on bits/byte).",
                "Curvature is not seen to pay on this data.",
            ],
        ),
        ({"HELM_D": [1.9, 1.91]}, ["HELM-D beats Llama by 0.1000 ± 0.0000 on bits/byte.", "in HELM-D only."]),
        ({"HELM_MiCE": [1.9, 1.91]}, ["HELM-MiCE beats MiCE-Const by 0.1000", "in HELM-MiCE only."]),
        (
            {"HELM_D": [1.9, 1.91], "HELM_MiCE": [1.8, 1.81]},
            ["HELM-MiCE beats DeepSeek-V3", "Curvature pays on this data."],
        ),
        (
            {"Llama": [1.9, 1.91], "DeepSeek_V3": [1.9, 1.91]},
            ["Llama beats HELM-D", "DeepSeek-V3 beats HELM-MiCE", "not pay"],
        ),
        ({"HELM_D": [1.8, 2.1]}, ["HELM-D and Llama cannot be told apart (0.0550 ± ", "is not seen to pay"]),
    ],
)
def test_the_verdict_of_twins(bits, said):
    verdict = twins(**bits).verdict()
    assert verdict.startswith(f"2 seeds, {PAIRED}. ")
    assert all(words in verdict for words in said)


def test_one_seed_proves_nothing_and_one_entrant_is_alone():
    one = [row("lorentz", {"map": [0.9]}), row("euclidean", {"map": [0.6]})]
    said = results(one, (PRECISION,), 1).verdict()
    ahead = "1 seed: lorentz has the best mAP (0.900), 0.300 ahead of euclidean"
    assert said == f"{ahead}, but one run says nothing about chance. Pass --seeds 3."
    assert results(one[:1], (PRECISION,), 1).verdict() == "1 seed of one geometry: nothing to compare."
    assert (
        results([tree("lorentz", 2, 0.9)], (PRECISION,), 3).verdict() == "3 seeds of one geometry: nothing to compare."
    )


def test_what_the_shown_digits_do_not_tell_apart_is_a_tie():
    near = [row("lorentz", {"map": [0.9 + 1e-9] * 2}), row("euclidean", {"map": [0.9] * 2}, flat=True)]
    tie = results(near, (PRECISION,), 2)
    assert tie.verdict().endswith(f"{APART} (0.000 ± 0.000 on mAP). {UNSEEN}")
    assert not any("best" in line for line in tie.lines())
    lone = [row("lorentz", {"map": [0.9 + 1e-9]}), row("euclidean", {"map": [0.9]}), row("poincare", {"map": [0.5]})]
    one = results(lone, (PRECISION,), 1)
    assert one.verdict().startswith("1 seed: lorentz and euclidean share the best mAP (0.900), ")
    assert [line.endswith("<- best") for line in one.lines()[1:4]] == [True, True, False]


def test_the_curved_entrant_that_wins_most_answers_to_flat_space():
    rows = [tree("lorentz", 9, 0.9), tree("poincare", 1, 0.85), tree("euclidean", 5, 0.8)]
    said = results(rows, (PRECISION, RANK)).verdict()
    assert f"Poincare beats Euclidean by 0.050 ± 0.043 on mAP and 4.00 ± 0.43 on mean rank. {PAYS}" in said


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
    assert verdict.startswith(f"3 seeds, {PAIRED}. ")


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


# -- trainings that failed, settings that were tuned ------------------------------------------------------------------


def test_trainings_that_failed_are_counted_and_shown():
    bits = {"HELM-D": [1.5, 1.51, 1.52], "Llama": [1.6, float("nan"), 2.4]}
    why = {1: "diverged: the loss in steps 1 to 9 is not finite", 2: "stuck: bits/byte 2.4000, and unigram has 2.4100"}
    rows = [row(name, {"bits": values}, flat=name == "Llama") for name, values in bits.items()]
    rows[1] = replace(rows[1], failed=why)
    made = results(rows, (BITS,))
    heads, cells = made.cells()
    assert [dict(zip(heads, line, strict=True))["failed"] for line in cells] == ["", "2 of 3"]
    assert dict(zip(heads, cells[1], strict=True))["bits/byte ↓"] == "2.0000 ± 0.5657"  # of those that ended
    assert f"Llama, seed 1: {why[1]}" in made.lines()
    assert f"Llama, seed 2: {why[2]}" in made.lines()
    assert "Llama failed in 2 of 3." in made.verdict()


def test_who_fails_more_often_beats_nobody():
    better = replace(row("HELM-D", {"bits": [1.0, 1.01, 3.0]}), failed={2: "stuck"})
    worse = row("Llama", {"bits": [2.0, 2.01, 4.0]}, flat=True)
    assert "HELM-D and Llama cannot be told apart (1.0000 ± 0.0000" in results([better, worse], (BITS,)).verdict()
    assert "HELM-D beats Llama" in results([replace(better, failed={}), worse], (BITS,)).verdict()


def test_a_side_that_always_failed_says_nothing_of_curvature():
    better = row("HELM-D", {"bits": [1.0, 1.01, 1.02]})
    stuck = replace(row("Llama", {"bits": [2.0, 2.01, 2.03]}, flat=True), failed=dict.fromkeys(range(3), "stuck"))
    verdict = results([better, stuck], (BITS,)).verdict()
    assert "HELM-D beats Llama by" in verdict
    assert verdict.endswith("Llama failed in 3 of 3. With Llama failing every time, this says nothing of curvature.")


def test_where_all_trainings_failed_nobody_is_best(tmp_path):
    lost = replace(row("HELM-D", {"bits": [float("nan")] * 2}), failed={0: "diverged", 1: "diverged"}, seconds=[])
    one = results([row("Llama", {"bits": [1.0, 1.1]}, flat=True), lost], (BITS,), 2)
    assert one.best() == range(1)
    assert "fewer than two pairs on bits/byte" in one.verdict()
    nobody = results([lost, replace(lost, entrant=Entrant("Llama", flat=True))], (BITS,), 2)
    assert nobody.verdict().startswith("2 seeds: every training failed.")
    assert not any("best" in line for line in nobody.lines())
    nobody.save(tmp_path, {})
    assert json.loads((tmp_path / RESULTS).read_text())["rows"][0]["scores"] == {"bits": [None, None]}


def test_what_was_tuned_stands_beside_each_entrant_and_says_where_the_best_is_at_the_edge():
    tuned = {"lorentz": Tuned(("lr=1e-3",), {"lr=1e-3": 1.0}, edge=True), "euclidean": Tuned(("lr=2e-3",), {}, False)}
    rows = [replace(tree(name, 2, 0.9), tuned=of) for name, of in tuned.items()]
    made = results(rows, (PRECISION, RANK))
    heads, cells = made.cells()
    assert [dict(zip(heads, line, strict=True))["lr"] for line in cells] == ["1e-3*", "2e-3"]
    edge = "* the best value lies at the edge of what was tried, for lorentz: a better one may lie beyond"
    assert edge in made.lines()
