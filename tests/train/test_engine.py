"""The engine: equal to the plain loop, blind to micro batches, exact after Ctrl-C and kill -9, never broken on disk."""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

from horosphere import stopping
from horosphere.errors import NotFinite, UserError
from horosphere.runs import Run
from horosphere.train.config import EngineConfig
from horosphere.train.distributed import World
from horosphere.train.engine import Place, _Loop, precision, rate
from horosphere.train.task import Task
from tests.train import toy_task
from tests.train.toy_task import ROW, Toy, ToyTask, fit_task, lines, train

ROOT = Path(__file__).parents[2]
NOISY = {
    "dropout": 0.2,
    "log_every": 4,
    "eval_every": 3,
    "steps": 7,
}  # random in every step; lines of metrics that span checkpoints


def quiet(folder, resume=False):
    return Place(folder, resume=resume, quiet=True)


def weights(folder, step=7):
    tensors = {}
    for file in sorted((Path(folder) / f"checkpoints/step-{step:08d}").glob("*.safetensors")):
        tensors |= load_file(file)
    return tensors


def assert_same_run(a, b, step=7):
    """To the last bit: the metrics, the model and the optimizer."""
    assert lines(a) == lines(b)
    one, other = weights(a, step), weights(b, step)
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def checkpoints(folder):
    path = Path(folder) / "checkpoints"
    return sorted(p.name for p in path.iterdir()) if path.is_dir() else []


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run that nobody interrupts."""
    folder = tmp_path_factory.mktemp("runs") / "straight"
    train(folder, **NOISY)
    return folder


# -- steps ------------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Flat(Task):
    """Linear regression, for the plain loop to be compared with."""

    kind = "flat"
    model: str = "linear"
    data: str = "random"

    def batch(self, step, rows):
        x = torch.randn(8, 3, generator=torch.Generator().manual_seed(step))[rows.start : rows.stop]
        return {"x": x, "y": x.sum(-1, keepdim=True).sin()}

    def loss(self, model, batch):
        return F.mse_loss(model(batch["x"]), batch["y"]), {}

    def evaluate(self, model, last):
        return {}


def flat_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5, bias=False), nn.Tanh(), nn.Linear(5, 1, bias=False))


def test_it_is_the_plain_loop(tmp_path):
    """AdamW with a schedule, weight decay and clipping, as everyone writes it."""
    config = EngineConfig(steps=20, batch=8, lr=0.05, warmup=0.2, weight_decay=0.1, clip=0.3)
    model, plain = flat_model(), flat_model()
    fit_task(model, Flat(), config, quiet(tmp_path / "run"))
    optimizer = torch.optim.AdamW(
        plain.parameters(), lr=config.lr, betas=config.betas, weight_decay=config.weight_decay
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, config))
    for step in range(config.steps):
        optimizer.zero_grad()
        Flat().loss(plain, Flat().batch(step, range(8)))[0].backward()
        nn.utils.clip_grad_norm_(plain.parameters(), config.clip)
        optimizer.step()
        scheduler.step()
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("micro_batch", [1, 3, 100])
def test_micro_batches_change_nothing(tmp_path, micro_batch):
    train(tmp_path / "whole")
    train(tmp_path / "parts", micro_batch=micro_batch)
    for a, b in zip(lines(tmp_path / "whole"), lines(tmp_path / "parts"), strict=True):
        assert a == pytest.approx(b, rel=1e-5, abs=1e-7)


def test_the_schedule_rises_in_a_line_and_falls_to_its_final_share():
    config = EngineConfig(steps=100, batch=1, lr=1, warmup=0.1, final=0.2)
    rates = [rate(step, config) for step in range(100)]
    assert rates[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert max(rates) == rates[9] == pytest.approx(1)
    assert all(a > b for a, b in pairwise(rates[9:]))
    assert rates[-1] == pytest.approx(0.2)
    for steps, warmup in ((1, 0.0), (1, 1.0), (3, 0.99), (3, 3)):
        assert all(
            0 < rate(step, EngineConfig(steps=steps, batch=1, lr=1, warmup=warmup)) <= 1 for step in range(steps)
        )


def test_a_group_has_its_own_pace_and_a_task_its_own_optimizer(tmp_path):
    class Sgd(Flat):
        def optimizer(self, model):
            groups = [{"params": model[0].parameters(), "lr_scale": 0.0}, {"params": model[2].parameters()}]
            return torch.optim.SGD(groups, momentum=0.9)

    model, before = flat_model(), flat_model()
    fit_task(model, Sgd(), EngineConfig(steps=3, batch=8, lr=0.1), quiet(tmp_path / "run"))
    assert torch.equal(model[0].weight, before[0].weight)
    assert not torch.equal(model[2].weight, before[2].weight)
    assert [line["step"] for line in lines(tmp_path / "run")] == [3]  # no evaluation, no line of it
    assert "momentum_buffer.2.weight" in weights(tmp_path / "run", 3)


def test_tables_of_points_take_steps_as_long_as_rows_of_matrices():
    task = ToyTask()
    task.engine = EngineConfig(steps=1, batch=8, lr=0.1)
    model = Toy()
    groups = task.optimizer(model).param_groups
    table = next(group for group in groups if any(p is model.table.weight for p in group["params"]))
    assert table["lr_scale"] == pytest.approx(math.sqrt(6))
    assert all("lr_scale" not in group for group in groups if group is not table)


class Watched(Flat):
    """Keeps the learning rate and some random numbers of every step."""

    def optimizer(self, model):
        self.rates, self.numbers = [], []
        optimizer = super().optimizer(model)
        optimizer.register_step_post_hook(lambda optimizer, *_: self.rates.append(optimizer.param_groups[0]["lr"]))
        return optimizer

    def loss(self, model, batch):
        self.numbers.append(torch.rand(()).item())
        return super().loss(model, batch)


def test_the_rate_that_is_logged_is_that_of_the_step(tmp_path):
    task = Watched()
    fit_task(flat_model(), task, EngineConfig(steps=9, batch=8, lr=0.3, warmup=4, log_every=2), quiet(tmp_path / "run"))
    assert len(set(task.rates)) == 9
    logged = {line["step"]: line["lr"] for line in lines(tmp_path / "run")}
    assert logged == {step: task.rates[step - 1] for step in (2, 4, 6, 8, 9)}


def test_a_line_of_metrics_is_the_mean_of_its_steps(tmp_path):
    for name, every in (("each", 1), ("some", 4)):
        config = EngineConfig(steps=9, batch=8, lr=0.3, clip=0.1, log_every=every)
        fit_task(flat_model(), Flat(), config, quiet(tmp_path / name))
    each, some = lines(tmp_path / "each"), lines(tmp_path / "some")
    for line, first, last in zip(some, (0, 4, 8), (4, 8, 9), strict=True):
        for number in ("loss", "grad_norm"):
            steps = [one[number] for one in each[first:last]]
            assert line[number] == pytest.approx(sum(steps) / len(steps), rel=1e-6)


def test_every_step_of_every_seed_has_random_numbers_of_its_own(tmp_path):
    """With the same ones in each step, dropout would always drop the same."""
    numbers = []
    for seed in (0, 1):
        task = Watched()
        config = EngineConfig(steps=5, batch=8, lr=0.1, micro_batch=4, seed=seed)
        fit_task(flat_model(), task, config, quiet(tmp_path / f"{seed}"))
        numbers += task.numbers
    assert len(set(numbers)) == 20


def test_every_process_has_random_numbers_of_its_own():
    seen = set()
    for seed in (0, 1, 7):
        loop = SimpleNamespace(engine=EngineConfig(steps=1, batch=1, lr=1, seed=seed), world=World())
        for step in (0, 1, 2, 1000):
            for rank in (0, 1, 2):
                _Loop._seed(loop, step, rank)
                seen.add(torch.rand(()).item())
    assert len(seen) == 3 * 4 * 3


def test_every_step_is_in_training_mode(tmp_path):
    """Also where the model comes in eval mode, and after evaluations."""
    modes = []

    class Asked(Flat):
        def loss(self, model, batch):
            modes.append(model.training)
            return super().loss(model, batch)

        def evaluate(self, model, last):
            modes.append((model.training, torch.is_grad_enabled()))
            return {}

    config = EngineConfig(steps=3, batch=8, lr=0.1, eval_every=1)
    fit_task(flat_model().eval(), Asked(), config, quiet(tmp_path / "run"))
    assert modes == [True, (False, False)] * 3


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
def test_half_precision_is_bf16_on_every_device():
    """Alone, autocast takes fp16 on CUDA, whose gradients vanish without a scaler."""
    for asked, device, half in (("bf16", "cpu", True), ("fp32", "cpu", False), ("auto", "cpu", False)):
        context = precision(EngineConfig(steps=1, batch=1, lr=1, precision=asked), torch.device(device))
        assert (context._enabled, context.fast_dtype) == (half, torch.bfloat16)
    on_gpu = precision(EngineConfig(steps=1, batch=1, lr=1), torch.device("cuda"))
    assert on_gpu.fast_dtype == torch.bfloat16
    assert on_gpu._enabled == torch.cuda.is_available()


def test_bf16_is_autocast_over_fp32_weights(tmp_path):
    model = Toy()
    train(tmp_path / "half", precision="bf16", model=model)
    train(tmp_path / "full")
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    half, full = ([line["loss"] for line in lines(tmp_path / name) if "loss" in line] for name in ("half", "full"))
    assert half != full
    assert half == pytest.approx(full, rel=0.05)


def test_blocks_are_compiled_on_demand(tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda self: compiled.append(self))
    model = Toy()
    train(tmp_path / "auto", model=model)
    assert not compiled  # on the CPU
    train(tmp_path / "on", model=model, compile=True)
    assert compiled == model.blocks()


def test_after_each_step_the_model_is_called(tmp_path):
    model = Toy()
    train(tmp_path / "run", model=model, steps=4, micro_batch=2)
    assert model.steps_taken == 4


# -- resuming ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", range(1, 7))
def test_ctrl_c_saves_and_resume_is_exact(straight, tmp_path, capsys, step):
    folder = tmp_path / "run"
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit) as stopped:
        train(folder, **NOISY, task={"interrupt_at": step})
    assert stopped.value.code == 130
    assert signal.getsignal(signal.SIGINT) is before
    said = capsys.readouterr().err
    saved = f"the last step is saved in {folder}, and the same command with --resume goes on"
    assert said == f"horosphere: stopped after step {step} of 7; {saved}\n"
    assert checkpoints(folder)[-1] == f"step-{step:08d}"
    train(folder, **NOISY, resume=True)
    assert_same_run(folder, straight)


@pytest.mark.parametrize(
    "how",
    [
        {"optimizer": "sgd", "momentum": 0.9, "schedule": "step", "lr": 0.05},
        {"optimizer": "adagrad"},
        {"optimizer": "rmsprop", "momentum": 0.5, "schedule": "constant"},
    ],
    ids=lambda how: how["optimizer"],
)
def test_every_optimizer_is_resumed_exactly(tmp_path, how):
    train(tmp_path / "straight", **NOISY, **how)
    with pytest.raises(SystemExit):
        train(tmp_path / "stopped", task={"interrupt_at": 4}, **NOISY, **how)
    train(tmp_path / "stopped", resume=True, **NOISY, **how)
    assert_same_run(tmp_path / "straight", tmp_path / "stopped")


def test_baselines_are_asked_for_once_at_the_end(tmp_path):
    class Beside(Flat):
        def evaluate(self, model, last):
            return {"error": 0.5}

        def baselines(self):
            return {"mean": {"error": 0.7}, "nearest": {"error": 0.6}}

    fit_task(flat_model(), Beside(), EngineConfig(steps=4, batch=8, lr=0.1, eval_every=2), quiet(tmp_path / "run"))
    marked = [line for line in lines(tmp_path / "run") if "baseline" in line]
    assert marked == [
        {"step": 4, "baseline": "mean", "error": 0.7},
        {"step": 4, "baseline": "nearest", "error": 0.6},
    ]
    run = Run.open(tmp_path / "run")
    assert run.baselines() == {"mean": {"error": 0.7}, "nearest": {"error": 0.6}}
    assert run.scores()["error"] == 0.5


def test_sigterm_does_the_same(straight, tmp_path):
    with pytest.raises(SystemExit) as stopped:
        train(tmp_path / "run", **NOISY, task={"terminate_at": 3})
    assert stopped.value.code == 130
    train(tmp_path / "run", **NOISY, resume=True)
    assert_same_run(tmp_path / "run", straight)


def test_a_second_ctrl_c_stops_at_once(straight, tmp_path, monkeypatch):
    monkeypatch.setattr(stopping, "ECHO", -1.0)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", **NOISY, task={"interrupt_at": 4, "terminate_at": 4})
    assert checkpoints(tmp_path / "run") == ["step-00000002"]
    train(tmp_path / "run", **NOISY, resume=True)
    assert_same_run(tmp_path / "run", straight)


def test_the_echo_of_a_ctrl_c_is_not_a_second_one(tmp_path):
    with pytest.raises(SystemExit):
        train(tmp_path / "run", **NOISY, task={"interrupt_at": 4, "terminate_at": 4})


def test_ctrl_c_in_the_last_step_is_a_run_done(straight, tmp_path):
    assert train(tmp_path / "run", **NOISY, task={"interrupt_at": 7}).step == 7
    assert_same_run(tmp_path / "run", straight)


KILLED = {
    "in a step": ({"task": {"kill_at": 6}}, ["step-00000002", "step-00000004"]),
    "before any checkpoint": ({"task": {"kill_at": 2}}, []),
    "in the model": (
        {"kill_while_saving": ".step-00000006.partial/model-*"},
        [".step-00000006.partial", "step-00000002", "step-00000004"],
    ),
    "in the optimizer": (
        {"kill_while_saving": ".step-00000004.partial/optimizer-*"},
        [".step-00000004.partial", "step-00000002"],
    ),
    "in the state": ({"kill_while_saving": ".step-00000002.partial/state.json"}, [".step-00000002.partial"]),
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Runs that kill -9 ended."""
    folder = tmp_path_factory.mktemp("killed")
    jobs = json.dumps([{"folder": str(folder / name), **NOISY, **how} for name, (how, _) in KILLED.items()])
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, toy_task.__file__, jobs], env=env, cwd=ROOT, check=True, timeout=120)
    assert not list(folder.glob("*.outcome"))
    return folder


