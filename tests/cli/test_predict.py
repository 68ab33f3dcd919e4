"""`horosphere predict`: every task that answers inputs does, as in Python; bad input is told in one line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from horosphere.data.tables import asked_rows
from horosphere.errors import UserError
from horosphere.runs import Run
from horosphere.train.recipe import Recipe
from tests.cli.graph_commands import everything
from tests.tasks.tiny import run_tiny, tiny, write_data

pytestmark = pytest.mark.usefixtures("_beside_a_tree")
NEEDS = {"masked": "transformers", "characters": "transformers", "pictures": "torchvision"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a tiny run of a kind."""
    made = {}

    def folder(kind):
        if kind in NEEDS:
            pytest.importorskip(NEEDS[kind])
        if kind not in made:
            place = tmp_path_factory.mktemp(kind)
            made[kind] = place / "run"
            run_tiny(tiny(kind, write_data(kind, place)), place / "run")
        return str(made[kind])

    return folder


@pytest.fixture
def told(run):
    """told(words…): what `predict --json` says."""

    def told(*words):
        code, out, err = run("predict", *words, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return told


# -- answers ----------------------------------------------------------------------------------------------------------


def test_rows_of_a_table_have_classes(trained, told):
    folder = trained("tables")
    model = Run.open(folder).load()
    found = told(folder, "0.1,0.2,0.3,2", "--k", 3)
    (logits,) = model.network(torch.from_numpy(model.schema.scaling(np.array([[0.1, 0.2, 0.3, 2]]))).float())
    expected = sorted(zip("abc", logits.softmax(0).tolist(), strict=True), key=lambda said: -said[1])
    assert found[0]["input"] == "0.1,0.2,0.3,2"
    assert [(said["kind"], said["probability"]) for said in found[0]["answers"]] == [
        (name, pytest.approx(chance, rel=1e-4)) for name, chance in expected
    ]


def test_rows_of_a_file_go_by_their_header(trained, told, run):
    folder = trained("tables")
    Path("rows.csv").write_text("weight,height,kind,age,width\n2,0.1,?,0.3,0.2\n\n1,2,?,3,4\n")
    there, here = told(folder, "--data", "rows.csv"), told(folder, "0.1,0.2,0.3,2", "2,4,3,1")
    assert [row["answers"] for row in there] == [row["answers"] for row in here]
    code, out, _ = run("predict", folder, "--data", "rows.csv")
    assert code == 0
    assert out.splitlines()[0].split() == ["input", "kind", "probability"]
    assert len(out.splitlines()) == 3


def test_a_row_may_begin_with_a_minus(trained, told):
    folder = trained("tables")
    found = told(folder, "-1,2,-3,4", "-.5,1,2,3")
    said = Run.open(folder).load().predict([[-1, 2, -3, 4], [-0.5, 1, 2, 3]])
    assert [row["answers"][0]["kind"] for row in found] == said


def test_lines_of_a_file_end_where_editors_say(trained, told):
    Path("odd.txt").write_text("an\u2028owl\r\na\x0cdog\n", newline="")
    assert [row["input"] for row in told(trained("texts"), "--data", "odd.txt")] == ["an\u2028owl", "a\x0cdog"]


def test_margins_numbers_and_how_usual_a_row_is(trained, told):
    write_data("tables", Path.cwd())
    run_tiny(Recipe.read("svm", ["data=flowers.csv", "steps=2", "batch=8"]), Path("svm"))
    assert set(told("svm", "1,2,3,4")[0]["answers"][0]) == {"kind", "margin"}
    machine = trained("machines")
    model = Run.open(machine).load()
    rows = torch.from_numpy(model.schema.scaling(np.array([[0.1, 0.2, 0.3, 2]]))).float()
    (answer,) = told(machine, "0.1,0.2,0.3,2")[0]["answers"]
    assert float(answer["pseudo-likelihood"]) == pytest.approx(model.network.pseudo_likelihood(rows).item(), rel=1e-4)
    Path("sums.csv").write_text("a,b,sum\n" + "".join(f"{i % 7},{i % 5},{i % 7 + 2 * (i % 5)}\n" for i in range(60)))
    recipe = Recipe.read("linear-regression", ["data=sums.csv", "steps=4", "batch=8", "save_every=4"])
    run_tiny(recipe, Path("sums"))
    (answer,) = told("sums", "3,4")[0]["answers"]
    assert float(answer["sum"]) == pytest.approx(Run.open("sums").load().predict([[3, 4]])[0], rel=1e-4)


def test_texts_have_classes_and_translations(trained, told):
    folder, texts = trained("texts"), ["3 times owl", "a whale, a dog"]
    found = told(folder, *texts, "--k", 9)
    assert [row["answers"][0]["class"] for row in found] == Run.open(folder).load().classify(texts)
    assert all(sum(said["probability"] for said in row["answers"]) == pytest.approx(1) for row in found)
    assert [len(row["answers"]) for row in found] == [3, 3]
    folder = trained("pairs")
    found = told(folder, "one two", "nine")
    assert [row["answers"] for row in found] == [
        [{"translation": text}] for text in Run.open(folder).load().translate(["one two", "nine"])
    ]


@pytest.mark.parametrize("kind", ["ratings", "ranking"])
def test_users_have_items(trained, told, kind):
    folder = trained(kind)
    (row,) = told(folder, "user 3", "--k", 2)
    expected = Run.open(folder).load().recommend("user 3", 2)
    assert [(said["item"], said["score"]) for said in row["answers"]] == expected


@pytest.mark.parametrize("kind", ["words", "counts"])
def test_words_have_neighbours(trained, told, kind):
    folder = trained(kind)
    (row,) = told(folder, "cat", "--k", 3)
    lexicon = Run.open(folder).load()
    assert [said["neighbor"] for said in row["answers"]] == [word for word, _ in lexicon.neighbors("cat", 3)]


def test_hidden_tokens_are_filled_in(trained, told):
    folder, text = trained("masked"), "The cat's [MASK] cost [MASK] euros"
    (row,) = told(folder, text, "--k", 4)
    chances = [said["probability"] for said in row["answers"]]
    assert row["answers"][0]["filled"] == Run.open(folder).load().fill(text)
    assert chances == sorted(chances, reverse=True)
    assert len({said["filled"] for said in row["answers"]}) == len(chances) == 4
    alone = [told(folder, text, "--k", 1)[0]["answers"][0]["probability"]]
    assert alone == [pytest.approx(chances[0])]


def test_pictures_have_classes(trained, told):
    folder = trained("pictures")
    Path("some").mkdir()
    for name in ("red", "blue"):
        Image.new("RGB", (9, 8), name).save(f"some/{name}.png")
    found = told(folder, "--data", "some")
    assert [row["input"] for row in found] == ["some/blue.png", "some/red.png"]
    assert all(sum(said["probability"] for said in row["answers"]) == pytest.approx(1, abs=1e-5) for row in found)
    assert found == told(folder, "some/blue.png", "some/red.png")


def test_the_summary_of_a_training_names_it(run):
    write_data("texts", Path.cwd())
    code, out, _ = run("train", "textcnn", "data=texts.tsv", "steps=1", "width=4", "filters=2", "--quiet")
    assert code == 0
    assert 'horosphere predict runs/textcnn "A TEXT"' in out


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "words", "complaint"),
    [
        ("tables", ["1,2"], 'row 1, "1,2": 2 columns; give height, width, age, weight'),
        ("tables", ["1,2,3,x"], 'the rows, line 1, column weight: "x" is no number'),
        ("tables", ["height,width,age,weight"], "a header and no row"),
        ("tables", ["1,2,3,1e99"], 'to "1,2,3,1e99" there is no finite answer; '),
        ("machines", ["1,2,3,1e99"], 'to "1,2,3,1e99" there is no finite answer; '),
        ("tables", ["1,2,3,4\n1,2,3,4"], "give each row as an input of its own"),
        ("tables", ["--data", "nowhere.csv"], "--data nowhere.csv: no such file; check the path"),
        ("tables", [], "no input; give rows of numbers, as in 5.1,3.5 or --data ROWS.csv"),
        ("texts", [""], "an empty input; give texts"),
        ("texts", ["--data", "latin.txt"], "no UTF-8 text at byte 3"),
        ("pairs", ["one", "--k", "2"], "--k 2: there is one translation to each input; leave --k out"),
        ("ratings", ["nobody"], "there is no user nobody; among those there are: "),
        ("words", ["zebra"], 'the word "zebra" was not learned'),
        ("masked", ["no mask"], '"no mask": no [MASK] in it; put one'),
        ("masked", ["[MASK]" + " cat" * 99], "tokens; the model reads"),
        ("pictures", ["nowhere.png"], "nowhere.png: no such picture; check the path"),
        ("pictures", ["latin.txt"], "latin.txt: no readable picture (it is of no known format)"),
        ("pictures", ["."], ".: a folder is no picture; give files in it"),
        ("characters", ["The"], "a run of the task language, which answers no inputs; use `horosphere generate"),
        ("nodes", ["n1"], "a run of the task nodes, which answers no inputs; "),
    ],
)
def test_bad_input_is_told(trained, run, kind, words, complaint):
    folder = trained(kind)
    Path("latin.txt").write_bytes(b"caf\xe9\n")
    before = everything()
    code, out, err = run("predict", folder, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert complaint in err
    assert everything() == before


def test_a_folder_that_is_no_run(refused):
    Path("empty").mkdir()
    assert "no folder of a run" in refused("predict", "empty", "x")
    assert "no folder of a run" in refused("predict", "nowhere", "x")


def test_rows_that_were_asked_for():
    lines, x = asked_rows(["a\tb", "1\t2"], ["a", "b"])
    assert (lines, x.tolist()) == (["1\t2"], [[1.0, 2.0]])
    with pytest.raises(UserError, match=r'row 2, "1": 1 columns; give a, b'):
        asked_rows(["1,2", "1"], ["a", "b"])
    with pytest.raises(UserError, match='two columns are named "a"; rename one'):
        asked_rows(["a,a,b", "1,2,3"], ["a", "b"])
    with pytest.raises(UserError, match=r'row 2, "3"": 1 columns; give a, b'):
        asked_rows(['1,"2', '3"'], ["a", "b"])  # a quotation mark reaches no further than its row
    with pytest.raises(UserError, match="1 columns; give 3 as the header has"):
        asked_rows(["b,a,c", "1"], ["a", "b"])
