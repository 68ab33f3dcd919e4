"""What holds for every kind of learning: runs resume exactly, load as they were, and say in one line what is wrong."""

import contextlib
import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from horosphere import catalogue, settings
from horosphere.described import describe
from horosphere.errors import UserError
from horosphere.geometry import Euclidean, Lorentz, Poincare, Product
from horosphere.recipes import read_recipe, recipe_names
from horosphere.runs import Run
from horosphere.train import training
from horosphere.train.distributed import World
from horosphere.train.recipe import Recipe, parts
from horosphere.train.training import evaluate
from tests.tasks.tiny import KINDS, TINY, run_tiny, tiny, write_data
from tests.train.toy_task import lines

NEEDS = {
    "language": ("transformers",),
    "characters": ("transformers",),
    "sequential": ("transformers",),
    "pictures": ("torchvision",),
    "semantic": ("torchvision",),
    "instances": ("torchvision", "torchmetrics", "pycocotools"),
    "boxes": ("torchvision", "torchmetrics", "pycocotools"),
    "open_vocabulary": ("transformers", "PIL"),
    "nodes": (),
    "few_shot": ("transformers",),
    "image_text": ("transformers",),
    "masked": ("transformers",),
    "tables": (),
    "machines": (),
    "ratings": (),
    "ranking": (),
    "words": (),
    "counts": (),
    "pairs": (),
    "transformed": (),
    "texts": (),
    "style": ("torchvision", "PIL"),
    "tracks": ("torchvision", "PIL"),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    made = {}

    def write(kind):
        for package in NEEDS[kind]:
            pytest.importorskip(package)
        if kind not in made:
            made[kind] = write_data(kind, tmp_path_factory.mktemp(kind))
        return made[kind]

    return write


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    """A finished run of each kind, made when it is first asked for."""
    folder, made = tmp_path_factory.mktemp("runs"), {}

    def run(kind):
        if kind not in made:
            made[kind] = folder / kind
            run_tiny(tiny(kind, data(kind)), made[kind])
        return made[kind]

    return run


def tensors(folder, step=4):
    files = (Path(folder) / "checkpoints" / f"step-{step:08d}").glob("*.safetensors")
    return {f"{file.name}:{name}": t for file in files for name, t in load_file(file).items()}


def exported(folder):
    return load_file(
        next(folder / name for name in ("model.safetensors", "points.safetensors") if (folder / name).is_file())
    )


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def live(kind, data, *more, rank=0, size=1):
    """A task that is ready for batches."""
    recipe = tiny(kind, data, *more)
    task = recipe.task
    task.world = World(rank, size)
    opened = task.in_part(task.open_data())
    task.engine = recipe.engine.for_data(task.rows(opened), recipe.engine.batch)
    task.ready(opened)
    return task


# -- batches ----------------------------------------------------------------------------------------------------------

WHOLE = {
    "language": ("tokens",),
    "characters": ("tokens",),
    "sequential": ("tokens", "slots"),
    "pictures": ("images", "targets"),
    "semantic": ("images", "masks"),
    "open_vocabulary": ("images", "masks"),
    "instances": ("boxes", "labels", "counts"),
    "boxes": ("images",),
    "nodes": ("nodes", "related"),
    "few_shot": ("images", "labels"),
    "image_text": ("before", "text.input_ids"),
    "masked": ("tokens", "segments", "places", "targets", "apart", "lengths"),
    "tables": ("x", "y"),
    "machines": ("x", "noise"),
    "ratings": ("user", "item", "rating"),
    "ranking": ("user", "item"),
    "words": ("centre", "context"),
    "counts": ("word", "context", "count"),
    "pairs": ("source", "lengths", "target"),
    "transformed": ("source", "lengths", "target"),
    "texts": ("tokens", "lengths", "labels"),
    "tracks": ("search", "template", "signs"),
}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "style"])  # whose one row is the same in each step
def test_a_batch_is_a_function_of_its_step_however_it_is_shared(data, kind):
    whole = live(kind, data(kind))
    rows = whole.engine.batch
    shared = [live(kind, data(kind), f"micro_batch={rows // 4}", rank=rank, size=2) for rank in (0, 1)]
    for step in range(2):
        together = whole.batch(step, range(rows))
        orders = [range(i, i + rows // 4) for i in range(0, rows, rows // 4)]  # as the engine asks
        pieces = [shared[place // 2].batch(step, order) for place, order in enumerate(orders)]
        for name in WHOLE[kind]:
            torch.testing.assert_close(torch.cat([piece[name] for piece in pieces]), together[name], rtol=0, atol=1e-6)
    again = live(kind, data(kind)).batch(1, range(rows))
    first, second = whole.batch(0, range(rows)), whole.batch(1, range(rows))
    name = WHOLE[kind][0]
    assert torch.equal(again[name], second[name])
    assert first[name].shape != second[name].shape or not torch.equal(first[name], second[name])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "instances"])  # which draws boxes to learn from
def test_micro_batches_change_nothing(data, runs, tmp_path, kind):
    if kind == "boxes":
        pytest.skip("batch norms see a micro batch")
    if kind == "pictures":
        pytest.skip("what is dropped out is drawn for each micro batch")
    more = ["drop_path=0"] if kind == "semantic" else []
    if kind == "few_shot":
        pytest.skip("triplets are found within a micro batch")
    if kind == "image_text":
        pytest.skip("the hardest pair is found within a micro batch")
    if kind == "style":
        pytest.skip("its batch has one row")
    if kind == "tracks":
        pytest.skip("norms are over a micro batch")
    folders = [tmp_path / "whole", tmp_path / "parts"]
    for folder, micro in zip(folders, ("none", "2"), strict=True):
        dense = "helm-d-tiny" if kind == "language" else None  # experts are balanced within a micro batch
        run_tiny(tiny(kind, data(kind), *more, f"micro_batch={micro}", name=dense), folder)
    for a, b in zip(*map(lines, folders), strict=True):
        assert a.pop("baseline", None) == b.pop("baseline", None)  # a name
        assert a == pytest.approx(b, rel=2e-3, abs=1e-5)


# -- points -----------------------------------------------------------------------------------------------------------

NO_POINTS = {"semantic", "instances", "boxes", "tables", "machines", "pairs", "transformed", "style", "tracks"}


@pytest.mark.parametrize("kind", KINDS)
def test_points_are_whole_and_on_their_manifold(data, runs, kind):
    run = Run.open(runs(kind))
    task = type(tiny(kind, data(kind)).task)
    if kind in NO_POINTS:
        with pytest.raises(UserError, match="which learns no labelled points"):
            task.vectors(run)
        return
    vectors = task.vectors(run)
    count, m = len(vectors.labels), vectors.manifold
    assert vectors.points.shape[0] == count > 2
    assert vectors.points.isfinite().all()
    assert m.dist0(vectors.points).isfinite().all()  # a point beyond the edge of a ball has no distance
    assert not vectors.points.requires_grad
    assert not any(parameter.requires_grad for parameter in m.parameters())
    assert isinstance(m, (Euclidean, Lorentz, Poincare, Product))
    assert all(len(column) == count for column in vectors.columns.values())
    assert vectors.graph is None or list(vectors.graph.labels) == list(vectors.labels)
    assert vectors.aperture is None or vectors.aperture.shape == (count,)
    assert len(vectors.as_csv("ball").splitlines()) >= count + 1
    shown = [vectors.thumbnail(i) for i in range(count)] if vectors.thumbnail else []
    for picture in (picture for picture in shown if picture is not None):
        assert (picture.dtype, picture.shape[2], max(picture.shape) <= 96) == (np.uint8, 3, True)


# -- runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_can_be_loaded_and_goes_on_exactly(data, runs, tmp_path, kind, monkeypatch):
    whole, folder, recipe, calls = runs(kind), tmp_path / "run", tiny(kind, data(kind)), []
    loss = type(recipe.task).loss

    def interrupted(task, model, batch):
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return loss(task, model, batch)

    with monkeypatch.context() as patch:
        patch.setattr(type(recipe.task), "loss", interrupted)
        with pytest.raises(SystemExit):
            run_tiny(recipe, folder)
    assert not (folder / recipe.task.mark).exists()
    halfway = Run.open(folder).load()
    run_tiny(tiny(kind, data(kind)), folder, resume=True)
    assert_same(tensors(folder), tensors(whole))
    assert_same(exported(folder), exported(whole))
    assert lines(folder) == lines(whole)
    assert type(halfway) is type(Run.open(folder).load())


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_loaded_from_its_export_or_its_checkpoint_alike(runs, tmp_path, kind):
    whole = runs(kind)
    bare = Path(shutil.copytree(whole, tmp_path / "bare"))
    (bare / tiny_mark(kind)).unlink()
    states = [state_of(Run.open(folder).load()) for folder in (whole, bare)]
    assert_same(*states)


def tiny_mark(kind):
    language = dict.fromkeys(("language", "characters", "sequential"), "config.json")
    return {**language, "nodes": "points.safetensors"}.get(kind, "model.safetensors")


def state_of(trained):
    if hasattr(trained, "points"):
        return {"points": trained.points}
    network = getattr(trained, "network", None) or trained.model
    assert not network.training
    return network.state_dict()


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_judged_again_as_it_was(data, runs, kind, tmp_path):
    run = Run.open(runs(kind))
    last = {name: value for name, value in run.evaluations()[-1].items() if name != "step"}
    again = evaluate(run, device="cpu")
    assert {name: again[name] for name in last} == pytest.approx(last, rel=1e-5)
    less = replace(run, about=replace(run.about, facts=dict.fromkeys(run.about.facts, 1)))
    with pytest.raises(UserError, match="has changed since"):
        evaluate(less, device="cpu")


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_says_what_it_was(runs, kind):
    about = Run.open(runs(kind)).about
    assert about.task == read_recipe(TINY[kind][0])["task"]
    assert about.recipe.keys() == {"task", "model", "engine"}
    assert about.recipe["engine"]["lr"] == (0.1 if kind == "nodes" else 0.01)
    assert about.facts["parameters"] > 10
    assert about.made_with.keys() == {"date", "command", "machine", "device", "processes", "versions"}
    assert Run.open(runs(kind)).evaluations()[-1]["step"] == 4
    rows = Recipe.read(TINY[kind][0], ["data=x", *TINY[kind][1]]).task.summary(Run.open(runs(kind)))
    assert all(len(row) == 2 for row in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_ended_before_its_export_is_exported_on_resume(data, runs, tmp_path, kind):
    folder = Path(shutil.copytree(runs(kind), tmp_path / "run"))
    before = exported(folder)
    for file in folder.glob("*.safetensors"):
        file.unlink()
    (folder / tiny_mark(kind)).unlink(missing_ok=True)
    run_tiny(tiny(kind, data(kind)), folder, resume=True)
    assert_same(exported(folder), before)


COUNTED = ("running_mean", "running_var", "num_batches_tracked")  # by a norm, in every step


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_can_begin_with_the_weights_of_another(data, runs, tmp_path, kind):
    start = runs("pictures") if kind in ("semantic", "instances") else runs(kind)
    more = ["stem_kernel=3", "stem_stride=1"] if kind in ("semantic", "instances") else []
    result = run_tiny(tiny(kind, data(kind), *more, f"start={start}", "steps=1", "lr=1e-9"), tmp_path / "run")
    assert result.step == 1
    given, mine = (
        {name: t for name, t in state_of(Run.open(folder).load()).items() if not name.endswith(COUNTED)}
        for folder in (start, tmp_path / "run")
    )
    pairs = [(t, value) for name, t in mine.items() for other, value in given.items() if name.endswith(other)]
    assert sum(torch.allclose(a, b, atol=1e-5) for a, b in pairs if a.shape == b.shape) >= 0.8 * len(given) - 2


# -- mistakes ---------------------------------------------------------------------------------------------------------


def everything(folder):
    return {str(path): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def refused(folder, action, complaint):
    """One line; nothing in the folder has changed."""
    before = everything(folder)
    with pytest.raises(UserError) as error:
        action()
    assert everything(folder) == before
    assert "\n" not in str(error.value)
    assert complaint in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_overwritten_or_resumed_as_another_run(data, runs, tmp_path, kind):
    recipe = tiny(kind, data(kind))
    refused(runs(kind), lambda: run_tiny(recipe, runs(kind)), "exists already")
    other = tiny(kind, data(kind), "lr=0.5")
    refused(runs(kind), lambda: run_tiny(other, runs(kind), resume=True), "lr")
    (tmp_path / "mine.txt").write_text("mine")
    refused(tmp_path, lambda: run_tiny(recipe, tmp_path, overwrite=True), "holds no run.json")


SIDECARS = {
    "language": "tokenizer.json",
    "characters": "tokenizer.json",
    "sequential": "tokenizer.json",
    "masked": "tokenizer.json",
    "nodes": "labels.json",
    "tables": "table.json",
    "machines": "table.json",
    "ratings": "names.json",
    "ranking": "learned.npz",
    "words": "words.json",
    "counts": "words.json",
    "pairs": "vocabulary.json",
    "transformed": "vocabulary.json",
    "texts": "vocabulary.json",
}


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_run_is_named(runs, tmp_path, kind):
    folder = Path(shutil.copytree(runs(kind), tmp_path / "run"))
    weights = "points.safetensors" if kind == "nodes" else "model.safetensors"
    whole = (folder / weights).read_bytes()
    truncate(folder / weights)
    refused(folder, lambda: Run.open(folder).load(), "damaged or foreign")
    (folder / weights).write_bytes(whole)
    sidecar = SIDECARS.get(kind, "classes.json")
    if kind not in ("image_text", "style", "tracks"):  # which need no other file
        truncate(folder / sidecar)
        refused(folder, lambda: Run.open(folder).load(), "damaged")
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, "task": "weather"}))
    refused(folder, lambda: Run.open(folder).load(), "which is not installed here")
    refused(
        folder, lambda: Run.open(folder, "language" if kind != "language" else "nodes"), "a run of the task weather"
    )
    truncate(folder / "run.json")
    refused(folder, lambda: Run.open(folder), "run.json: a damaged file")
    refused(tmp_path, lambda: Run.open(tmp_path), "no folder of a run")


ODD = (None, True, -1, 0, 10**30, 1e999, "", "odd", [], [1], {}, {"odd": 1})


def leaves(tree, path=()):
    """Where the values of nested dictionaries are."""
    for name, value in tree.items():
        yield (*path, name)
        if isinstance(value, dict):
            yield from leaves(value, (*path, name))


@pytest.mark.parametrize("file", ["run.json", "state.json"])
@pytest.mark.parametrize("kind", ["nodes", "pictures", "semantic"])
def test_a_file_of_a_run_with_an_odd_value_is_read_or_named(data, runs, tmp_path, kind, file):
    """Whatever stands where: what comes of it is a run, or one line."""
    folder = Path(shutil.copytree(runs(kind), tmp_path / "run"))
    weights = folder / ("points.safetensors" if kind == "nodes" else "model.safetensors")
    path = folder / file if file == "run.json" else folder / "checkpoints/step-00000004" / file
    whole, recipe = path.read_bytes(), tiny(kind, data(kind))
    weights.unlink()  # so that the checkpoint is read
    places = list(leaves(json.loads(whole)))
    choices = np.random.default_rng(0)
    named = 0
    for number in range(40):
        place, odd = places[number * len(places) // 40], ODD[choices.integers(len(ODD))]
        about = json.loads(whole)
        part = about
        for name in place[:-1]:
            part = part[name]
        part[place[-1]] = odd
        path.write_text(json.dumps(about))
        for use in (lambda: Run.open(folder).load(), lambda: run_tiny(recipe, folder, resume=True)):
            with contextlib.suppress(UserError):  # which is one line always
                use()
                named -= 1
            named += 1
        weights.unlink(missing_ok=True)
    assert named > 20


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("stepps=2", "did you mean steps"),
        ("steps=many", "steps=many: it should be a whole number"),
        ("steps=-1", "steps=-1: it goes from 0 to 1e9"),
        ("lr=-1", "lr=-1: it must be positive"),
        ("warmup=nan", "warmup=nan: it should be a number"),
        ("betas=1,2", "betas=1: it goes from 0 to just below 1"),
        ("seed=-1", "seed=-1: it goes from 0 to just below"),
        ("model=gpt", "model=gpt: there is no such model"),
        ("steps", "a setting is written key=value"),
        ("task=weather", "there is no such task"),
    ],
)
def test_a_wrong_setting_is_named(kind, setting, complaint):
    with pytest.raises(UserError) as error:
        tiny(kind, "data", setting)
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("setting", "complaint"), [({"lr": -1.0}, "lr=-1"), ({"steps": 0}, "either steps"), ({"keep": 0}, "keep=0")]
)
def test_a_recipe_that_was_changed_in_python_is_checked_too(data, tmp_path, kind, setting, complaint):
    recipe = tiny(kind, data(kind))
    with pytest.raises(UserError, match=complaint):
        run_tiny(replace(recipe, engine=replace(recipe.engine, **setting)), tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("rank", "quiet"), [(0, False), (0, True), (1, False), (1, True)])
