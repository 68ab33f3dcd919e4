"""Translation: a loss over tokens, scores of what is written, and other data in the same words."""

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from horosphere.data.vocabulary import BEGIN, END, PAD, UNKNOWN
from horosphere.errors import UserError
from horosphere.evaluate.translation import bleu
from horosphere.runs import Run
from horosphere.train.recipe import Recipe
from horosphere.train.training import evaluate
from tests.tasks.test_every_task import live
from tests.tasks.tiny import run_tiny, tiny, write_pairs
from tests.train.toy_task import lines

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_pairs(tmp_path_factory.mktemp("pairs") / "pairs.tsv")


@pytest.fixture(scope="module")
def task(data):
    return live("pairs", data)


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "pairs"
    run_tiny(tiny("pairs", data, "steps=60"), folder)
    return folder


# -- learning ---------------------------------------------------------------------------------------------------------


def test_a_batch_is_as_wide_as_its_longest_pair(task):
    for step in range(5):
        batch = task.batch(step, range(8))
        assert batch["source"].shape[1] == batch["lengths"].max()
        assert (batch["target"][:, 0] == BEGIN).all()
        assert (batch["target"] == END).sum(1).tolist() == [1] * 8
        assert (batch["target"][:, -1] != PAD).any()
        assert ((batch["source"] != PAD).sum(1) == batch["lengths"]).all()


def test_the_loss_is_the_mean_over_the_tokens_of_all_pairs(task):
    torch.manual_seed(0)
    model = task.build(task.opened).eval()
    rows, costs, tokens = task.opened.train, [], 0
    for row in rows:
        batch = task._tensors(np.array([row]), np.array([row]))
        logits = model(batch["source"], batch["lengths"], batch["target"][:, :-1])[0].log_softmax(-1)
        labels = batch["target"][0, 1:]
        costs += [-logits[place, label].item() for place, label in enumerate(labels)]
        tokens += len(labels)
    loss, _ = task.loss(model, task._tensors(rows, rows))
    assert loss.item() == pytest.approx(sum(costs) / tokens, rel=1e-5)


def test_padding_costs_nothing(task):
    torch.manual_seed(0)
    model = task.build(task.opened).eval()
    batch = task.batch(0, range(8))
    wider = {**batch, "source": F.pad(batch["source"], (0, 3)), "target": F.pad(batch["target"], (0, 4))}
    assert task.loss(model, wider)[0].item() == pytest.approx(task.loss(model, batch)[0].item(), rel=1e-5)


class Oracle(torch.nn.Module):
    """It knows the targets of all sources by heart, and forgets `wrong` of them."""

    def __init__(self, data, wrong=0):
        super().__init__()
        rows = zip(data.source.tolist(), data.target.tolist(), strict=True)
        self.known = {tuple(source): target for source, target in rows}
        self.size, self.forgotten = (
            len(data.vocabularies["target"]),
            {tuple(data.source[i]) for i in data.valid[:wrong]},
        )

    def encode(self, source, lengths):
        width = len(next(iter(self.known)))
        keys = [tuple(row) for row in F.pad(source, (0, width - source.shape[1])).tolist()]
        targets = [[BEGIN, END] if key in self.forgotten else self.known[key] for key in keys]
        longest = max(map(len, targets))
        return torch.tensor([[*target, *[PAD] * (longest - len(target))] for target in targets]), 0

    def step(self, tokens, state):
        targets, place = state
        following = targets[:, min(place + 1, targets.shape[1] - 1)]
        return 30 * F.one_hot(following, self.size).float(), (targets, place + 1)

    def forward(self, source, lengths, target):
        state, rows = self.encode(source, lengths), []
        for tokens in target.unbind(1):
            logits, state = self.step(tokens, state)
            rows.append(logits)
        return torch.stack(rows, 1)


def test_scores_of_one_who_knows(data):
    task = live("pairs", data)
    perfect = task.evaluate(Oracle(task.opened), last=True)
    assert perfect["exact"] == perfect["token_accuracy"] == perfect["perplexity"] == pytest.approx(1)
    forgetful = task.evaluate(Oracle(task.opened, wrong=2), last=True)
    assert forgetful["exact"] == pytest.approx(1 - 2 / len(task.opened.valid))
    assert forgetful["token_accuracy"] < 1 < forgetful["perplexity"]
    assert 0 <= forgetful["bleu"] < perfect["bleu"] <= 1


def test_an_unknown_word_that_was_expected_is_never_right(data):
    task = live("pairs", data)
    target = task.opened.target.copy()
    row = task.opened.valid[0]
    target[row, 1] = UNKNOWN
    task.ready(replace(task.opened, target=target))
    scores = task.evaluate(Oracle(task.opened), last=True)
    assert scores["exact"] == pytest.approx(1 - 1 / len(task.opened.valid))
    assert scores["token_accuracy"] < 1


def test_while_training_few_pairs_are_judged(data):
    task = live("pairs", data, "eval_rows=1")
    assert task.evaluate(Oracle(task.opened, wrong=1), last=False)["exact"] == 0
    assert task.evaluate(Oracle(task.opened, wrong=1), last=True)["exact"] > 0


@pytest.mark.parametrize("beams", [1, 3])
def test_what_is_written_holds_no_padding_unknowns_or_begins(data, beams):
    task = live("pairs", data, f"beams={beams}")
    torch.manual_seed(0)
    model = task.build(task.opened).eval()
    with torch.no_grad():
        model.head.bias[:END] = 50  # which it would like to write
    batch = task.batch(0, range(8))
    for row in task._written(model, batch):
        assert len(row) <= task.length
        assert all(number > END for number in row)


