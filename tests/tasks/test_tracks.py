"""Following a box: what a batch holds, that learning helps beyond what needs none, that a run tracks."""

import numpy as np
import pytest
import torch

from horosphere.data.tracks import middle
from horosphere.errors import UserError
from horosphere.runs import Run
from horosphere.train.recipe import Recipe
from horosphere.train.training import evaluate
from tests.tasks.test_every_task import live
from tests.tasks.tiny import run_tiny, tiny, write_data, write_sequences

pytest.importorskip("torchvision", reason="its intersection over union")
pytest.importorskip("skimage", reason="its photographs are drawn upon")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data("tracks", tmp_path_factory.mktemp("tracks"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short training on discs that turn."""
    folder = tmp_path_factory.mktemp("runs") / "siamfc"
    settings = ["steps=60", "batch=16", "width=8", "search=64", "eval_every=none", "save_every=60"]
    run_tiny(Recipe.read("siamfc", settings), folder)
    return Run.open(folder)


def test_the_signs_of_a_batch_say_where_the_template_lies(data):
    """The square is all red: where it lies in the search can be seen."""
    task = live("tracks", data, "search=44", "template=20", "radius=2")
    batch = task.batch(0, range(8))
    for template, search, given in zip(batch["template"], batch["search"], batch["signs"], strict=True):
        assert (template[0] > 200).all()
        red = (search[0] > 225).numpy()
        seen = np.array([[middle_of(red.any(0)), middle_of(red.any(1))]]) - 22
        row, column = np.argwhere(given.numpy() > 0).mean(0)
        assert np.abs(2 * np.array([column, row]) - 12 - seen).max() <= 1.5


def middle_of(there):
    places = np.flatnonzero(there)
    return (places[0] + places[-1] + 1) / 2


def test_a_short_training_beats_the_untrained_and_the_place_where_it_was(run):
    scores, beside = run.scores(), run.baselines()
    torch.manual_seed(0)
    task = Recipe.read("siamfc", ["width=8", "search=64"]).task
    task.engine = Recipe.read("siamfc").engine
    task.ready(task.open_data())
    untrained = task.evaluate(task.build(task.opened).eval(), last=True)
    stays = beside["stays where it was"]
    for other in (untrained, stays):
        assert scores["distance"] < 0.75 * other["distance"]
        assert scores["near"] > other["near"]
        assert scores["overlap"] > other["overlap"]
    moved = [np.linalg.norm(pair.moved) for pair in task.judged]
    assert stays["distance"] == pytest.approx(np.mean(moved))
    assert stays["near"] == pytest.approx(np.mean(np.array(moved) < 5))


def test_a_run_tracks_a_box_as_its_evaluation_says(run):
    tracker = run.load()
    task = Recipe.read("siamfc", ["width=8", "search=64"]).task
    overlaps = []
    for track in task.open_data().valid:
        found = tracker.track([track.read(t) for t in range(len(track))], track.boxes[0].tolist())
        lower, upper = np.maximum(found, track.boxes)[1:, :2], np.minimum(found, track.boxes)[1:, 2:]
        shared = (upper - lower).clip(0).prod(1)
        overlaps.append((shared / (2 * 32**2 - shared)).mean())
    assert np.mean(overlaps) == pytest.approx(run.scores()["overlap"], abs=1e-6)


def test_other_sequences_can_be_judged_by(data, tmp_path):
    run_tiny(tiny("tracks", data), tmp_path / "run")
    write_sequences(tmp_path / "others", count=2, frames=5)
    scores = evaluate(Run.open(tmp_path / "run"), str(tmp_path / "others"), device="cpu")
    assert scores.keys() == {"overlap", "distance", "near"}


def test_pairs_to_judge_are_near_and_within_the_search(data):
    task = live("tracks", data, "reach=2")
    assert all(0 < abs(pair.first - pair.second) <= 2 for pair in task.judged)
    assert all(abs(middle(p.track.boxes[p.second]) - middle(p.track.boxes[p.first])).max() <= 8 for p in task.judged)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["data=nowhere"], "nowhere: no such folder"),
        (["radius=1"], "answers lie 2 pixels apart"),
        (["template=10"], "the network sees 17 pixels at once"),
        (["geometry=lorentz"], "SiamFC exists in flat space only"),
        (["model=lenet"], "a model of the task pictures; tracks has siamfc"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_written(data, tmp_path, settings, complaint):
    with pytest.raises(UserError, match=complaint):
        run_tiny(tiny("tracks", data, *settings), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_sequences_in_which_nothing_can_be_learned_are_named(tmp_path):
    write_sequences(tmp_path / "still", count=2, frames=1)
    with pytest.raises(UserError, match="a sequence of one frame"):
        run_tiny(tiny("tracks", tmp_path / "still"), tmp_path / "run")
    write_sequences(tmp_path / "fast", count=2, frames=6)
    for file in (tmp_path / "fast").glob("*/groundtruth_rect.txt"):
        file.write_text("".join(f"{1 + 8 * t},1,20,20\n" for t in range(6)))
    with pytest.raises(UserError, match="search=24: every box to judge by moves farther"):
        run_tiny(tiny("tracks", tmp_path / "fast", "search=24"), tmp_path / "run")
