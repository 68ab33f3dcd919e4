"""The demo: its language models are trained, told of, and missed when they cannot be."""

import re
import sys

import pytest

from horosphere import demo
from horosphere.train.config import EmbedConfig
from tests.train.graphs import binary_tree


@pytest.fixture(autouse=True)
def _small(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOROSPHERE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(demo, "trove_classifiers", lambda: binary_tree(3))
    monkeypatch.setattr(demo, "EmbedConfig", lambda **_: EmbedConfig(dim=2, epochs=2))


def test_without_the_language_extra_the_tree_is_still_shown(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "transformers", None)
    demo.demo("report.html", False, True)
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if "pip install 'horosphere[language]'" in line] != []
    assert out.endswith("report: report.html\n")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Does curvature pay on PyPI's classifiers?" in html.replace("&#x27;", "'")
    assert "language model" not in html


def test_the_report_has_the_numbers_of_the_runs(monkeypatch, capsys, tmp_path):
    pytest.importorskip("transformers", reason="language models need transformers")
    from horosphere.train import compare_language
    from horosphere.train.language import LanguageRecipe, train

    (tmp_path / "text.txt").write_text(
        "\f".join(f"The cat {i} sat on mat {i % 7}, and a dog {i % 5} ran. " * 9 for i in range(60))
    )
    small = [
        "vocab=300",
        "length=16",
        "batch=2",
        "steps=2",
        "num_hidden_layers=2",
        "hidden_size=32",
        f"data={tmp_path / 'text.txt'}",
    ]
    monkeypatch.setattr(demo, "SETTINGS", small)
    found = {}

    def here(trainings, jobs, device, overwrite, update):  # in this process: two more would take long to start
        for training in trainings:
            recipe = LanguageRecipe.read(training.entrant.recipe, training.settings)
            found[training.entrant.name] = train(recipe, training.folder, quiet=True, device=device).evaluation[
                "bits_per_byte"
            ]

    monkeypatch.setattr(compare_language, "run_all", here)
    demo.demo("report.html", False, True)
    out = capsys.readouterr().out
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert set(found) == {demo.CURVED, demo.FLAT}
    for name, bits in found.items():
        assert re.search(rf"{name} .* {bits:.3f} ", out)
        assert f">{bits:.3f}<" in html
        assert f"{name} writes: {demo.PROMPT}" in html
    best = min(found, key=found.get)
    assert re.search(rf"{best}.*<- best", out)
    assert "One run of each says nothing about chance." in html
    assert not list(tmp_path.glob("horosphere.*"))
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "text.txt", "cache"}
