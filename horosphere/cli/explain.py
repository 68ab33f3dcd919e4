"""`horosphere explain`: what a vision model sees in a picture."""

import argparse
from pathlib import Path
from typing import Any

from horosphere.cli.common import command, output, table
from horosphere.errors import UserError, choices

SHOWN = 448  # pixels a side of the picture that maps are drawn over, at least: a network may see far fewer


def add(commands: Any) -> None:
    summary = "what a vision model sees in a picture: its clusters, its tree of parts"
    example = "horosphere explain cat.jpg --model runs/hcformer-nano --out cat"
    explain = command(commands, "explain", run, summary, example)
    explain.add_argument("image", help="a picture")
    explain.add_argument("--model", metavar="RUN", required=True, help="a folder made by `horosphere train`")
    explain.add_argument("--random-weights", action="store_true", help="--model is the name of a recipe, untrained")
    output(explain, "explained", "a folder of pictures and a page, or NAME.html: the page (default explained)")


def run(args: argparse.Namespace) -> None:
    from horosphere.data.augment import normalise
    from horosphere.data.images import read_picture
    from horosphere.extras import require
    from horosphere.measure.vision import explain
    from horosphere.plots.explain import save_explanation
    from horosphere.plots.report import require_page_place

    require("plots")
    require_page_place(args.out, args.overwrite)
    trained = _untrained(args.model) if args.random_weights else _trained(args.model)
    box = trained.augmentation.still_box
    seen, shown = read_picture(args.image, box, trained.size, max(SHOWN, trained.size))
    explanation = explain(trained.network, normalise(seen[None])[0], shown.permute(1, 2, 0).numpy(), trained.classes)
    weights = ", random weights" * args.random_weights
    title, subtitle = Path(args.image).name, f"as {Path(args.model).name}{weights} sees it"
    written = save_explanation(explanation, title, subtitle, Path(args.out), args.overwrite)
    rows = [*explanation.rows(), *_cropped(args.image, box), *explanation.remarks()]
    table([], [*rows, *(["written", str(path)] for path in written)])


def _cropped(image: str, box: Any) -> list[list[str]]:
    """A row that says what part of the picture the network sees, where that is not all."""
    from horosphere.foreign import open_picture

    with open_picture(image) as picture:
        width, height = picture.size
    _, _, tall, wide = (round(number) for number in box(height, width, (0.0,) * 4))
    if (wide, tall) == (width, height):
        return []
    return [["cropped", f"the network sees the middle {wide} x {tall} of {width} x {height} pixels"]]


def _trained(model: str) -> Any:
    from horosphere.runs import Run

    if not Path(model).exists() and model in _recipes():
        how = "train it first and name its folder, or pass --random-weights to see it untrained"
        raise UserError(f"{model}: a recipe, not a run; {how}")
    return Run.open(model, "pictures").load()


def _untrained(name: str) -> Any:
    from horosphere.train.recipe import Recipe

    if name not in (known := _recipes()):
        raise UserError(f"{name}: no recipe of a model of pictures; {choices(name, known)}")
    task: Any = Recipe.read(name, ["data=none"]).task  # which it has no use for
    return task.untrained()


def _recipes() -> list[str]:
    from horosphere.recipes import read_recipe, recipe_names

    return [name for name in recipe_names() if read_recipe(name).get("task") == "pictures"]
