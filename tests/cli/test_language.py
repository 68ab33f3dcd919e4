"""Language models from the command line: train, go on, evaluate, write; one process or two; mistakes in one line."""

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

pytest.importorskip("transformers", reason="language models need transformers")

from horosphere import cli
from horosphere.cli import main
from horosphere.models.writing import write
from horosphere.runs import Run
from horosphere.tasks.language import Language, load
from horosphere.train import training
from tests.cli.command_line import cells, runner
from tests.tasks.tiny import LANGUAGE, TEXTS, write_text
from tests.train.toy_task import lines

ROOT = Path(__file__).parents[2]
TINY = ("data=cats.txt", *LANGUAGE)
MODULE = ("-m", "horosphere", "train", "helm-mice-tiny", *TINY, "--device", "cpu")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a text, and runs/helm-mice-tiny, which is done."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_text("cats.txt")
        assert main(["train", "helm-mice-tiny", *TINY, "sample_every=2", "--quiet", "--device", "cpu"]) == 0
        yield folder


@pytest.fixture
def run(home, capsys):
    return runner(capsys)


def weights(folder):
    return load_file(Path(folder) / "model.safetensors")


def assert_same(a, b):
    """To the last bit."""
    assert lines(a) == lines(b)
    assert (Path(a) / "model.safetensors").read_bytes() == (Path(b) / "model.safetensors").read_bytes()


# -- train ------------------------------------------------------------------------------------------------------------


def test_train_says_what_came_out_and_where_it_is(run):
    code, out, err = run(
        "train", "llama-tiny", *TINY, "sample_every=4", "--out", "llama", "lr=1e-3"
    )  # a setting behind the options too
    assert code == 0
    summary = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in out.splitlines())
    assert summary["model"] == f"llama-tiny, {load('llama')[0].num_parameters():,} parameters"
    assert re.fullmatch(r"[\d,]+ tokens to learn, [\d,]+ to judge", summary["text"])
    assert summary["next"] == 'horosphere generate llama "Once upon"'
    assert summary["bits/byte"] == f"{Run.open('llama').scores()['bits_per_byte']:.4f}"
    assert summary["written"] == "llama/"
    assert "step 2: loss" in err
    assert Run.open("llama").about.recipe["engine"]["lr"] == 1e-3


def test_a_recipe_of_ones_own_names_its_run(run):
    Path("mine.yaml").write_text("base: llama-tiny\nsteps: 1\n")
    code, _, _ = run("train", "mine.yaml", *(word for word in TINY if not word.startswith("steps")), "--quiet")
    assert code == 0
    assert lines("runs/mine")[-1]["step"] == 1


def test_ctrl_c_then_resume_is_exact(run, monkeypatch):
    loss, calls = Language.loss, []

    def heard(self, model, batch):
        calls.append(1)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return loss(self, model, batch)

    words = ("train", "helm-mice-tiny", *TINY, "--out", "stopped", "--quiet")
    with monkeypatch.context() as patch:
        patch.setattr(Language, "loss", heard)
        code, _, err = run(*words)
    assert code == 130
    saved = "the last step is saved in stopped, and the same command with --resume goes on"
    assert err == f"horosphere: stopped after step 3 of 4; {saved}\n"
    assert run("generate", "stopped", "The", "--tokens", 3)[0] == 0
    assert run(*words, "--resume")[0] == 0
    assert_same("stopped", "runs/helm-mice-tiny")


def test_a_ctrl_c_that_cannot_wait_says_what_is_left(run, monkeypatch):
    def at_once(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "fit", at_once)
    code, _, err = run("train", "llama-tiny", *TINY, "--out", "new")
    assert (code, err) == (130, "horosphere: stopped; nothing was written\n")
    assert not Path("new").exists()
    code, _, err = run("train", "helm-mice-tiny", *TINY, "--resume")
    where = "runs/helm-mice-tiny is at its last checkpoint"
    assert (code, err) == (130, f"horosphere: stopped; {where}, and the same command with --resume goes on\n")


