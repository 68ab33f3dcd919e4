"""The command line: what people type, what they read, and what is on the disk afterwards."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Timer

import pytest
import torch

from horosphere import __version__, cli, demo
from horosphere.cli import main
from horosphere.errors import UserError
from horosphere.train import compare, embed
from horosphere.train.config import EmbedConfig
from horosphere.train.embed import Embedded
from tests.command_line import runner
from tests.train.graphs import binary_tree

TREE = "".join(f"n{i}\tn{(i - 1) // 2}\n" for i in range(1, 31))
RING = "".join(f"{i},{(i + 1) % 9}\n" for i in range(9))
SHORT = ["--epochs", "3", "--dim", "3", "--negatives", "20"]
COMMANDS = ["embed", "compare", "measure", "demo"]
FILES = {"disk.png", "embedding.json", "labels.json", "points.safetensors"}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tree.tsv").write_text(TREE)


@pytest.fixture
def run(capsys):
    return runner(capsys)


@pytest.fixture
def untrained(monkeypatch):
    """Training is a mistake."""
    monkeypatch.setattr(embed, "embed", lambda *_: pytest.fail("it trained before it complained"))
    monkeypatch.setattr(compare, "embed", lambda *_: pytest.fail("it trained before it complained"))


@pytest.fixture
def refused(run, untrained):
    """The one line that refuses a command; nothing was written."""

    def refused(*words):
        before = everything()
        code, out, err = run(*words)
        assert (code, out) == (2, "")
        assert err.startswith("horosphere: ")
        assert err.count("\n") == 1
        assert err.endswith("\n")
        assert everything() == before
        return err

    return refused


def everything():
    return {str(path): path.read_bytes() if path.is_file() else None for path in Path().rglob("*")}


def rows(out):
    """{first column: the rest} of a table without heads."""
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in out.splitlines())


# -- embed ------------------------------------------------------------------------------------------------------------


def test_embed_writes_a_folder_with_a_picture(run):
    code, out, err = run("embed", "tree.tsv", *SHORT)
    folder = Path("runs/tree-lorentz-3")
    assert (code, err) == (0, "")
    assert {path.name for path in folder.iterdir()} == FILES
    assert (folder / "disk.png").read_bytes().startswith(b"\x89PNG")
    table = rows(out)
    assert table["nodes"] == "31"
    assert table["geometry"] == "lorentz, 3 dimensions"
    assert table["picture"] == f"{folder}/disk.png"
    assert table["written"] == f"{folder}/"
    assert table["curvature"] == "-0.75"  # 3/(d-1)²
    result = Embedded.load(folder)
    assert result.points.shape == (31, 3)
    assert result.labels[:2] == ["n1", "n0"]
    assert table["mean rank"] == f"{result.metrics['mean_rank']:.2f}  (1 is perfect)"
    assert {p.name for p in Path().iterdir()} == {"tree.tsv", "runs"}


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("tree.csv", "child,parent\n" + TREE.replace("\t", ","), []),
        ("tree.json", json.dumps({"animal": {"dog": ["poodle", "beagle"], "cat": ["tabby"], "bird": None}}), []),
        ("ring.csv", RING, ["--graph"]),
        ("twice.tsv", TREE + "n1\tn0\n", ["--unique"]),
        ("two.tsv", "a\tb\n", []),
        ("parts.tsv", "a\tb\nc\td\ne\td\n", []),
        ("tree.v2.tsv", TREE, []),
    ],
)
def test_embed_reads(name, text, options, run):
    Path(name).write_text(text)
    code, _, err = run("embed", name, *SHORT, *options)
    assert (code, err) == (0, "")
    assert {path.name for path in Path("runs", f"{Path(name).stem}-lorentz-3").iterdir()} == FILES


@pytest.mark.parametrize("options", [["--geometry", "euclidean"], ["--geometry", "lorentz:2+euclidean:1"], ["--on", "edges"], ["--dim", "1"]])
def test_embed_in_other_ways(options, run):
    code, _, err = run("embed", "tree.tsv", *SHORT, *options, "--rank-nodes", 5, "--out", "out")
    assert (code, err) == (0, "")
    config = Embedded.load("out").config
    assert str(getattr(config, options[0][2:])) == options[1]


def test_embed_shows_the_curvature_it_learned(run):
    _, out, _ = run("embed", "tree.tsv", *SHORT, "--learn-curvature")
    assert re.fullmatch(r"-[\d.]+ \(learned\)", rows(out)["curvature"])


def test_embed_refuses_to_replace_before_it_trains(run, refused):
    Path("out").mkdir()
    assert "out exists already: choose another --out, or pass --overwrite" in refused("embed", "tree.tsv", "--out", "out")


def test_embed_overwrites_its_own_folder_when_told(run):
    run("embed", "tree.tsv", *SHORT, "--out", "out")
    code, _, _ = run("embed", "tree.tsv", *SHORT, "--out", "out", "--overwrite", "--seed", 5)
    assert code == 0
    assert Embedded.load("out").config.seed == 5


def test_embed_never_overwrites_other_folders(refused):
    assert "--overwrite leaves it alone" in refused("embed", "tree.tsv", "--out", ".", "--overwrite")


def test_embed_that_diverges_writes_nothing(run):
    before = everything()
    code, out, err = run("embed", "tree.tsv", *SHORT, "--lr", "1e6")
    assert (code, out) == (2, "")
    assert re.fullmatch(r"horosphere: the lorentz embedding diverged in epoch \d \(.*\): lower --lr \(now 1e\+06\)\n", err)
    assert everything() == before


def test_a_failure_while_drawing_writes_nothing(run, monkeypatch):
    def fail(*_, path, **__):
        path.write_text("half")
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("horosphere.plots.draw_disk", fail)
    before = everything()
    code, _, err = run("embed", "tree.tsv", *SHORT)
    assert code == 2
    assert "No space left on device" in err
    assert everything() == before


# -- bad input --------------------------------------------------------------------------------------------------------

BAD_FILES = {
    "empty": (b"", "no edges"),
    "blank lines": (b"\n\n# nothing\n", "no edges"),
    "self loop": (b"a\tb\nb\tb\n", 'line 2: "b" is its own parent'),
    "duplicate edges": (b"a\tb\nc\tb\na\tb\n", "line 3: the edge a -> b stands already in line 1"),
    "cycle": (b"a\tb\nb\tc\nc\ta\n", "a cycle, a -> b -> c -> a"),
    "one column": (b"a\nb\n", "line 1: one column"),
    "an empty label": (b"a\tb\n\tb\n", "line 2: an empty label"),
    "Latin-1": (b"a\tb\ncaf\xe9\tb\n", "line 2, byte 4: no UTF-8 text"),
    "UTF-16": ("a\tb\n".encode("utf-16"), "UTF-16"),
    "binary": (b"\x00\x01\x02\x03", "NUL byte"),
}


@pytest.mark.parametrize("command", ["embed", "compare"])
@pytest.mark.parametrize("bad", BAD_FILES)
def test_a_bad_file(command, bad, refused):
    content, message = BAD_FILES[bad]
    Path("bad.tsv").write_bytes(content)
    line = refused(command, "bad.tsv")
    assert line.startswith("horosphere: bad.tsv")
    assert message in line


def test_a_bad_file_to_measure(refused):
    Path("bad.tsv").write_bytes(b"a\n")
    assert "bad.tsv line 1: one column" in refused("measure", "delta", "bad.tsv")


BAD_WORDS = {
    "embed missing.tsv": "missing.tsv: no such file",
    "embed tree.xlsx": "tree.xlsx: no such file",
    "embed .": "a directory",
    "embed tree.tsv --geometry spherical": 'unknown geometry "spherical": choose euclidean, poincare, lorentz, product',
    "embed tree.tsv --geometry lorentz:6+euclidean:3": "has 9 dimensions, not 10",
    "embed tree.tsv --dim 0": "argument --dim: 0 should be a whole number of at least 1; see horosphere embed --help",
    "embed tree.tsv --dim ²": "argument --dim: ² should be a whole number",
    "embed tree.tsv --dim 2.5": "argument --dim: 2.5 should be a whole number",
    "embed tree.tsv --epochs -3": "argument --epochs: -3 should be",
    "embed tree.tsv --rank-nodes 0": "argument --rank-nodes: 0 should be",
    "embed tree.tsv --lr -0.1": "--lr -0.1: it must be a positive number",
    "embed tree.tsv --lr nan": "--lr nan: it must be a positive number",
    "embed tree.tsv --lr fast": "argument --lr: invalid float value: 'fast'",
    "embed tree.tsv --curvature 0": "--curvature 0.0: it must be a positive number",
    "embed tree.tsv --seed -1": "argument --seed: -1 should be a whole number from 0",
    "embed tree.tsv --seed 99999999999999999999": "argument --seed",
    "embed tree.tsv --on leaves": "argument --on: invalid choice: 'leaves'",
    "embed tree.tsv --device gpu": "--device gpu: torch has only cpu",
    "embed tree.tsv --device cuda:99": "--device cuda:99: torch has only cpu",
    "embed tree.tsv --out tree.tsv/here": "no folder you may write to",
    "embed tree.tsv --dims 3": "unrecognized arguments: --dims 3",
    "embed": "the following arguments are required: data",
    "compare tree.tsv --geometries lorentz,spherical": 'unknown geometry "spherical"',
    "compare tree.tsv --seeds 0": "argument --seeds: 0 should be",
    "compare tree.tsv --out reports/tree.html": "there is no folder reports; create it first",
    "compare tree.tsv --out . --overwrite": ". is a folder",
    "compare tree.tsv --dim 1": "it needs at least 2",
    "measure delta missing.tsv": "missing.tsv: no such file",
    "measure radius missing": "missing: not a folder made by `horosphere embed`",
    "measure radius tree.tsv": "tree.tsv: not a folder made by `horosphere embed`",
    "measure volume tree.tsv": "invalid choice: 'volume'",
    "measure delta tree.tsv --nodes 3": "Give at least 4",
    "measure": "the following arguments are required: what, path",
    "trian helm": "invalid choice: 'trian'",
    "--colour": "unrecognized arguments: --colour",
}


@pytest.mark.parametrize("words", BAD_WORDS)
def test_bad_words(words, refused):
    assert BAD_WORDS[words] in refused(*words.split())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("command", ["embed", "compare"])
def test_a_gpu_that_is_not_there(command, refused):
    assert "--device cuda: torch has only cpu here; choose from that" in refused(command, "tree.tsv", "--device", "cuda")


@pytest.mark.parametrize("words", [["embed", "tree.tsv"], ["compare", "tree.tsv"], ["demo"]])
def test_missing_matplotlib_is_missed_before_training(words, refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'horosphere[plots]'" in refused(*words)


def test_too_small_to_compare(refused):
    Path("two.tsv").write_text("a\tb\n")
    assert "Give at least 4" in refused("compare", "two.tsv")


def test_debug_shows_the_traceback(run):
    for words in (["--debug", "embed", "missing.tsv"], ["embed", "missing.tsv", "--debug"]):
        with pytest.raises(UserError, match="no such file"):
            main(words)


@pytest.mark.parametrize("words", [["embed", "tree.tsv"], ["compare", "tree.tsv"], ["demo"]])
def test_ctrl_c_leaves_nothing(words, run, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(embed, "embed", interrupted)
    monkeypatch.setattr(compare, "embed", interrupted)
    before = everything()
    code, _, err = run(*words, "--quiet")
    assert code == 130
    assert err == "horosphere: stopped; nothing was written\n"
    assert everything() == before


# -- compare and demo -------------------------------------------------------------------------------------------------


def self_contained(path):
    page = re.sub(r'"data:[^"]*"', '"data:"', Path(path).read_text(encoding="utf-8"))  # a picture's letters may spell anything
    return not re.search(r"""src=(?!"data:)|href|url\(|@import|<script|<link""", page)


