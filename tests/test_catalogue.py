"""The table of names: each stands for one thing, a wrong one is answered, and plugins add to it without taking away."""

import inspect
import sys
from dataclasses import replace

import pytest

from horosphere import catalogue
from horosphere.errors import UserError
from horosphere.models.helm_sizes import TWINS
from horosphere.recipes import read_recipe, recipe_names
from horosphere.settings import settings_of
from horosphere.train.recipe import Recipe
from tests.cli.command_line import runner

TABLES = {"tasks": catalogue.TASKS, "models": catalogue.MODELS, "comparisons": catalogue.COMPARISONS}


def refused(call):
    with pytest.raises(UserError) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


# -- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TABLES)
def test_names_are_unique_and_nothing_is_lost(kind):
    names = [entry.name for entry in TABLES[kind]]
    assert len(names) == len(set(names))
    assert set(names) <= set(getattr(catalogue, kind)())


@pytest.mark.parametrize("name", catalogue.models())
def test_a_model_is_what_its_entry_says(name):
    entry = catalogue.models()[name]
    assert callable(catalogue.resolve(entry.build))
    if entry.configure:
        config = catalogue.resolve(entry.configure)(name)
        assert isinstance(config, catalogue.resolve(entry.settings))
        geometry = {value for key, value in vars(config).items() if key.rpartition("_")[2] == "geometry"}
        assert geometry <= set(entry.geometries)  # a flat twin is flat
        assert geometry
    if entry.twin:
        twin = catalogue.models()[entry.twin]
        assert (twin.task, twin.build, twin.settings, twin.geometries) == (
            *(entry.task, entry.build, entry.settings),
            ("euclidean",),
        )


@pytest.mark.parametrize("comparison", catalogue.COMPARISONS, ids=lambda comparison: comparison.name)
def test_entrants_of_a_comparison_are_recipes_and_settings_that_there_are(comparison):
    names = [entrant.name for entrant in comparison.entrants]
    assert len(names) == len(set(names)) > 1
    assert any(entrant.flat or "method=hyperclip" in entrant.changes for entrant in comparison.entrants)
    compared = [name for name, model in catalogue.models().items() if model.comparison == comparison.name]
    own = {"himapper": "himapper"}.get(comparison.name) or next(iter(compared), "")
    read = []
    for entrant in comparison.entrants:
        recipe = Recipe.read(entrant.recipe or own, ["data=somewhere", *entrant.changes])
        read.append(recipe.sections(recipe.engine))
        if entrant.twin_of:
            curved = comparison.entrants[names.index(entrant.twin_of)]
            theirs = Recipe.read(curved.recipe or own, ["data=somewhere", *curved.changes])
            # twins are trained alike, but for rates of their own
            assert replace(recipe.engine, lr=1.0) == replace(theirs.engine, lr=1.0)
            assert recipe.engine.lr == theirs.engine.lr or "method=hyperclip" in curved.changes
            # another model, or the same one in another geometry
            own = theirs.task.model
            named = {name for name, (curved, _) in TWINS.items() if curved == own}
            assert recipe.task.model in {catalogue.models()[own].twin, own, *named}
    assert all(a != b for i, a in enumerate(read) for b in read[:i])  # each is something of its own


@pytest.mark.parametrize("name", catalogue.models())
def test_what_a_model_is_compared_with(name):
    entry = catalogue.models()[name]
    if entry.geometries == ("euclidean",) and not entry.comparison:
        assert "nothing to compare it with" in refused(lambda: catalogue.comparison_of(entry))
        return
    entrants = catalogue.comparison_of(entry).entrants
    assert sum(entrant.flat for entrant in entrants) < len(entrants) > 1


# -- wrong names ------------------------------------------------------------------------------------------------------


def test_a_near_miss_is_answered_with_the_name():
    assert refused(lambda: catalogue.task("langage")).endswith("did you mean language?")
    said = refused(lambda: catalogue.model("resnet19", "pictures"))
    assert said.endswith("did you mean resnet18 or resnet50 or densenet?")
    assert "bb=swin: there is no such model" in refused(lambda: catalogue.model("swin", "pictures", "bb"))


