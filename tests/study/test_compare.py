"""Studies: who is compared with whom, equal tokens and parameters, runs that are kept, and one page for every task."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from horosphere import catalogue
from horosphere.errors import UserError
from horosphere.files import locked
from horosphere.plots.study_report import study_report
from horosphere.recipes import read_recipe
from horosphere.runs import About, Run, append, begin
from horosphere.study.compare import _row, compare, examine
from horosphere.study.executors import Here
from horosphere.study.planning import plan
from horosphere.tasks.language import Language, LanguageOptions, dense_parameters
from horosphere.tasks.nodes import NodesOptions
from horosphere.train.recipe import Recipe
from tests.tasks.tiny import LANGUAGE, NODES, PICTURES, write_data, write_text

pytest.importorskip("matplotlib", reason="pages need matplotlib")
HELMS = ("HELM-D", "Llama", "HELM-MiCE", "MiCE-Const", "DeepSeek-V3")


def self_contained(html):
    page = re.sub(r'"data:[^"]*"', '"data:"', html)  # a picture's letters may spell anything
    return not re.search(r"""src=(?!"data:)|href|url\(|@import|<script|<link""", page)


# -- who is compared --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "entrants"),
    [
        ("helm-tiny", [], HELMS),
        ("helm-d-tiny", [], ("HELM-D", "Llama")),
        ("sphere-tiny", [], ("sphere", "euclidean")),
        ("hcformer-nano-32", ["data=a.npz"], ("E + E", "H + H", "H + E")),
        ("himapper-32", ["data=a.npz"], ("Hi-Mapper", "Hi-Mapper, flat loss", "without Hi-Mapper")),
        ("embedding", ["data=tree.tsv"], ("euclidean", "poincare", "lorentz", "product")),
    ],
)
def test_entrants(name, settings, entrants, tmp_path, monkeypatch):
    monkeypatch.setattr(Language, "evened", classmethod(lambda cls, recipes: {}))
    study = plan(name, settings, None, 2, tmp_path / "out")
    assert tuple(entrant.name for entrant in study.comparison.entrants) == entrants
    assert sum(entrant.flat for entrant in study.comparison.entrants) in (1, 2)


def test_geometries_can_be_chosen(tmp_path):
    study = plan("embedding", ["data=tree.tsv"], NodesOptions(("lorentz", "product", "lorentz")), 1, tmp_path / "out")
    assert list(study.recipes) == ["lorentz", "product"]
    assert [recipe.task.configuration().geometry for recipe in study.recipes.values()] == ["lorentz", "product"]


def test_what_exists_in_flat_space_only_has_no_rival(tmp_path):
    with pytest.raises(UserError, match="resnet50 exists in euclidean space only"):
        plan("hcformer-nano-32", ["data=a.npz", "model=resnet50"], None, 1, tmp_path / "out")


def test_what_the_entrants_differ_in_is_not_for_the_user(tmp_path):
    for setting in ("geometry=euclidean", "model=llama-tiny", "expert_curvature=constant"):
        with pytest.raises(UserError, match="what the entrants of the comparison differ in"):
            plan("helm-tiny", [setting], None, 1, tmp_path / "out")
    with pytest.raises(UserError, match="what the entrants of the comparison differ in"):
        plan("hcformer-nano-32", ["data=a.npz", "patch_geometry=lorentz"], None, 1, tmp_path / "out")
    with pytest.raises(UserError, match="what the entrants of the comparison differ in"):
        plan("embedding", ["data=tree.tsv", "geometry=lorentz"], None, 1, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# -- fairness ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "family", [name for name in catalogue.comparisons() if name.startswith(("helm", "curvatures"))]
)
def test_all_models_see_the_same_tokens_and_have_as_many_parameters(family, tmp_path, monkeypatch):
    """Of a text whose tokenizer has as many tokens as the recipe asks for."""
    pytest.importorskip("transformers")
    entrants = catalogue.comparisons()[family].entrants
    recipes = {e.name: Recipe.read(e.recipe, e.changes) for e in entrants}
    alike = {
        json.dumps({k: v for k, v in read_recipe(e.recipe).items() if k != "model"}, sort_keys=True) for e in entrants
    }
    assert len(alike) == 1

    class Tokenizer:
        bos_token_id = eos_token_id = pad_token_id = 0

        def get_vocab(self):
            return {"last": recipes["Llama"].task.vocab - 1}

    monkeypatch.setattr(Language, "open_data", lambda self: type("Corpus", (), {"tokenizer": Tokenizer()}))
    more = Language.evened(recipes)
    assert more.keys() == recipes.keys() - set(HELMS[2:])  # the dense ones
    counts = {}
    for name, recipe in recipes.items():
        changes = {"intermediate_size": int(more[name][0].partition("=")[2])} if name in more else {}
        counts[name] = dense_parameters(recipe.task, Tokenizer(), **changes)
    assert max(counts.values()) < 1.02 * min(counts.values())
    few = [counts[name] for name in HELMS[:2]]
    assert max(few) - min(few) < 100  # temperatures and residual weights
    few = [counts[name] for name in HELMS[2:]]
    assert max(few) - min(few) < 0.001 * counts["Llama"]  # of MiCE, norms of queries and of the rotated key too


