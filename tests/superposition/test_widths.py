"""The study of widths: trainings at every width in both geometries, a table, a picture, and a law of three widths."""

import csv
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="language models need transformers")
pytest.importorskip("matplotlib", reason="pictures need matplotlib")

from horosphere.errors import UserError
from horosphere.plots.superposition_heads import draw_width_study
from horosphere.study.executors import Here
from horosphere.superposition import widths
from horosphere.superposition.widths import TABLE, WidthPlan, WidthRow, WidthStudy, study_widths
from tests.tasks.tiny import LANGUAGE as SMALL
from tests.tasks.tiny import write_text

SETTINGS = (
    "data=cats.txt",
    *(s for s in SMALL if not s.startswith(("hidden_size", "num_attention_heads", "intermediate_size", "head_dim"))),
    "head_dim=8",
)


def made(alpha=0.5, widths=(32, 64, 128, 256, 512)):
    def row(model, width, seed):
        offset = {"HELM-D": 1.0, "Llama": 2.0}[model]
        return WidthRow(model, "", width, seed, 0, 10 * width**-alpha + offset, 0.0, 1 / width, 1.0 + seed, 10.0)

    return WidthStudy([row(model, width, seed) for model in ("HELM-D", "Llama") for width in widths for seed in (0, 1)])


def test_a_study_finds_the_law_that_made_it():
    fit = made().fit()
    assert fit is not None
    assert fit.exponent == pytest.approx(0.5, abs=1e-3)
    assert list(fit.offsets.values()) == pytest.approx([1.0, 2.0], abs=1e-2)
    assert made(widths=(32, 64)).fit() is None


def test_the_table_has_a_row_a_width_with_the_spread_of_seeds():
    heads, rows = made().cells()
    assert heads == ["width", "HELM-D nats/token", "Llama nats/token", "HELM-D m·overlap", "Llama m·overlap"]
    assert [row[0] for row in rows] == ["32", "64", "128", "256", "512"]
    assert rows[0][3] == "1.50 ± 0.71"


def test_every_width_seed_and_geometry_is_a_job_and_the_longest_come_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text("cats.txt")
    asked = []

    def stop(jobs, executor, update):
        asked.extend(jobs)
        raise KeyboardInterrupt

    monkeypatch.setattr(widths, "run_all", stop)
    plan = WidthPlan("helm-d-tiny", (16, 64, 8, 32, 16), (*SETTINGS, "seed=3"), 2)
    with pytest.raises(KeyboardInterrupt):
        study_widths(plan, Path("out"), Here(1), quiet=True)
    settings = [dict(word.split("=", 1) for word in job.words if "=" in word) for job in asked]
    sizes = [tuple(int(s[name]) for name in ("seed", "hidden_size", "num_attention_heads")) for s in settings]
    assert sizes[::2] == sizes[1::2] == [(seed, w, w // 8) for seed in (3, 4) for w in (64, 32, 16, 8)]
    assert [s["geometry"] for s in settings] == ["lorentz", "euclidean"] * 8
    assert len({job.folder for job in asked}) == 16


def test_models_of_every_width_are_trained_and_looked_at(tmp_path, monkeypatch, in_this_process):
    monkeypatch.chdir(tmp_path)
    write_text("cats.txt")

    def trained(widths, *more):
        return study_widths(WidthPlan("helm-d-tiny", widths, (*SETTINGS, *more), 1), Path("out"), Here(1), quiet=True)

    study = trained((16,))
    assert {(row.geometry, row.width) for row in study.rows} == {("lorentz", 16), ("euclidean", 16)}
    assert all(row.loss > 0 and row.effective_dims > 1 for row in study.rows)
    with open(f"out/{TABLE}", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 2
    figure = draw_width_study(study)
    assert [len(axes.get_legend().get_texts()) for axes in figure.axes] == [2, 2]
    before = {path: path.stat().st_mtime_ns for path in Path("out").rglob("*.safetensors")}
    assert trained((16,)).rows == study.rows  # all done: nothing is trained again
    assert {path: path.stat().st_mtime_ns for path in Path("out").rglob("*.safetensors")} == before
    with pytest.raises(UserError, match="multiple of head_dim = 8"):
        trained((12,))
    with pytest.raises(UserError, match="the study decides this"):
        trained((8,), "geometry=lorentz")