@pytest.mark.parametrize("name", [None, 7, [1], "", "weather"])
def test_what_is_no_task_is_answered_with_all(name):
    said = refused(lambda: catalogue.task(name))
    assert said.startswith(f"task={name}: there is no such task; choose from language, pictures, pixels, objects, ")


def test_a_model_of_another_task_and_one_that_is_no_model_by_itself():
    said = refused(lambda: catalogue.model("helm-d-tiny", "pictures"))
    assert said.startswith("model=helm-d-tiny: a model of the task language; pictures has hcformer-nano-32")
    assert "timm:NAME" in said
    assert "himapper" not in said.partition(" has ")[2]
    assert "it is asked for by tree.levels=4" in refused(lambda: catalogue.model("himapper", "pictures"))


def test_models_of_a_library_are_asked_for_by_their_names():
    assert catalogue.model("timm:vit_tiny", "pictures").name == "timm:"
    assert refused(lambda: catalogue.model("timm:", "pictures")) == "model=timm:: which one? Write timm:NAME"
    for name in ("resnet18:x", ":", "hub:x"):
        assert "there is no such model" in refused(lambda name=name: catalogue.model(name, "pictures"))


def test_owners_of_a_setting_are_those_that_have_it():
    for name in ("vocab", "geometry", "dim", "seeds", "no_such_setting"):
        classes = {f"the task {task.name}": task.build for task in catalogue.tasks().values()}
        classes |= {model.title: model.settings for model in catalogue.models().values() if model.settings}
        having = {who for who, reference in classes.items() if name in settings_of(catalogue.resolve(reference))}
        assert {owner for owner in catalogue.owners(name) if not owner.startswith("comparisons of ")} == having


# -- plugins ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def install(tmp_path, monkeypatch):
    """install(NAME, TEXT): a package with an entry point, as pip would leave it."""

    def install(name, text):
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(inspect.cleandoc(text))
        about = tmp_path / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[horosphere]\n{name} = {name}:PLUGIN\n")
        monkeypatch.syspath_prepend(tmp_path)
        catalogue.plugins.cache_clear()

    yield install
    catalogue.plugins.cache_clear()


HEAD = "from horosphere.catalogue import Comparison, Entrant, Model, Plugin, Task\n"
GRAVITY = """
from dataclasses import dataclass
from horosphere.catalogue import Comparison, Entrant, Model, Plugin, Task
from horosphere.tasks.nodes import Nodes

@dataclass(kw_only=True)
class Gravity(Nodes):
    kind = "gravity"
    mass: float = 1.0  # of every node

PLUGIN = Plugin(
    tasks=(Task("gravity", "gravity_plugin:Gravity", "weigh nodes", "this weight"),),
    models=(
        Model(
            "heavy-embedding", "gravity", "horosphere.models.node_embedding:NodeEmbedding", "A heavy embedding",
            settings="horosphere.models.node_embedding:NodeEmbeddingConfig",
            geometries=("lorentz", "euclidean"),
        ),
    ),
    comparisons=(Comparison("weights", "mass", (Entrant("light"), Entrant("heavy", changes=("mass=9",)))),),
    recipes={"heavy": {"base": "embedding", "task": "gravity", "mass": 2, "model": "heavy-embedding"}},
)
"""