@pytest.mark.parametrize("how", KILLED)
def test_kill_9_costs_only_the_steps_since_the_last_checkpoint(straight, killed, how):
    assert checkpoints(killed / how) == KILLED[how][1]
    train(killed / how, **NOISY, resume=True)
    assert_same_run(killed / how, straight)
    assert checkpoints(killed / how) == ["step-00000006", "step-00000007"]


def test_checkpoints_that_a_killed_run_would_have_removed_go(tmp_path):
    train(tmp_path / "run", keep=3)
    before = checkpoints(tmp_path / "run")
    train(tmp_path / "run", keep=1, resume=True)  # it had ended
    assert checkpoints(tmp_path / "run") == before[-1:]


def test_metrics_are_cut_back_to_the_checkpoint(straight, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(SystemExit):
        train(folder, **NOISY, task={"interrupt_at": 5})
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 6, "loss": 1.0}\n{"step": 7, "lo')
    train(folder, **NOISY, resume=True)
    assert_same_run(folder, straight)


def test_a_finished_run_stays_as_it_is(tmp_path):
    first = train(tmp_path / "run")
    before = (tmp_path / "run/metrics.jsonl").read_bytes()
    again = train(tmp_path / "run", resume=True)
    assert (again.step, again.evaluation) == (first.step, first.evaluation)
    assert again.evaluation.keys() == {"mean_logit"}
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == before


def test_what_decides_nothing_may_change_on_the_way(straight, tmp_path):
    with pytest.raises(SystemExit):
        train(tmp_path / "run", **NOISY, task={"interrupt_at": 3})
    train(
        tmp_path / "run", **{**NOISY, "log_every": 3, "eval_every": 2}, save_every=5, keep=1, micro_batch=8, resume=True
    )
    ours, theirs = weights(tmp_path / "run"), weights(straight)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert checkpoints(tmp_path / "run") == ["step-00000007"]
    assert json.loads((tmp_path / "run/run.json").read_text())["recipe"]["engine"]["keep"] == 1


def test_what_decides_the_run_may_not(tmp_path):
    with pytest.raises(SystemExit):
        train(tmp_path / "run", about={"dim": 6, "keep": 1}, task={"interrupt_at": 3})
    before = (tmp_path / "run/run.json").read_bytes(), (tmp_path / "run/metrics.jsonl").read_bytes()
    with pytest.raises(UserError) as error:
        train(tmp_path / "run", about={"dim": 8, "keep": 1}, resume=True, lr=0.5, keep=5)
    assert "(dim 6 -> 8, lr 0.02 -> 0.5)" in str(error.value)
    assert ((tmp_path / "run/run.json").read_bytes(), (tmp_path / "run/metrics.jsonl").read_bytes()) == before


STEADY = {"schedule": "constant", "warmup": 2, "eval_every": None, "dropout": 0.2}


def test_a_run_at_a_constant_rate_can_be_prolonged(tmp_path):
    train(tmp_path / "long", **STEADY, steps=9)
    train(tmp_path / "short", **STEADY, steps=5)
    (tmp_path / "short/model.safetensors").write_bytes(b"what the short run exported")
    train(tmp_path / "short", **STEADY, steps=9, resume=True)
    assert not (tmp_path / "short/model.safetensors").exists()
    ours, theirs = weights(tmp_path / "short", 9), weights(tmp_path / "long", 9)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize(
    ("before", "now", "complaint"),
    [
        (
            {},
            {"steps": 9},
            r"steps 6 -> 9: the learning rates of the 6 steps taken would have been others. Start a new run",
        ),
        ({"schedule": "constant", "warmup": 0.5}, {"steps": 9}, "would have been others"),
        ({"schedule": "constant", "warmup": 2}, {"steps": 3}, "is at step 6 already"),
    ],
)
def test_a_run_whose_steps_would_have_been_others_cannot(tmp_path, before, now, complaint):
    train(tmp_path / "run", **before)
    with pytest.raises(UserError, match=complaint):
        train(tmp_path / "run", **{**before, **now}, resume=True)


def test_a_damaged_checkpoint_stops_a_resume_and_leaves_the_run(tmp_path):
    with pytest.raises(SystemExit):
        train(tmp_path / "run", task={"interrupt_at": 3})
    file = tmp_path / "run/checkpoints/step-00000003/model-00001-of-00001.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    before = (tmp_path / "run/metrics.jsonl").read_bytes()
    with pytest.raises(UserError, match="damaged checkpoint"):
        train(tmp_path / "run", resume=True)
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == before


# -- what is not finite -----------------------------------------------------------------------------------------------


def test_nan_stops_with_its_step_and_the_last_good_checkpoint(tmp_path):
    """Between two lines of metrics, and before the checkpoint that would have kept it."""
    with pytest.raises(UserError) as error:
        train(tmp_path / "run", task={"nan_at": 6}, steps=20, log_every=20, eval_every=None, save_every=4)
    assert "in step 6 is not finite" in str(error.value)
    assert f"the last good checkpoint is {tmp_path / 'run/checkpoints/step-00000004'}" in str(error.value)
    assert checkpoints(tmp_path / "run") == ["step-00000004"]
    train(
        tmp_path / "run", resume=True, steps=20, log_every=20, eval_every=None, save_every=4
    )  # it was a passing trouble


@pytest.mark.parametrize(
    ("step", "advice"), [(1, "look at the data, and at curvature=1e+20"), (2, "lower lr (now 0.02)")]
)
def test_the_learning_rate_is_blamed_only_where_something_was_learned(tmp_path, step, advice):
    with pytest.raises(UserError) as error:
        train(tmp_path / "run", task={"nan_at": step, "config": {"curvature": 1e20}})
    assert advice in str(error.value)
    assert ("lr is not the reason" in str(error.value)) == (step == 1)


def test_an_evaluation_that_is_not_finite_is_no_fault_of_the_checkpoint(tmp_path):
    class Lost(ToyTask):
        def evaluate(self, model, last):
            raise NotFinite("the model's logits are NaN: evaluate an earlier checkpoint")

    with pytest.raises(UserError) as error:
        train(tmp_path / "run", task=Lost(), save_every=2)
    good = tmp_path / "run/checkpoints/step-00000002"
    said = f"the evaluation after step 3 is not finite: the last good checkpoint is {good}; lower lr"
    assert str(error.value).startswith(said)


def test_the_parameter_a_broken_gradient_came_in_by_is_named(tmp_path):
    """Its block and all before it have a broken gradient: those after it, nearer to the loss, have not."""
    model = Toy()
    model.layers[1].register_full_backward_hook(
        lambda module, grad_in, grad_out: tuple(g * float("inf") for g in grad_in)
    )
    with pytest.raises(UserError) as error:
        train(tmp_path / "run", model=model)
    assert str(error.value).startswith(
        "the gradient of layers.0.linear.bias in step 1 is not finite: no checkpoint was saved before it"
    )


@pytest.mark.parametrize(
    ("step", "steps", "advice"), [(3, "1 to 4", "lr is not the reason"), (6, "5 to 8", "lower lr (now 0.02)")]
)
def test_a_loss_without_a_gradient_at_fault_is_told_by_its_steps(tmp_path, step, steps, advice):
    class Odd(ToyTask):
        def loss(self, model, batch):
            loss, numbers = super().loss(model, batch)
            return loss + (float("inf") if self.step == step else 0.0), numbers

    with pytest.raises(UserError) as error:
        train(tmp_path / "run", task=Odd(), steps=20, log_every=4, save_every=4, eval_every=None)
    assert str(error.value).startswith(f"the loss in steps {steps} is not finite: ")
    assert advice in str(error.value)


def test_a_model_that_recomputes_its_activations_learns_the_same(tmp_path):
    class Recomputing(Toy):
        recomputed = 0

        def gradient_checkpointing_enable(self):
            for block in self.layers:
                block.register_forward_pre_hook(self.count)
                block.forward = partial(torch.utils.checkpoint.checkpoint, block.forward, use_reentrant=False)

        def count(self, *_):
            self.recomputed += 1

    model = Recomputing()
    train(tmp_path / "saving", model=model, checkpointing=True)
    train(tmp_path / "plain")
    assert model.recomputed
    assert lines(tmp_path / "saving") == lines(tmp_path / "plain")


def test_what_is_not_learned_may_be_infinite(tmp_path):
    model = Toy()
    model.walls = nn.Parameter(torch.tensor([0.0, float("-inf")]), requires_grad=False)
    train(tmp_path / "run", model=model)
    train(tmp_path / "plain")
    assert lines(tmp_path / "run") == lines(tmp_path / "plain")


def test_a_broken_weight_is_never_saved(tmp_path):
    class Breaking(Toy):
        def after_step(self):
            super().after_step()
            if self.steps_taken == 4:
                with torch.no_grad():
                    self.layers[1].linear.weight[0, 0] = float("nan")

    with pytest.raises(UserError, match=r"^layers\.1\.linear\.weight after step 4 is not finite: .*step-00000002"):
        train(tmp_path / "run", model=Breaking())
    assert checkpoints(tmp_path / "run") == ["step-00000002"]


# -- the folder, and what is said -------------------------------------------------------------------------------------


def test_a_run_says_what_it_was(tmp_path):
    train(tmp_path / "run", about={"dim": 6, "geometry": "lorentz"})
    about = json.loads((tmp_path / "run/run.json").read_text())
    assert about["task"] == "toy"
    assert about["recipe"]["model"] == {"dim": 6, "geometry": "lorentz"}
    assert (about["recipe"]["engine"]["seed"], about["recipe"]["engine"]["betas"]) == (0, [0.9, 0.95])
    line = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[0])
    assert line.keys() == {"step", "loss", "top", "grad_norm", "lr", "symbols_per_second", "seconds"}
    assert {p.name for p in (tmp_path / "run").iterdir()} == {"run.json", "metrics.jsonl", "checkpoints"}


