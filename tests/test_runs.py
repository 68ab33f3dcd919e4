"""The folder of a run: what is written is read again, and what is no run is said in one line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from horosphere import __version__, runs
from horosphere.errors import UserError
from horosphere.files import abandon, settle
from horosphere.runs import About, Run

ABOUT = About(
    task="nodes",
    recipe={"task": {"data": "tree.tsv", "tree": {"levels": 3}}, "model": {"dim": 5}, "engine": {"lr": 0.1}},
    facts={"nodes": 7, "parts": {"train": 6}},
    made_with={"device": "cpu"},
)


@pytest.fixture
def folder(tmp_path):
    return runs.begin(tmp_path / "run", ABOUT)


def refused(call, *said):
    with pytest.raises(UserError) as error:
        call()
    assert "\n" not in str(error.value)
    for words in said:
        assert words in str(error.value)


# -- run.json ---------------------------------------------------------------------------------------------------------


def test_what_is_written_is_what_is_read(folder):
    assert Run.open(str(folder)) == Run(folder, ABOUT)
    assert Run.open(folder, "nodes").about == ABOUT
    assert sorted(path.name for path in folder.iterdir()) == ["metrics.jsonl", "run.json"]


def test_what_decides_a_run_has_one_name_each_and_where_it_ran_is_not_of_it():
    assert ABOUT.decisions() == {
        "task.data": "tree.tsv",
        "task.tree.levels": 3,
        "model.dim": 5,
        "engine.lr": 0.1,
        "facts.nodes": 7,
        "facts.parts.train": 6,
    }


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"7",
        b'"run"',
        b"{}",
        b"\xff\xfe",
        json.dumps({"task": "nodes"}).encode(),
        json.dumps({**vars(ABOUT), "more": 1}).encode(),
        json.dumps({**vars(ABOUT), "recipe": {}}).encode(),
        json.dumps({**vars(ABOUT), "recipe": [1]}).encode(),
        json.dumps({**vars(ABOUT), "recipe": {"task": {}, "model": {}, "engine": []}}).encode(),
        json.dumps({**vars(ABOUT), "facts": None}).encode(),
        json.dumps({**vars(ABOUT), "made_with": "me"}).encode(),
    ],
)
def test_a_damaged_run_json_is_named(folder, content):
    (folder / "run.json").write_bytes(content)
    refused(lambda: Run.open(folder), str(folder / "run.json"), "a damaged file", "train the model again")


def test_what_is_no_run_is_told_apart(folder, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "absent", tmp_path / "file", tmp_path / "empty"):
        refused(lambda path=path: Run.open(path), str(path), "no folder of a run", "check the path")
    refused(lambda: Run.open(folder, "language"), "a run of the task nodes; give one of language")


def test_a_task_that_is_not_installed_is_named_with_those_that_are(folder):
    about = {**vars(ABOUT), "task": "weather"}
    (folder / "run.json").write_text(json.dumps(about))
    refused(Run.open(folder).load, "the task weather, which is not installed here; known are language, pictures")


# -- metrics.jsonl ----------------------------------------------------------------------------------------------------

LINES = [
    {"step": 1, "loss": 0.1 + 0.2},
    {"step": 2, "loss": float("inf"), "text": "line\nbreaks\u2028\x85 and é"},
    {"step": 2, "eval_top1": 0.5, "eval_loss": 1e-300},
    {"step": 3, "eval_top1": 0.75},
]


@pytest.fixture
def logged(folder):
    for line in LINES:
        runs.append(folder, line)
    return folder


def test_lines_come_back_to_the_last_bit_and_one_is_one(logged):
    assert Run.open(logged).lines() == LINES
    assert (logged / "metrics.jsonl").read_bytes().count(b"\n") == len(LINES)
    assert runs.steps_done(logged) == 3


def test_evaluations_are_told_apart_from_steps(logged):
    assert Run.open(logged).evaluations() == [{"step": 2, "top1": 0.5, "loss": 1e-300}, {"step": 3, "top1": 0.75}]


def test_a_line_that_is_just_being_written_is_left_out_wherever_it_breaks_off(logged):
    file = logged / "metrics.jsonl"
    whole = file.read_bytes()
    ends = [place for place, byte in enumerate(whole) if byte == ord("\n")]
    for size in range(len(whole) + 1):
        file.write_bytes(whole[:size])
        assert Run.open(logged).lines() == LINES[: sum(end < size for end in ends)]


HARM = (b"{\n", b"\n", b"\xff\xfe\n", b'{"step": 1}{"step": 2}\n', b"\0\0\0\n", b"3\n", b'{"loss": 1}\n')


@pytest.mark.parametrize("harm", HARM)
def test_a_line_that_a_crash_tore_is_left_out_and_the_run_goes_on(logged, harm):
    file = logged / "metrics.jsonl"
    whole = file.read_bytes()
    first = whole.index(b"\n") + 1
    for content in (whole + harm, harm + whole, whole[:first] + harm + whole[first:], whole + harm.rstrip(b"\n")):
        file.write_bytes(content)
        assert Run.open(logged).lines() == LINES
        runs.append(logged, {"step": 9})
        assert Run.open(logged).lines() == [*LINES, {"step": 9}]  # not glued to what was torn
    runs.go_on(logged, ABOUT, step=2)
    assert Run.open(logged).lines() == LINES[:3]


def test_without_lines_nothing_is_done(folder, tmp_path):
    assert runs.steps_done(folder) == runs.steps_done(tmp_path / "absent") == 0
    (folder / "metrics.jsonl").unlink()
    assert Run.open(folder).lines() == Run.open(folder).evaluations() == []


def test_a_resumed_run_keeps_the_lines_up_to_its_checkpoint_and_a_new_one_none(logged):
    with (logged / "metrics.jsonl").open("ab") as stream:
        stream.write(b'{"step": 4, "lo')
    runs.go_on(logged, ABOUT, step=2)
    assert Run.open(logged).lines() == LINES[:3]
    runs.append(logged, LINES[3])
    assert Run.open(logged).lines() == LINES  # the torn line is gone, not glued to the next


def test_a_run_that_replaces_another_is_written_aside_until_it_settles(logged, tmp_path):
    (logged / "weights").write_text("old")
    new = runs.begin(logged, replace(ABOUT, task="pictures"))
    runs.append(new, {"step": 1})
    assert Run.open(logged).about == ABOUT
    assert Run.open(logged).lines() == LINES
    assert runs.steps_done(logged) == 1  # of the run under way
    assert settle(new, logged) == logged
    assert (Run.open(logged).about.task, Run.open(logged).lines()) == ("pictures", [{"step": 1}])
    assert not (logged / "weights").exists()
    assert settle(logged, logged) == logged
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_run_that_fails_before_it_settles_leaves_the_one_before(logged, tmp_path):
    abandon(runs.begin(logged, ABOUT), logged)
    left = runs.begin(logged, ABOUT)  # as after kill -9
    (left / "half").write_text("")
    assert not (runs.begin(logged, ABOUT) / "half").exists()
    abandon(left, logged)
    abandon(logged, logged)  # in its place: it stays
    assert Run.open(logged).lines() == LINES
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    abandon(logged, logged, empty=True)
    assert not any(tmp_path.iterdir())


def test_a_run_behind_a_link_is_replaced_where_it_lies(logged, tmp_path):
    (tmp_path / "link").symlink_to(logged)
    settle(runs.begin(tmp_path / "link", replace(ABOUT, task="pictures")), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert Run.open(logged).about.task == "pictures"


def test_a_resumed_run_forgets_what_a_killed_process_was_writing(logged):
    (logged / ".model.safetensors.7.partial").write_text("half")
    runs.go_on(logged, ABOUT, step=3)
    assert sorted(path.name for path in logged.iterdir()) == ["metrics.jsonl", "run.json"]


@pytest.mark.parametrize("value", [None, True, "10", -1, 1.5, [3], {}])
def test_a_fact_that_is_no_number_of_things_is_told(value):
    refused(lambda: replace(ABOUT, facts={"classes": value}).count("classes"), "run.json says classes=")
    assert replace(ABOUT, facts={"classes": 0}).count("classes") == 0


def test_a_run_without_an_evaluation_has_no_scores(folder, logged):
    assert Run.open(logged).scores() == {"step": 3, "top1": 0.75}
    (folder / "metrics.jsonl").write_text('{"step": 1, "eval_top1": "high"}\n{"step": 2, "eval_top1": [1]}\n')
    refused(Run.open(folder).scores, "no evaluation in it", "--resume")


# -- the place --------------------------------------------------------------------------------------------------------


def test_complaints_come_before_anything_is_touched(folder, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years")
    refused(lambda: runs.require_place(folder, resume=False, overwrite=False), "exists already")
    refused(lambda: runs.require_place(mine, resume=False, overwrite=True), "holds no run.json")
    refused(lambda: runs.require_place(mine, resume=True, overwrite=False), "there is no run to resume")
    assert (mine / "thesis.txt").read_text() == "years"
    assert runs.require_place(folder, resume=True, overwrite=False) == ABOUT
    assert runs.require_place(folder, resume=False, overwrite=True) is None
    assert runs.require_place(tmp_path / "new", resume=False, overwrite=False) is None
    assert not (tmp_path / "new").exists()
    assert Run.open(folder).about == ABOUT


# -- checkpoints ------------------------------------------------------------------------------------------------------


def test_checkpoints_are_in_the_order_of_their_steps_and_nothing_else_is_one(folder):
    place = folder / "checkpoints"
    assert runs.checkpoints(place) == []
    assert runs.latest(place) is None
    refused(lambda: Run.open(folder).checkpoint(), "no checkpoint yet", "--resume")
    steps = (99999999, 2, 100000000, 10)  # the third has a digit more: text would sort it before the first
    for name in (*(f"step-{step:08}" for step in steps), ".step-00000099.77", "step-7", "step-00000099.old", "best"):
        (place / name).mkdir(parents=True)
    assert [path.name for path in runs.checkpoints(place)] == [f"step-{step:08}" for step in sorted(steps)]
    assert Run.open(folder).checkpoint() == place / "step-100000000"


# -- what made it -----------------------------------------------------------------------------------------------------


def test_what_made_a_run_can_be_kept_and_tells_the_command(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/usr/bin/horosphere", "train", "helm-d-tiny", "lr=1"])
    made = runs.made_with("cuda", processes=8)
    assert made["command"] == "horosphere train helm-d-tiny lr=1"
    assert (made["device"], made["processes"]) == ("cuda", 8)
    assert made["versions"]["horosphere"] == __version__
    assert made["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert json.loads(json.dumps(made)) == made


def test_the_words_of_another_program_are_its_own(monkeypatch):
    monkeypatch.setattr("sys.argv", ["analysis.py", "--password", "secret"])
    assert runs.made_with()["command"] == "analysis.py"


def test_a_run_is_found_under_a_relative_path(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert Run.open("run").folder == Path("run")


def test_a_line_of_metrics_is_whole_when_the_disk_is_asked_to_keep_it(folder, monkeypatch):
    seen = []
    monkeypatch.setattr("os.fsync", lambda _: seen.append((folder / "metrics.jsonl").read_text()))
    runs.append(folder, {"step": 1, "loss": 2.0})
    assert [json.loads(text.splitlines()[-1]) for text in seen] == [{"step": 1, "loss": 2.0}]


def test_what_lies_among_runs_and_is_none_is_called_what_it_is(tmp_path):
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep/sweep.json").write_text("{}")
    with pytest.raises(UserError, match=r"sweep: a sweep of toy models, no run; see `horosphere superposition figures"):
        Run.open(tmp_path / "sweep")
    (tmp_path / "run.json").write_text('{"name": "of another program", "config": {}}')
    with pytest.raises(UserError, match=r"its run\.json is not one of horosphere's \(it names no task\)"):
        Run.open(tmp_path)