@pytest.mark.parametrize("model", ["seq2seq", "seq2seq-attention", "transformer"])
def test_every_model_has_the_same_face(data, tmp_path, model):
    recipe = Recipe.read("seq2seq", [f"data={data}", f"model={model}", "steps=2", "batch=4", "sample_every=1"])
    result = run_tiny(recipe, tmp_path / "run")
    assert result.step == 2
    assert {"exact", "bleu", "token_accuracy", "perplexity"} <= result.evaluation.keys()


# -- baselines --------------------------------------------------------------------------------------------------------


def test_baselines(tmp_path):
    file = tmp_path / "a.tsv"
    same = "".join(f"word {n}\tword {n}\n" for n in range(10))
    usual = "".join(f"say {n}\tyes\n" for n in range(100, 130))
    file.write_text(same + usual)
    task = live("pairs", str(file))
    held = [task.opened.vocabularies["target"].decode(task.opened.target[row]) for row in task.opened.valid]
    found = task.baselines()
    assert found["the most frequent target"]["exact"] == pytest.approx(held.count("yes") / len(held))
    # words that share nothing else: the nearest source of "say 7" is another "say"
    assert found["the nearest source's target"]["exact"] >= held.count("yes") / len(held)
    assert found["the source copied"]["exact"] == 0  # numbers that were never learned
    assert all(scores.keys() == {"exact", "bleu"} for scores in found.values())


def test_the_nearest_source_is_the_one_with_most_words_in_common(tmp_path):
    (tmp_path / "a.tsv").write_text("a b c\tone\nd e f\ttwo\n")
    (tmp_path / "b.tsv").write_text("a b x\tone\ne f\ttwo\n")
    task = live("pairs", str(tmp_path / "a.tsv"), f"valid={tmp_path / 'b.tsv'}")
    assert task.baselines()["the nearest source's target"]["exact"] == 1


# -- runs -------------------------------------------------------------------------------------------------------------


def test_a_run_translates(run, data):
    trained = Run.open(run).load()
    texts = ["one two", "nine", "strange words", ""]
    answers = trained.translate(texts)
    assert len(answers) == 4
    assert answers == [trained.translate([text])[0] for text in texts]  # whatever stands beside it
    assert trained.translate([]) == []
    with pytest.raises(UserError, match="texts come in a list"):
        trained.translate("a b")


def test_other_pairs_are_judged_in_the_words_of_the_run(run, tmp_path):
    (tmp_path / "other.tsv").write_text("one two\t1 2\nnine eleven\t9 11\n")
    scores = evaluate(Run.open(run), valid=str(tmp_path / "other.tsv"), device="cpu")
    assert scores["exact"] <= 0.5  # 11 was never written
    assert np.isfinite(scores["perplexity"])


def test_a_sample_shows_source_answer_and_truth(run):
    sample = next(line["sample"] for line in Run.open(run).lines() if "sample" in line)
    rows = sample.split("\n")
    assert len(rows) == 3
    assert all(" -> " in row and "(true: " in row for row in rows)


def test_weights_of_other_words_are_refused(run, tmp_path):
    other = tmp_path / "other.tsv"
    other.write_text("a\tb\nc\td\ne\tf\n")
    with pytest.raises(UserError, match="a run of another network"):
        run_tiny(tiny("pairs", other, f"start={run}"), tmp_path / "run")


def test_summary_shows_baselines(run, data):
    rows = dict(tiny("pairs", data).task.summary(Run.open(run)))
    assert rows["pairs"] == "54 to learn, 6 to judge, 0 too long"
    assert "beside it" in rows


def test_django_is_found_and_not_imported(tmp_path):
    pytest.importorskip("django")
    recipe = Recipe.read("seq2seq", ["data=builtin:django-fr", "steps=1", "batch=4", "width=8", "hidden=8"])
    result = run_tiny(recipe, tmp_path / "run")
    assert result.evaluation["perplexity"] > 100
    assert Path(tmp_path / "run" / "vocabulary.json").is_file()


def test_bleu_of_the_run_is_that_of_its_words(run, data):
    """Through the words themselves, not their numbers."""
    task = live("pairs", data)
    trained = Run.open(run).load()
    source, target = (task.opened.vocabularies[side] for side in ("source", "target"))
    held = task.opened.valid
    written = [text.split() for text in trained.translate([source.decode(task.opened.source[row]) for row in held])]
    expected = [target.decode(task.opened.target[row]).split() for row in held]
    assert evaluate(Run.open(run), device="cpu")["bleu"] == pytest.approx(bleu(written, expected), abs=1e-6)


@pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="needs torch.distributed with gloo")
@pytest.mark.parametrize("kind", ["pairs", "transformed"])
def test_two_processes_write_what_one_does(data, tmp_path, kind):
    """A sharded model is made whole to write: its steps are no forward."""
    run_tiny(tiny(kind, data), tmp_path / "one")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(ROOT / "tests/tasks/two_processes.py"), str(port), data, str(tmp_path / "two"), kind]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    one, two = ([line for line in lines(tmp_path / name) if "baseline" not in line] for name in ("one", "two"))
    for a, b in zip(one, two, strict=True):
        assert b == pytest.approx(a, rel=1e-3)


def test_copies_what_it_never_saw_without_a_mistake(tmp_path):
    settings = ["data=builtin:copy", "width=32", "hidden=64", "dropout=0", "batch=64", "epochs=6", "lr=5e-3"]
    recipe = Recipe.read("seq2seq-attention", [*settings, "eval_every=none", "sample_every=none"])
    scores = run_tiny(recipe, tmp_path / "run").evaluation
    assert scores["exact"] == scores["token_accuracy"] == scores["bleu"] == 1
    copied = Run.open(tmp_path / "run").load().translate(["a b c d e f g h", "j j", "c"])
    assert copied[:2] == ["a b c d e f g h", "j j"]