def test_kill_9_then_resume_is_exact(run):
    more = ("steps=40", "save_every=3", "eval_every=20")
    with subprocess.Popen([sys.executable, *MODULE, *more, "--out", "killed", "--quiet"], env=ENV) as job:
        metrics, deadline = Path("killed/metrics.jsonl"), time.monotonic() + 60
        while not (metrics.is_file() and metrics.read_text().count("\n") >= 5):
            assert job.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
        job.kill()
    assert not Path("killed/config.json").exists()
    assert run(*MODULE[2:], *more, "--out", "killed", "--quiet", "--resume")[0] == 0
    assert run(*MODULE[2:], *more, "--out", "straight", "--quiet")[0] == 0
    assert_same("killed", "straight")


@pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="needs torch.distributed with gloo")
def test_two_processes_train_as_one(run):
    """Experts, their balancing and samples included; then one process goes on with what two have begun."""
    words = (*TORCHRUN, *MODULE, "sample_every=2", "--out", "two", "--quiet")
    done = subprocess.run(words, env=ENV, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("written") == 1
    for one, two in zip(lines("runs/helm-mice-tiny"), lines("two"), strict=True):
        (
            one.pop("expert_imbalance", None),
            two.pop("expert_imbalance", None),
        )  # each process sees the load of its own rows
        assert one.pop("baseline", "") == two.pop("baseline", "")
        assert one == pytest.approx(two, rel=1e-4)
    one, two = weights("runs/helm-mice-tiny"), weights("two")
    torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)
    bias = "model.layers.1.mlp.gate.e_score_correction_bias"
    half = [
        load_file(f"{run}/checkpoints/step-00000002/model-00001-of-00001.safetensors")[bias]
        for run in ("runs/helm-mice-tiny", "two")
    ]
    assert torch.equal(*half)
    assert half[0].any()
    Path("two/config.json").unlink()
    before = (Path("two/model.safetensors")).read_bytes()
    assert run("train", "helm-mice-tiny", *TINY, "sample_every=2", "--out", "two", "--resume", "--quiet")[0] == 0
    assert Path("two/model.safetensors").read_bytes() == before


@pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="needs torch.distributed with gloo")
def test_two_processes_complain_once(home):
    done = subprocess.run(
        [*TORCHRUN, *MODULE, "data=nowhere", "--out", "never"], env=ENV, capture_output=True, text=True, timeout=120
    )
    assert done.returncode != 0
    assert done.stderr.count("horosphere: nowhere: no such file or folder") == 1
    assert not Path("never").exists()


