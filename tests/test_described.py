"""Settings read from the source are those of the imported class; words become settings; help lists every one."""

import inspect
import json
import subprocess
import sys
from dataclasses import MISSING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horosphere import catalogue, settings
from horosphere.described import WIDTH, Setting, describe, from_words, help_lines
from horosphere.errors import UserError
from horosphere.recipes import read_recipe, recipe_names
from horosphere.train.recipe import parts

TRAINED = {catalogue.ENGINE, *(task.build for task in catalogue.TASKS), *(m.settings for m in catalogue.MODELS)} - {""}
EVERY = sorted(TRAINED | {task.options for task in catalogue.TASKS} - {""})


@pytest.fixture
def package(tmp_path, monkeypatch):
    """package(NAME, {"file.py": text}): a package of somebody else's."""

    def write(name, files):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        for file, text in files.items():
            (tmp_path / name / file).write_text(inspect.cleandoc(text))
        monkeypatch.syspath_prepend(tmp_path)
        for module in [module for module in sys.modules if module.partition(".")[0] == name]:
            monkeypatch.delitem(sys.modules, module)

    return write


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", EVERY)
def test_the_source_says_what_the_class_has(reference):
    cls = catalogue.resolve(reference)
    read, real = describe(reference), settings.settings_of(cls)
    assert list(read) == list(real)
    for name, (_, default) in real.items():
        assert read[name].name == name
        if default is MISSING:
            assert read[name].default == ""
        else:
            assert eval(read[name].default, vars(sys.modules[cls.__module__]).copy()) == default


@pytest.mark.parametrize("reference", sorted(TRAINED))
def test_a_default_is_shown_as_one_would_write_it(reference):
    """What help shows, given back as key=value, changes nothing."""
    read = describe(reference)
    for name, (kind, default) in settings.settings_of(catalogue.resolve(reference)).items():
        shown = read[name].value({})
        assert shown == "" if default is MISSING else settings.convert(shown, kind, name) == default
        assert shown not in ("None", "True", "False")


@pytest.mark.parametrize("name", recipe_names())
def test_what_a_recipe_gives_is_shown_as_one_would_write_it(name):
    recipe = read_recipe(name)
    known, cls = catalogue.known_settings(recipe), catalogue.resolve(catalogue.task(recipe["task"]).build)
    kinds = {key: kind for part in parts(cls, recipe) for key, (kind, _) in settings.settings_of(part).items()}
    plain = [key for key, value in recipe.items() if key != "task" and not isinstance(value, dict)]
    for key in plain:
        shown = known[key].value(recipe)
        assert settings.convert(shown, kinds[key], key) == settings.convert(recipe[key], kinds[key], key)
        assert "[" not in shown
    assert len(plain) > 3


