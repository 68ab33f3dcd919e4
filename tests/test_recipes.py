"""The recipes of the package: each is whole, and says nothing twice or in vain."""

import itertools
from collections import Counter

import pytest
import yaml
from hypothesis import given as examples
from hypothesis import settings as limits
from hypothesis import strategies as st

from horosphere import catalogue, settings
from horosphere.errors import UserError
from horosphere.recipes import BASE, FOLDER, read_recipe, recipe_names
from horosphere.train.recipe import Recipe, parts

NAMES = [path.stem for path in sorted(FOLDER.glob("*.yaml"))]


class Strict(yaml.SafeLoader):
    """YAML as the standard has it: no key twice."""

    def construct_mapping(self, node, deep=False):
        twice = [key for key, count in Counter(k.value for k, _ in node.value).items() if count > 1]
        assert not twice, f"{twice} twice"
        return super().construct_mapping(node, deep)


def test_the_package_has_them():
    assert len(NAMES) > 20
    assert set(NAMES) <= set(recipe_names())


@pytest.mark.parametrize("name", NAMES)
def test_a_file_says_nothing_twice_and_nothing_that_its_base_says(name):
    own = yaml.load((FOLDER / f"{name}.yaml").read_text(), Strict)
    under = read_recipe(own[BASE]) if BASE in own else {}
    assert {key for key, value in own.items() if key in under and under[key] == value} == set()


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_belongs_to_its_task_and_is_of_its_type_and_range(name):
    given = read_recipe(name)
    cls = catalogue.resolve(catalogue.task(given.pop("task")).build)
    kinds = {key: kind for part in parts(cls, given) for key, (kind, _) in settings.settings_of(part).items()}
    assert given.keys() <= kinds.keys()
    values = {key: settings.convert(value, kinds[key], key) for key, value in given.items()}  # raises where it cannot
    recipe = Recipe.read(name, ["data=somewhere"])
    sections = recipe.sections(recipe.engine)
    found = {**sections["task"], **sections["engine"], **sections["model"]}
    for key in given.keys() & sections["engine"].keys():
        plain = list(values[key]) if isinstance(values[key], tuple) else values[key]
        assert found[key] == plain


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("setting", ["lr=-1", "batch=-1", "log_every=0", "final=2", "seed=-1", "lrr=1"])
def test_a_value_that_cannot_be_is_refused_in_every_recipe(name, setting):
    with pytest.raises(UserError) as error:
        Recipe.read(name, ["data=somewhere", setting])
    assert setting.partition("=")[0] in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_says_how_long_it_trains_and_an_override_takes_the_other_length_back(name):
    assert len({"steps", "epochs"} & read_recipe(name).keys()) == 1
    engine = Recipe.read(name, ["data=somewhere", "steps=7"]).engine
    assert (engine.steps, engine.epochs) == (7, None)
    engine = Recipe.read(name, ["data=somewhere", "epochs=2"]).engine
    assert (engine.steps, engine.epochs) == (0, 2)


# -- what should not get in -------------------------------------------------------------------------------------------


def bomb():
    rows = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    rows += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in itertools.pairwise("abcdefghij")]
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (bomb(), r"it has an alias, \*a: write out what it stands for"),
        ("a: " + "[" * 100_000, "not YAML"),
        ("a: 2001-99-99", "not YAML"),
        ("a: !!python/object/apply:os.system [ls]", "not YAML"),
        ("a: x\n" * 300_000, "more than 1,000,000 bytes"),
    ],
)
def test_files_that_would_explode_are_refused_in_one_line(tmp_path, text, said):
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(UserError, match=said) as error:
        read_recipe(str(tmp_path / "r.yaml"))
    assert len(str(error.value)) < 500
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["x" * 5000, "\\x1b[2J", "\\uD800"])
@pytest.mark.parametrize("kind", ["", ".yaml"])
def test_a_base_of_an_odd_name_is_refused_in_one_line(tmp_path, name, kind):
    (tmp_path / "r.yaml").write_text(f'base: "{name}{kind}"')
    with pytest.raises(UserError) as error:
        read_recipe(str(tmp_path / "r.yaml"))
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 1500


# -- values that make no sense ----------------------------------------------------------------------------------------

ODD = ("-1", "0", "1e30", "nan", "inf", "sense", "", "1,2", "none", "true")
TASKS = {read_recipe(name)["task"]: name for name in NAMES}  # a recipe of each


def read_or_told(name, pair):
    """A recipe, or one line that can be printed."""
    try:
        Recipe.read(name, ["data=somewhere", pair])
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("task", TASKS)
def test_every_setting_takes_or_refuses_what_makes_no_sense(task):
    known = catalogue.known_settings(read_recipe(TASKS[task]))
    said = {(key, value): read_or_told(TASKS[task], f"{key}={value}") for key in known for value in ODD}
    assert all("\n" not in line and len(line) <= 2000 for line in said.values())
    for key, setting in known.items():
        if setting.allowed and "none" not in setting.allowed:
            assert said[key, "sense"]  # a number or a choice is no text
            assert key in said[key, "sense"]


@limits(max_examples=300, deadline=None)
@examples(st.data())
def test_any_text_is_a_value_or_is_refused(data):
    name = data.draw(st.sampled_from(NAMES))
    known = list(catalogue.known_settings(read_recipe(name)))
    key = data.draw(st.one_of(st.sampled_from(known), st.text(max_size=8)))
    number = st.one_of(st.integers(), st.floats()).map(str)
    value = data.draw(st.one_of(st.text(max_size=12), number, st.lists(number, max_size=4).map(",".join)))
    assert read_or_told(name, f"{key}={value}").isprintable()