def test_one_process_speaks_and_only_where_it_may(data, tmp_path, monkeypatch, rank, quiet):
    recipe = tiny("nodes", data("nodes"))

    def look(task):
        raise UserError(f"quiet: {task.quiet}")

    monkeypatch.setattr(training, "world", lambda device: contextlib.nullcontext(World(rank)))
    monkeypatch.setattr(type(recipe.task), "open_data", look)
    with pytest.raises(UserError, match=f"quiet: {rank > 0 or quiet}"):
        run_tiny(recipe, tmp_path / "run", quiet=quiet)


def test_a_setting_of_somebody_else_is_said_to_be_theirs():
    whose = r"vocab is a setting of the task language and the task masked; embedding in the task nodes has none such"
    with pytest.raises(UserError, match=whose):
        tiny("nodes", "tree.tsv", "vocab=300")
    with pytest.raises(UserError, match=r"drop_path is a setting of HCFormer"):
        Recipe.read("himapper-32", ["data=a.npz", "drop_path=0.1"])
    with pytest.raises(
        UserError, match=r"model=helm-d-tiny: a model of the task language; pictures has hcformer-nano-32"
    ):
        tiny("pictures", "a.npz", "model=helm-d-tiny")


# -- the table of names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_sound_and_no_setting_has_two_owners(name):
    given = read_recipe(name)
    cls = catalogue.resolve(catalogue.task(given["task"]).build)
    assert cls.kind == given["task"]
    names = [setting for part in parts(cls, given) for setting in settings.settings_of(part)]
    assert len(names) == len(set(names))
    assert Recipe.read(name, ["data=somewhere"]).task.data == "somewhere"
    told = catalogue.known_settings(given)
    assert set(told) == set(names)


