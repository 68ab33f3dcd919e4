"""Word vectors from a text: words that stand alike come near, in every geometry and by every model."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from horosphere.data.corpora import corpus_of
from horosphere.errors import UserError
from horosphere.models.words import SkipGramConfig
from horosphere.runs import Run
from horosphere.tasks.words import WindowSource, Words
from horosphere.train.engine import Place
from horosphere.train.recipe import Recipe
from horosphere.train.training import train

ANIMALS, FOODS = ["cat", "dog", "cow", "hen"], ["pie", "jam", "egg", "tea"]
MODELS = ["skip-gram", "cbow", "fasttext", "glove"]


def write_story(path, lines=400):
    """Animals run and sleep, foods are cooked and eaten: two kinds of words, which never meet."""
    draws = np.random.default_rng(0)
    text = []
    for _ in range(lines):
        if draws.random() < 0.5:
            text.append(f"the {draws.choice(ANIMALS)} {draws.choice(['runs', 'sleeps', 'barks'])} in the field")
        else:
            text.append(f"a {draws.choice(FOODS)} was {draws.choice(['cooked', 'eaten', 'sold'])} at noon")
    path.write_text("\n".join(text))
    return str(path)


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    return write_story(tmp_path_factory.mktemp("story") / "story.txt")


def learned(model, data, folder, *more):
    small = ("dim=8", "window=3", "batch=200", "epochs=12", "lr=0.05", "subsample=0", "log_every=20")
    more = ("buckets=200", *more) if model == "fasttext" else more
    train(Recipe.read(model, [f"data={data}", *small, *more]), Place(folder, quiet=True), "cpu")
    return Run.open(folder).load()


@pytest.mark.parametrize("geometry", ["euclidean", "lorentz", "poincare"])
@pytest.mark.parametrize("model", MODELS)
def test_words_of_a_kind_come_near(story, tmp_path, model, geometry):
    words = learned(model, story, tmp_path / "run", f"geometry={geometry}")
    alike = [[words.similarity(a, b) for b in (*ANIMALS, *FOODS)] for a in (*ANIMALS, *FOODS)]
    own, other = np.array(alike)[:4, :4], np.array(alike)[:4, 4:]
    assert own.min() > other.max()
    assert words.analogy("cat", "dog", "pie", 1)[0][0] not in ("cat", "dog", "pie")


@pytest.mark.parametrize(
    "more",
    [("shared=16",), ("output=tree",), ("score=distance",), ("score=distance", "geometry=lorentz", "output=tree")],
)
def test_every_way_to_learn_skip_grams(story, tmp_path, more):
    words = learned("skip-gram", story, tmp_path / "run", *more)
    assert {word for word, _ in words.neighbors("pie", 3)} == {"jam", "egg", "tea"}


@pytest.mark.parametrize("shared", [0, 16])
def test_a_batch_is_the_same_however_it_is_cut(shared):
    """Rows, and the noise of each of their contexts."""
    corpus = corpus_of([["a", "rose", "is", "a", "rose"], ["is", "a", "thorn"]] * 4)
    source = WindowSource(corpus, SkipGramConfig(window=2, shared=shared, negatives=3), threshold=0.1)
    whole = source.batch(1, range(12), 12, seed=5)
    parts = [source.batch(1, range(i, i + 4), 12, seed=5) for i in range(0, 12, 4)]
    contexts = int((whole["context"] >= 0).sum())
    assert 0 < contexts < whole["context"].numel()
    assert whole["noise"].shape == ((shared,) if shared else (contexts, 3))
    for name, values in whole.items():
        cut = [part[name] for part in parts]
        assert torch.equal(values, cut[0] if name == "noise" and shared else torch.cat(cut))


def test_a_finished_run_has_its_vectors_and_words(story, tmp_path):
    words = learned("skip-gram", story, tmp_path / "run", "geometry=lorentz", "epochs=1")
    vectors = load_file(tmp_path / "run" / "vectors.safetensors")["vectors"]
    assert torch.equal(vectors, words.points)
    names = json.loads((tmp_path / "run" / "words.json").read_text())
    assert names["words"] == list(words.words)
    assert names["counts"] == sorted(names["counts"], reverse=True)
    assert len(vectors) == len(names["words"])
    found = Words.vectors(Run.open(tmp_path / "run"))
    assert torch.equal(found.points, words.points)
    assert (found.labels, found.columns["count"]) == (names["words"], names["counts"])


def test_fasttext_knows_words_it_never_saw(story, tmp_path):
    words = learned("fasttext", story, tmp_path / "run")
    assert "sleeping" not in words
    assert words.similarity("sleeping", "sleeps") > words.similarity("sleeping", "cooked")
    with pytest.raises(UserError, match='"zebra" was not learned'):
        learned("skip-gram", story, tmp_path / "other", "epochs=1").similarity("zebra", "cat")


def test_a_run_begins_with_another_of_the_same_words(story, tmp_path):
    learned("skip-gram", story, tmp_path / "run", "epochs=1")
    again = learned("skip-gram", story, tmp_path / "more", f"start={tmp_path / 'run'}", "lr=1e-9", "epochs=1")
    before = Run.open(tmp_path / "run").load()
    torch.testing.assert_close(again.points, before.points, atol=1e-5, rtol=1e-4)
    with pytest.raises(UserError, match="a run of other words"):
        learned("skip-gram", story, tmp_path / "odd", f"start={tmp_path / 'run'}", "least=60")


def test_people_are_asked_where_their_judgements_are(tmp_path):
    pytest.importorskip("gensim")
    text = "the tiger and the cat love the king and the queen in a train or a car with money or cash in the bank"
    (tmp_path / "a.txt").write_text("\n".join([text] * 30))
    learned("skip-gram", tmp_path / "a.txt", tmp_path / "run", "epochs=2")
    scores = Run.open(tmp_path / "run").scores()
    assert -1 <= scores["wordsim"] <= 1
    assert 0 < scores["wordsim_share"] < 0.1
    assert "analogies" not in scores  # of none of them are all four words there
    assert scores["analogies_share"] == 0


def test_without_judgements_there_is_the_loss(story, tmp_path, monkeypatch):
    monkeypatch.setattr("horosphere.tasks.words.are_bundled", lambda: False)
    learned("cbow", story, tmp_path / "run", "epochs=1")
    assert {name for name in Run.open(tmp_path / "run").scores() if name != "step"} == {"loss"}


def test_neighbours_are_what_is_shown(story, tmp_path):
    learned("glove", story, tmp_path / "run", "least=2")
    shown = [line["sample"] for line in Run.open(tmp_path / "run").lines() if "sample" in line]
    assert all(":" in text for text in shown)


def test_words_that_never_meet_are_told(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(["one", "two"] * 9))
    with pytest.raises(UserError, match="stand near each other"):
        learned("glove", tmp_path / "a.txt", tmp_path / "run")


def test_one_process_trains_it():
    assert Words.alone