def test_compare_prints_a_table_and_writes_a_report(run):
    code, out, err = run("compare", "tree.tsv", *SHORT, "--geometries", "lorentz, euclidean,lorentz,", "--seeds", 2, "--out", "r.html")
    assert (code, err) == (0, "")
    head, best, other, verdict, written = out.splitlines()
    assert head.split() == ["geometry", "dim", "mean", "rank", "↓", "mAP", "↑", "time"]
    assert best.endswith("   <- best")
    assert {best.split()[0], other.split()[0]} == {"lorentz", "euclidean"}
    assert len(head) == len(other) == len(best) - len("   <- best")
    assert verdict.startswith("2 seeds. ")
    assert written == "report: r.html"
    assert verdict in Path("r.html").read_text(encoding="utf-8")
    assert self_contained("r.html")
    assert set(everything()) == {"tree.tsv", "r.html"}


def test_compare_refuses_to_replace_before_it_trains(refused):
    Path("report.html").write_text("mine")
    assert "report.html exists already" in refused("compare", "tree.tsv")


def test_compare_overwrites_when_told(run):
    Path("report.html").write_text("old")
    code, _, _ = run("compare", "tree.tsv", *SHORT, "--geometries", "lorentz", "--seeds", 1, "--overwrite")
    assert code == 0
    assert "Does curvature pay on tree?" in Path("report.html").read_text(encoding="utf-8")


