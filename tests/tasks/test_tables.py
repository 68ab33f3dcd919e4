"""Tables: what a model answers decides what is learned and how it is judged; and a line for every mistake."""

from pathlib import Path

import numpy as np
import pytest
import torch

from horosphere.data.tables import Schema
from horosphere.errors import UserError
from horosphere.runs import Run
from horosphere.train.recipe import Recipe
from horosphere.train.training import evaluate
from tests.tasks.test_every_task import live
from tests.tasks.tiny import run_tiny, tiny, write_numbers

SHORT = ("steps=40", "batch=16", "lr=0.05", "log_every=10")


@pytest.fixture(scope="module")
def csv(tmp_path_factory):
    return write_numbers(tmp_path_factory.mktemp("tables") / "flowers.csv", rows=120)


def read(model, data, *more):
    return Recipe.read(model, [f"data={data}", *SHORT, *more])


def trained(model, data, folder, *more):
    run_tiny(read(model, data, *more), folder)
    return Run.open(folder)


def ready(model, data, *more):
    recipe = read(model, data, *more)
    task, opened = recipe.task, None
    opened = task.open_data()
    task.engine = recipe.engine.for_data(task.rows(opened), recipe.engine.batch)
    task.ready(opened)
    return task


def without_the_kind(csv, folder):
    lines = Path(csv).read_text().splitlines()
    (folder / "numbers.csv").write_text("\n".join(line.rpartition(",")[0] for line in lines))
    return folder / "numbers.csv"


def refusal(call):
    with pytest.raises(UserError) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


# -- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("geometry", ["euclidean", "lorentz", "poincare"])
@pytest.mark.parametrize("model", ["perceptron", "softmax-regression", "svm", "mlp", "maxout"])
def test_classes_are_learned_in_every_geometry(csv, tmp_path, model, geometry):
    run = trained(model, csv, tmp_path / "run", f"geometry={geometry}")
    score = run.scores()["accuracy"]
    assert score > 0.6  # a third by chance
    assert evaluate(run, device="cpu")["accuracy"] == pytest.approx(score)


@pytest.mark.parametrize("geometry", ["euclidean", "lorentz", "poincare"])
def test_a_number_is_learned_and_judged_in_its_own_units(csv, tmp_path, geometry):
    more = ("target=weight", f"geometry={geometry}")
    numbers = without_the_kind(csv, tmp_path)
    run = trained("linear-regression", numbers, tmp_path / "run", *more)
    task = ready("linear-regression", numbers, *more)
    rows = np.loadtxt(numbers, delimiter=",", skiprows=1)
    held = np.arange(len(rows)) % 5 == 4
    answers = run.load().predict(rows[held][:, :3])
    error = np.sqrt(np.mean((answers - rows[held][:, 3]) ** 2))
    assert run.scores()["rmse"] == pytest.approx(error, rel=1e-4)
    mean = np.sqrt(np.mean((rows[held][:, 3] - rows[~held][:, 3].mean()) ** 2))
    assert task.baselines()["the mean"]["rmse"] == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize("model", ["rbm", "gaussian-rbm"])
