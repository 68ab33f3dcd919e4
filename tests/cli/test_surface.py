"""The command line as a whole: mistakes in one line, help, and what a process leaves in a terminal and on the disk."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Timer

import pytest
import torch

from horosphere import __version__
from horosphere.cli import main
from horosphere.cli.common import stem
from horosphere.errors import UserError
from horosphere.runs import Run
from horosphere.train import engine
from tests.cli.graph_commands import SHORT, everything

pytestmark = pytest.mark.usefixtures("_beside_a_tree")

COMMANDS = ["train", "embed", "compare", "measure", "eval", "predict", "neighbors", "export", "generate", "serve"]
COMMANDS += ["explain", "image", "superposition", "list", "demo"]


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
    "embed tree.tsv data=other.tsv": "data=other.tsv: the data are tree.tsv already; leave one of them out",
    "compare tree.tsv data=other.tsv": "data=other.tsv: the data are tree.tsv already; leave one of them out",
    "compare tree.tsv --resume": "a study that was stopped goes on with the same command",
    "compare tree.tsv geometries=": "geometries= names none; choose from",
    "compare tree.tsv --geometries ,": "geometries= names none; choose from",
    "compare tree.tsv --jobs 2 --executor ray:jobs=3": "how many at once? Leave one of them out",
    "embed tree.tsv --overwrite --resume": "--overwrite begins anew, --resume and --continue go on",
    "embed tree.tsv --precision bf16": "precision=bf16: points are float64",
    "embed tree.tsv seed=4294967296": "it goes from 0 to just below 4,294,967,296",
    "measure delta tree.tsv --data other.tsv": "--data: delta has no such option; it is for tokens, distortion",
    "measure radius tree.tsv --nodes 10": "--nodes: radius has no such option; it is for delta, distortion",
    "list embedding --task nodes": "--task and --geometry choose among all models",
    "train resnet50": "resnet50 is a model, not a recipe; give one and model=resnet50: alexnet",
    "embed missing.tsv": "missing.tsv: no such file",
    "embed tree.xlsx": "tree.xlsx: no such file",
    "embed .": "a directory",
    "embed tree.tsv --geometry spherical": 'unknown geometry "spherical": choose euclidean, poincare, lorentz, product',
    "embed tree.tsv --geometry lorentz:6+euclidean:3": "has 9 dimensions, not 10",
    "embed tree.tsv --dim 0": "dim=0: it goes from 1 to 1e6",
    "embed tree.tsv --dim 1000000000000": "dim=1000000000000: it goes from 1 to 1e6",
    "embed tree.tsv --dim ²": "dim=²: it should be a whole number",
    "embed tree.tsv --dim 2.5": "dim=2.5: it should be a whole number",
    "embed tree.tsv --dim": "--dim has no value; write --dim 10",
    "embed tree.tsv batch=1e9": "batch=1000000000: it goes from 0 to 1e6",
    "embed tree.tsv --epochs -3": "epochs=-3: it must be positive",
    "embed tree.tsv --rank-nodes 0": "rank_nodes=0: it goes from 1 to 1e9, or none",
    "embed tree.tsv --lr -0.1": "lr=-0.1: it must be positive",
    "embed tree.tsv --lr nan": "lr=nan: it should be a number",
    "embed tree.tsv --lr fast": "lr=fast: it should be a number",
    "embed tree.tsv --curvature 0": "curvature=0: it goes from 1e-10 to 1e10, or none",
    "embed tree.tsv --seed -1": "seed=-1: it goes from 0",
    "embed tree.tsv --seed 99999999999999999999": "seed=99999999999999999999: it goes from 0",
    "embed tree.tsv --on leaves": "on=leaves: choose from closure, edges",
    "embed tree.tsv --device gpu": "--device gpu: torch has only cpu",
    "embed tree.tsv --device cuda:99": "--device cuda:99: torch has only cpu",
    "embed tree.tsv --out tree.tsv/here": "no folder you may write to",
    "embed tree.tsv --dims 3": "--dims: there is no such option here; did you mean dim",
    "embed tree.tsv --blimp pairs": "--blimp: it is for comparisons of language; choose from model, data",
    "embed tree.tsv nonsense": "nonsense",
    "embed": "the following arguments are required: data",
    "compare tree.tsv --geometries lorentz,spherical": 'unknown geometry "spherical"',
    "compare tree.tsv --seeds 0": "argument --seeds: 0: it goes from 1 to 1,000",
    "compare tree.tsv --out tree.tsv": "tree.tsv is a file: --out takes the name of a folder here",
    "compare tree.tsv --blimp pairs": "--blimp: it is for comparisons of language; choose from geometries, model",
    "compare tree.tsv --executor moon": "there is no such executor; choose from here, ray, slurm",
    "compare helm-tinny": "no file, recipe or comparison; did you mean helm-tiny",
    "compare hcformer-nano-32 data=x --geometries lorentz": "geometries=lorentz: the entrants of levels are fixed; ",
    "compare tree.tsv --dim 1": "it needs at least 2",
    "measure delta missing.tsv": "missing.tsv: no such file",
    "measure radius missing": "missing: no folder of a run",
    "measure radius tree.tsv": "tree.tsv: no folder of a run",
    "measure radius tree.tsv --out page": "--out: radius has no such option; it is for tokens",
    "list helm-d-tinny": "there is nothing of this name; did you mean helm-d-tiny",
    "list --task nods": "did you mean nodes",
    "list --geometry round": "no model exists in it",
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
    assert "--device cuda: torch has only cpu here; choose from that" in refused(
        command, "tree.tsv", "--device", "cuda"
    )


@pytest.mark.parametrize("words", [["embed", "tree.tsv"], ["compare", "tree.tsv"], ["demo"]])
def test_missing_matplotlib_is_missed_before_training(words, refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'horosphere[plots]'" in refused(*words)


def test_debug_shows_the_traceback(run):
    for words in (["--debug", "embed", "missing.tsv"], ["embed", "missing.tsv", "--debug"]):
        with pytest.raises(UserError, match="no such file"):
            main(words)


def test_ctrl_c_that_cannot_wait_says_what_is_left(run, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    step = engine._Loop.step
    monkeypatch.setattr(engine._Loop, "step", lambda loop, *how: interrupted() if loop.done else step(loop, *how))
    code, _, err = run("embed", "tree.tsv", "--quiet", "--out", "out")
    kept = "out is at its last checkpoint, and the same command with --resume goes on"
    assert (code, err) == (130, f"horosphere: stopped; {kept}\n")
    monkeypatch.setattr("horosphere.train.training.fit", interrupted)
    before = everything()
    code, _, err = run("embed", "tree.tsv", "--quiet", "--out", "other")
    assert (code, err) == (130, "horosphere: stopped; nothing was written\n")
    assert everything() == before


def test_ctrl_c_while_a_class_is_made_is_ctrl_c(run, monkeypatch):
    class Interrupted:
        def __set_name__(self, *_):
            raise KeyboardInterrupt

    def imports(*_):
        type("Late", (), {"field": Interrupted()})  # Python 3.11 makes a RuntimeError of it

    monkeypatch.setattr("horosphere.train.training.fit", imports)
    code, _, err = run("embed", "tree.tsv", "--quiet", "--out", "other")
    assert (code, err) == (130, "horosphere: stopped; nothing was written\n")


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
        assert all(re.search(rf"^    {command}\s", out, re.MULTILINE) for command in COMMANDS)
        assert "horosphere demo" in out


def test_version(run):
    assert run("--version") == (0, f"horosphere {__version__}\n", "")


def test_a_setting_is_written_as_one_likes(run):
    assert (
        run("embed", "tree.tsv", "dim=3", "--epochs=2", "--negatives", 20, "--graph", "--quiet", "--out", "out")[0] == 0
    )
    recipe = Run.open("out").about.recipe
    assert (recipe["model"]["dim"], recipe["engine"]["epochs"]) == (3, 2)
    assert (recipe["task"]["negatives"], recipe["task"]["graph"]) == (20, True)


@pytest.mark.parametrize(("path", "name"), [("a/tree.tsv", "tree"), ("tree.v2.tsv.gz", "tree.v2"), ("tree", "tree")])
def test_the_name_of_the_data(path, name):
    assert stem(path) == name


@pytest.mark.parametrize(("words", "shown"), [([], True), (["--quiet"], False)])
def test_quiet_shows_no_bar(words, shown, run, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    _, _, err = run("embed", "tree.tsv", *SHORT, *words)
    assert ("training" in err) == shown


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
    done = subprocess.run(
        [SCRIPT, "measure", "delta", "tree.tsv"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "2?/diameter" in done.stdout


@pytest.mark.parametrize(
    ("streams", "code", "said"),
    [
        (">&-", 0, ""),
        ("2>&-", 0, ""),
        ("<&- >&- 2>&-", 0, ""),
        ("> /dev/full", 2, "horosphere: standard output: [Errno 28] No space left on device; what was made is kept\n"),
    ],
)
def test_results_are_kept_whatever_becomes_of_the_output(streams, code, said):
    words = f"{SCRIPT} embed tree.tsv {' '.join(map(str, SHORT))} --quiet --out out {streams}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, said)
    kept = {"run.json", "metrics.jsonl", "labels.json", "edges.safetensors"}
    kept |= {"points.safetensors", "disk.png", "checkpoints"}
    assert {path.name for path in Path("out").iterdir()} == kept
    assert Run.open("out").load().points.isfinite().all()  # nobody's words went into a file


def test_names_that_are_no_text_cost_nothing():
    """Of data they are taken as they are; a run, which safetensors could not read again, gets no such name."""
    odd = os.fsdecode(b"tr\xffee.tsv")
    Path(odd).write_bytes(Path("tree.tsv").read_bytes())
    done = subprocess.run([SCRIPT, "embed", odd, *map(str, SHORT), "--quiet"], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert Run.open(next(Path("runs").glob("tr_ee-*"))).load().task.data == odd
    before = everything()
    done = subprocess.run([SCRIPT, "embed", "tree.tsv", "--out", odd], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "horosphere: tr ee.tsv: a path that is no UTF-8 text; choose another --out\n"
    assert everything() == before


def test_what_does_not_fit_into_memory_is_told():
    """A table of 31 million numbers for each of its moments would fit; one of a million times that would not."""
    Path("wide.tsv").write_text("".join(f"n{i}\tn{(i - 1) // 2}\n" for i in range(1, 20_000)))
    done = subprocess.run([SCRIPT, "embed", "wide.tsv", "--dim", "1e6", "--quiet"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("horosphere: this does not fit into the memory of this machine (")
    assert done.stderr.count("\n") == 1
    assert not Path("runs").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_a_terminal_shows_a_bar_and_ctrl_c_ends_it():
    ours, theirs = os.openpty()
    command = [SCRIPT, "embed", "tree.tsv", "--epochs", "1000000"]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.PIPE, env=env) as job:
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
    assert b"training" in shown
    assert b"the same command with --resume goes on" in shown