def test_compare_an_undirected_graph(run):
    Path("ring.csv").write_text(RING)
    code, out, _ = run("compare", "ring.csv", "--graph", *SHORT, "--geometries", "euclidean,product", "--seeds", 1)
    assert code == 0
    assert "one run says nothing about chance. Pass --seeds 3." in out


@pytest.fixture
def tiny_demo(monkeypatch):
    monkeypatch.setattr(demo, "trove_classifiers", lambda: binary_tree(3))
    monkeypatch.setattr(demo, "EmbedConfig", lambda **_: EmbedConfig(dim=2, epochs=2))
    monkeypatch.setattr(demo, "add_language_models", lambda *_: None)  # tests/test_demo.py has that part


def test_demo_leaves_a_report(run, tiny_demo):
    code, out, err = run("demo", "--out", "first.html")
    assert (code, err) == (0, "")
    assert "a tree of 15 nodes" in out
    assert "<- best" in out
    assert "3 seeds. " in out
    assert out.endswith("report: first.html\n")
    assert self_contained("first.html")
    assert set(everything()) == {"tree.tsv", "first.html"}


def test_demo_refuses_to_replace_before_it_trains(refused):
    Path("report.html").write_text("mine")
    assert "report.html exists already" in refused("demo")


def test_demo_without_its_data_says_what_to_install(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "trove_classifiers", None)
    assert "pip install 'horosphere[demo]'" in refused("demo")