# -- studies ----------------------------------------------------------------------------------------------------------

TINY = {
    "language": ("helm-d-tiny", (*LANGUAGE, "sample_every=4"), ("HELM-D", "Llama")),
    "pictures": ("hcformer-nano-32", PICTURES, ("E + E", "H + H", "H + E")),
    "nodes": ("embedding", NODES, ("euclidean", "poincare", "lorentz", "product")),
}


@pytest.mark.parametrize("kind", TINY)
def test_a_study_has_a_table_a_verdict_and_a_page_and_keeps_its_runs(kind, tmp_path, in_this_process):
    recipe, settings, names = TINY[kind]
    data, out = write_data(kind, tmp_path), tmp_path / "out"
    study = plan(recipe, [f"data={data}", *settings], None, 2, out, "tiny")
    results = compare(study, Here(1), "cpu", quiet=True)
    assert {row.name for row in results.rows} == set(names)
    assert len(in_this_process) == 2 * len(names)
    first = results.metrics[0]
    means = [first.ahead(sum(row.scores[first.name]), 0) for row in results.rows]
    assert means == sorted(means, reverse=True)
    for row in results.rows:
        opened = [Run.open(folder) for folder in row.folders]
        assert row.scores[first.name] == [run.evaluations()[-1][first.name] for run in opened]
        assert row.scores[first.name][0] != row.scores[first.name][1] or kind == "pictures"
        assert [run.about.recipe["engine"]["seed"] for run in opened] == [0, 1]
        assert len(row.curve) == 2
        seen = opened[0].about.recipe["engine"]["batch"] * (16 if kind == "language" else 1)  # tokens, or rows
        assert row.curve[-1][0] == seen * opened[0].evaluations()[-1]["step"]
    assert json.loads((out / "study.json").read_text())["verdict"] == results.verdict()
    page = study_report(results, examine(study, results), catalogue.tasks()[study.task.kind].drawer).html()
    assert self_contained(page)
    of_what = {"language": ("tokens", "this text"), "pictures": ("images", "these pictures")}
    assert (results.unit, results.subject) == of_what.get(kind, ("nodes", "this data"))
    verdict, table, pictures = page.index(results.verdict()[:40]), page.index("<table>"), page.index("<img ")
    assert verdict < table < pictures < page.index("Made with")
    if kind == "language":
        assert page.index("<img ") < page.index("What they write") < page.index("Made with")

    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    again = compare(study, Here(1), "cpu", quiet=True)
    assert [row.scores for row in again.rows] == [row.scores for row in results.rows]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == before
    compare(study, Here(1), "cpu", overwrite=True, quiet=True)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} != before


def test_language_models_can_be_judged_on_pairs_too(tmp_path, in_this_process):
    pytest.importorskip("transformers")
    text = write_text(tmp_path / "cats.txt")
    pairs = tmp_path / "blimp.jsonl"
    pairs.write_text(json.dumps({"good": "the cat", "bad": "cat the", "phenomenon": "order"}))
    settings = [f"data={text}", *LANGUAGE, "steps=2"]
    study = plan("helm-d-tiny", settings, LanguageOptions(blimp=str(pairs)), 1, tmp_path / "out")
    results = compare(study, Here(1), "cpu", quiet=True)
    assert "BLiMP ↑" in results.cells()[0]
    assert all(row.scores["blimp"][0] in (0.0, 0.5, 1.0) for row in results.rows)
    wrong = replace(study, options=LanguageOptions(blimp=str(tmp_path / "nowhere.jsonl")))
    in_this_process.clear()
    with pytest.raises(UserError, match="no such file"):
        compare(wrong, Here(1), "cpu", quiet=True)
    assert not in_this_process


