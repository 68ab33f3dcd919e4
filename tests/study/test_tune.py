"""Each entrant at its own best: chosen on one half of what is held out, with a seed that no later run has."""

import json
import math

import pytest

from horosphere.errors import UserError
from horosphere.runs import Run
from horosphere.study.compare import compare
from horosphere.study.executors import Here
from horosphere.study.grid import Grid, Tuned
from horosphere.study.planning import plan
from horosphere.tasks.nodes import NodesOptions
from horosphere.train.recipe import Recipe
from tests.tasks.test_every_task import live
from tests.tasks.tiny import LANGUAGE, NODES, PICTURES, TINY, write_data

pytest.importorskip("matplotlib", reason="pages need matplotlib")
TWO = NodesOptions(geometries=("lorentz", "euclidean"))

# -- grids ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("lr=1e-3", "at least two values"),
        ("lr", "at least two values"),
        ("lr=1,1", "at least two values"),
        ("geometry=lorentz,euclidean", "what is trained, not how"),
        ("seed=1,2", "what is trained, not how"),
        ("steps=100,200", "steps is the same for all"),
    ],
)
def test_what_is_no_grid_is_refused(word, said):
    with pytest.raises(UserError, match=said):
        Grid.read([word])


def test_numbers_are_put_in_order_and_names_stay():
    assert Grid.read(["lr=1e-2, 5e-4,1e-3", "optimizer=sgd,adam"]).values == {
        "lr": ("5e-4", "1e-3", "1e-2"),
        "optimizer": ("sgd", "adam"),
    }
    with pytest.raises(UserError, match="tuned twice"):
        Grid.read(["lr=1,2", "lr=3,4"])


@pytest.mark.parametrize(
    ("best", "further"),
    [
        (("lr=1e-3", "depth=4"), ["lr=0.0005 depth=4", "lr=1e-3 depth=8"]),
        (("lr=2e-3", "depth=2"), ["lr=2e-3 depth=1"]),
        (("lr=2e-3", "depth=3"), []),
    ],
)
def test_beyond_an_edge_lies_the_next_value_of_each_setting(best, further):
    grid = Grid.read(["lr=1e-3,2e-3,4e-3", "depth=2,3,4" if best[1] == "depth=3" else "depth=2,4"])
    assert [" ".join(point) for point in grid.beyond(best)] == further


@pytest.mark.parametrize("values", ["0,0.1", "-1,-2", "adam,sgd"])
def test_there_is_nothing_beyond_zero_and_words(values):
    grid = Grid.read([f"momentum={values}"])
    assert grid.beyond((f"momentum={grid.values['momentum'][0]}",)) == []


# -- studies ----------------------------------------------------------------------------------------------------------


def tuned_study(tmp_path, tune, seeds=2):
    settings = [f"data={write_data('nodes', tmp_path)}", *(word for word in NODES if not word.startswith("lr="))]
    return plan("embedding", settings, TWO, seeds, tmp_path / "out", tune=tune)


def test_each_entrant_chooses_on_one_half_and_is_judged_on_the_other(tmp_path, in_this_process):
    results = compare(tuned_study(tmp_path, ["lr=0.1,0.2,0.4"]), Here(1), "cpu", quiet=True)
    for row in results.rows:
        assert isinstance(row.tuned, Tuned)
        (chosen,) = row.tuned.chosen
        found = {point: score for point, score in row.tuned.scores.items() if math.isfinite(score)}
        assert found[chosen] == max(found.values())
        assert len(found) >= 3
        for folder in row.folders:
            recipe = Run.open(folder).about.recipe
            assert recipe["task"]["judged_on"] == "rest"
            assert recipe["engine"]["lr"] == float(chosen.partition("=")[2])
            assert recipe["engine"]["seed"] in (1, 2)
    tried = [Run.open(folder.parent) for folder in (tmp_path / "out/tuning").glob("*/run.json")]
    assert len(tried) >= 6
    for run in tried:
        assert run.about.recipe["task"]["judged_on"] == "tuning"
        assert run.about.recipe["engine"]["seed"] == 0


def test_the_grid_is_widened_once_where_the_best_lies_at_its_edge(tmp_path, in_this_process):
    """The points of four steps know their tree better the longer the steps are."""
    results = compare(tuned_study(tmp_path, ["lr=1e-6,2e-6"], 1), Here(1), "cpu", quiet=True)
    rows = {row.name: row.tuned for row in results.rows}
    for tuned in rows.values():
        assert len(tuned.scores) == 3
        assert tuned.edge == (tuned.chosen[0].partition("=")[2] in ("4e-06", "5e-07"))
    assert any(tuned.edge for tuned in rows.values())
    assert any(line.startswith("* the best value lies at the edge") for line in results.lines())


def test_a_study_that_was_stopped_tunes_no_more_than_is_missing_and_is_another_without(tmp_path, in_this_process):
    compare(tuned_study(tmp_path, ["lr=0.1,0.2,0.4"], 1), Here(1), "cpu", quiet=True)
    before = {path: path.read_bytes() for path in (tmp_path / "out/tuning").rglob("points.safetensors")}
    compare(tuned_study(tmp_path, ["lr=0.1,0.2,0.4"], 2), Here(1), "cpu", quiet=True)
    assert before == {path: path.read_bytes() for path in (tmp_path / "out/tuning").rglob("points.safetensors")}
    with pytest.raises(UserError, match="is of another study"):
        compare(tuned_study(tmp_path, ["lr=0.1,0.2"], 2), Here(1), "cpu", quiet=True)


