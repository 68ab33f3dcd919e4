"""Ratings and rankings: what is held out, what is drawn, how it is judged, and what a run answers by its labels."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from horosphere.errors import UserError
from horosphere.evaluate.ranking import hit_at, places
from horosphere.recipes import read_recipe
from horosphere.runs import Run
from horosphere.tasks.ratings import RatingsTask, item_points, predictions
from horosphere.train.recipe import Recipe
from tests.data.test_ratings import needs_recbole
from tests.tasks.test_every_task import assert_same, exported, live
from tests.tasks.tiny import SHORT, run_tiny, tiny, write_ratings

SMALL = {"mf": ["dim=3"], "bpr": ["dim=3"], "neumf": ["dim=3", "hidden=4,2"], "autorec": ["hidden=3"]}
GEOMETRIES = ["euclidean", "lorentz", "poincare"]


@pytest.fixture
def data(tmp_path):
    return write_ratings(tmp_path / "ratings.csv")


def recipe(name, data, *more):
    return Recipe.read(name, [f"data={data}", "batch=8", *SHORT, *SMALL[name], *more])


def opened(name, data, *more):
    made = recipe(name, data, *more)
    task, parts = made.task, made.task.open_data()
    task.engine = made.engine.for_data(task.rows(parts), made.engine.batch)
    task.ready(parts)
    return task


# -- batches ----------------------------------------------------------------------------------------------------------


def test_negatives_were_never_rated_and_are_drawn_by_seed_and_step(data):
    task = live("ranking", data, "negatives=3")
    learned = task.opened.learned
    rated = set(zip(learned.user.tolist(), learned.item.tolist(), strict=True))
    for step in range(20):
        batch = task.batch(step, range(8))
        assert batch["item"].shape == (8, 4)
        for user, (taken, *others) in zip(batch["user"].tolist(), batch["item"].tolist(), strict=True):
            assert (user, taken) in rated
            assert not {(user, other) for other in others} & rated
    other = live("ranking", data, "negatives=3", "seed=1").batch(3, range(8))
    assert not torch.equal(other["item"], task.batch(3, range(8))["item"])


def test_an_epoch_is_every_rating_once(data):
    task = live("ratings", data)
    seen = [task.batch(step, range(8)) for step in range(len(task.opened.learned) // 8)]
    pairs = {pair for batch in seen for pair in zip(batch["user"].tolist(), batch["item"][:, 0].tolist(), strict=True)}
    assert len(pairs) == 8 * len(seen)


def test_rows_are_all_ratings_of_an_item(data):
    task = opened("autorec", data)
    batch = task.batch(0, range(8))
    assert batch["rows"].shape == batch["there"].shape == (8, 9)
    chosen = task.drawn(0, range(8), 12)
    for row, there, item in zip(batch["rows"], batch["there"], chosen, strict=True):
        mine = task.opened.learned.item == item
        assert set(np.flatnonzero(there)) == set(task.opened.learned.user[mine])
        assert row[there].sum() == task.opened.learned.rating[mine].sum()
        assert (row[~there] == 0).all()


# -- judging ----------------------------------------------------------------------------------------------------------


def test_ratings_are_judged_by_a_share_and_rankings_by_the_last_item(data):
    ratings, ranking = live("ratings", data, "held=0.25").opened, live("ranking", data).opened
    assert len(ratings.held) == 18
    assert sorted(ranking.held.user) == list(range(9))
    assert (ranking.held.time >= [ranking.learned.time[ranking.learned.user == u].max() for u in range(9)]).all()


def test_the_error_is_that_of_predictions_cut_to_the_scale(data):
    task = live("ratings", data)
    truth = task.opened.held.rating
    assert task.rmse(truth) == 0
    assert task.rmse(truth + np.where(truth == 5, 100, 0)) == 0  # there is no rating above 5
    assert task.rmse(truth + np.where(truth == 5, -1, 1)) == 1


def test_a_ranking_is_among_all_that_was_not_rated(data):
    task = live("ranking", data)
    held = task.opened.held

    def perfect(users):
        return torch.nn.functional.one_hot(torch.from_numpy(held.item[users]), 12).float()

    best = task.ranked(perfect)
    assert best == {"hit10": 1, "auc": 1, "ndcg10": 1, "hit10_of_100": 1}
    worst = task.ranked(lambda users: -perfect(users))
    assert worst["auc"] == 0
    # a user has rated 8 of 12, one of them held out: 5 candidates are left
    assert worst["hit10"] == 1
    unseen = ~task.opened.learned.seen.mask(held.user)
    assert (unseen.sum(1) == 5).all()


def test_sampled_items_are_99_not_rated_and_the_same_for_every_model():
    random = np.random.default_rng(0)
    unseen = torch.from_numpy(random.random((6, 400)) < 0.7)
    user, target = np.arange(6), torch.from_numpy(random.integers(400, size=6))
    unseen[torch.arange(6), target] = True
    task = RatingsTask
    few = task._few(unseen, target, user)
    assert (few.sum(1) == 99).all()
    assert not (few & ~unseen).any()
    assert not few[torch.arange(6), target].any()
    assert torch.equal(few, task._few(unseen, target, user))
    by_chance = torch.from_numpy(random.random((6, 400)))
    assert hit_at(places(by_chance, target, few), 100) == 1


@pytest.mark.parametrize("name", SMALL)
def test_baselines_stand_beside_a_run(data, tmp_path, name):
    run_tiny(recipe(name, data), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    ranked = name in ("bpr", "neumf")
    assert set(run.baselines()) == (
        {"popularity"}
        if ranked
        else {
            *("mean", "mean of the user", "mean of the item", "both means"),
            *("neighbours of the user", "neighbours of the item"),
        }
    )
    told = recipe(name, data).task.summary(run)
    assert ["data", "9 users, 12 items, " + ("63" if ranked else "65") + " ratings"] in told


# -- learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SMALL)
def test_every_model_learns_in_every_geometry_and_goes_on_exactly(data, tmp_path, name, geometry):
    long = ["steps=150", "lr=0.03", f"geometry={geometry}", "eval_every=none", "save_every=75"]
    result = run_tiny(recipe(name, data, *long), tmp_path / "run")
    lines = [line["loss"] for line in Run.open(tmp_path / "run").lines() if "loss" in line]
    assert sum(lines[-20:]) < 0.8 * sum(lines[:20])
    if name == "mf":
        assert result.evaluation["rmse"] < 1.2  # 1.5 by the mean
    half = recipe(name, data, *long, "schedule=constant", "warmup=0", "steps=2")
    run_tiny(half, tmp_path / "half")
    whole = recipe(name, data, *long, "schedule=constant", "warmup=0", "steps=4")
    run_tiny(whole, tmp_path / "half", resume=True)
    run_tiny(whole, tmp_path / "whole")
    assert_same(exported(tmp_path / "half"), exported(tmp_path / "whole"))


def test_distances_can_score_too(data, tmp_path):
    run_tiny(recipe("mf", data, "score=distance", "geometry=lorentz"), tmp_path / "mf")
    run_tiny(recipe("bpr", data, "score=distance", "geometry=lorentz", "loss=hinge"), tmp_path / "bpr")
    rating, ranking = (Run.open(tmp_path / name).scores() for name in ("mf", "bpr"))
    assert 0 < rating["rmse"] < 10
    assert 0 <= ranking["auc"] <= 1


# -- points -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SMALL)
def test_points_are_the_items(data, tmp_path, name, geometry):
    run_tiny(recipe(name, data, f"geometry={geometry}"), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    vectors, trained = RatingsTask.vectors(run), run.load()
    assert vectors.labels == trained.items
    with torch.no_grad():
        assert torch.equal(vectors.points, item_points(trained.network, trained.data))
    assert type(vectors.manifold).__name__.lower() == geometry
    assert sum(vectors.columns["ratings"]) == len(trained.data.learned)


def test_points_are_users_too_where_distances_score(data, tmp_path):
    run_tiny(recipe("mf", data, "score=distance", "geometry=lorentz"), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    vectors, trained = RatingsTask.vectors(run), run.load()
    assert vectors.labels == [*trained.items, *trained.users]
    assert vectors.columns["kind"] == ["item"] * 12 + ["user"] * 9
    apart = vectors.manifold.dist(vectors.points[0], vectors.points[12:])
    biases = trained.network.user_bias + trained.network.item_bias[0] + trained.network.mean
    scores = trained.network(torch.arange(9), torch.zeros(9, 1, dtype=torch.long))[:, 0]
    torch.testing.assert_close(scores, biases - apart.square())
    one = trained.data.learned.user == 0
    assert vectors.columns["ratings"][12] == one.sum()


# -- what a run answers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_a_run_recommends_what_was_not_rated_and_finds_what_is_near(data, tmp_path, name):
    run_tiny(recipe(name, data), tmp_path / "run")
    trained = Run.open(tmp_path / "run").load()
    learned = trained.data.learned
    known = {trained.items[i] for i in learned.item[learned.user == trained.users.index("user 3")]}
    advice = trained.recommend("user 3", 3)
    assert len(advice) == 3
    assert not {item for item, _ in advice} & known
    assert [score for _, score in advice] == sorted((score for _, score in advice), reverse=True)
    everything = trained.recommend("user 3", 100)
    assert {item for item, _ in everything} == set(trained.items) - known
    near = trained.similar("item 5", 4)
    assert len(near) == 4
    assert "item 5" not in dict(near)
    assert [far for _, far in near] == sorted(far for _, far in near)
    with pytest.raises(UserError, match="there is no user nobody"):
        trained.recommend("nobody")
    with pytest.raises(UserError, match="there is no item item 55; among those there are: item 5"):
        trained.similar("item 55")


def test_predictions_of_a_run_are_those_it_was_judged_by(data, tmp_path):
    for name in ("mf", "autorec"):
        result = run_tiny(recipe(name, data), tmp_path / name)
        trained = Run.open(tmp_path / name).load()
        task = opened(name, data)
        held = task.opened.held
        with torch.no_grad():
            found = predictions(trained.network, trained.data, held.user, held.item)
        assert task.rmse(found) == pytest.approx(result.evaluation["rmse"], rel=1e-5)


# -- mistakes ---------------------------------------------------------------------------------------------------------


def test_what_cannot_be_judged_is_told(tmp_path):
    one = tmp_path / "one.csv"
    one.write_text("ann,tea,5\nbob,rum,1\n")
    for name in ("mf", "bpr"):
        with pytest.raises(UserError, match="no rating is held out to judge by; give users more ratings than one"):
            recipe(name, one).task.open_data()
    full = tmp_path / "full.csv"
    full.write_text("ann,tea,5\nann,rum,1\nbob,rum,3\n")
    with pytest.raises(UserError, match="ann has rated every item, and none is left to rank; leave them out"):
        recipe("bpr", full).task.open_data()


def test_the_scale_is_kept_to(data):
    assert recipe("mf", data, "scale=1,5").task.open_data().scale == (2, 5)
    with pytest.raises(UserError, match="a rating of 5, and ratings go from 1 to 4; mend or remove the row"):
        recipe("mf", data, "scale=1,4").task.open_data()


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("held=2", "held=2: it goes from 0 to 1"),
        ("negatives=0", "negatives=0: it goes from 1"),
        ("geometry=sphere", "geometry=sphere: choose from euclidean, lorentz, poincare"),
        ("score=cosine", "score=cosine: choose from hyperplane, distance"),
        ("penalty=-1", "penalty=-1: it must be at least 0"),
        ("hidden=3", "hidden is a setting of"),
    ],
)
def test_a_wrong_setting(setting, complaint):
    with pytest.raises(UserError, match=complaint):
        Recipe.read("mf", [setting])


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("dim=5", "a run of another network"),
        ("geometry=poincare", "a run in lorentz space, and this one is poincare; give one of the same"),
        ("curvature=2", r"a run on Lorentz\(c=0.1\), and this network is on Lorentz\(c=2.0\)"),
    ],
)
def test_weights_of_another_network_are_refused(data, tmp_path, setting, complaint):
    run_tiny(recipe("mf", data, "geometry=lorentz"), tmp_path / "run")
    with pytest.raises(UserError, match=complaint):
        run_tiny(recipe("mf", data, "geometry=lorentz", setting, f"start={tmp_path / 'run'}"), tmp_path / "other")


def test_other_ratings_are_other_data(data):
    task = tiny("ratings", data).task
    found = task.open_data()
    facts = task.facts(found)
    assert facts == task.facts(task.open_data())
    assert task.facts(replace(found, held=found.learned))["held_digest"] != facts["held_digest"]
    Path(data).write_text(Path(data).read_text().replace(",2,", ",3,"))
    assert task.facts(task.open_data())["digest"] != facts["digest"]


# -- MovieLens --------------------------------------------------------------------------------------------------------


@needs_recbole
@pytest.mark.parametrize("name", SMALL)
def test_recipes_are_for_movielens_and_flat(name):
    assert read_recipe(name)["data"] == "builtin:movielens"
    assert Recipe.read(name).task.configuration().geometry == "euclidean"


@needs_recbole
def test_neighbours_of_items_do_as_well_as_they_should():
    """The specification has .923, of a split of its own."""
    task = opened("mf", "builtin:movielens")
    found = {name: scores["rmse"] for name, scores in task.baselines().items()}
    assert found["neighbours of the item"] < 0.923
    assert found["neighbours of the item"] < found["neighbours of the user"] < found["both means"] < 0.95
    assert found["mean"] == pytest.approx(1.13, abs=0.01)


REACHED = {  # what the specification has of other implementations, and how long ours takes to pass it
    "mf": (["epochs=6"], "rmse", 0.95),
    "autorec": (["epochs=10"], "rmse", 0.95),
    "bpr": (["epochs=3"], "hit10_of_100", 0.377),
    "neumf": (["epochs=3", "batch=256"], "hit10_of_100", 0.598),
}


@needs_recbole
@pytest.mark.parametrize("name", REACHED)
def test_every_model_passes_its_reference(name, tmp_path, monkeypatch):
    more, metric, reference = REACHED[name]
    monkeypatch.setattr(RatingsTask, "baselines", lambda task: {})
    found = run_tiny(Recipe.read(name, more), tmp_path / "run").evaluation[metric]
    assert found <= reference if metric == "rmse" else found >= reference


def test_answers_do_not_depend_on_how_many_are_taken_at_once(data, tmp_path, monkeypatch):
    for name in SMALL:
        task = opened(name, data)
        torch.manual_seed(0)
        model = task.build(task.opened).eval()
        with torch.no_grad():
            whole = task.evaluate(model, last=True)
            monkeypatch.setattr("horosphere.tasks.ratings.PAIRS", 25)
            assert task.evaluate(model, last=True) == pytest.approx(whole, rel=1e-6)
        monkeypatch.undo()
