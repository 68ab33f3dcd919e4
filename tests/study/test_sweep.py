"""Studies of several sizes: quality against size, and who leads where."""

import json
from dataclasses import replace

import pytest

from horosphere.errors import UserError
from horosphere.models.hcformer import hcformer_config
from horosphere.plots.study_report import sweep_report
from horosphere.runs import Run
from horosphere.study.executors import Here
from horosphere.study.planning import plan
from horosphere.study.sweep import SWEEP, Sweep, sweep
from horosphere.tasks.nodes import NodesOptions
from horosphere.train.recipe import Recipe
from tests.study.test_table import PRECISION, RANK, results, tree
from tests.tasks.tiny import NODES, write_data


def made(**leads):
    """Lorentz ahead of flat space by so much in each number of dimensions."""
    at = {int(name.removeprefix("d")): lead for name, lead in leads.items()}
    rows = {size: [tree("lorentz", 5, 0.5 + lead), tree("euclidean", 5, 0.5)] for size, lead in at.items()}
    return Sweep("dims", {size: results(of, (PRECISION, RANK)) for size, of in rows.items()})


def test_the_verdict_says_who_leads_where():
    said = made(d2=0.3, d5=0.2, d10=0.001, d50=-0.2).verdict()
    assert said == (
        "3 seeds, paired, by mAP. lorentz and euclidean: lorentz leads at 2, 5; they cannot be told apart at 10; "
        "euclidean leads at 50."
    )


def test_who_fails_more_often_leads_nowhere():
    one = made(d2=0.3)
    row = replace(one.results[2].rows[0], failed={0: "stuck"})
    failing = Sweep("dims", {2: replace(one.results[2], rows=[row, one.results[2].rows[1]])})
    assert "they cannot be told apart at 2" in failing.verdict()


def test_a_column_for_each_size():
    heads, cells = made(d2=0.3, d5=0.2).cells()
    assert heads == ["geometry", "dim 2", "dim 5"]
    assert cells[0] == ["lorentz", "0.800 ± 0.010", "0.700 ± 0.010"]


def test_each_size_is_a_study_of_its_own_and_the_page_has_all(tmp_path, in_this_process):
    pytest.importorskip("matplotlib", reason="pages need matplotlib")
    settings = [f"data={write_data('nodes', tmp_path)}", *(word for word in NODES if not word.startswith("dim="))]
    options = NodesOptions(geometries=("lorentz", "euclidean"))
    out = tmp_path / "out"
    studies = {size: plan("embedding", settings, options, 2, out / f"dim-{size}", "t", size=size) for size in (4, 2)}
    found = sweep(studies, Here(1), "cpu", False, True)
    assert list(found.results) == [2, 4]
    for size in (2, 4):
        assert Run.open(out / f"dim-{size}/lorentz-1").load().points.shape[1] == size
    found.save(out)
    kept = json.loads((out / SWEEP).read_text())
    assert kept["verdict"] == found.verdict()
    page = sweep_report("tree", found).html()
    assert page.count("<img ") >= 3
    assert all(f"<h2>dim {size}</h2>" in page for size in (2, 4))


def test_a_wider_model_has_heads_as_wide_and_inner_widths_in_proportion():
    pytest.importorskip("transformers")
    words = Recipe.read("helm-mice-tiny").task.sized(256)
    config = Recipe.read("helm-mice-tiny", words).task.configuration()
    assert (config.hidden_size, config.num_attention_heads, config.intermediate_size) == (256, 8, 768)
    assert (config.moe_intermediate_size, config.q_lora_rank, config.kv_lora_rank) == (256, 192, 64)
    with pytest.raises(UserError, match="heads are 32 wide; give a multiple of that"):
        Recipe.read("helm-d-tiny").task.sized(100)
    assert Recipe.read("gru-lm").task.sized(32) == ["hidden_size=32"]


def test_a_wider_hcformer_keeps_its_proportions():
    assert hcformer_config("hcformer-nano").sized(64) == {"dims": "64,128,392,448"}
    words = Recipe.read("hcformer-nano-32", ["data=x"]).task.sized(16)
    assert Recipe.read("hcformer-nano-32", ["data=x", *words]).task.configuration().dims[0] == 16


def test_who_has_no_one_size_says_so():
    with pytest.raises(UserError, match="resnet18 has no one number for its size"):
        Recipe.read("hcformer-nano-32", ["data=x", "model=resnet18"]).task.sized(8)
