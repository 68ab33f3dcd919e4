"""One function trains any recipe."""

from contextlib import ExitStack
from pathlib import Path

import torch
from torch import nn

from horosphere import runs
from horosphere.files import locked
from horosphere.runs import About, Run
from horosphere.train.distributed import world
from horosphere.train.engine import FitResult, Place, fit
from horosphere.train.recipe import Recipe


def train(recipe: Recipe, place: Place, device: str = "auto") -> FitResult:
    """Train into a folder, alone or as one process of torchrun's; at the end the folder holds the weights to use."""
    recipe.check()
    task, folder = recipe.task, place.folder
    with world(device) as here, ExitStack() as held:
        here.from_main(lambda: runs.require_place(folder, place.resume, place.overwrite) and None)
        task.world, task.quiet = here, place.quiet or not here.is_main
        data = here.main_first(task.open_data)
        engine = recipe.engine
        task.engine = engine = engine.for_data(task.rows(data), engine.batch or task.natural_batch(data))

        def build() -> nn.Module:
            torch.manual_seed(engine.seed)
            return task.build(data)

        model = here.main_first(build)
        task.ready(data)
        count = sum(p.numel() for p in task.answering(model).parameters())
        facts = {"parameters": count, **task.facts(data)}
        name = torch.cuda.get_device_name(here.device) if here.device.type == "cuda" else here.device.type
        about = About(task.kind, recipe.sections(engine), facts, runs.made_with(name, here.size))
        here.from_main(lambda: held.enter_context(locked(folder)))
        result = fit(model, task, about, place)
        del model
        here.from_main(lambda: _export(folder, recipe))
        return result


def _export(folder: Path, recipe: Recipe) -> None:
    """A run that had ended keeps what it exported."""
    if not (folder / recipe.task.mark).is_file():
        recipe.task.export(folder, recipe.task.from_checkpoint(Run.open(folder)))
