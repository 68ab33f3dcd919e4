"""`horosphere embed`: the recipe `embedding` on a tree or graph, with a picture."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from horosphere import catalogue
from horosphere.cli import common
from horosphere.cli.train import KEPT, train_and_tell
from horosphere.described import help_lines
from horosphere.errors import UserError, one_line
from horosphere.recipes import read_recipe
from horosphere.settings import Positive

RECIPE, DISTANCES = "embedding", "distances"
FORMATS = "edge list (child, parent) .tsv .csv .txt (.gz); .json nested; .gml .graphml .gexf .adjlist .edgelist"


def add(commands: Any) -> None:
    example = "horosphere embed tree.tsv --geometry lorentz --dim 10"
    embed = common.command(commands, "embed", run, "embed a tree or graph", example)
    recipe = read_recipe(RECIPE)
    known = {name: s for name, s in catalogue.known_settings(recipe).items() if name not in ("model", "data")}
    embed.formatter_class = argparse.RawDescriptionHelpFormatter
    others = f"These values are of relations. Of objective=distortion, `horosphere list {DISTANCES}` shows them."
    embed.epilog = "\n".join([*help_lines(known, recipe), "", others, f"example: {example}"])
    embed.set_defaults(kept=KEPT)
    embed.add_argument("data", help=FORMATS)
    text = "auto: search products of geometries for the least distortion (with --objective distortion)"
    embed.add_argument("--signature", choices=["auto"], help=text)
    embed.add_argument("--exact", action="store_true", help="place a tree by Sarkar's construction, without a training")
    length = "of --exact, in radii of curvature (default: distances at most 1.1 times shorter than paths)"
    embed.add_argument("--edge-length", metavar="L", type=common.of(Positive), help=length)
    common.settings_argument(embed, "as below")
    common.run_options(embed, "run", "folder for points, labels and picture (default runs/DATA-GEOMETRY-DIM)")


def recipe_of(said: Sequence[str]) -> str:
    """The recipe of these settings: distances are fitted at another pace."""
    return DISTANCES if "objective=distortion" in ("".join(setting.split()) for setting in said) else RECIPE


def run(args: argparse.Namespace) -> None:
    from horosphere.extras import require
    from horosphere.train.recipe import Recipe

    known = catalogue.known_settings(read_recipe(RECIPE))
    said = common.settings_of(args, known)
    recipe = recipe_of(said)
    common.refuse_data(args.data, said)
    settings = [f"data={args.data}", *said]
    require("plots")
    if args.exact and args.signature:
        raise UserError("--exact places a tree, and --signature searches for a geometry: leave one of them out")
    if args.exact:
        return run_exact(args, said)
    if args.edge_length is not None:
        raise UserError("--edge-length is of exact trees: add --exact, or leave it out")
    if args.signature:
        return run_search(args, recipe, settings)
    config = Recipe.read(recipe, settings).task.configuration()
    name = f"{common.stem(args.data)}-{config.geometry.replace(':', '')}-{config.dim}"
    args.out = args.out or str(Path("runs") / name)
    train_and_tell(args, recipe, settings, more=draw)


def run_exact(args: argparse.Namespace, said: list[str]) -> None:
    from horosphere.tasks.exact import PLACING, place_exactly
    from horosphere.train.engine import Place
    from horosphere.train.recipe import Recipe

    if args.resume or args.go_on:
        raise UserError("--exact trains nothing, so nothing goes on: leave --resume and --continue out")
    if idle := [setting for setting in said if setting.partition("=")[0].strip() not in PLACING]:
        raise UserError(f"--exact trains nothing, and {idle[0]} is of trainings: leave it out")
    recipe = Recipe.read(RECIPE, ["on=edges", "dim=2", f"data={args.data}", *said])
    folder = Path(args.out or Path("runs") / f"{common.stem(args.data)}-exact-{recipe.task.configuration().dim}")
    rows = place_exactly(recipe, Place(folder, overwrite=args.overwrite, quiet=args.quiet), args.edge_length)
    then = recipe.task.then.format(run=folder)
    common.table([], [*rows, *draw(folder), ["written", f"{folder}/"], ["next", then]])


def run_search(args: argparse.Namespace, recipe: str, settings: list[str]) -> None:
    from horosphere.runs import Run
    from horosphere.study.executors import Here
    from horosphere.study.signature import search
    from horosphere.train.recipe import Recipe

    if args.resume or args.go_on:
        raise UserError("--resume: a search that was stopped goes on with the same command; leave it out")
    if recipe != DISTANCES:
        raise UserError("--signature searches for the least distortion: add --objective distortion")
    dim = Recipe.read(recipe, settings).task.configuration().dim
    folder = Path(args.out or Path("runs") / f"{common.stem(args.data)}-auto-{dim}")
    args.out, args.kept = str(folder), searched(folder)
    device = common.choose_device(args.device)
    found = search(settings, folder, Here(common.JOBS), device, args.overwrite, args.quiet)
    print(*found.lines(), "", sep="\n")
    task = Run.open(folder).load().task
    rows = [
        *task.summary(Run.open(folder)),
        *draw(folder),
        ["searched", f"{folder}-search/"],
        ["written", f"{folder}/"],
    ]
    common.table([], [*rows, ["next", task.then.format(run=folder)]])


def searched(folder: Path) -> tuple[str, str]:
    """What Ctrl-C leaves of a search."""
    place = folder.with_name(f"{folder.name}-search")
    return str(place.absolute()), f"what is done is in {place}, and the same command goes on"


def draw(folder: Path) -> list[list[str]]:
    """The picture of the points, beside them; rows for people."""
    from horosphere.plots import chart_of, draw_points
    from horosphere.runs import Run

    embedded = Run.open(folder, "nodes").load()
    graph, config = embedded.graph or embedded.task.open_data().graph, embedded.config
    title = f"{common.stem(embedded.task.data)}: {len(graph):,} nodes, {config.geometry}, {config.dim} dimensions"
    depth, points = graph.depth() if graph.directed else None, (embedded.points, embedded.manifold)
    picture = folder / f"{chart_of(embedded.manifold).name}.png"
    said = one_line(title)  # the name of a file may be no text
    draw_points(*points, graph.edges, graph.labels, depth=depth, title=said, path=picture)
    curved = ", ".join(f"{c:.3g}" for c in embedded.curvatures())
    curvature = [["curvature", curved + " (learned)" * config.learn_curvature]] if curved else []
    return [*curvature, ["picture", str(picture)]]
