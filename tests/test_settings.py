"""Recipes: what is written is what a dataclass gets, and every slip is named with its remedy."""

import contextlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest

from horosphere.described import describe
from horosphere.errors import UserError
from horosphere.recipes import read_recipe, recipe_names
from horosphere.settings import (
    FLAT,
    Count,
    Decay,
    Positive,
    Range,
    Share,
    build,
    check,
    make,
    settings_of,
    values_of,
)

yaml = pytest.importorskip("yaml")


@dataclass(frozen=True)
class Part:
    width: int = 4
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Settings:
    steps: int
    lr: float = 0.1
    deep: bool = False
    limit: int | None = 5
    kind: Literal["flat", "curved"] = "flat"
    compile: bool | Literal["auto"] = "auto"
    betas: tuple[float, float] = (0.9, 0.95)
    sizes: tuple[int, ...] = ()
    title: str = ""
    label: str | None = None
    data: Path = Path("data")
    anything: Any = None
    part: Part = field(default_factory=Part)


def made(**values):
    return build(Settings, {"steps": 1, **values}, "test")


def refusal(**values):
    with pytest.raises(UserError) as error:
        made(**values)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def recipes(tmp_path):
    def write(name, text):
        (tmp_path / f"{name}.yaml").write_text(text)
        return tmp_path

    return write


# -- values -----------------------------------------------------------------------------------------------------------

SAME = [
    ("steps", [1000, 1000.0, "1000", "1_000", "1e3", "1000.0", " 1000 "], 1000),
    ("steps", [2**60 + 1, str(2**60 + 1)], 2**60 + 1),
    ("lr", [0.001, "1e-3", "0.001", "1E-3"], 0.001),
    ("lr", [2, "2"], 2.0),
    ("lr", ["inf"], math.inf),
    ("deep", [True, "true", "True"], True),
    ("deep", [False, "false", "False"], False),
    ("limit", [None, "none", "null", "None"], None),
    ("limit", [7, "7"], 7),
    ("kind", ["curved"], "curved"),
    ("compile", ["auto"], "auto"),
    ("compile", [False, "false"], False),
    ("betas", [[0.8, 0.9], "0.8,0.9", "[0.8, 0.9]", (0.8, "0.9")], (0.8, 0.9)),
    ("sizes", [[1, 2, 3], "1, 2, 3", ["1", "2", "3"]], (1, 2, 3)),
    ("sizes", [[], ""], ()),
    (
        "title",
        [
            "none",
        ],
        "none",
    ),
    ("label", ["none", None], None),
    ("label", ["7"], "7"),
    ("data", ["a/b", Path("a/b")], Path("a/b")),
    ("anything", [{"a": 1}], {"a": 1}),
    ("part", [{"width": "8", "names": "a,b"}, {"width": 8, "names": ["a", "b"]}], Part(8, ["a", "b"])),
]


@pytest.mark.parametrize(
    ("name", "written", "meant"), [(name, value, meant) for name, values, meant in SAME for value in values]
)
def test_what_is_written_is_what_is_meant(name, written, meant):
    value = getattr(made(**{name: written}), name)
    assert value == meant
    assert type(value) is type(meant)


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("steps", "1.5", "whole number"),
        ("steps", 1.5, "whole number"),
        ("steps", True, "whole number"),
        ("steps", "inf", "whole number"),
        ("steps", "1__0", "whole number"),
        ("steps", None, "whole number"),
        ("lr", "fast", "a number"),
        ("lr", "nan", "a number"),
        ("lr", True, "a number"),
        ("lr", [1], "a number"),
        ("deep", 1, "true or false"),
        ("deep", "yes", "true or false"),
        ("deep", "", "true or false"),
        ("limit", "many", "whole number, or none"),
        ("kind", "round", "choose from flat, curved"),
        ("kind", ["flat"], "choose from flat, curved"),
        ("compile", "maybe", "true or false"),
        ("compile", "maybe", "choose from auto"),
        ("betas", "0.9", "2 values"),
        ("betas", 0.9, "a list"),
        ("title", 7, "quotes"),
        ("title", "", "this is empty"),
        ("title", " ", "this is empty"),
        ("part", "8", "a section"),
    ],
)
def test_what_does_not_fit_is_refused(name, value, remedy):
    message = refusal(**{name: value})
    assert message.startswith(f"test: {name}={value}: ")
    assert remedy in message