def test_a_plugin_adds_tasks_models_comparisons_and_recipes(install):
    before = {kind: set(getattr(catalogue, kind)()) for kind in TABLES}
    recipes = recipe_names()
    install("gravity_plugin", GRAVITY)
    assert {kind: set(getattr(catalogue, kind)()) - before[kind] for kind in TABLES} == {
        "tasks": {"gravity"},
        "models": {"heavy-embedding"},
        "comparisons": {"weights"},
    }
    assert recipe_names() == sorted([*recipes, "heavy"])
    assert read_recipe("heavy", ["mass=3"])["mass"] == "3"
    recipe = Recipe.read("heavy", ["data=tree.tsv"])
    assert (recipe.task.kind, recipe.task.mass) == ("gravity", 2.0)
    assert recipe.engine == Recipe.read("embedding", ["data=tree.tsv"]).engine
    assert catalogue.known_settings(read_recipe("heavy"))["mass"].help == "of every node"
    assert catalogue.owners("mass") == ["the task gravity"]
    assert "did you mean gravity?" in refused(lambda: catalogue.task("gravty"))


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        ("tasks", 'Task("language", "impostor:X", "", "")'),
        ("models", 'Model("resnet18", "pictures", "impostor:X", "")'),
        ("comparisons", 'Comparison("levels", "x", (Entrant("mine"),))'),
    ],
)
def test_a_plugin_takes_no_name_away(install, kind, entry):
    install("impostor", f"{HEAD}PLUGIN = Plugin({kind}=({entry},))")
    said = refused(getattr(catalogue, kind))
    assert entry.split('"')[1] in said
    assert "is there already" in said


def test_a_plugin_takes_no_recipe_away(install):
    install("impostor", f'{HEAD}PLUGIN = Plugin(recipes={{"helm-d-tiny": {{"task": "nodes"}}}})')
    assert "the recipe helm-d-tiny, which is there already" in refused(recipe_names)
    refused(lambda: read_recipe("helm-d-tiny"))


def test_reading_a_plugins_recipe_leaves_it_as_it_was(install):
    install("sectioned", f'{HEAD}PLUGIN = Plugin(recipes={{"sectioned": {{"tree": {{"levels": 3}}}}}})')
    assert read_recipe("sectioned", ["tree.levels=9"])["tree"] == {"levels": "9"}
    assert read_recipe("sectioned")["tree"] == {"levels": 3}
    read_recipe("sectioned")["tree"]["levels"] = 5
    assert read_recipe("sectioned")["tree"] == {"levels": 3}


def test_two_plugins_do_not_share_a_name(install):
    for name in ("first", "second"):
        install(f"{name}_plugin", f'{HEAD}PLUGIN = Plugin(tasks=(Task("gravity", "{name}_plugin:X", "", ""),))')
    assert "gravity, which is there already" in refused(catalogue.tasks)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_package", "the plugin broken cannot be loaded (No module named 'no_such_package')"),
        ("", "the plugin broken cannot be loaded (module 'broken' has no attribute 'PLUGIN')"),
        ("PLUGIN = {}", "broken:PLUGIN is no horosphere.catalogue.Plugin"),
        ("1 / 0", "the plugin broken cannot be loaded (division by zero)"),
        ("def", "the plugin broken cannot be loaded (invalid syntax"),
        (f'{HEAD}PLUGIN = Plugin(tasks=Task("a", "b:C", "", ""))', "its tasks should be a tuple of Task"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_named(install, text, said, capsys):
    install("broken", text)
    assert said in refused(catalogue.tasks)
    assert runner(capsys)("list")[::2] == (2, f"horosphere: {refused(catalogue.tasks)}\n")


def test_a_class_that_is_not_there_is_named(install):
    install("empty", f'{HEAD}PLUGIN = Plugin(tasks=(Task("void", "no_such_package.task:Void", "", ""),))')
    assert "no_such_package.task:Void: the catalogue names it, but it is not there" in refused(
        lambda: catalogue.owners("anything")
    )


@pytest.mark.parametrize("task", ["pixels", "objects"])
def test_sizes_of_dense_networks_are_those_of_their_recipes(task, capsys):
    entries = [model for model in catalogue.models().values() if model.task == task]
    assert runner(capsys)("list", "--task", task)[0] == 0
    for entry in entries:
        ((_, classes, size), count) = entry.parameters[0]
        network = Recipe.read(entry.name, ["data=none", f"size={size}"]).task.network_for(classes, size)
        assert sum(p.numel() for p in network.parameters()) == count, entry.name


def test_sizes_stand_in_the_list_of_a_task(capsys):
    code, out, _ = runner(capsys)("list", "--task", "objects")
    assert code == 0
    assert "1,010,376 (1)" in out
    assert max(map(len, out.splitlines())) <= 120
