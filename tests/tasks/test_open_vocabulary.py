"""Open-vocabulary segmentation: what is unseen stays unseen, scores are their definitions, and every method trains."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from horosphere.data.dense import IGNORED
from horosphere.errors import UserError
from horosphere.models.adapters import Adaptation
from horosphere.models.cost_aggregation import CostAggregationConfig, OpenVocabularySegmenter
from horosphere.models.towers import Towers
from horosphere.runs import Run
from horosphere.study.planning import plan
from horosphere.tasks.open_vocabulary import OpenVocabulary
from tests.models.tiny_clip import huggingface_clip
from tests.tasks.test_every_task import live
from tests.tasks.tiny import ON_TOWERS, OPEN, run_tiny, tiny, write_data
from tests.train.toy_task import lines

pytest.importorskip("transformers", reason="the towers are transformers' CLIP")
pytest.importorskip("PIL.Image", reason="pictures need Pillow")
KIND = "open_vocabulary"
SHARED = Path(__file__).parents[3] / "shared" / "data" / "images" / "camvid"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    assert KIND in ON_TOWERS
    return write_data(KIND, tmp_path_factory.mktemp("data"))


def segmenter(method="none", sides="text", **changes):
    torch.manual_seed(0)
    config = CostAggregationConfig(channels=8, heads=2, window=3, guide=4, text_guide=4, **changes)
    return OpenVocabularySegmenter(huggingface_clip(), Adaptation(method, sides, block=8), config)


def pictures(count=2, height=32, width=40):
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8)


# -- seen and unseen --------------------------------------------------------------------------------------------------


def test_one_class_of_three_is_unseen_where_nobody_says_which(data):
    task = tiny(KIND, data).task
    assert task.unseen_of(list("abcdefghijk")) == ["c", "f", "i"]
    assert tiny(KIND, data, "unseen=square,ground").task.unseen_of(["ground", "square", "circle"]) == [
        "ground",
        "square",
    ]
    assert tiny(KIND, data, "unseen=[]").task.unseen_of(["ground", "square", "circle"]) == []


def test_pixels_of_unseen_classes_count_for_nothing_and_seen_ones_are_numbered_anew(data):
    told, all_of_them = live(KIND, data, "unseen=square"), live(KIND, data, "unseen=[]")
    masks, plain = (task.batch(0, range(4))["masks"] for task in (told, all_of_them))
    assert told.seen == ["ground", "circle"]
    renumbered = {0: 0, 1: IGNORED, 2: 1, IGNORED: IGNORED}
    assert {0, 1, 2} <= set(plain.unique().tolist()) <= set(renumbered)
    assert torch.equal(masks, plain.clone().apply_(renumbered.get))


def test_names_of_unseen_classes_are_not_in_the_vocabulary_of_training(data, monkeypatch):
    read = []
    vectors = OpenVocabularySegmenter.vectors
    monkeypatch.setattr(
        OpenVocabularySegmenter, "vectors", lambda self, texts: read.append(texts) or vectors(self, texts)
    )
    task = live(KIND, data, "unseen=square", "template=one {}")
    model = task.build(task.pictures)
    task.loss(model, task.batch(0, range(4)))
    task.evaluate(model, last=True)
    assert read[0] == ["one ground", "one circle"]
    assert read[-1] == ["one ground", "one square", "one circle"]


def test_scores_are_those_counted_by_hand(data):
    task = live(KIND, data, "unseen=square")

    def answer(images, texts):
        bright = images.float().mean(1) / 255 - 0.35
        return torch.stack([-bright, bright, torch.full_like(bright, -9.0)], 1)

    counts = np.zeros((3, 3))
    for number in range(len(task.pictures.valid)):
        image, mask = task.pictures.valid.read(number)
        guess = (image.mean(-1) / 255 > 0.35).astype(int)
        for truth in range(3):
            for said in range(3):
                counts[truth, said] += ((mask == truth) & (guess == said)).sum()
    ground, square, circle = counts.diagonal() / (counts.sum(0) + counts.sum(1) - counts.diagonal())
    scores = task.scores(answer)
    assert scores["seen_miou"] == pytest.approx((ground + circle) / 2, abs=1e-6)
    assert scores["unseen_miou"] == pytest.approx(square, abs=1e-6)
    assert scores["miou"] == pytest.approx((ground + square + circle) / 3, abs=1e-6)
    assert "unseen_miou" not in live(KIND, data, "unseen=[]").scores(answer)


def test_names_come_from_the_data_where_they_have_some(tmp_path):
    source = write_data(KIND, tmp_path)
    assert tiny(KIND, source).task.open_data().classes == ["ground", "square", "circle"]
    Path(source, "classes.txt").write_text("floor\nbox\nball\n")
    assert tiny(KIND, source).task.open_data().classes == ["floor", "box", "ball"]


# -- the model --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "sides"), [("none", "text"), ("hyperclip", "both"), ("lora", "text"), ("oft", "image"), ("full", "both")]
)
def test_every_method_trains_and_only_what_learns_is_kept(data, tmp_path, method, sides):
    if method in ("lora", "oft"):
        pytest.importorskip("peft")
    run_tiny(tiny(KIND, data, f"method={method}", f"sides={sides}", "tower_rate=1", "steps=2"), tmp_path / "run")
    kept = load_file(tmp_path / "run" / "model.safetensors")
    towers = {name for name in kept if name.startswith("towers.")}
    assert bool(towers) == (method != "none")
    assert {side for side in ("text", "vision") if any(f".{side}_model." in name for name in towers)} == (
        set() if method == "none" else {"both": {"text", "vision"}, "text": {"text"}, "image": {"vision"}}[sides]
    )
    fresh = tiny(KIND, data, f"method={method}", f"sides={sides}").task.segmenter().state_dict()
    assert fresh.keys() == kept.keys()
    assert all(not torch.equal(kept[name], fresh[name]) for name in towers if "lora_A" not in name and kept[name].any())


@pytest.mark.parametrize(("method", "sides"), [("none", "text"), ("full", "image"), ("hyperclip", "text")])
def test_names_are_encoded_once_unless_their_tower_learns(method, sides, monkeypatch):
    model, calls = segmenter(method, sides), []
    text = type(model.towers).text
    monkeypatch.setattr(type(model.towers), "text", lambda self, tokens: calls.append(1) or text(self, tokens))
    for _ in range(3):
        model(pictures(), ["a", "b"]).sum().backward()
    assert len(calls) == (3 if (method, sides) == ("hyperclip", "text") else 1)
    learned = [p for p in model.adapter.trainable() if p.grad is not None and p.grad.abs().sum() > 0]
    assert bool(learned) == (method != "none")


def test_towers_learn_at_a_share_of_the_heads_rate(data):
    task = live(KIND, data, "tower_rate=0.05", "method=hyperclip", "sides=both")
    model = task.build(task.pictures)
    groups = task.optimizer(model).param_groups
    rates = {id(p): group.get("lr_scale", 1.0) for group in groups for p in group["params"]}
    assert {rates[id(p)] for p in model.head.parameters()} == {1.0}
    assert {rates[id(p)] for p in model.adapter.trainable()} == {0.05}
    assert len(rates) == sum(p.requires_grad for p in model.parameters())


def test_towers_are_never_in_training_mode():
    model = segmenter("full", "both").train()
    assert model.head.training
    assert not any(module.training for module in model.towers.modules())


@pytest.mark.parametrize(("height", "width"), [(32, 40), (33, 47), (5, 9)])
def test_a_picture_of_any_size_has_an_answer_at_each_pixel(height, width):
    model, pixels = segmenter().eval(), pictures(2, height, width)
    for answer in (model(pixels, ["a", "b", "c"]), model.cosines(pixels, ["a", "b", "c"])):
        assert answer.shape == (2, 3, height, width)
        assert answer.isfinite().all()
    whole = model.filled(pixels)
    assert torch.equal(whole[..., :height, :width], pixels)
    assert all(side % 8 == 0 for side in whole.shape[2:])
    if whole.shape[2] > height:
        assert whole[0, :, -1, 0].tolist() == [round(255 * c) for c in model.towers.mean]


def test_a_run_answers_for_names_it_never_heard(data, tmp_path):
    run_tiny(tiny(KIND, data, "steps=1"), tmp_path / "run")
    trained = Run.open(tmp_path / "run").load()
    assert (trained.classes, trained.unseen) == (["ground", "square", "circle"], ["circle"])
    answer = trained.segment(pictures(), ["floor", "box", "ball", "dog", "cat"])
    assert answer.shape == (2, 32, 40)
    assert answer.max() < 5
    vectors = OpenVocabulary.vectors(Run.open(tmp_path / "run"))
    assert (vectors.labels, vectors.columns["kind"]) == (trained.classes, ["seen", "seen", "unseen"])
    torch.testing.assert_close(vectors.points.norm(dim=1), torch.ones(3))


def test_towers_of_chance_learn_with_their_head(data, tmp_path):
    changes = ("method=full", "tower_rate=0.1", "steps=40", "batch=8", "scale=1,1", "eval_every=none", "channels=16")
    run_tiny(tiny(KIND, data, *changes, "save_every=40"), tmp_path / "run")
    losses = [line["loss"] for line in lines(tmp_path / "run") if "loss" in line]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs CamVid in ../shared/data")
def test_real_pictures_have_names(tmp_path):
    task = tiny(KIND, SHARED, "names=sky,building,pole,road,pavement,tree,sign,fence,car,pedestrian,bicyclist").task
    task.ignore = 11
    opened = task.open_data()
    assert (len(opened.train), len(opened.valid)) == (367, 101)
    assert task.unseen_of(opened.classes) == ["pole", "tree", "car"]
    highest = [opened.valid.read(number)[1] for number in range(0, 101, 10)]
    sky, road = ((np.argwhere(np.stack(highest) == number)[:, 1]).mean() for number in (0, 3))
    assert sky < 60 < 120 < road  # rows of 180


# -- comparison -------------------------------------------------------------------------------------------------------


def test_frozen_and_adapted_towers_are_compared(data, tmp_path):
    own = [s for s in OPEN if not s.startswith(("method=", "sides="))]
    study = plan("open-vocabulary", [f"data={data}", *own], None, 3, tmp_path / "out")
    methods = {name: recipe.task.adaptation.method for name, recipe in study.recipes.items()}
    assert methods == {"frozen": "none", "HyperCLIP": "hyperclip", "LoRA": "lora", "OFT": "oft", "full": "full"}
    with pytest.raises(UserError, match="method=lora: this is what the entrants of the comparison differ in"):
        plan("open-vocabulary", [f"data={data}", "method=lora"], None, 3, tmp_path / "out")


# -- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["unseen=circel"], "unseen=circel: there is no such class; did you mean circle"),
        (["unseen=ground,square,circle"], "these are all classes, so there is nothing to learn from; leave some out"),
        (["names=none"], "its classes have numbers, but no names; give names="),
        (["names=a,b,a"], "two classes are called a"),
        (["names=a,b"], "a pixel of class 2, but classes go from 0 to 1; give more classes"),
        (["block=7"], "block=7 does not divide the width"),
        (["towers=nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_named_in_one_line(data, tmp_path, settings, complaint):
    with pytest.raises(UserError) as error:
        run_tiny(tiny(KIND, data, *settings), tmp_path / "run")
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_classes_are_looked_at_with_the_data(data):
    """Before towers are opened, which may take long."""
    with pytest.raises(UserError, match="there is no such class; did you mean circle"):
        tiny(KIND, data, "unseen=circel").task.open_data()


def test_verdicts_speak_of_seen_and_unseen_classes():
    assert [m.name for m in OpenVocabulary.metrics if m.role == "judged"] == ["seen_miou", "unseen_miou"]


@pytest.mark.parametrize("template", ["a photo", "{0}"])
def test_a_template_has_a_place_for_a_name(data, template):
    with pytest.raises(UserError, match="where does the name go"):
        tiny(KIND, data, f"template={template}")


def test_towers_without_places_are_refused(monkeypatch):
    towers = huggingface_clip()
    monkeypatch.setattr(type(towers), "patches", Towers.patches)
    with pytest.raises(UserError, match="has no vectors of places"):
        OpenVocabularySegmenter(towers, Adaptation(), CostAggregationConfig())


def test_the_recipe_has_the_rates_of_the_paper():
    task = OpenVocabulary(model="cost-aggregation", data="a")
    assert task.tower_rate == pytest.approx(1e-5 / 2e-4)
    assert task.template == "a photo of a {}."