def test_unknown_settings_name_their_neighbours():
    assert refusal(step=3) == "test: there is no setting step; did you mean steps?"
    assert "choose from steps, lr" in refusal(zzzzz=3)
    assert refusal(part={"widht": 3}) == "test: part: there is no setting widht; did you mean width?"


def test_what_has_no_default_must_be_given():
    with pytest.raises(UserError, match=r"test: steps must be given; add steps="):
        build(Settings, {}, "test")


# -- files ------------------------------------------------------------------------------------------------------------


def test_overrides_stand_over_the_file_and_the_file_over_its_base(recipes):
    recipes("ground", "steps: 10\nlr: 1e-3\npart: {width: 2, names: [a]}\n")
    recipes("middle", "base: ground\nlr: 2e-3\n")
    folder = recipes("top", "base: middle\npart: {names: [b]}\n")
    assert recipe_names(folder) == ["ground", "middle", "top"]
    assert read_recipe("top", folder=folder) == {"steps": 10, "lr": "2e-3", "part": {"width": 2, "names": ["b"]}}
    recipe = read_recipe("top", ["steps=1e6", "part.width=3", "title=a=b", "lr=1", "lr=3e-3"], folder)
    assert build(Settings, recipe, "top") == Settings(10**6, 3e-3, title="a=b", part=Part(3, ["b"]))


def test_a_file_of_ones_own_builds_on_a_named_recipe_or_on_its_neighbour(recipes, tmp_path, monkeypatch):
    folder = recipes("ground", "steps: 10\n")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "one.yaml").write_text("base: ground\nlr: 1\n")
    (mine / "two.yml").write_text("base: one.yaml\nlr: 2\n")
    assert read_recipe(str(mine / "two.yml"), folder=folder) == {"steps": 10, "lr": 2}
    monkeypatch.chdir(mine)
    assert read_recipe("two.yml", folder=folder) == {"steps": 10, "lr": 2}


def test_an_empty_recipe_is_one(recipes):
    assert read_recipe("empty", folder=recipes("empty", "# nothing\n")) == {}


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("base: it", "circle"),
        ("base: other", "circle (other -> it -> other)"),
        ("base: absent", "there is no recipe absent"),
        ("base: absent.yaml", "there is no file"),
        ("base: [a]", "names a recipe"),
        ("- a\n- b", "a recipe is"),
        ("1: a", "a recipe is"),
        ("a: [1", "not YAML"),
        ("a: !!python/object/apply:os.getcwd []", "not YAML"),
    ],
)
def test_a_broken_recipe_is_named(recipes, text, remedy):
    recipes("other", "base: it\n")
    folder = recipes("it", text)
    with pytest.raises(UserError) as error:
        read_recipe("other" if "circle (" in remedy else "it", folder=folder)
    assert remedy in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("pair", "remedy"),
    [
        ("lr", "key=value"),
        ("=3", "key=value"),
        ("a..b=3", "key=value"),
        ("base=other", "in the file"),
        ("part=3", "set its parts, for example part.width="),
    ],
)
def test_a_broken_override_is_named(recipes, pair, remedy):
    folder = recipes("it", "lr: 1\npart: {width: 3}\n")
    with pytest.raises(UserError) as error:
        read_recipe("it", [pair], folder)
    assert str(error.value).startswith(f"{pair}: ")
    assert remedy in str(error.value)


def test_a_mistyped_name_gets_its_neighbours(recipes):
    folder = recipes("helm-tiny", "lr: 1\n")
    with pytest.raises(UserError, match="there is no recipe helm-tyni; did you mean helm-tiny"):
        read_recipe("helm-tyni", folder=folder)
    with pytest.raises(UserError, match=r"choose from helm-tiny, or give a \.yaml file"):
        read_recipe("zzz", folder=folder)


def test_the_recipes_of_the_package_can_be_read():
    for name in recipe_names():
        assert read_recipe(name)


