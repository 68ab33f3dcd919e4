"""lm-evaluation-harness, from the same files, says what our own scores say."""

import json
import logging
import random
import socket
import sys

import pytest

from horosphere.errors import UserError
from horosphere.evaluate import evaluate_task, harness
from tests.evaluate.tiny import llama, phrase, tokenizer


@pytest.fixture
def folder(tmp_path):
    rng = random.Random(7)
    questions = [
        {"query": phrase(rng, 20), "choices": [phrase(rng, 6) for _ in range(rng.randint(2, 5))]} for _ in range(40)
    ]
    rows = [question | {"gold": rng.randrange(len(question["choices"]))} for question in questions]
    for name in ("arc_easy", "commonsense_qa"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    blanks = [row | {"query": f"{phrase(rng, 4)} _ {phrase(rng, 4)}"} for row in rows]
    (tmp_path / "winogrande.jsonl").write_text("\n".join(map(json.dumps, blanks)))
    pairs = [{"good": phrase(rng, 6), "bad": phrase(rng, 6), "phenomenon": "p"} for _ in range(40)]
    (tmp_path / "blimp.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    return tmp_path


def test_it_agrees_with_our_scores_offline_and_quietly(folder, monkeypatch, capfd, caplog):
    pytest.importorskip(
        "lm_eval.models.huggingface",
        reason="lm-evaluation-harness is not installed, or without accelerate",
        exc_type=ImportError,
    )
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("the network was asked"))
    model = llama(positions=32).train()  # some contexts are cut
    tasks = ["arc_easy", "commonsense_qa", "winogrande", "blimp"]
    capfd.readouterr()
    level = logging.getLogger("lm_eval").level
    theirs = harness(model, tokenizer(), tasks, folder, limit=35)
    assert logging.getLogger("lm_eval").level == level
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.name.startswith("lm_eval")]
    assert model.training
    cut = 0
    for task in tasks:
        ours = evaluate_task(task, folder, model, tokenizer(), limit=35).score
        cut += ours.cut
        assert theirs[task]["acc"] == pytest.approx(ours.acc.value)
        assert theirs[task]["acc_stderr"] == pytest.approx(ours.acc.stderr * (35 / 34) ** 0.5)
        assert theirs[task].get("acc_norm", ours.acc_norm.value) == pytest.approx(ours.acc_norm.value)
    assert cut > 0
    assert [task for task in tasks if "acc_norm" not in theirs[task]] == ["winogrande"]


def test_its_absence_is_said(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(UserError, match=r"horosphere\[harness\]"):
        harness(llama(), tokenizer(), ["blimp"], folder)


def test_a_missing_file_is_said_first(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(UserError, match="holds no file for copa"):
        harness(llama(), tokenizer(), ["blimp", "copa"], folder)