@pytest.mark.parametrize("name", [name for name, model in catalogue.models().items() if model.settings])
def test_what_help_says_of_a_model_is_what_it_takes(name):
    entry = catalogue.models()[name]
    assert set(describe(entry.settings)) == set(settings.settings_of(catalogue.resolve(entry.settings)))
    for ablation in entry.ablations:
        assert ablation.rpartition(".")[2] in settings.settings_of(catalogue.resolve(entry.settings))


def test_every_entry_of_the_catalogue_stands_for_something():
    for task in catalogue.tasks().values():
        for reference in filter(None, (task.build, task.options, task.drawer)):
            if not reference.startswith("tests."):
                catalogue.resolve(reference)
    for model in catalogue.models().values():
        assert model.task in catalogue.tasks()
        for reference in filter(None, (model.build, model.configure, model.settings)):
            catalogue.resolve(reference)
        assert not model.twin or catalogue.models()[model.twin].geometries == ("euclidean",)
        assert not model.comparison or model.comparison in catalogue.comparisons() or model.comparison == "geometries"
    for comparison in catalogue.comparisons().values():
        names = {entrant.name for entrant in comparison.entrants}
        for entrant in comparison.entrants:
            assert not entrant.recipe or entrant.recipe in recipe_names()
            assert {entrant.twin_of, entrant.ablation_of} <= {"", *names}