# -- measure ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(run):
    run("embed", "tree.tsv", *SHORT, "--out", "out")
    return "out"


def test_measure_delta_of_a_graph(run):
    code, out, _ = run("measure", "delta", "tree.tsv")
    assert code == 0
    assert rows(out) == {"nodes": "31", "δ": "0.000  (exact)", "diameter": "8.000", "2δ/diameter": "0.000  (0 is a tree, 1 the least tree-like)"}


def test_measure_delta_of_a_graph_in_parts(run):
    Path("parts.tsv").write_text(TREE + "a\tb\n")
    _, out, _ = run("measure", "delta", "parts.tsv")
    assert rows(out)["nodes"] == "33  (94% of them in the largest connected part, the one measured)"


def test_measure_delta_of_an_undirected_graph(run):
    Path("ring.csv").write_text(RING)
    _, out, _ = run("measure", "delta", "ring.csv", "--graph")
    assert float(rows(out)["δ"].split()[0]) > 0.5


def test_measure_delta_of_an_embedding(run, folder):
    code, out, _ = run("measure", "delta", folder)
    assert code == 0
    assert rows(out)["nodes"] == "31"


def test_measure_radius(run, folder):
    code, out, _ = run("measure", "radius", folder)
    assert code == 0
    assert float(rows(out)["mean"]) == pytest.approx(Embedded.load(folder).metrics["radius_mean"], abs=5e-4)


def test_measure_distortion(run, folder):
    code, out, _ = run("measure", "distortion", folder, "--data", "tree.tsv")
    assert code == 0
    assert list(rows(out)) == ["average", "worst", "mAP of edges", "best scale"]


def test_measure_reconstruction_repeats_what_embed_found(run, folder):
    code, out, _ = run("measure", "reconstruction", folder, "--data", "tree.tsv")
    assert code == 0
    metrics = Embedded.load(folder).metrics
    assert rows(out) == {
        "mean rank": f"{metrics['mean_rank']:.2f}  (1 is perfect)",
        "mAP": f"{metrics['map']:.3f}  (1 is perfect)",
        "nodes ranked": "30",
    }