def test_the_pace_is_that_of_steps_whatever_is_done_between_them(tmp_path, monkeypatch):
    """A step takes a second, an evaluation a hundred; metrics are written less often than it is evaluated."""
    now = [0.0]
    monkeypatch.setattr("horosphere.train.engine.time.perf_counter", lambda: now[0])

    class Slow(ToyTask):
        def loss(self, *given):
            now[0] += 1
            return super().loss(*given)

        def evaluate(self, *given):
            now[0] += 100
            return super().evaluate(*given)

    train(tmp_path / "run", task=Slow(), eval_every=1, log_every=3, save_every=100)
    logged = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    assert [line["symbols_per_second"] for line in logged if "loss" in line] == [8 * ROW] * 2


def test_a_folder_is_replaced_on_demand_and_only_if_it_is_a_run(tmp_path):
    train(tmp_path / "run", steps=2)
    with pytest.raises(UserError, match="exists already"):
        train(tmp_path / "run", steps=3)
    train(tmp_path / "run", steps=3, overwrite=True)
    assert checkpoints(tmp_path / "run") == ["step-00000002", "step-00000003"]
    assert [line["step"] for line in lines(tmp_path / "run")] == [1, 2, 3, 3]
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match=r"holds no run\.json"):
        train(mine, overwrite=True)
    assert (mine / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    "failure",
    [
        {"task": {"nan_at": 1}},
        {"task": {"raise_at": 2}, "save_every": 5},
        {"model": "unbegun"},
    ],
)
def test_a_run_that_fails_before_its_first_checkpoint_leaves_the_one_it_was_to_replace(tmp_path, failure):
    train(tmp_path / "run", steps=2)
    before = everything(tmp_path)
    if failure.get("model"):
        failure = {"task": Unbegun()}
    with pytest.raises((UserError, RuntimeError)):
        train(tmp_path / "run", steps=3, overwrite=True, **failure)
    assert everything(tmp_path) == before