@pytest.mark.parametrize("gone", ["removed", "a file"])
def test_a_finished_run_without_checkpoints_is_not_trained_anew_in_silence(data, tmp_path, gone):
    recipe = tiny("nodes", data("nodes"))
    run_tiny(recipe, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/checkpoints")
    if gone == "a file":
        (tmp_path / "run/checkpoints").touch()
    before = everything(tmp_path / "run")
    with pytest.raises(UserError, match="is trained to its end, and its checkpoints are gone"):
        run_tiny(recipe, tmp_path / "run", resume=True)
    assert everything(tmp_path / "run") == before


# -- data that change under a run -------------------------------------------------------------------------------------


def test_a_run_does_not_go_on_with_data_of_other_names(tmp_path):
    data = write_data("nodes", tmp_path)
    run_tiny(tiny("nodes", data, "schedule=constant", "warmup=0"), tmp_path / "run")
    before = everything(tmp_path / "run")
    file = Path(data)
    file.write_text("\n".join(reversed(file.read_text().strip().split("\n"))) + "\n")
    longer = tiny("nodes", data, "schedule=constant", "warmup=0", "steps=8")
    with pytest.raises(UserError, match=r"the data have changed since it was begun \(digest\)"):
        run_tiny(longer, tmp_path / "run", resume=True)
    with pytest.raises(UserError, match=r"has changed since .* \(digest\)"):
        evaluate(Run.open(tmp_path / "run"), device="cpu")
    assert everything(tmp_path / "run") == before


@pytest.mark.parametrize(
    "kind", ["language", "pictures", "semantic", "instances", "boxes", "open_vocabulary", "few_shot"]
)
def test_data_of_other_content_have_another_digest(data, kind):
    task = tiny(kind, data(kind)).task
    opened = task.open_data()
    names = {} if kind == "language" else {"classes": [f"no {name}" for name in opened.classes]}
    other = replace(opened, **names) if names else replace(opened, train=opened.valid)
    assert task.facts(opened)["digest"] == task.facts(task.open_data())["digest"]
    assert task.facts(other)["digest"] != task.facts(opened)["digest"]
