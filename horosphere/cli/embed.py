"""`horosphere embed`: the recipe `embedding` on a tree or graph, with a picture."""

import argparse
from pathlib import Path
from typing import Any

from horosphere.cli.common import (
    command,
    device_option,
    is_main,
    known_settings,
    output,
    resume_options,
    settings_argument,
    settings_help,
    stem,
    table,
    take_settings,
)
from horosphere.cli.train import KEPT, train_and_tell
from horosphere.recipes import read_recipe

RECIPE, TASK, MODEL = "embedding", "nodes", "embedding"
FORMATS = "edge list (child, parent) .tsv .csv .txt (.gz); .json nested; .gml .graphml .gexf .adjlist .edgelist"
PICTURE = "disk.png"


def add(commands: Any) -> None:
    embed = command(
        commands, "embed", run, "embed a tree or graph", "horosphere embed tree.tsv --geometry lorentz --dim 10"
    )
    embed.formatter_class = argparse.RawDescriptionHelpFormatter
    known = {name: setting for name, setting in known_settings(TASK, MODEL).items() if name not in ("model", "data")}
    embed.epilog = f"{settings_help(known, read_recipe(RECIPE))}\n\n{embed.epilog}"
    embed.set_defaults(kept=KEPT)
    embed.add_argument("data", help=FORMATS)
    settings_argument(embed, "as below")
    resume_options(embed, "run")
    device_option(embed)
    output(embed, None, "folder for points, labels and picture (default runs/DATA-GEOMETRY-DIM)")


def run(args: argparse.Namespace) -> None:
    from horosphere.extras import require
    from horosphere.train.recipe import Recipe

    settings, _ = take_settings(args, known_settings(TASK, MODEL))
    settings = [f"data={args.data}", *settings]
    require("plots")
    config = Recipe.read(RECIPE, settings).task.configuration()
    name = f"{stem(args.data)}-{config.geometry.replace(':', '')}-{config.dim}"
    args.out = args.out or str(Path("runs") / name)
    train_and_tell(args, RECIPE, settings)
    if is_main():
        draw(Path(args.out))


def draw(folder: Path) -> None:
    """The picture of the points on the disk, beside them."""
    from horosphere.plots import draw_disk
    from horosphere.runs import Run

    embedded = Run.open(folder, TASK).load()
    graph, config = embedded.task.open_data().graph, embedded.config
    title = f"{stem(embedded.task.data)}: {len(graph):,} nodes, {config.geometry}, {config.dim} dimensions"
    depth = graph.depth() if graph.directed else None
    picture = folder / PICTURE
    draw_disk(embedded.points, embedded.manifold, graph.edges, graph.labels, depth=depth, title=title, path=picture)
    rows = [["picture", str(picture)]]
    if curved := [f"{c:.3g}" for c in embedded.curvatures()]:
        rows.insert(0, ["curvature", ", ".join(curved) + " (learned)" * config.learn_curvature])
    table([], rows)
