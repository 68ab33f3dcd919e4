"""The items of the notes: each once, each found where it says, and the page as the catalogue has it."""

import importlib
import inspect
import io
import re
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType

import numpy as np
import pytest

from horosphere import catalogue
from horosphere.catalogue import notes
from horosphere.described import describe
from tests.cli.command_line import runner

ROOT = Path(__file__).parents[1]
COUNTS = {1: 22, 2: 1, 3: 5, 4: 12, 5: 4, 6: 10, 7: 8, 8: 15, 9: 8, 10: 31, 11: 39, 12: 13, 13: 9, 14: 43, 15: 10}
REMARKS = {"8.15", "10.23", "11.29", "14.02", "14.36"}  # nothing to call
ITEMS, MODELS = notes.items(), list(catalogue.models().values())


def test_all_230_are_there_once_and_in_order():
    expected = [f"{chapter}.{item:02d}" for chapter, count in COUNTS.items() for item in range(1, count + 1)]
    assert list(ITEMS) == expected
    assert len(expected) == 230


@pytest.mark.parametrize("number", ITEMS)
def test_an_item_is_found(number):
    item = ITEMS[number]
    learned = [model for model in MODELS if number in model.notes]
    assert learned or item.use or number in REMARKS
    assert item.geometry in notes.GEOMETRIES
    expected = {"any": {"lorentz", "poincare", "euclidean"}, "attention": {"lorentz", "euclidean"}}
    for model in learned if item.geometry in expected else ():
        assert set(model.geometries) == expected[item.geometry], model.name


@pytest.mark.parametrize("number", [number for number, item in ITEMS.items() if item.use])
def test_what_is_to_be_used_is_there(number):
    use = ITEMS[number].use
    if use.startswith("horosphere "):  # a command
        verb, name, *words = use.split()[1:]
        known = describe(catalogue.ENGINE) | describe("horosphere.tasks.pictures:Pictures")
        assert verb in ("train", "embed", "measure")
        assert all(word.partition("=")[0] in known for word in words if "=" in word), use
        assert verb != "train" or name == "NAME" or name in catalogue.models()
        return
    if use.startswith("python "):
        assert (ROOT / use.removeprefix("python ")).is_file()
        return
    module, _, name = use.partition(":")
    if not find_spec(module.partition(".")[0]):
        pytest.skip(f"{module} is not installed")
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize("number", ITEMS)
def test_it_is_held_by_a_test_that_there_is(number):
    item = ITEMS[number]
    assert item.test or number in REMARKS or any(number in model.notes for model in MODELS) or item.number == "12.02"
    assert not item.test or (ROOT / item.test).exists()


def test_models_name_items_that_there_are():
    assert {number for model in MODELS for number in model.notes} <= set(ITEMS)


def script(name):
    spec = spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_catalogue_says():
    maker = script("make_classics")
    text = maker.PAGE.read_text(encoding="utf-8")
    assert text == maker.page(), "stale: python docs/make_classics.py"
    assert re.findall(r"^- \*\*(\d+\.\d\d) ", text, re.MULTILINE) == list(ITEMS)


# -- pictures ---------------------------------------------------------------------------------------------------------

SEEN = {"1.11", "1.17", "1.18", "1.22", *(number for number in ITEMS if number.startswith(("10.", "14.")))}


@pytest.fixture(scope="module")
def maker():
    for package in ("kornia", "matplotlib", "skimage", "torchvision", "mlxtend"):
        pytest.importorskip(package, reason="pictures are drawn with it")
    return script("make_pictures")


def test_every_item_that_can_be_seen_has_its_picture(maker):
    assert maker.PICTURES.keys().isdisjoint(maker.UNSEEN)
    assert maker.PICTURES.keys() | maker.UNSEEN.keys() == SEEN
    sizes = {file.stem: file.stat().st_size for file in maker.FOLDER.iterdir()}
    assert sizes.keys() == maker.PICTURES.keys(), "python docs/make_pictures.py draws those that are missing"
    assert max(sizes.values()) < 40_000
    assert sum(sizes.values()) < 1_500_000
    shown = re.findall(
        r"!\[.+\]\(images/classics/(.+)\.png\)", (ROOT / "docs" / "classics.md").read_text(encoding="utf-8")
    )
    assert set(shown) == maker.PICTURES.keys()
    assert len(shown) == len(set(shown))


def names_in(function):
    """All names that a function uses, and those of its script that it calls."""
    names, codes = set(), [function.__code__]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        called = [function.__globals__.get(name) for name in set(code.co_names) - names]
        codes += [f.__code__ for f in called if inspect.isfunction(f) and f.__globals__ is function.__globals__]
        names.update(code.co_names)
    return names


def test_a_picture_is_made_by_what_its_item_names(maker):
    named = {number: ITEMS[number].use for number in maker.PICTURES if ":" in ITEMS[number].use}
    assert len(named) > 50
    apart = {number: use for number, use in named.items() if use.split(":")[1] not in names_in(maker.PICTURES[number])}
    assert not apart


@pytest.mark.parametrize("number", ["1.18", "10.19", "14.08"])
def test_a_picture_is_what_the_script_draws(maker, number):
    from PIL import Image

    files = maker.FOLDER / f"{number}.png", io.BytesIO(maker.drawn(number))
    kept, now = (np.asarray(Image.open(file).convert("RGB"), dtype=float) for file in files)
    assert kept.shape == now.shape
    assert abs(kept - now).mean() < 1.5, (
        f"stale: python docs/make_pictures.py {number}"
    )  # letters differ by their library


# -- the terminal -----------------------------------------------------------------------------------------------------


def test_a_chapter_and_an_item_in_the_terminal(capsys):
    run = runner(capsys)
    code, out, _ = run("list", "--chapter", "9")
    assert code == 0
    assert "9.05  AdaGrad" in out
    code, out, _ = run("list", "9.05")
    assert "√s + ε" in out
    assert "ε inside the root" in out
    assert max(map(len, out.splitlines())) <= 120
    assert run("list", "9.5")[1] == run("list", "AdaGrad")[1] == out
    assert "recipe skip-gram" in run("list", "skip-gram")[1]  # a model goes before the item of its name
    for words, said in (
        (["--chapter", "16"], "--chapter 16: there is no such chapter"),
        (["--chapter", "9", "--task", "nodes"], "--chapter lists the items of a chapter"),
        (["9.99"], "9.99: there is nothing of this name"),
        (["9"], "9: a chapter of the notes is listed with --chapter 9"),
    ):
        code, _, err = run("list", *words)
        assert code == 2
        assert said in err
        assert len(err.splitlines()) == 1