def test_measure_remembers_that_a_graph_was_undirected(run):
    Path("path.csv").write_text("a,b\nb,c\nc,d\nd,e\n")  # would also do as a hierarchy, with other relations
    run("embed", "path.csv", "--graph", *SHORT, "--out", "out")
    _, out, _ = run("measure", "reconstruction", "out", "--data", "path.csv")
    assert rows(out)["mAP"].startswith(f"{Embedded.load('out').metrics['map']:.3f}")
    assert rows(out)["nodes ranked"] == "5"


@pytest.mark.parametrize("what", ["distortion", "reconstruction"])
def test_measuring_against_a_graph_needs_that_graph(what, run, folder):
    Path("other.tsv").write_text("a\tb\n")
    for words, message in (([], "pass --data tree.tsv"), (["--data", "other.tsv"], "other.tsv has other nodes than out")):
        code, _, err = run("measure", what, folder, *words)
        assert code == 2
        assert message in err
        assert err.count("\n") == 1


def test_measuring_a_damaged_embedding(run, folder):
    (Path(folder) / "points.safetensors").write_bytes(b"half")
    code, _, err = run("measure", "radius", folder)
    assert code == 2
    assert err.startswith("horosphere: out: a damaged embedding")
    assert err.count("\n") == 1


# -- the surface ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_shows_an_example(command, run):
    code, out, err = run(command, "--help")
    assert (code, err) == (0, "")
    assert f"example: horosphere {command}" in out
    assert "%(" not in out


def test_help_names_every_command(run):
    for words in (["--help"], []):
        code, out, err = run(*words)
        assert (code, err) == (0, "")
        assert all(f"\n    {command} " in out for command in COMMANDS)
        assert "horosphere demo" in out


def test_version(run):
    assert run("--version") == (0, f"horosphere {__version__}\n", "")


def test_defaults_are_those_of_the_library():
    args = cli._parser().parse_args(["embed", "tree.tsv"])
    assert cli._config(args) == EmbedConfig()


@pytest.mark.parametrize(("path", "name"), [("a/tree.tsv", "tree"), ("tree.v2.tsv.gz", "tree.v2"), ("tree", "tree")])
def test_the_name_of_the_data(path, name):
    assert cli.stem(path) == name


@pytest.mark.parametrize(("words", "shown"), [([], True), (["--quiet"], False)])
def test_quiet_shows_no_bar(words, shown, run, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    _, _, err = run("embed", "tree.tsv", *SHORT, *words)
    assert ("embedding" in err) == shown


# -- as a process -----------------------------------------------------------------------------------------------------

SCRIPT = Path(sys.executable).with_name("horosphere")
NO_TORCH = """
import sys
from horosphere.cli import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    sys.exit(stop.code or ("torch" in sys.modules) or ("numpy" in sys.modules))
"""


def test_help_is_fast_and_needs_no_torch():
    times = []
    for command in COMMANDS:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", NO_TORCH, command, "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.5  # 0.1 s on an idle machine


def test_a_process_that_fails():
    done = subprocess.run([SCRIPT, "embed", "missing.tsv"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "horosphere: missing.tsv: no such file. Check the path.\n"
    assert set(everything()) == {"tree.tsv"}


def test_a_terminal_without_greek_still_gets_its_table():
    done = subprocess.run([SCRIPT, "measure", "delta", "tree.tsv"], capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "2?/diameter" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_a_terminal_shows_a_bar_and_ctrl_c_ends_it():
    ours, theirs = os.openpty()
    command = [SCRIPT, "embed", "tree.tsv", "--epochs", "1000000"]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # what runs in the background of a script is born deaf to Ctrl-C
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.PIPE, env=env, preexec_fn=heed) as job:
        os.close(theirs)
        deadline = Timer(60, job.kill)
        deadline.start()
        shown = b""
        while b"loss" not in shown:
            shown += os.read(ours, 4096)
        job.send_signal(signal.SIGINT)
        with suppress(OSError):  # how Linux tells that the other end is closed
            while more := os.read(ours, 4096):
                shown += more
        assert job.wait(60) == 130
        deadline.cancel()
    os.close(ours)
    assert b"embedding" in shown
    assert b"horosphere: stopped; nothing was written" in shown
    assert set(everything()) == {"tree.tsv"}