def test_what_cannot_be_tuned_is_refused_before_any_training(tmp_path, in_this_process):
    with pytest.raises(UserError, match="hidden_size is a setting of"):
        tuned_study(tmp_path, ["hidden_size=8,16"])
    data = write_data("nodes", tmp_path)
    with pytest.raises(UserError, match="--tune chooses lr for each entrant; leave one of them out"):
        plan("embedding", [f"data={data}", *NODES], TWO, 1, tmp_path / "out", tune=["lr=1,2"])
    plain = [word for word in NODES if not word.startswith("lr=")]
    with pytest.raises(UserError, match="judged_on=all: with --tune a study tunes on one half"):
        plan("embedding", [f"data={data}", *plain, "judged_on=all"], TWO, 1, tmp_path / "out", tune=["lr=1,2"])
    words = [f"data={write_data('words', tmp_path)}", *TINY["words"][1][:-1]]
    study = plan("skip-gram", words, None, 1, tmp_path / "out", tune=["negatives=2,3"])
    with pytest.raises(UserError, match="the task words holds nothing out that could be parted"):
        compare(study, Here(1), "cpu", quiet=True)
    assert not in_this_process


# -- trainings that fail ----------------------------------------------------------------------------------------------


def test_a_training_that_diverges_is_counted_and_never_chosen(tmp_path, in_this_process):
    plain = [word for word in LANGUAGE if not word.startswith("lr=")]
    settings = [f"data={write_data('language', tmp_path)}", *plain, "clip=none", "weight_decay=0"]
    study = plan("helm-d-tiny", settings, None, 2, tmp_path / "out", tune=["lr=1e-2,1e9"])
    results = compare(study, Here(1), "cpu", quiet=True)
    for row in results.rows:
        assert row.tuned.chosen[0] != "lr=1e9"
        assert math.isnan(row.tuned.scores["lr=1e9"])
    kept = json.loads((tmp_path / "out/study.json").read_text())
    assert {row["tuned"]["scores"]["lr=1e9"] for row in kept["rows"]} == {None}
    again = len(in_this_process)
    compare(study, Here(1), "cpu", quiet=True)
    assert not [name for name in in_this_process[again:] if "1e9" in name]  # it is known to fail


def test_all_diverge(tmp_path, in_this_process):
    settings = [f"data={write_data('language', tmp_path)}", *LANGUAGE, "clip=none", "weight_decay=0", "lr=1e9"]
    results = compare(plan("helm-d-tiny", settings, None, 2, tmp_path / "out"), Here(1), "cpu", quiet=True)
    assert results.verdict().startswith("2 seeds: every training failed.")
    assert all(set(row.failed) == {0, 1} for row in results.rows)
    assert all(why.startswith("diverged: ") for row in results.rows for why in row.failed.values())


def test_a_model_at_the_frequencies_of_tokens_is_stuck(tmp_path, in_this_process):
    """It ended well, with a score, and learned nothing."""
    settings = [f"data={write_data('language', tmp_path)}", *LANGUAGE, "lr=1e-9"]
    results = compare(plan("helm-d-tiny", settings, None, 1, tmp_path / "out"), Here(1), "cpu", quiet=True)
    assert all("stuck: bits/byte" in row.failed[0] and "unigram has" in row.failed[0] for row in results.rows)
    assert all(math.isfinite(row.scores["bits_per_byte"][0]) for row in results.rows)


# -- halves of what is held out ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pictures", "semantic", "instances", "tables", "pairs", "texts"])
def test_the_halves_of_what_is_held_out_are_all_of_it(kind, tmp_path):
    recipe, settings = TINY[kind]
    task = Recipe.read(recipe, [f"data={write_data(kind, tmp_path)}", *settings]).task
    data = task.open_data()
    parts = [len(task.parted(data, part).valid) for part in ("tuning", "rest")]
    assert sum(parts) == len(data.valid)
    assert abs(parts[0] - parts[1]) <= 1
    assert all(len(task.parted(data, part).train) == len(data.train) for part in ("tuning", "rest"))


@pytest.mark.parametrize("kind", ["language", "masked"])
def test_a_text_is_cut_between_documents_and_keeps_its_bytes(kind, tmp_path):
    recipe, settings = TINY[kind]
    task = Recipe.read(recipe, [f"data={write_data(kind, tmp_path)}", *settings]).task
    data = task.open_data()
    first, rest = (task.parted(data, part).valid for part in ("tuning", "rest"))
    assert [*first.tokens, *rest.tokens] == list(data.valid.tokens)
    assert first.text_bytes + rest.text_bytes == data.valid.text_bytes
    assert first.documents + rest.documents == data.valid.documents
    text = data.tokenizer.decode(first.tokens, skip_special_tokens=True)
    assert len(text.encode()) == first.text_bytes
    if rest.documents:
        assert rest.tokens[0] == data.valid.bos


def test_halves_of_nodes_are_ranked_apart_and_all_are_learned(tmp_path):
    data = write_data("nodes", tmp_path)
    parts = [live("nodes", data, f"judged_on={part}") for part in ("tuning", "rest")]
    ranked = [set(task.opened.ranked.tolist()) for task in parts]
    assert ranked[0].isdisjoint(ranked[1])
    assert len(ranked[0] | ranked[1]) == len(parts[0].opened.graph)
    assert all(len(task.opened.learned) == len(task.opened.relations) for task in parts)


def test_pictures_are_drawn_into_halves_not_cut(tmp_path):
    """Files are often sorted by class."""
    task = Recipe.read("hcformer-nano-32", [f"data={write_data('pictures', tmp_path)}", *PICTURES]).task
    data = task.open_data()
    numbers = [set(task.parted(data, part).valid.numbers.tolist()) for part in ("tuning", "rest")]
    assert numbers[0].isdisjoint(numbers[1])
    assert max(numbers[0]) > min(numbers[1])
    assert max(numbers[1]) > min(numbers[0])
