"""Classification of texts: it learns, is judged on other texts in the same words, and beside a bag of words."""

import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from horosphere.data.vocabulary import PAD
from horosphere.errors import UserError
from horosphere.runs import Run
from horosphere.tasks.texts import Texts
from horosphere.train.recipe import Recipe
from horosphere.train.training import evaluate
from tests.tasks.test_every_task import live
from tests.tasks.tiny import run_tiny, tiny, write_labelled

MODELS = {"textcnn": ("filters=8",), "birnn": ("hidden=8",), "hypertext": ("buckets=64",)}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_labelled(tmp_path_factory.mktemp("texts") / "texts.tsv")


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "texts"
    run_tiny(tiny("texts", data, "steps=100", "width=16", "filters=16"), folder)
    return folder


@pytest.mark.parametrize("geometry", ["euclidean", "lorentz", "poincare"])
@pytest.mark.parametrize("model", MODELS)
def test_every_model_learns_in_every_geometry(data, tmp_path, model, geometry):
    settings = [f"data={data}", "batch=16", "steps=80", "lr=2e-2", "least=1", "width=8", "dropout=0.1"]
    recipe = Recipe.read(model, [*settings, *MODELS[model], f"geometry={geometry}"])
    assert run_tiny(recipe, tmp_path / "run").evaluation["accuracy"] > 0.85


def test_a_batch_is_as_wide_as_its_longest_text(data):
    task = live("texts", data)
    for step in range(4):
        batch = task.batch(step, range(8))
        assert batch["tokens"].shape == (8, batch["lengths"].max())
        assert ((batch["tokens"] != PAD).sum(1) == batch["lengths"]).all()
        assert batch["labels"].max() < 3


def test_scores_are_those_of_all_texts_held_out(data):
    task = live("texts", data)
    torch.manual_seed(0)
    model = task.build(task.opened).eval()
    held = task.opened.valid
    with torch.no_grad():
        rows = [task._tensors(np.array([row]), np.array([row])) for row in held]
        logits = torch.cat([model(row["tokens"], row["lengths"]) for row in rows])
        scores = task.evaluate(model, last=True)
    truth = torch.from_numpy(task.opened.labels[held])
    assert scores["accuracy"] == pytest.approx((logits.argmax(-1) == truth).float().mean().item())
    assert scores["loss"] == pytest.approx(F.cross_entropy(logits, truth).item(), rel=1e-5)


def test_baselines(data):
    task = live("texts", data)
    found = task.baselines()
    counts = np.bincount(task.opened.labels[task.opened.valid])
    usual = np.bincount(task.opened.labels[task.opened.train]).argmax()
    assert found["most frequent"]["accuracy"] == pytest.approx(counts[usual] / counts.sum())
    pytest.importorskip("sklearn")
    assert found["TF-IDF and logistic regression"]["accuracy"] > 0.9


def test_without_scikit_learn_there_is_one_baseline_less(data, monkeypatch):
    monkeypatch.setattr("horosphere.tasks.texts.find_spec", lambda name: None)
    assert list(live("texts", data).baselines()) == ["most frequent"]


def test_a_run_classifies(run):
    trained = Run.open(run).load()
    assert trained.classes == ["air", "land", "sea"]
    assert trained.classify(["3 times whale", "4 times crow", "4 times cat"]) == ["sea", "air", "land"]
    assert trained.classify(["", "x"])[0] in trained.classes
    assert trained.classify([]) == []
    with pytest.raises(UserError, match=r'classify\("a whale"\): texts come in a list; write classify\(\["…"\]\)'):
        trained.classify("a whale")


@pytest.mark.parametrize("geometry", ["euclidean", "poincare"])
@pytest.mark.parametrize("model", MODELS)
def test_points_are_the_words(data, tmp_path, model, geometry):
    settings = [f"data={data}", "batch=8", "steps=2", "least=1", "width=4", *MODELS[model], f"geometry={geometry}"]
    run_tiny(Recipe.read(model, settings), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    vectors, trained = Texts.vectors(run), run.load()
    assert {"whale", "猫"} < set(vectors.labels)
    number = trained.vocabulary.numbers["whale"]
    at = vectors.labels.index("whale")
    assert torch.equal(vectors.points[at], trained.network.points.weight[number])
    assert vectors.columns["count"][at] == trained.vocabulary.counts[number] > 1
    assert len(vectors.points) == len(vectors.labels) == len(vectors.columns["count"])


def test_other_texts_are_judged_in_the_words_of_the_run(run, tmp_path):
    (tmp_path / "other.csv").write_text(
        "label,text\nsea,7 times whale\nair,9 times owls were seen\nland,no idea at all\n"
    )
    scores = evaluate(Run.open(run), valid=str(tmp_path / "other.csv"), device="cpu")
    assert scores["accuracy"] >= 2 / 3
    (tmp_path / "strange.csv").write_text("space,a comet\n")
    with pytest.raises(UserError, match="labels that no text to learn from has"):
        evaluate(Run.open(run), valid=str(tmp_path / "strange.csv"), device="cpu")


def test_weights_of_other_words_are_refused(run, tmp_path):
    (tmp_path / "other.tsv").write_text("a\tx\nb\ty\na\tz\n")
    with pytest.raises(UserError, match="a run of another network"):
        run_tiny(tiny("texts", tmp_path / "other.tsv", f"start={run}"), tmp_path / "run")


def test_damaged_classes_are_named(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    (folder / "classes.json").write_text("{")
    with pytest.raises(UserError, match=r"classes.json: a damaged file"):
        Run.open(folder).load()
