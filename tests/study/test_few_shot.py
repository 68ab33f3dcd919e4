"""Few-shot studies: one table of methods by shots, one of base and novel classes."""

import json
from pathlib import Path

import pytest

from horosphere.errors import UserError
from horosphere.evaluate.metric import Metric
from horosphere.study.compare import compare
from horosphere.study.executors import Here
from horosphere.study.few_shot import FewShotStudy, FewShotTable
from horosphere.study.planning import plan
from tests.tasks.tiny import FEW_SHOT, write_data

METHODS = ["linear-probe", "coop", "lathadapter", "lathadapter-flat", "coop-lathadapter"]
SETTINGS = (*(setting for setting in FEW_SHOT if not setting.startswith(("shots", "attributes", "lr"))), "steps=2")


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    pytest.importorskip("transformers")
    data = write_data("few_shot", tmp_path_factory.mktemp("few_shot"))
    return [f"data={data}", f"towers={Path(data).parent / 'clip'}", *SETTINGS]


def study(settings, tmp_path, seeds=2):
    return FewShotStudy(settings, seeds, tmp_path / "out", Here(1), "cpu", quiet=True)


def test_methods_by_shots(settings, tmp_path, in_this_process):
    table = study(settings, tmp_path).by_shots((2, 1))
    assert len(in_this_process) == 2 * 5 * 2
    assert list(table.scores) == ["zero-shot", *METHODS]
    assert list(table.columns) == ["1-shot", "2-shot"]
    heads, *rows, verdict = table.lines()
    assert heads.split() == ["method", "1-shot", "↑", "2-shot", "↑"]
    assert len(rows) == 6
    assert all(row.count("±") == 2 for row in rows)
    for name, results in table.studies.items():
        for row in results.rows:
            assert table.scores[row.name][name] == row.scores["accuracy"]
            assert table.scores["zero-shot"][name] == row.scores["zero_shot_accuracy"]
    assert json.loads((tmp_path / "out" / "table.json").read_text())["verdict"] == verdict


def test_base_to_novel(settings, tmp_path, in_this_process):
    table = study(settings, tmp_path, seeds=1).base_to_novel(2)
    assert list(table.columns) == ["base", "novel", "mean"]
    assert list(table.scores) == ["zero-shot", *METHODS[1:]]  # a linear probe knows no new classes
    for mine in table.scores.values():
        base, novel, mean = (mine[name][0] for name in table.columns)
        assert mean == pytest.approx(2 * base * novel / max(base + novel, 1e-9))
    assert "1 seed" in table.lines()[-1]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.safetensors")}
    again = study(settings, tmp_path, seeds=1).base_to_novel(2)
    assert again.scores == table.scores
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.safetensors")} == before  # kept


def test_compare_sets_the_methods_side_by_side(settings, tmp_path, in_this_process):
    results = compare(plan("few-shot", [*settings, "shots=1"], None, 1, tmp_path / "out"), Here(1), "cpu", quiet=True)
    assert {row.name for row in results.rows} == set(METHODS)
    heads = results.cells()[0]
    for head in ("accuracy ↑", "zero-shot ↑", "tree error ↓", "shared ancestor ↓"):
        assert head in heads
    with pytest.raises(UserError, match="what the entrants of the comparison differ in"):
        plan("few-shot", [*settings, "shots=1", "model=coop"], None, 1, tmp_path / "out")


def test_too_many_shots_are_told_before_the_trainings(settings, tmp_path, in_this_process):
    few = [*settings, "pool=16"]
    with pytest.raises(UserError, match="12 pictures of red, but shots=16; use shots=12"):
        study(few, tmp_path).by_shots((1, 16))
    for wrong in ("shots=2", "protocol=all"):
        with pytest.raises(UserError, match="the table decides this; leave it out"):
            study([*settings, wrong], tmp_path).by_shots((1,))
    with pytest.raises(UserError, match="give some numbers, as in 1,2,4,8,16"):
        study(settings, tmp_path).by_shots(())
    assert not in_this_process


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (([0.8, 0.8], [0.5, 0.5]), ([0.2, 0.2], [0.2, 0.2]), "Coop-lathadapter beats coop on 1-shot and 2-shot."),
        (
            ([0.8, 0.8], [0.1, 0.1]),
            ([0.2, 0.2], [0.2, 0.2]),
            "Coop-lathadapter beats coop on 1-shot; coop beats coop-lathadapter on 2-shot.",
        ),
        (
            ([0.8, 0.1], [0.5, 0.1]),
            ([0.2, 0.2], [0.2, 0.2]),
            "Coop-lathadapter and coop cannot be told apart.",
        ),
    ],
)
def test_the_verdict_says_who_beats_whom_and_where(ours, theirs, said):
    columns = ("1-shot", "2-shot")
    metric = Metric("accuracy", "accuracy", 4, "high", "judged")
    scores = {
        method: dict(zip(columns, values, strict=True))
        for method, values in (("coop", theirs), ("coop-lathadapter", ours))
    }
    table = FewShotTable(dict.fromkeys(columns, metric), scores, 2, {})
    assert table.verdict() == f"2 seeds, paired (± is a 95 % interval). {said}"
