"""The superposition laboratory from the command line: sweeps, fits, predictions, heads; mistakes in one line."""

import argparse
import csv
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from horosphere import cli
from tests.cli.command_line import runner

pytest.importorskip("matplotlib", reason="pictures need matplotlib")

ROOT = Path(__file__).parents[2]
SMALL = ("--n", "60", "--widths", "4,8", "--steps", "12", "--batch", "64", "--seeds", "2", "--device", "cpu", "--quiet")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Exit code, standard output and standard error of a command, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    return runner(capsys, "superposition")


@pytest.fixture
def refused(run):
    def refused(*words):
        code, out, err = run(*words)
        assert (code, out) == (2, "")
        assert err.startswith("horosphere: ")
        assert err.count("\n") == 1
        return err

    return refused


def test_a_sweep_leaves_a_table_and_says_how_loss_falls(run):
    code, out, _ = run(
        "sweep", *SMALL, "--laws", "power:1,linear", "--gammas=-0.5,0.5", "--bias", "normal,zero", "--out", "out"
    )
    assert code == 0
    assert out.splitlines()[0].split() == ["setting", "α_m", "95", "%", "widest:", "loss", "φ½", "widths", "x", "seeds"]
    assert len(out.splitlines()) == 1 + 8 + 3  # settings, how sure, where, what next
    with open("out/results.csv", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 2 * 2 * 2 * 2 * 2


def test_a_part_of_a_published_grid(run, refused):
    few = ("--grid", "a", "--steps", "2", "--batch", "16", "--seeds", "1", "--out", "out", "--quiet", "--device", "cpu")
    code, _, _ = run(
        "sweep",
        *few,
        "--laws",
        "power:0.5,power:2",
        "--widths",
        "10,25",
        "--gammas=-0.556,0.333",
        "--bias",
        "normal,zero",
    )
    assert code == 0
    with open("out/results.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len({tuple(row[name] for name in ("law", "m", "gamma", "bias")) for row in rows}) == 16
    assert {(row["law"], row["m"]) for row in rows} == {
        (law, m) for law in ("power:0.5", "power:2") for m in ("10", "25")
    }
    assert "--widths 11: grid a has 10, 15, 25, 39, 63, 100" in refused("sweep", *few, "--widths", "10,11")
    assert "--laws power:3: grid a has power:0, power:0.125," in refused("sweep", *few, "--laws", "power:1,power:3")
    assert "--gammas 0.4: grid a has -1, -0.7778," in refused("sweep", *few, "--gammas", "0.333,0.4")
    assert "--densities 2: grid a has 1;" in refused("sweep", *few, "--densities", "1,2")
    assert "--lr" in refused("sweep", *few, "--lr", "0.1")
    assert "must be positive" in refused("sweep", *SMALL, "--lr", "0", "--out", "none")


def test_values_are_what_they_mean(run):
    few = (
        "--grid",
        "a",
        "--steps",
        "2",
        "--batch",
        "16",
        "--seeds",
        "1",
        "--quiet",
        "--device",
        "cpu",
        "--widths",
        "10,010",
    )
    assert run("sweep", *few, "--laws", "power:0.50,power:2.0", "--gammas=0.333,0.3330", "--out", "grid")[0] == 0
    assert (
        run(
            "sweep",
            *SMALL,
            "--laws",
            "power:0.50,linear,power:0.5",
            "--gammas=0.1,0.10",
            "--widths",
            "4,04",
            "--out",
            "own",
        )[0]
        == 0
    )
    for folder, laws in (("grid", ["power:0.5", "power:2"]), ("own", ["power:0.50", "linear"] * 2)):
        with open(f"{folder}/results.csv", encoding="utf-8") as file:
            assert [row["law"] for row in csv.DictReader(file)] == laws


def test_runs_that_diverge_are_told(run):
    code, out, err = run("sweep", *SMALL, "--lr", "1e9", "--out", "out")
    assert (code, err) == (0, "8 of 8 runs diverged: lower --lr\n")
    assert "8 runs: out/results.csv" in out
    assert "diverged" not in run("sweep", *SMALL, "--out", "calm")[2]


def test_a_decay_that_diverges_is_not_blamed_on_the_learning_rate(run):
    code, _, err = run("sweep", *SMALL, "--gammas", "1e30", "--out", "out")
    assert (code, err) == (0, "4 of 4 runs diverged: choose --gammas from -1 to 1, as the paper does\n")


def test_a_finished_sweep_is_kept_and_read_again(run, refused):
    assert run("sweep", *SMALL, "--out", "out")[0] == 0
    before = Path("out/results.csv").read_bytes()
    assert "--resume" in refused("sweep", *SMALL, "--out", "out")
    assert run("sweep", *SMALL, "--out", "out", "--resume")[0] == 0
    assert Path("out/results.csv").read_bytes() == before
    assert "another grid" in refused("sweep", *SMALL, "--laws", "linear", "--out", "out", "--resume")


def test_figures_need_runs_that_fill_one(run, refused):
    gammas = "--gammas=-1,-0.5555556,0.3333333"
    assert (
        run(
            "sweep",
            "--widths",
            "4,8",
            "--n",
            "1000",
            "--steps",
            "3",
            "--batch",
            "16",
            "--seeds",
            "1",
            gammas,
            "--out",
            "out",
            "--quiet",
        )[0]
        == 0
    )
    code, out, _ = run("figures", "out", "--out", "pictures")
    assert code == 0
    assert "figure-3.png" in out
    assert Path("pictures/figure-3.png").is_file()
    code, out, _ = run("sweep", *SMALL, "--widths", "4", "--out", "few")
    assert (code, out.splitlines()[-1]) == (0, "next: sweep two widths or more: one has no slope to draw")
    assert "fill none of figure-1" in refused("figures", "few", "--out", "none")
    assert not Path("none").exists()
    with open("few/results.csv", "a", encoding="utf-8") as file:
        file.write("60,4,pow")
    assert "results.csv line 6: 3 cells for" in refused("figures", "few", "--out", "none")


def test_a_small_sweep_is_drawn_and_says_what_comes_next(run):
    code, out, _ = run("sweep", *SMALL, "--out", "out")
    assert code == 0
    runs, following = out.splitlines()[-2:]
    assert runs.endswith("out/results.csv; pictures: losses.png")
    assert following == "next: see out/losses.png; the paper's figures take --grid a, b or c"
    assert run("figures", "out", "--out", "pictures")[:2] == (0, "picture  pictures/losses.png\n")


def test_the_published_losses_are_the_default_of_a_fit(run):
    code, out, _ = run("fit")
    assert code == 0
    assert "0.913" in out
    assert "Chinchilla: N ~ m^2.52" in out
    code, out, _ = run("predict", "--width", "4096", "--family", "opt")
    assert code == 0
    assert out.count("opt on ") == 4
    assert "was wrong by 0.092 nats" in out


def test_few_sizes_give_a_guess_and_say_so(run):
    Path("losses.csv").write_text(
        "family,dataset,m,loss\n" + "".join(f"a,x,{m},{2 + 100 / m}\n" for m in (64, 128, 256, 512))
    )
    code, out, _ = run("predict", "losses.csv", "--width", "1024")
    assert code == 0
    assert "a guess: 4 sizes" in out
    assert "none" in out.splitlines()[1]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("sweep", "--laws", "power:x"), 'power:x: "x" is no number'),
        (("sweep", "--laws", "power:2", "--densities", "5"), "would be on with p ="),
        (("sweep", "--gammas", "few"), "numbers separated by commas"),
        (("sweep", "--widths", "4,-1"), '"-1" is no width'),
        (("sweep", "--widths", ","), "--widths: nothing is named"),
        (("sweep", "--bias", ","), "--bias: nothing is named"),
        (("widths", ","), "widths: nothing is named"),
        (("sweep", "--n", "20", "--widths", "10,40"), "m = 40 dimensions for n = 20 features"),
        (("sweep", "--bias", "other"), "choose from normal, zero"),
        (("sweep", "--part", "1/2", "--parts", "2"), "--part is one job, --parts and --executor begin them all"),
        (("fit", "--out", "law.xyz"), "law.xyz: a picture's name ends in .png"),
        (("fit", "missing.csv"), "no such file"),
        (("predict", "--width", "64", "--family", "gtp"), "no losses of gtp"),
        (("analyze", "nowhere"), "nowhere"),
        (("figures", "nowhere"), "nowhere"),
    ],
)
def test_mistakes_take_one_line(refused, words, complaint):
    assert complaint in refused(*words)