def test_only_the_main_process_speaks(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(cli, "PATIENCE", 0.0)
    assert main(["train", "nothing"]) == 2
    assert capsys.readouterr() == ("", "")


# -- eval -------------------------------------------------------------------------------------------------------------


def test_eval_repeats_the_last_evaluation_of_the_training(run):
    code, out, _ = run("eval", "runs/helm-mice-tiny")
    last = Run.open("runs/helm-mice-tiny").scores()
    assert code == 0
    assert cells(out)["nats/token"].startswith(f"{last['loss']:.4f} ± ")
    assert cells(out)["perplexity"] == f"{last['perplexity']:.2f}  (chance 300)"
    assert cells(out)["bits/byte"].startswith(f"{last['bits_per_byte']:.4f} ± ")


def test_eval_of_another_text(run):
    write_text("other.txt", TEXTS[:5])
    code, out, _ = run("eval", "runs/helm-mice-tiny", "--data", "other.txt", "--limit", 3)
    assert code == 0
    assert cells(out)["text"] == "other.txt"
    assert cells(out)["predictions"] == "48 in windows of 16"
    code, out, _ = run("eval", "runs/helm-mice-tiny", "--limit", 2)
    assert (code, cells(out)["predictions"]) == (0, "32 in windows of 16")


PAIRS = [
    {"good": "the cat", "bad": "cat the", "phenomenon": "order"},
    {"good": "more", "bad": "erom", "phenomenon": "spelling"},
] * 3
QUESTIONS = [{"query": "the", "choices": ["cat", "hat", "dog", "猫"], "gold": i % 4} for i in range(8)]


@pytest.fixture
def tasks(home):
    Path("tasks").mkdir(exist_ok=True)
    with gzip.open("tasks/blimp.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(map(json.dumps, PAIRS)))
    Path("tasks/openbookqa.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)))
    return "tasks"


def test_eval_of_choices_shows_errors_and_chance(run, tasks):
    code, out, _ = run("eval", "runs/helm-mice-tiny", "--task", "blimp,openbookqa", "--data", tasks)
    head, blimp, openbook = (re.split(r"\s{2,}", line) for line in out.splitlines())
    assert code == 0
    assert head == ["task", "items", "acc ↑", "acc_norm ↑", "chance"]
    assert (blimp[0], blimp[1], blimp[4]) == ("blimp", "6", "0.500")
    assert (openbook[0], openbook[1], openbook[4]) == ("openbookqa", "8", "0.250")
    assert all(re.fullmatch(r"\d\.\d{3} ± \d\.\d{3}", cell) for cell in blimp[2:4])


@pytest.mark.parametrize("how", [(), ("--harness",)])
def test_a_limit_is_that_many_items(run, tasks, how):
    if how:
        pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness")
    words = ("eval", "runs/helm-mice-tiny", "--task", "openbookqa", "--data", tasks, *how)
    for limit in (3, 5):
        code, out, _ = run(*words, "--limit", limit)
        assert code == 0
        row = re.split(r"\s{2,}", out.splitlines()[1])
        assert row[1] == f"{limit}"
        assert (float(row[2].split()[0]) * limit) == pytest.approx(round(float(row[2].split()[0]) * limit), abs=0.01)


def test_the_harness_agrees(run, tasks):
    pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness")
    words = ("eval", "runs/helm-mice-tiny", "--task", "openbookqa", "--data", tasks)
    (code, theirs, _), (_, ours, _) = run(*words, "--harness"), run(*words)
    assert code == 0
    accuracy = [[cell.split(" ± ")[0] for cell in re.split(r"\s{2,}", out.splitlines()[1])] for out in (theirs, ours)]
    assert accuracy[0] == accuracy[1]


# -- generate ---------------------------------------------------------------------------------------------------------


def test_generate_is_repeatable_and_begins_with_the_prompt(run):
    def say(*more):
        code, out, err = run("generate", "runs/helm-mice-tiny", "The größer 猫", "--tokens", 12, *more)
        assert (code, err) == (0, "")
        return out

    assert say() == say("--seed", 0) != say("--seed", 1)
    assert say("--greedy") == say("--greedy", "--seed", 1) == say("--top-k", 1, "--seed", 2)
    assert say().startswith("The größer 猫")


def test_generate_writes_what_the_library_does(run):
    model, tokenizer = load("runs/helm-mice-tiny")
    torch.manual_seed(5)
    text = write(model, tokenizer, "", 10, temperature=1.5, top_k=300)
    assert (
        run("generate", "runs/helm-mice-tiny", "", "--tokens", 10, "--temperature", 1.5, "--top-k", 300, "--seed", 5)[1]
        == f"{text}\n"
    )


@pytest.mark.parametrize("how", [[], ["--greedy"]])
def test_a_model_that_is_broken_does_not_write(run, how):
    shutil.copytree("runs/helm-mice-tiny", "broken", dirs_exist_ok=True)
    tensors = load_file("broken/model.safetensors")
    tensors["model.norm.weight"][0] = torch.nan
    save_file(tensors, "broken/model.safetensors", {"format": "pt"})
    code, out, err = run("generate", "broken", "Once", *how)
    assert (code, out) == (2, "")
    assert err.startswith("horosphere: broken: its model.norm.weight is not finite; delete its config.json")


# -- mistakes ---------------------------------------------------------------------------------------------------------

BAD_WORDS = {
    "train helm-d-tinny": "there is no recipe helm-d-tinny; did you mean helm-d-tiny",
    "train mine/missing.yaml": "there is no file",
    "train helm-d-tiny learning_rate=1": "there is no setting learning_rate",
    "train helm-d-tiny num_hidden_layer=1": "did you mean num_hidden_layers",
    "train helm-d-tiny steps": "a setting is written key=value",
    "train helm-d-tiny lr=fast": "lr=fast: it should be a number",
    "train helm-mice-tiny expert_spread=0,1": "expert_spread=0,1: it goes from 1e-10 to 1e10\n",
    "train helm-d-tiny rope_theta=0": "rope_theta=0: it must be positive",
    "train helm-d-tiny data=cats.txt lr=0.01 weight_decay=100": "a step would take all of a weight, or more; give less",
    "train helm-d-tiny data=nowhere": "nowhere: no such file or folder",
    "train helm-d-tiny data=cats.txt tokenizer=nowhere": "nowhere: no tokenizer",
    "train helm-d-tiny data=cats.txt vocab=300 length=16 vocab_size=64": "the tokenizer has 300 tokens",
    "train helm-d-tiny data=cats.txt --out runs/helm-mice-tiny": "runs/helm-mice-tiny exists already",
    "train helm-d-tiny data=cats.txt --out . --overwrite": "holds no run.json",
    "train helm-d-tiny model=gpt-tiny": "model=gpt-tiny: there is no such model; ",
    "train helm-d-tiny model=bert-tiny": "model=bert-tiny: a model of the task masked; language has helm-d-tiny",
    "train helm-d-tiny model=resnet18": "model=resnet18: a model of the task pictures; language has helm-d-tiny",
    "train helm-d-tiny data=cats.txt vocab=300 --out nowhere --resume": "nowhere holds no run.json",
    "train helm-d-tiny --device gpu": "--device gpu: torch has only cpu",
    "train helm-d-tiny --quick": "--quick: there is no such option here; ",
    "train": "the following arguments are required: recipe",
    "eval nowhere": "nowhere: no folder of a run",
    "eval cats.txt": "cats.txt: no folder of a run",
    "eval runs/helm-mice-tiny --shots 4": "--shots is for the benchmarks fewshot and base-to-novel",
    "eval runs/helm-mice-tiny --out there --overwrite": "--out is for the benchmarks fewshot and base-to-novel",
    "eval runs/helm-mice-tiny --task glue": "there is no task glue: choose from perplexity, blimp, mmlu",
    "eval runs/helm-mice-tiny --task blimp": "with --data",
    "eval runs/helm-mice-tiny --task blimp --data nowhere": "nowhere: no such file",
    "eval runs/helm-mice-tiny --task blimp,perplexity": "stands alone",
    "eval runs/helm-mice-tiny --limit 0": "argument --limit: 0: it goes from 1 to 1e9",
    "generate nowhere Once": "nowhere: no folder of a run",
    "generate runs/helm-mice-tiny Once --temperature 0": "pass --greedy",
    "generate runs/helm-mice-tiny Once --temperature 1e-320": "it must be at least 0.0001",
    "generate runs/helm-mice-tiny": "the following arguments are required: prompt",
    "compare helm-tiny geometry=euclidean": "what the entrants of the comparison differ in",
    "compare helm-tiny stepps=3": "did you mean steps",
    "compare helm-tiny --blimp nowhere": "nowhere: no such file",
    "compare helm-tiny --out cats.txt": "cats.txt is a file",
    "compare tree.tsv steps=3": "tree.tsv: no such file",
    "compare helm-tiny --geometries lorentz": "geometries=lorentz: the entrants of helm-tiny are fixed; leave it out",
}


@pytest.mark.parametrize("words", BAD_WORDS)
def test_bad_words(words, refused):
    assert BAD_WORDS[words] in refused(*words.split())


def test_an_empty_corpus(refused):
    Path("empty").mkdir(exist_ok=True)
    Path("empty/nothing.txt").write_text("\n \n")
    assert "empty holds no text" in refused("train", "helm-d-tiny", "data=empty")


def test_data_that_has_changed_since(run):
    write_text("changing.txt")
    assert run("train", "llama-tiny", *TINY, "data=changing.txt", "steps=1", "--out", "changed", "--quiet")[0] == 0
    write_text("changing.txt", TEXTS[:70])
    code, _, err = run("eval", "changed")
    assert code == 2
    assert err == "horosphere: changing.txt has changed since changed was trained on it: name a text with --data\n"


@pytest.mark.parametrize("command", ["train", "eval", "generate"])
def test_help_shows_an_example(command, run):
    code, out, err = run(command, "--help")
    assert (code, err) == (0, "")
    assert f"example: horosphere {command}" in out


def test_help_needs_no_torch():
    heavy = "{'torch', 'transformers'} & sys.modules.keys()"
    code = f"import sys; from horosphere.cli import _parser; _parser(); sys.exit(bool({heavy}))"
    assert subprocess.run([sys.executable, "-c", code], env=ENV).returncode == 0
