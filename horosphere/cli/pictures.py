"""Vision models on the command line: training, comparison, and what they see."""

import argparse
import json
from pathlib import Path
from typing import Any

from horosphere.cli.common import (
    choose_device,
    command,
    is_main,
    output,
    print_comparison,
    require_pictures,
    stem,
    table,
)
from horosphere.errors import UserError


def add_explain(commands: Any) -> None:
    seen = "what a vision model sees in a picture: its clusters, its tree of parts"
    explain = command(
        commands, "explain", _explain, seen, "horosphere explain cat.jpg --model runs/hcformer-nano --out cat"
    )
    explain.add_argument("image", help="a picture")
    explain.add_argument("--model", metavar="RUN", required=True, help="a folder made by `horosphere train`")
    explain.add_argument("--random-weights", action="store_true", help="--model is the name of a recipe, untrained")
    output(
        explain,
        "explained",
        "a folder of pictures and a page, or a page alone where it ends in .html (default explained)",
    )


def train_classifier(args: argparse.Namespace) -> None:
    from horosphere.train.images import ImageRecipe, train_images

    recipe = ImageRecipe.read(args.recipe, args.settings)
    args.out = args.out or str(Path("runs") / stem(args.recipe))
    result = train_images(
        recipe,
        args.out,
        resume=args.resume,
        overwrite=args.overwrite,
        quiet=args.quiet,
        device=choose_device(args.device),
    )
    if is_main():
        about = json.loads(Path(args.out, "run.json").read_text(encoding="utf-8"))["recipe"]
        named = {"top1": "top-1", "top5": "top-5", "coarse": "coarse top-1", "tree_error": "tree error"}
        apart = {"parent": "to the parent", "sibling": "to a sibling"}
        rows = [
            [
                "model",
                f"{recipe.model}, {about['parameters']:,} parameters" + ", in Hi-Mapper" * (recipe.tree is not None),
            ]
        ]
        rows += [
            [
                "pictures",
                f"{about['pictures']['train']:,} to learn, {about['pictures']['valid']:,} to judge, {about['classes']} classes",
            ]
        ]
        rows += [[name, f"{result.evaluation[key]:.4f}"] for key, name in named.items() if key in result.evaluation]
        rows += [
            [name, f"{result.evaluation[key]:.2f} of the way to a stranger"]
            for key, name in apart.items()
            if key in result.evaluation
        ]
        rows += [
            [
                "training",
                f"{result.seconds:.0f} s, {result.seconds / result.step * 1e3:.0f} ms a step with all evaluations",
            ]
        ]
        table([], [*rows, ["written", f"{args.out}/"]])


def train_dense_model(args: argparse.Namespace) -> None:
    from horosphere.train.dense import DenseRecipe, train_dense

    recipe = DenseRecipe.read(args.recipe, args.settings)
    args.out = args.out or str(Path("runs") / stem(args.recipe))
    result = train_dense(
        recipe,
        args.out,
        resume=args.resume,
        overwrite=args.overwrite,
        quiet=args.quiet,
        device=choose_device(args.device),
    )
    if is_main():
        rows = [["model", f"{recipe.model} on {recipe.backbone}"]]
        rows += [
            [name.replace("_", " "), f"{value:.4f}"]
            for name, value in result.evaluation.items()
            if isinstance(value, float)
        ]
        rows += [
            [
                "training",
                f"{result.seconds:.0f} s, {result.seconds / result.step * 1e3:.0f} ms a step with all evaluations",
            ]
        ]
        table([], [*rows, ["written", f"{args.out}/"]])


def compare_pictures(args: argparse.Namespace) -> None:
    from horosphere.train.compare_images import RESULTS, compare_images
    from horosphere.train.compare_language import FAMILIES
    from horosphere.train.images import image_recipe_names, is_image_recipe

    if not is_image_recipe(args.data, args.settings):
        raise UserError(
            f"{args.data}: compare takes {', '.join([*FAMILIES, *image_recipe_names()])}, or the file of a graph"
        )
    args.out = args.out or str(Path("runs") / f"compare-{stem(args.data)}")
    device = choose_device(args.device)
    print_comparison(
        compare_images(args.data, args.settings, args.out, args.seeds, args.jobs, device, args.overwrite, args.quiet)
    )
    print(f"written: {Path(args.out) / RESULTS}")


def _explain(args: argparse.Namespace) -> None:
    from horosphere.plots.explain import explain

    require_pictures()
    found, written = explain(
        args.model, args.image, args.out, random_weights=args.random_weights, overwrite=args.overwrite
    )
    table([], [*found.rows(), *(["written", str(path)] for path in written)])