def test_every_help_needs_no_torch():
    code = (
        "import json, sys\n"
        "from horosphere import catalogue\n"
        "from horosphere.recipes import read_recipe, recipe_names\n"
        "counts = [len(catalogue.known_settings(read_recipe(name))) for name in recipe_names()]\n"
        "print(json.dumps([min(counts), 'torch' in sys.modules]))"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    least, heavy = json.loads(said)
    assert least > 20
    assert not heavy


def test_bases_of_ones_own_package_are_read_and_those_of_others_are_not(package):
    package(
        "gravity",
        {
            "ground.py": """
                from dataclasses import dataclass

                @dataclass
                class Ground:
                    # how far
                    height: float = 2.0
                    speed: int = 1  # in words: # 3
            """,
            "task.py": """
                from dataclasses import dataclass, field
                from typing import Annotated, ClassVar
                from fractions import Fraction as Other
                from horosphere.settings import FLAT
                from .ground import Ground as Base
                from horosphere.settings import Range

                @dataclass
                class Task(Base):
                    kind: ClassVar[str] = "gravity"
                    no_settings: ClassVar[frozenset[str]] = frozenset({"state"})
                    speed: int = 5  # now faster
                    mass: str = "a # b"
                    limits: Annotated[Range, FLAT] = field(default_factory=Range)
                    state: int = 0
                    later: int = field(init=False)
            """,
        },
    )
    read = describe("gravity.task:Task")
    assert list(read) == ["height", "speed", "mass", "least", "most", "above", "below"]
    assert list(read) == list(settings.settings_of(catalogue.resolve("gravity.task:Task")))
    assert read["height"] == Setting("height", "float", "2.0", "how far")
    assert read["speed"] == Setting("speed", "int", "5", "now faster")
    assert read["mass"] == Setting("mass", "str", "'a # b'", "")


# -- words ------------------------------------------------------------------------------------------------------------

KNOWN = {
    name: Setting(name, kind, default, "")
    for name, kind, default in [
        ("dim", "int", "10"),
        ("weight_decay", "float", "0.1"),
        ("deep", "bool", "False"),
        ("flip_sign", "bool", "True"),
        ("data", "str", ""),
    ]
}
TEXT = st.text("ab1.,=- ", max_size=5).filter(lambda text: not text.startswith("--"))


@st.composite
def written(draw):
    """A setting, and one of the ways to write it."""
    name, value = draw(st.sampled_from(sorted(KNOWN))), draw(TEXT)
    if KNOWN[name].kind == "bool":
        value = draw(st.sampled_from(["true", "false"]))
    option = f"--{name.replace('_', '-') if draw(st.booleans()) else name}"
    ways = [[f"{name}={value}"], [option, value], [f"{option}={value}"], *[[option]] * (value == "true")]
    return f"{name}={value}", draw(st.sampled_from(ways))


@given(st.lists(written(), max_size=6))
def test_however_a_setting_is_written_it_is_the_same_in_the_same_order(pairs):
    assert from_words([word for _, words in pairs for word in words], KNOWN) == [meant for meant, _ in pairs]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--dmi", "5"], "--dmi: there is no such option here; did you mean dim?"),
        (["--zzz"], "--zzz: there is no such option here; choose from dim, weight_decay, deep, flip_sign, data"),
        (["--vocab", "5"], "--vocab: it is for the task language; choose from dim"),
        (["--dim"], "--dim has no value; write --dim 10"),
        (["--data"], "--data has no value; write --data VALUE"),
        (["--dim", "--deep"], "--dim has no value; write --dim 10"),
        (["5"], "5: what is this for? A setting is written key=value or --key value"),
        (["-dim", "5"], "-dim: what is this for?"),
    ],
)
def test_words_that_are_no_settings(words, said):
    with pytest.raises(UserError) as error:
        from_words(words, KNOWN, lambda name: ["the task language"] if name == "vocab" else [])
    assert str(error.value).startswith(said)


# -- help -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", recipe_names())
def test_help_lists_every_setting_of_a_recipe_once_with_its_value(name):
    recipe = read_recipe(name)
    known = catalogue.known_settings(recipe)
    head, *lines = help_lines(known, recipe)
    assert "key=value" in head
    assert all(len(line) <= WIDTH for line in lines)
    begins = [line.split()[0] for line in lines if line.startswith("  --")]
    assert begins == [f"--{key.replace('_', '-')}" for key in known]
    more = {len(line) - len(line.lstrip()) for line in lines if not line.startswith("  --")}
    assert more <= {max(map(len, known)) + 8}  # below the text that they go on with
    text = "".join("".join(lines).split())
    for setting in known.values():
        inside = "; ".join(filter(None, [setting.value(recipe), setting.allowed]))
        said = setting.help + f"({inside})" * bool(inside)
        assert "".join(said.split()) in text


def test_help_of_what_says_nothing_of_itself_names_it_still():
    bare = {name: Setting(name, "int", default, "") for name, default in (("bare", ""), ("a_number", "3"))}
    assert help_lines(bare, {})[1:] == ["  --bare", "  --a-number    (3)"]
