"""Masked language modelling: what is learned, against what it is judged, and what becomes of a text with a gap."""

import math

import numpy as np
import pytest
import torch

from horosphere.errors import UserError
from horosphere.runs import Run
from horosphere.tasks.masked import Masked
from horosphere.train.training import evaluate
from tests.tasks.test_every_task import live
from tests.tasks.tiny import run_tiny, tiny, write_text

pytest.importorskip("transformers")
# the second half of each sentence is decided by the first: what is hidden can be known
SENTENCES = [f"{a} {b} is {a} and {b} again, said the {a} to the {b}." for a in ("cat", "dog", "owl") for b in "xyz"]
TEXTS = [" ".join(SENTENCES[(i + j) % 9] for j in range(6)) for i in range(100)]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text") / "animals.txt", TEXTS)


@pytest.mark.parametrize("geometry", ["euclidean", "lorentz"])
def test_it_learns_what_can_be_known(text, tmp_path, geometry):
    settings = ["length=32", "steps=700", "batch=16", "width=32", "lr=5e-3", "eval_every=none", "save_every=700"]
    run_tiny(tiny("masked", text, *settings, f"geometry={geometry}"), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    scores, beside = run.scores(), run.baselines()["unigram"]
    assert scores["masked_accuracy"] > 2 * beside["masked_accuracy"]
    assert scores["perplexity"] < beside["perplexity"] / 3
    assert scores["loss"] == pytest.approx(math.log(scores["perplexity"]))
    filled = run.load().fill("cat x is [MASK] and x again, said the cat to the x.")
    assert "[MASK]" not in filled
    assert run.load().fill("nothing is hidden") == "nothing is hidden"


def test_a_shown_row_has_its_guesses_in_brackets(text):
    task = live("masked", text)
    torch.manual_seed(0)
    shown = task.sample(task.build(task.opened).eval())
    assert shown.count(" | ") >= 3
    assert shown.count("[") == task.asked


def test_the_loss_is_that_of_the_formula(text):
    task = live("masked", text)
    torch.manual_seed(0)
    model, batch = task.build(task.opened).eval(), task.batch(0, range(4))
    loss, told = task.loss(model, batch)
    filled, follows = model(*(batch[name] for name in ("tokens", "segments", "lengths", "places")))
    nats = 0.0
    for logits, targets in zip(filled, batch["targets"], strict=True):
        nats -= sum(row.log_softmax(-1)[t].item() for row, t in zip(logits, targets, strict=True) if t >= 0)
    apart = -follows.log_softmax(-1)[range(4), batch["apart"]].mean().item()
    assert loss.item() == pytest.approx(nats / (4 * task.asked) + apart, rel=1e-5)
    assert told["masked_loss"].item() + told["next_loss"].item() == pytest.approx(loss.item())


def test_the_unigram_guess_is_what_counting_says(text):
    task = live("masked", text)
    scores = task.baselines()["unigram"]
    counts = np.bincount(task.opened.train.tokens, minlength=task.special.begin).astype(float)
    counts[0] = 0
    targets = [t for part in task._held_rows(last=True) for t in part["targets"].flatten().tolist() if t >= 0]
    p = (counts + 1) / (counts + 1).sum()
    assert scores["masked_accuracy"] == pytest.approx(np.mean([t == counts.argmax() for t in targets]))
    assert scores["perplexity"] == pytest.approx(np.exp(-np.mean(np.log(p[targets]))))
    assert 0.5 <= scores["next_accuracy"] < 0.75


def test_other_data_are_read_by_the_tokenizer_of_the_run(text, tmp_path):
    run_tiny(tiny("masked", text), tmp_path / "run")
    other = write_text(tmp_path / "other.txt", TEXTS[:20])
    scores = evaluate(Run.open(tmp_path / "run"), other, device="cpu")
    assert all(math.isfinite(value) for value in scores.values())


def test_points_are_the_tokens_and_the_special_ones(text, tmp_path):
    run_tiny(tiny("masked", text, "geometry=lorentz"), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    vectors = Masked.vectors(run)
    assert torch.equal(vectors.points, run.load().network.tokens.weight)
    assert vectors.manifold.flat
    assert vectors.labels[-4:] == ["[CLS]", "[SEP]", "[MASK]", "[PAD]"]
    assert vectors.columns["kind"][-4:] == ["special"] * 4
    assert len(set(vectors.labels)) == len(vectors.points)


def test_rows_that_hold_nothing_are_refused(text):
    with pytest.raises(UserError, match="length=4: a row has 3 special tokens; give at least 5"):
        tiny("masked", text, "length=4").check()
    with pytest.raises(UserError, match="geometry=poincare: choose from euclidean, lorentz"):
        tiny("masked", text, "geometry=poincare")
