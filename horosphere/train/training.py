"""One function trains any recipe, one judges any run."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from horosphere import catalogue, runs, settings
from horosphere.errors import UserError
from horosphere.files import locked
from horosphere.runs import About, Run
from horosphere.train.config import EngineConfig
from horosphere.train.distributed import World, world
from horosphere.train.engine import FitResult, Place, fit, precision
from horosphere.train.recipe import Recipe
from horosphere.train.task import Task


def train(recipe: Recipe, place: Place, device: str = "auto") -> FitResult:
    """Train into a folder, alone or as one process of torchrun's; at the end the folder holds the weights to use."""
    recipe.check()
    task, folder = recipe.task, place.folder
    with world(device) as here, ExitStack() as held:
        if here.size > 1 and task.alone:
            raise UserError(f"{task.alone}; start it without torchrun")
        here.from_main(lambda: runs.require_place(folder, place.resume, place.overwrite) and None)
        task.world, task.quiet = here, place.quiet or not here.is_main
        data = task.in_part(here.main_first(task.open_data))
        engine = recipe.engine
        task.engine = engine = engine.for_data(task.rows(data), engine.batch or task.natural_batch(data))

        def build() -> nn.Module:
            torch.manual_seed(engine.seed)
            return task.build(data)

        model = here.main_first(build)
        task.ready(data)
        count = sum(p.numel() for p in task.answering(model).parameters() if p.requires_grad)
        facts = {"parameters": count, **task.facts(data)}
        name = torch.cuda.get_device_name(here.device) if here.device.type == "cuda" else here.device.type
        about = About(task.kind, recipe.sections(engine), facts, runs.made_with(name, here.size))
        here.from_main(lambda: held.enter_context(locked(folder)))
        result = fit(model, task, about, place)
        del model
        here.from_main(lambda: _export(folder, recipe))
        return result


def reopened(run: Run, here: World, valid: str | None = None, quiet: bool = True) -> tuple[Task[Any], nn.Module]:
    """The task of a run, ready to judge by what was held out of its data or by other data, and its network."""
    task = catalogue.resolve(catalogue.task(run.about.task).build).of(run)
    if valid is not None and not hasattr(task, "valid"):
        raise UserError(f"{valid}: a run of the task {task.kind} is judged on its own data only; leave --data out")
    task = task if valid is None else replace(task, valid=valid, judged_on="all")
    task.world, task.quiet = here, quiet
    task.engine = settings.build(EngineConfig, run.about.recipe["engine"], str(run.folder))
    data = task.in_part(here.main_first(task.open_data))
    changed = [name for name, value in task.facts(data).items() if run.about.facts.get(name) != value]
    if valid is None and changed:
        raise UserError(f"{task.data} has changed since {run.folder} was trained on it ({', '.join(changed)})")
    task.ready(data)
    return task, task.network_of(run).to(here.device)


@torch.no_grad()
def evaluate(run: Run, valid: str | None = None, device: str = "auto", quiet: bool = True) -> dict[str, float]:
    """The scores of a run, on what was held out of its data or on other data."""
    with world(device) as here:
        task, network = reopened(run, here, valid, quiet)
        with precision(task.engine, here.device):
            return dict(task.evaluate(network, last=True))


@torch.no_grad()
def readings(run: Run, valid: str | None = None, device: str = "auto", quiet: bool = True) -> dict[str, float]:
    """What the model of a run says of itself, on what was held out of its data or on other data."""
    with world(device) as here:
        task, network = reopened(run, here, valid, quiet)
        with precision(task.engine, here.device):
            return task.readings(network)


def _export(folder: Path, recipe: Recipe) -> None:
    """A run that had ended keeps what it exported."""
    if not (folder / recipe.task.mark).is_file():
        recipe.task.export(folder, recipe.task.from_checkpoint(Run.open(folder)))