def test_a_fit_names_the_missing_column_and_the_single_width(refused, tmp_path):
    (tmp_path / "a.csv").write_text("family,m,loss\na,64,2\n")
    assert "no column dataset" in refused("fit", "a.csv")
    (tmp_path / "b.csv").write_text("family,dataset,m,loss\na,x,64,2\nb,x,64,3\n")
    assert "m is 64 in every row" in refused("fit", "b.csv")


def test_help_has_an_example(run):
    for name in ("sweep", "figures", "analyze", "fit", "predict", "widths"):
        code, out, _ = run(name, "--help")
        assert code == 0
        assert f"example: horosphere superposition {name}" in " ".join(out.split())


def test_examples_are_commands():
    parser = cli._parser()
    parts = subcommands(subcommands(parser)["superposition"])
    examples = [
        part.epilog.removeprefix("example: ") for part in [subcommands(parser)["superposition"], *parts.values()]
    ]
    assert len(examples) == 7
    for example in examples:
        program, *words = shlex.split(example)
        args = parser.parse_args(words)
        assert (program, words[0]) == ("horosphere", "superposition")
        assert args.run == parts[words[1]].get_default("run")


def subcommands(parser):
    return next(action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))


def write_head(folder):
    Path(folder).mkdir(parents=True)
    about = {"model_type": "llama", "tie_word_embeddings": False, "vocab_size": 48}
    Path(folder, "config.json").write_text(json.dumps(about))
    save_file({"lm_head.weight": torch.randn(48, 16)}, Path(folder, "model.safetensors"))


