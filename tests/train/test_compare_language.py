"""Five language models side by side: equal tokens and parameters, trainings as processes, and a verdict that says no more than the table."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("transformers", reason="language models need transformers")
pytest.importorskip("matplotlib", reason="pictures need matplotlib")

from horosphere.errors import UserError
from horosphere.train import compare_language as module
from horosphere.train.compare_language import (
    FAMILIES,
    LanguageComparison,
    Row,
    compare_language,
    entrants,
    matched_size,
)
from horosphere.train.language import LanguageRecipe, train
from tests.train.tiny_language import SMALL, lines, write_text

NAMES = ("HELM-D", "Llama", "HELM-MiCE", "MiCE-Const", "DeepSeek-V3")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("HOROSPHERE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


# -- fairness ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_all_models_see_the_same_tokens_and_have_as_many_parameters(family):
    recipes = {entrant: LanguageRecipe.read(entrant.recipe, entrant.settings) for entrant in entrants(family)}
    assert len({json.dumps(asdict(replace(recipe, model="", config={}))) for recipe in recipes.values()}) == 1
    size = next(iter(recipes.values())).vocab
    corpus = SimpleNamespace(
        train=SimpleNamespace(vocab_size=size, bos=0), tokenizer=SimpleNamespace(eos_token_id=0, pad_token_id=0)
    )
    inner = matched_size(recipes, corpus)
    counts = {}
    for entrant, recipe in recipes.items():
        changes = {"intermediate_size": inner} if entrant.name in ("HELM-D", "Llama") else {}
        counts[entrant.name] = module._parameters(recipe, corpus, **changes)
    assert max(counts.values()) < 1.02 * min(counts.values())
    for group in (NAMES[:2], NAMES[2:]):
        few = [counts[name] for name in group]
        assert max(few) - min(few) < 100  # temperatures, residual weights and curvatures


# -- the verdict ------------------------------------------------------------------------------------------------------


def comparison(**bits):
    rows = [
        Row(name, None, 10**6, bits.get(name.replace("-", "_"), [2.0, 2.01]), 30.0, [1, 2], [3.0, 2.0])
        for name in NAMES
    ]
    return LanguageComparison(sorted(rows, key=lambda row: row.mean), 2, 1000)


@pytest.mark.parametrize(
    ("bits", "said"),
    [
        ({}, ["HELM-D and Llama are within the spread of seeds", "Curvature does not pay on this text."]),
        (
            {"HELM_D": [1.9, 1.91]},
            ["HELM-D beats Llama beyond", "Curvature pays on this text in the dense model only."],
        ),
        ({"HELM_MiCE": [1.9, 1.91]}, ["HELM-MiCE beats MiCE-Const beyond", "in the mixture model only."]),
        (
            {"HELM_D": [1.9, 1.91], "HELM_MiCE": [1.8, 1.81]},
            ["HELM-MiCE beats DeepSeek-V3", "Curvature pays on this text."],
        ),
        (
            {"Llama": [1.9, 1.91], "DeepSeek_V3": [1.9, 1.91]},
            ["Llama beats HELM-D", "DeepSeek-V3 beats HELM-MiCE", "does not pay"],
        ),
        ({"HELM_D": [1.8, 2.1]}, ["HELM-D and Llama are within", "does not pay"]),
    ],
)
def test_the_verdict_follows_the_means_and_their_spread(bits, said):
    verdict = comparison(**bits).verdict()
    assert all(words in verdict for words in said)
    assert verdict.startswith("2 seeds. ")


def test_one_seed_proves_nothing():
    rows = [replace(row, bits_per_byte=row.bits_per_byte[:1]) for row in comparison(HELM_D=[1.5]).rows]
    found = LanguageComparison(rows, 1, 1000)
    assert "one run says nothing about chance" in found.verdict()
    assert "±" not in "".join(found.cells()[1][0])


def test_the_table_is_sorted_and_has_blimp_only_when_asked():
    found = comparison(Llama=[1.5, 1.6])
    heads, cells = found.cells()
    assert (heads, cells[0]) == (
        ["model", "parameters", "bits/byte ↓", "ms/step"],
        ["Llama", "1,000,000", "1.5500 ± 0.0707", "30"],
    )
    heads, cells = replace(found, rows=[replace(row, blimp=[0.6, 0.7]) for row in found.rows]).cells()
    assert heads[3] == "BLiMP ↑"
    assert cells[0][3] == "0.650 ± 0.071"


# -- all of it --------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_this_process(monkeypatch):
    """Trainings without the seconds it takes to start Python; those that were begun are resumed."""
    begun = []

    def run(trainings, jobs, device, overwrite, update):
        for t in trainings:
            begun.append(t.folder.name)
            recipe = LanguageRecipe.read(t.entrant.recipe, t.settings)
            train(
                recipe,
                t.folder,
                resume="--resume" in t.command(device, overwrite),
                overwrite=overwrite,
                quiet=True,
                device=device,
            )

    monkeypatch.setattr(module, "run_all", run)
    return begun


def test_a_comparison(tmp_path, in_this_process):
    settings = [f"data={write_text(tmp_path / 'cats.txt')}", *SMALL]
    (tmp_path / "blimp.jsonl").write_text(json.dumps({"good": "the cat", "bad": "cat the", "phenomenon": "order"}))
    out = tmp_path / "out"
    found = compare_language("helm-tiny", settings, out, seeds=2, blimp=str(tmp_path / "blimp.jsonl"))
    assert sorted(in_this_process) == sorted(f"{name.lower()}-{seed}" for name in NAMES for seed in (0, 1))
    assert {row.name for row in found.rows} == set(NAMES)
    assert [row.mean for row in found.rows] == sorted(row.mean for row in found.rows)
    assert found.tokens == 4 * 4 * 16
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    written = json.loads((out / "results.json").read_text())
    assert written["verdict"] == found.verdict()
    counts = [row.parameters for row in found.rows]
    assert max(counts) < 1.02 * min(counts)
    for row in found.rows:
        folders = [out / f"{row.name.lower()}-{seed}" for seed in (0, 1)]
        assert row.bits_per_byte == [lines(folder)[-1]["eval_bits_per_byte"] for folder in folders]
        assert row.bits_per_byte[0] != row.bits_per_byte[1]
        assert row.tokens == [2 * 64, 4 * 64]
        assert len(row.blimp) == 2
    tokenizers = {(folder / "tokenizer.json").read_bytes() for folder in out.iterdir() if folder.is_dir()}
    assert len(tokenizers) == 1
    modes = {
        name: json.loads((out / f"{name}-0/run.json").read_text())["recipe"]["config"]
        for name in ("mice-const", "helm-mice", "llama")
    }
    assert (modes["mice-const"]["expert_curvature"], modes["helm-mice"]["expert_curvature"]) == ("constant", "mixture")
    assert modes["llama"]["geometry"] == "euclidean"

    before = {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    again = compare_language("helm-tiny", settings, out, seeds=2)
    assert [row.bits_per_byte for row in again.rows] == [row.bits_per_byte for row in found.rows]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")} == before


def test_what_the_models_differ_in_is_not_for_the_user(tmp_path):
    for setting in ("geometry=euclidean", "model=llama-tiny", "expert_curvature=constant"):
        with pytest.raises(UserError, match="what the compared models differ in"):
            compare_language("helm-tiny", [setting], tmp_path / "out")
    assert not Path(tmp_path / "out").exists()
