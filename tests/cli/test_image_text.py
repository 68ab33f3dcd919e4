"""Texts and pictures from the command line: adapt, benchmarks, and every mistake in one line."""

from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="CLIPs need transformers")
pytest.importorskip("matplotlib", reason="reports need matplotlib")

from tests.cli.command_line import cells, runner
from tests.tasks.tiny import FEW_SHOT, OPEN, SHORT, write_data

QUIET = ("--quiet", "--device", "cpu")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Captions, pictures with classes, pictures with masks; a CLIP beside each."""
    folder = tmp_path_factory.mktemp("home")
    for kind in ("image_text", "few_shot", "open_vocabulary"):
        (folder / kind).mkdir()
        write_data(kind, folder / kind)
    pairs = ("WORD1 WORD2 POS AVG_SCORE", "red thing N 5.9", "thing red N 2.0", "grey red N 0.1")
    (folder / "hyperlex-all.txt").write_text("\n".join(pairs))
    return folder


@pytest.fixture
def run(home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    return runner(capsys)


CAPTIONS, CLIP = "image_text/captions", "image_text/clip"
ADAPT = ("adapt", "clip", "--method")


def test_adapt_tells_before_and_after_and_writes_a_page(run, tmp_path):
    how = ("towers=image_text/clip", "data=image_text/captions", "batch=4", *SHORT)
    code, out, err = run("adapt", "clip", "--method", "radial", *how, "--out", tmp_path / "a", *QUIET)
    assert (code, err) == (0, "")
    assert " -> " in cells(out)["τ_d"]
    page = (tmp_path / "a/report.html").read_text()
    assert "what changed" in page
    assert page.count("<img") == 2
    code, _, err = run("adapt", "clip", "--method", "radial", *how, "--out", tmp_path / "a", *QUIET)
    assert code == 2
    assert "exists already" in err
    code, out, _ = run("eval", "hierarcaps", tmp_path / "a", "--data", CAPTIONS, *QUIET)
    assert code == 0
    assert "learned from a part of this" in out


def test_lathadapter_is_an_adaptation_too(run, tmp_path):
    how = ("towers=few_shot/clip", "data=few_shot/named.npz", *FEW_SHOT)
    code, out, _ = run("adapt", "clip", "--method", "lathadapter", *how, "--out", tmp_path / "a", *QUIET)
    assert code == 0
    assert "accuracy" in cells(out)


def test_towers_are_judged_without_training(run):
    code, out, _ = run("eval", "hierarcaps", CLIP, "--data", CAPTIONS, "--hyperlex", ".", *QUIET)
    assert code == 0
    assert cells(out.splitlines()[0])["towers"] == CLIP
    assert {"R@5", "τ_d", "by length", "HyperLex"} <= {line.split("  ")[0] for line in out.splitlines()}
    code, out, _ = run("eval", "hyperlex", CLIP, "--data", ".", *QUIET)
    assert code == 0
    assert "HyperLex" in out


def test_few_shot_tables(run, tmp_path, in_this_process):
    how = [setting for setting in FEW_SHOT if not setting.startswith(("shots", "attributes", "lr"))]
    common = ("few_shot/clip", *how, "--data", "few_shot/named.npz", "--seeds", 1, *QUIET)
    methods = ("--methods", "linear-probe,lathadapter")
    code, out, _ = run("eval", "fewshot", *common, *methods, "--shots", "1,2", "--out", tmp_path / "a")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[:4]] == ["method", "zero-shot", "linear-probe", "lathadapter"]
    assert len(in_this_process) == 4
    code, out, _ = run(
        "eval", "base-to-novel", *common, "--methods", "lathadapter", "--shots", 2, "--out", tmp_path / "b"
    )
    assert code == 0
    assert out.split()[:7] == ["method", "base", "↑", "novel", "↑", "mean", "↑"]


def test_pixels_by_name(run, tmp_path):
    towers, data = "towers=open_vocabulary/clip", "data=open_vocabulary/semantic"
    own = [setting for setting in OPEN if setting.partition("=")[0] in ("names", "ignore", "template", "size")]
    code, out, _ = run("eval", "ovseg", "open_vocabulary/clip", "--data", "open_vocabulary/semantic", *own, *QUIET)
    assert code == 0
    assert out.split()[:2] == ["cosines", "alone"]
    assert run("train", "open-vocabulary", towers, data, *OPEN, "--out", tmp_path / "run", *QUIET)[0] == 0
    code, out, _ = run("eval", "ovseg", tmp_path / "run", *QUIET)
    assert code == 0
    assert out.split()[:3] == ["trained", "cosines", "alone"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("adapt", "clip"), "--method"),
        (("adapt", "clip", "--method", "magic"), "invalid choice: 'magic'"),
        (("adapt", "clip", "--method", "radial", "towers=nowhere", f"data={CAPTIONS}"), "nowhere: no such folder"),
        (
            ("adapt", "clip", "--method", "hyperclip", f"towers={CLIP}", f"data={CAPTIONS}", "block=7"),
            "does not divide",
        ),
        (("eval", "hierarcaps"), "whose? Name towers"),
        (("eval", "hierarcaps", CLIP), "needs captions: name them with --data"),
        (("eval", "hierarcaps", CLIP, "--data", CAPTIONS, "shots=3"), "shots=…: eval hierarcaps has no such setting"),
        (("eval", "hyperlex", CLIP, "--data", CAPTIONS), "no pairs of words with scores"),
        (("eval", "fewshot", CLIP, "--data", "few_shot/named.npz", "--shots", "0"), "--shots 0: numbers of pictures"),
        (("eval", "fewshot", CLIP, "--data", "few_shot/named.npz", "--methods", "lat"), "there is no such method here"),
        (("eval", "base-to-novel", CLIP, "--data", "few_shot/named.npz", "--shots", "1,2"), "takes one number"),
        (("eval", "runs/other", CLIP), "nothing goes behind a run"),
        (("eval", "hierarcaps", CLIP, "--data", CAPTIONS, "--shots", "3"), "--shots: eval hierarcaps trains nothing"),
    ],
)
def test_mistakes_take_one_line(run, words, complaint, tmp_path):
    trains = words[1] in ("fewshot", "base-to-novel") or (words[0] == "adapt" and len(words) > 4)
    out = ("--out", tmp_path / "out") if trains else ()
    code, _, err = run(*words, *out, *QUIET)
    assert code == 2
    assert complaint in err
    assert len(err.strip().splitlines()) == 1
    assert not Path(tmp_path / "out" / "run.json").exists()