def test_two_models_of_one_name_are_two(run, monkeypatch):
    from horosphere.plots.superposition_heads import draw_overlaps

    drawn = []
    monkeypatch.setattr(
        "horosphere.plots.superposition_heads.draw_overlaps",
        lambda heads: (drawn.extend(heads), draw_overlaps(heads))[1],
    )
    write_head("a/run")
    write_head("b/run")
    assert run("analyze", "a/run", "b/run", "--out", "pictures")[0] == 0
    assert drawn == ["a/run", "b/run"]


def test_pictures_are_replaced_when_told_and_only_then(run, refused):
    write_head("model")
    widths, steps = ("--n=1000", "--widths=4,8", "--gammas=-1,-0.5555556,0.3333333"), ("--steps=3", "--batch=16")
    assert run("sweep", *widths, *steps, "--seeds=1", "--out", "out", "--quiet")[0] == 0
    for words, picture in (
        (("fit", "--out", "law.png"), "law.png"),
        (("analyze", "model", "--out", "heads"), "heads/overlaps.png"),
        (("figures", "out", "--out", "pictures"), "pictures/figure-3.png"),
    ):
        assert run(*words)[0] == 0
        Path(picture).write_text("mine")
        code, _, said = run(*words)
        assert (code, said) == (
            2,
            f"horosphere: {picture} exists already: choose another --out, or pass --overwrite\n",
        )
        assert Path(picture).read_text() == "mine"
        assert run(*words, "--overwrite")[0] == 0
        assert Path(picture).read_bytes().startswith(b"\x89PNG")
    Path("file").write_text("mine")
    assert "file is a file: --out takes the name of a folder" in refused("analyze", "model", "--out", "file")
    Path("link").symlink_to("nowhere")
    assert "link is a file: --out takes the name of a folder" in refused("analyze", "model", "--out", "link")


def test_a_reader_who_has_seen_enough_is_no_mistake():
    command = f"{sys.executable} -m horosphere superposition fit | head -c 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("l", "")
    assert done.returncode in (0, 141)  # by chance all was written before head left