def test_machines_surpass_independent_columns(tmp_path, model):
    draws = np.random.default_rng(0)
    kind = draws.integers(0, 2, 400)
    x = (kind[:, None] + draws.integers(0, 5, (400, 6)) // 4) % 2 + (model != "rbm") * 0.3 * draws.normal(size=(400, 6))
    data = tmp_path / "x.csv"
    data.write_text("\n".join(",".join(map(str, row)) for row in x))
    more = ("target=none", "hidden=8", "steps=400", "batch=20", "lr=0.03")
    run = trained(model, data, tmp_path / "run", *more)
    alone = ready(model, data, *more).baselines()["independent columns"]["pseudo_ll"]
    assert run.scores()["pseudo_ll"] > alone + 0.3
    assert run.load().predict(x[:3]).shape == (3, 8)


def test_a_trained_model_says_classes_by_their_names(csv, tmp_path):
    run = trained("mlp", csv, tmp_path / "run", "steps=100")
    model = run.load()
    assert model.schema.columns == ["height", "width", "age", "weight"]
    rows = np.array([[3.0, 0, 0, 0], [0, 3.0, 0, 0], [0, 0, 3.0, 0]])
    assert model.predict(rows) == model.predict(rows.tolist()) == ["a", "b", "c"]
    assert "4 columns: height, width, age, weight" in refusal(lambda: model.predict(rows[:, :2]))


# -- data -------------------------------------------------------------------------------------------------------------


def test_scales_are_those_of_the_rows_that_are_learned_from(csv):
    data = read("mlp", csv).task.open_data()
    x = data.train.x.double() * 2  # √4 columns
    torch.testing.assert_close(x.mean(0), torch.zeros(4).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.std(0, correction=0), torch.ones(4).double(), atol=1e-5, rtol=0)
    assert len(data.valid) == pytest.approx(len(data.train) / 4, abs=3)
    assert 0.8 < data.valid.x.norm(dim=1).mean() < 1.2


def test_a_table_of_its_own_to_judge_by(csv, tmp_path):
    other = write_numbers(tmp_path / "other.csv", rows=30)
    data = read("mlp", csv, f"valid={other}").task.open_data()
    assert (len(data.train), len(data.valid)) == (120, 30)
    run = trained("mlp", csv, tmp_path / "run")
    assert evaluate(run, valid=str(other), device="cpu")["accuracy"] > 0.6


def test_noise_is_drawn_for_the_whole_batch(csv):
    task = live("machines", csv)
    whole = task.batch(3, range(8))["noise"]
    assert whole.shape == (8, 2, 5 + 4)
    assert torch.equal(task.batch(3, range(4, 8))["noise"], whole[4:])
    assert not torch.equal(task.batch(2, range(8))["noise"], whole)
    assert 0 < whole.min() < whole.max() < 1


def test_baselines_are_scores_without_training(csv):
    task = ready("mlp", csv)
    commonest = task.opened.train.y.bincount().argmax()
    found = task.baselines()
    assert found["the commonest class"]["accuracy"] == (task.opened.valid.y == commonest).double().mean().item()
    assert found["5 nearest rows"]["accuracy"] > 0.6
    pytest.importorskip("sklearn")
    from sklearn.neighbors import KNeighborsClassifier

    theirs = KNeighborsClassifier(5).fit(task.opened.train.x.numpy(), task.opened.train.y.numpy())
    expected = theirs.score(task.opened.valid.x.numpy(), task.opened.valid.y.numpy())
    assert found["5 nearest rows"]["accuracy"] == pytest.approx(expected)


# -- mistakes ---------------------------------------------------------------------------------------------------------


def test_what_cannot_be_learned_is_refused_in_one_line(csv, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("height,width,age,weight,kind\n1,2,3,4,z\n")
    numbers, few = without_the_kind(csv, tmp_path), tmp_path / "few.csv"
    few.write_text("1,2,a\n3,4,b\n")
    for model, data, more, said in (
        ("mlp", numbers, "target=none", "target=none: mlp learns to answer"),
        ("mlp", csv, "target=hight", "did you mean height"),
        ("mlp", numbers, "target=age", "classes in 120 rows; learn a number with model=linear-regression"),
        ("linear-regression", csv, "seed=0", 'column kind: "c" is no number'),
        ("mlp", csv, f"valid={other}", 'the class "z" is not in'),
        ("mlp", csv, f"valid={few}", "other columns than"),
        ("mlp", few, "seed=0", "2 rows are too few to hold some out"),
        ("mlp", "table.xls", "seed=0", "give a .csv or .tsv file"),
    ):
        assert said in refusal(lambda model=model, data=data, more=more: read(model, data, more).task.open_data())


def test_machines_have_no_geometry():
    assert "exists in flat space only" in refusal(lambda: read("rbm", "x.csv", "geometry=lorentz"))


@pytest.mark.parametrize("odd", ['{"rows": 1}', "[]", "{}", '{"columns": 3}'])
def test_a_damaged_schema_is_named(tmp_path, odd):
    (tmp_path / "table.json").write_text(odd)
    assert "a damaged file" in refusal(lambda: Schema.read(tmp_path))


def test_a_schema_is_read_as_it_was_written(csv, tmp_path):
    schema = read("mlp", csv).task.open_data().schema
    schema.write(tmp_path)
    again = Schema.read(tmp_path)
    assert np.array_equal(again.scaling.shift, schema.scaling.shift)
    assert np.array_equal(again.scaling.scale, schema.scaling.scale)
    assert (again.columns, again.classes, again.rows) == (schema.columns, schema.classes, schema.rows)


def test_weights_of_another_table_do_not_fit(csv, tmp_path):
    run_tiny(tiny("tables", csv), tmp_path / "run")
    other = tmp_path / "other.csv"
    other.write_text("".join(f"{i},{i % 2}\n" for i in range(30)))
    recipe = tiny("tables", other, f"start={tmp_path / 'run'}")
    assert "a run of another network" in refusal(lambda: run_tiny(recipe, tmp_path / "new"))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("geometry=euclidean", "a run in lorentz space, and this one is euclidean; give one of the same"),
        ("curvature=2", "a run on Lorentz(c=1.0), and this network is on Lorentz(c=2.0)"),
    ],
)
def test_weights_of_another_geometry_do_not_fit(csv, tmp_path, setting, said):
    run_tiny(read("softmax-regression", csv, "geometry=lorentz"), tmp_path / "run")
    recipe = read("softmax-regression", csv, "geometry=lorentz", setting, f"start={tmp_path / 'run'}")
    assert said in refusal(lambda: run_tiny(recipe, tmp_path / "new"))