# -- ranges, flat parts, help -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranged:
    count: Count = 1
    rate: Positive = 0.1
    share: Share = 0.5
    decay: Decay | None = None
    tenths: Annotated[float, Range(least=0, most=10)] = 9.0
    pair: tuple[Decay, Decay] = (0.9, 0.99)


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("count", "0", "count=0: it goes from 1 to 1e9"),
        ("rate", "0", "rate=0: it must be positive and finite"),
        ("rate", "inf", "rate=inf: it must be positive and finite"),
        ("share", "1.5", "share=1.5: it goes from 0 to 1"),
        ("share", "-0.1", "share=-0.1: it goes from 0 to 1"),
        ("decay", "1", "decay=1: it goes from 0 to just below 1, or none"),
        ("tenths", "11", "tenths=11: it goes from 0 to 10"),
        ("pair", "0.9,1", "pair=1: it goes from 0 to just below 1"),
    ],
)
def test_a_range_stands_in_the_type(name, value, remedy):
    with pytest.raises(UserError) as error:
        build(Ranged, {name: value}, "test")
    assert str(error.value) == f"test: {remedy}"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Range(least=0), "at least 0"),
        (Range(least=0, most=1), "from 0 to 1"),
        (Range(least=1, most=10**9), "from 1 to 1e9"),
        (Range(least=1, most=1000), "from 1 to 1,000"),
        (Range(least=0, below=2**32), "from 0 to just below 4,294,967,296"),
        (Range(above=0, below=math.inf), "positive and finite"),
        (Range(above=0, most=10**6), "positive and at most 1e6"),
        (Range(above=0, below=2), "positive and below 2"),
    ],
)
def test_a_range_has_words_that_its_ends_obey(rule, words):
    assert rule.words == words
    assert str(rule) in (f"must be {words}", f"goes {words}")
    for inside in {rule.least, rule.most} - {math.inf, -math.inf}:
        assert inside in rule or inside == rule.above
    for outside in {rule.above, rule.below, rule.least - 1, rule.most + 1}:
        assert outside not in rule
    assert math.nan not in rule


@dataclass(frozen=True)
class Chosen:
    kind: Literal["flat", "curved"] = "flat"
    compile: bool | Literal["auto"] = "auto"
    sizes: tuple[Count, ...] = (1,)
    pair: tuple[Decay, Decay] | list[Decay] = (0.9, 0.99)
    limit: Count | None = None


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "round"},
        {"compile": "maybe"},
        {"sizes": (3, 0)},
        {"sizes": [0]},
        {"limit": 0},
        {"limit": -(10**400)},
    ],
)
def test_choices_and_lists_of_what_is_made_in_python_are_checked(wrong):
    check(Chosen("curved", compile=True, sizes=(), limit=3))
    check(Chosen(compile=False))
    with pytest.raises(UserError, match=f"^{next(iter(wrong))}=") as error:
        check(Chosen(**wrong))
    assert len(str(error.value)) < 120


@pytest.mark.parametrize("value", ["1e999", "9" * 400, 10**400, "1" + "0" * 5000, "-1e400", ".5e-400"])
def test_numbers_of_a_thousand_digits_are_numbers(value):
    for name in ("count", "rate", "share"):
        with contextlib.suppress(UserError):
            build(Ranged, {name: value}, "test")


def test_what_is_made_in_python_is_checked_too():
    check(Ranged())
    with pytest.raises(UserError, match="count=0: it goes from 1 to 1e9"):
        check(Ranged(count=0))
    with pytest.raises(UserError, match="decay=1: it goes from 0 to just below 1"):
        check(Ranged(decay=1.0))


@dataclass
class Owner:
    """Its parts: one whose fields are its own, one that is a section, and one that is no setting."""

    no_settings: ClassVar[frozenset[str]] = frozenset({"state"})

    size: int = 3  # of all
    # how wide
    part: Annotated[Part, FLAT] = field(default_factory=Part)
    section: Part | None = None
    state: dict[str, int] = field(default_factory=dict)
    later: int = field(init=False)


def test_fields_of_a_flat_part_stand_beside_those_of_its_owner():
    assert list(settings_of(Owner)) == ["size", "width", "names", "section"]
    owner = build(Owner, {"size": "4", "width": "8", "section": {"width": "9"}}, "test", state={"a": 1})
    assert (owner.size, owner.part, owner.section, owner.state) == (4, Part(8), Part(9), {"a": 1})
    assert values_of(owner) == {"size": 4, "width": 8, "names": [], "section": {"width": 9, "names": []}}
    assert make(Owner, {"width": 5}).part == Part(5)


def test_help_is_read_from_the_source():
    described = describe(f"{__name__}:Owner")
    assert list(described) == list(settings_of(Owner))
    assert (described["size"].help, described["size"].default, described["size"].kind) == ("of all", "3", "int")
    assert described["section"].value({}) == "none"
    assert described["size"].value({"size": [1, 2]}) == "1,2"