class Unbegun(ToyTask):
    def begin(self, folder):
        (folder / "tokenizer.json").write_text("half")
        raise UserError("no tokenizer")


def everything(folder):
    return {str(path): path.read_bytes() if path.is_file() else None for path in Path(folder).rglob("*")}


def test_a_run_takes_the_place_of_another_with_its_first_checkpoint(tmp_path):
    """Before it, whoever looks finds the old one whole; after it the new one."""
    train(tmp_path / "run", steps=2, lr=0.5)
    seen = []

    class Looking(ToyTask):
        def batch(self, step, rows):
            if step < 10**6:
                rate = json.loads((tmp_path / "run/run.json").read_text())["recipe"]["engine"]["lr"]
                seen.append((rate, checkpoints(tmp_path / "run")[-1], len(lines(tmp_path / "run"))))
            return super().batch(step, rows)

    train(tmp_path / "run", overwrite=True, task=Looking(), save_every=3, eval_every=None, steps=5)
    old, new = (0.5, "step-00000002", 3), (0.02, "step-00000003")
    assert seen == [old, old, old, (*new, 3), (*new, 4)]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_ctrl_c_before_the_first_checkpoint_saves_and_replaces(tmp_path):
    train(tmp_path / "run", steps=2, lr=0.5)
    with pytest.raises(SystemExit):
        train(tmp_path / "run", overwrite=True, task={"interrupt_at": 1})
    assert checkpoints(tmp_path / "run") == ["step-00000001"]
    train(tmp_path / "run", resume=True)


