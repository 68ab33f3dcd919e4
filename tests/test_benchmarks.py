"""benchmarks/clusters.py on less than it is made for: what is done is known from its one file, wherever that is."""

import json
import sys
from pathlib import Path
from statistics import fmean

import pytest

pytest.importorskip("matplotlib", reason="it draws")

import torch

from horosphere.models.hcformer import HCFormer, hcformer_config
from horosphere.study.executors import Outcome
from horosphere.train.recipe import Recipe
from tests.data.pictures import write_npz
from tests.tasks.tiny import run_tiny

LEVEL = ("patch", "window")
SMALL = (
    *("blocks=1,1", "dims=8,8", "heads=1,1", "head_width=4", "mlp_ratios=1,1", "windows=2,1"),
    *("patch_centres=4,4", "window_centres=4,0", "size=8", "batch=8", "steps=4", "log_every=1", "ema=none"),
)


@pytest.fixture
def clusters(monkeypatch, tmp_path, capsys):
    """The script with these words, its trainings in this process: what it prints, and the names of what it trained."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    for name in ("clusters", "seeing", "side_by_side"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import clusters
    import seeing

    data = write_npz(tmp_path / "colours.npz", coarse_of_fine=[0, 0, 1, 1])
    begun: list[str] = []
    run_out: list[str] = []  # trainings before which the time is over

    def work(wanted, at_once, minutes, ended):
        while todo := wanted():
            name, words = next(iter(todo.items()))
            if name in run_out:
                return print("stopped: the same command goes on")
            begun.append(name)
            recipe, *settings = words[words.index("train") + 1 : words.index("--device")]
            run_tiny(Recipe.read(recipe, settings), Path(words[words.index("--out") + 1]))
            ended(name, Outcome(0))

    def run(*words: object, machine: str = "here", until: str = "") -> tuple[str, list[str]]:
        begun.clear()
        run_out[:] = [until]
        there = tmp_path / machine
        there.mkdir(exist_ok=True)
        (there / "colours.npz").write_bytes(Path(data).read_bytes())
        places = ("--data", there / "colours.npz", "--out", there, "--runs", there / "runs")
        monkeypatch.setattr(sys, "argv", ["clusters.py", *map(str, (*words, *places))])
        clusters.main()
        return capsys.readouterr().out, list(begun)

    monkeypatch.setattr(seeing, "work", work)
    return run


def test_what_is_done_is_known_from_one_small_file_on_another_machine_too(clusters, tmp_path):
    words = ("settings", *SMALL, "--only", "open", "--only", "open, sharp")
    _, begun = clusters(*words)
    assert begun == ["open 0", "open, sharp 0"]
    file = tmp_path / "here" / "clusters.json"
    records = json.loads(file.read_text())
    assert [record["name"] for record in records] == ["open", "open, sharp"]
    assert file.stat().st_size < 100_000
    assert str(tmp_path) not in file.read_text()
    for record, scale in zip(records, (1, 10), strict=True):
        assert record["done"]
        assert [step for step, _ in record["loss"]] == [1, 2, 3, 4]
        assert record["readings"][-1]["patch_scale_1"] == pytest.approx(scale, abs=0.1)
        assert record["scores"][-1]["step"] == record["readings"][-1]["step"] == 4
    told, begun = clusters(*words)
    assert not begun
    again, begun = clusters(*words, "--known", file, machine="there")
    assert (again, begun) == (told, [])
    assert json.loads((tmp_path / "there" / "clusters.json").read_text()) == records
    _, begun = clusters(*words, "lr=1e-4", "--known", file, machine="there")
    assert begun == ["open 0", "open, sharp 0"]  # other words are other trainings


def test_what_ended_before_the_time_was_over_is_kept(clusters, tmp_path):
    words = ("settings", *SMALL, "--only", "open", "--only", "open, sharp")
    told, begun = clusters(*words, until="open, sharp 0")
    assert begun == ["open 0"]
    assert "stopped: the same command goes on" in told
    rows = {line.split("  ")[0]: line.split()[-1] for line in told.splitlines()[-2:]}
    assert rows.keys() == {"open", "open, sharp"}
    _, begun = clusters(*words, "--known", tmp_path / "here" / "clusters.json", machine="there")
    assert begun == ["open, sharp 0"]


def test_geometries_are_compared_seed_by_seed_with_settings_of_their_own(clusters, tmp_path):
    words = ("levels", *SMALL, "--seeds", 2, "--of", "E + E", "window_scale=30", "layer_scale=0.5")
    told, begun = clusters(*words, "--only", "E + E", "--only", "H + E")
    assert begun == ["E + E 0", "H + E 0", "E + E 1", "H + E 1"]
    assert "H + E less E + E: top-1 " in told
    assert told.splitlines()[-1].endswith("2 seeds")
    records = json.loads((tmp_path / "here" / "clusters.json").read_text())
    for record in records:
        flat = record["name"] == "E + E"
        assert ("window_geometry=euclidean" in record["key"]) == flat
        assert record["readings"][0]["window_scale_1"] == pytest.approx(30 if flat else 20, abs=0.1)
        assert record["readings"][0]["patch_scale_1"] == pytest.approx(10, abs=0.1)
        assert record["readings"][0]["mlp_scale_1"] == pytest.approx(0.5, abs=0.1)
        assert "init=wide" in record["key"]


def test_geometries_pass_equally_much_before_they_learn(clusters):
    """The α of each are chosen so; coarse noise stands for the pictures they were chosen on."""
    from clusters import ALIKE, LEVELS

    torch.manual_seed(0)
    passed, images = {}, torch.nn.functional.interpolate(torch.randn(8, 3, 8, 8), 32, mode="bicubic")
    for name, changes in LEVELS.items():
        words = dict(word.split("=") for word in changes)
        scales = {key: float(value) for key, value in (word.split("=") for word in ALIKE[name])}
        torch.manual_seed(0)
        config = hcformer_config("hcformer-nano-32", blocks=(1, 1, 1, 1), init="wide", **words, **scales)
        read = HCFormer(config).readings(images)
        passed[name] = [fmean(v for k, v in read.items() if k.startswith(f"{level}_passed")) for level in LEVEL]
    for values in passed.values():
        assert values == pytest.approx(passed["E + E"], rel=0.2)


def test_the_picture_is_of_those_that_cluster(clusters, tmp_path):
    clusters("settings", *SMALL, "--only", "open", "--only", "open, sharp")
    clusters("picture", "--only", "open, sharp")
    assert (tmp_path / "here" / "clusters-learning.png").stat().st_size > 1000