def test_too_small_a_graph_fails_before_any_training(tmp_path, in_this_process):
    Path(tmp_path / "two.tsv").write_text("a\tb\n")
    study = plan("embedding", [f"data={tmp_path / 'two.tsv'}", *NODES], None, 1, tmp_path / "out")
    with pytest.raises(UserError, match="at least 4"):
        compare(study, Here(1), "cpu", quiet=True)
    assert not in_this_process


def test_a_run_that_is_under_way_is_not_overwritten(tmp_path, in_this_process):
    settings = [f"data={write_data('nodes', tmp_path)}", *NODES]
    study = plan("embedding", settings, NodesOptions(geometries=("lorentz", "euclidean")), 1, tmp_path / "out")
    compare(study, Here(1), "cpu", quiet=True)
    before = {path for path in (tmp_path / "out").rglob("*") if path.is_file()}
    with locked(tmp_path / "out" / "lorentz-0"), pytest.raises(UserError, match="is in use by process"):
        compare(study, Here(1), "cpu", overwrite=True, quiet=True)
    assert {path for path in (tmp_path / "out").rglob("*") if path.is_file()} == before


def test_a_study_that_another_process_has_under_way_is_refused(tmp_path, in_this_process):
    settings = [f"data={write_data('nodes', tmp_path)}", *NODES]
    study = plan("embedding", settings, NodesOptions(geometries=("lorentz", "euclidean")), 1, tmp_path / "out")
    with locked(tmp_path / "out"), pytest.raises(UserError, match="is in use by process"):
        compare(study, Here(1), "cpu", quiet=True)
    assert not in_this_process


def test_the_results_of_another_study_stay(tmp_path, in_this_process):
    data = write_data("nodes", tmp_path)
    two, three = (
        plan("embedding", [f"data={data}", *NODES], NodesOptions(geometries=names), 1, tmp_path / "out")
        for names in (("lorentz", "euclidean"), ("lorentz", "product", "euclidean"))
    )
    compare(two, Here(1), "cpu", quiet=True)
    compare(three, Here(1), "cpu", quiet=True)  # has what the other has, and more
    before = (tmp_path / "out/study.json").read_bytes()
    in_this_process.clear()
    with pytest.raises(UserError, match="is of another study"):
        compare(two, Here(1), "cpu", quiet=True)
    assert not in_this_process
    assert (tmp_path / "out/study.json").read_bytes() == before
    compare(two, Here(1), "cpu", overwrite=True, quiet=True)


def test_a_study_that_fails_leaves_the_runs_it_was_to_replace(tmp_path, in_this_process, monkeypatch):
    settings = [f"data={write_data('nodes', tmp_path)}", *NODES]
    study = plan("embedding", settings, NodesOptions(geometries=("lorentz", "euclidean")), 1, tmp_path / "out")
    compare(study, Here(1), "cpu", quiet=True)

    def everything():
        return {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}

    def fail(*_):
        raise UserError("no worker is left")

    before = everything()
    monkeypatch.setattr("horosphere.study.jobs.run_all", fail)
    with pytest.raises(UserError, match="no worker"):
        compare(study, Here(1), "cpu", overwrite=True, quiet=True)
    assert everything() == before


def test_a_curve_is_the_mean_of_what_the_seeds_had_at_the_same_step(tmp_path):
    lines = {0: {10: 4.0, 20: 2.0}, 1: {5: 9.0, 10: 6.0, 15: 5.0, 20: 3.0}}
    runs = {}
    for seed, losses in lines.items():
        about = About("nodes", {}, {"parameters": 7}, {})
        begin(tmp_path / str(seed), about)
        for step, loss in losses.items():
            append(tmp_path / str(seed), {"step": step, "loss": loss, "nodes_per_second": 0.05, "seconds": 1.0})
        append(tmp_path / str(seed), {"step": 20, "eval_map": 0.5})
        runs[seed] = Run(tmp_path / str(seed), about)
    scores, task = {seed: {"map": 0.5} for seed in runs}, Recipe.read("embedding", ["data=x"]).task
    made = _row(catalogue.Entrant("lorentz"), runs, scores, task, 2, seeds=(0, 1))
    assert made.curve == [(20, 5.0), (40, 2.5)]
    assert made.step_ms == pytest.approx(40_000)