def test_resume_needs_a_run(tmp_path):
    with pytest.raises(UserError, match=r"holds no run\.json: there is no run to resume"):
        train(tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(UserError, match="damaged file"):
        train(tmp_path, resume=True)


def test_what_was_trained_is_kept_where_an_evaluation_fails(tmp_path):
    class Unreadable(Flat):
        def evaluate(self, model, last):
            raise UserError("3.png: no readable picture")

    config = EngineConfig(steps=6, batch=8, lr=0.05, eval_every=2, save_every=2)
    with pytest.raises(UserError, match="no readable picture"):
        fit_task(flat_model(), Unreadable(), config, quiet(tmp_path / "run"))
    assert checkpoints(tmp_path / "run") == ["step-00000002"]
    assert fit_task(flat_model(), Flat(), config, quiet(tmp_path / "run", resume=True)).step == 6


class Torn(Flat):
    """Its data cannot be read in a step, from the given rows on."""

    def __init__(self, step, row=0):
        super().__init__()
        self.torn = step, row

    def batch(self, step, rows):
        if step == self.torn[0] and rows.start >= self.torn[1]:
            raise UserError("7.png: no readable picture; replace it.")
        return super().batch(step, rows)


@pytest.mark.parametrize("micro_batch", [None, 2])
def test_what_was_learned_is_saved_where_a_batch_cannot_be_read(tmp_path, micro_batch):
    config = EngineConfig(steps=6, batch=8, lr=0.05, save_every=4, log_every=1, micro_batch=micro_batch)
    fit_task(flat_model(), Flat(), config, quiet(tmp_path / "straight"))
    saved = r"7\.png: no readable picture; replace it\. The 3 steps before it are saved: go on with --resume\.$"
    with pytest.raises(UserError, match=saved):
        fit_task(flat_model(), Torn(3), config, quiet(tmp_path / "run"))
    assert checkpoints(tmp_path / "run") == ["step-00000003"]
    fit_task(flat_model(), Flat(), config, quiet(tmp_path / "run", resume=True))
    assert_same_run(tmp_path / "run", tmp_path / "straight", 6)


def test_in_the_first_step_and_behind_rows_that_were_counted_nothing_is_saved(tmp_path):
    config = EngineConfig(steps=6, batch=8, lr=0.05, save_every=4, micro_batch=2)
    with pytest.raises(UserError, match=r"replace it\.$"):
        fit_task(flat_model(), Torn(0), config, quiet(tmp_path / "run"))
    with pytest.raises(UserError, match=r"replace it\.$"):
        fit_task(flat_model(), Torn(3, row=2), config, quiet(tmp_path / "other"))
    assert checkpoints(tmp_path / "other") == []
    assert not (tmp_path / "run").exists()  # the same command begins again


def test_a_folder_alone_means_a_new_run_that_speaks(tmp_path, capsys):
    config = EngineConfig(steps=2, batch=8, lr=0.02)
    fit_task(Toy(), ToyTask(), config, Place(tmp_path / "run"))
    assert "step 2: " in capsys.readouterr().err
    before = lines(tmp_path / "run")
    with pytest.raises(UserError, match=r"--resume.*--overwrite|--overwrite.*--resume"):
        fit_task(Toy(seed=1), ToyTask(), config, Place(tmp_path / "run"))
    assert lines(tmp_path / "run") == before


def test_a_log_gets_a_line_an_evaluation_and_quiet_none(tmp_path, capsys):
    train(tmp_path / "loud", quiet=False, sample_every=3)
    said = capsys.readouterr()
    shown = [line.split(":")[0] if line.startswith("step") else "symbol" for line in said.err.splitlines()]
    assert shown == ["step 3", "symbol", "step 6", "symbol"]
    assert said.out == ""
    train(tmp_path / "quiet", quiet=True)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"steps": 0}, "give either steps=… or epochs=…"),
        ({"micro_batch": 0}, "micro_batch=0"),
        ({"lr": 0.0}, "lr=0: it must be positive"),
        ({"lr": float("nan")}, "positive"),
        ({"warmup": -0.5}, "warmup=-0.5: it must be at least 0"),
        ({"epochs": 2}, "give either steps"),
        ({"momentum": 0.9}, "momentum=0.9: adam has none such; leave it out, or choose optimizer=sgd or rmsprop"),
        ({"optimizer": "adadelta"}, "optimizer=adadelta: no rule for points"),
        ({"checkpointing": True}, "Toy cannot recompute its activations"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_before_anything_is_written(tmp_path, setting, said):
    with pytest.raises(UserError, match=said):
        train(tmp_path / "run", **setting)
    assert not (tmp_path / "run").exists()


def test_the_batch_divides_into_the_processes(tmp_path):
    with pytest.raises(UserError, match="batch=8 does not divide into 3 processes: choose a multiple of 3"):
        fit_task(Toy(), ToyTask(), EngineConfig(steps=1, batch=8, lr=1), quiet(tmp_path / "run"), World(size=3))
