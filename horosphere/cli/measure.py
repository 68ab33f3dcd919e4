"""`horosphere measure`: instruments on graphs, embeddings, language models and networks that cluster."""

import argparse
from pathlib import Path
from typing import Any

from horosphere.cli.common import command, of, output, table
from horosphere.errors import UserError
from horosphere.settings import Count, Seed

NODES = 1000  # that are sampled of large data


def add(commands: Any) -> None:
    summary = (
        "how tree-like a graph is, how good an embedding; how a language model keeps tokens; how HCFormer clusters"
    )
    measure = command(commands, "measure", run, summary, "horosphere measure delta tree.tsv")
    instruments = ("delta", "distortion", "reconstruction", "radius", "tokens", "clusters")
    measure.add_argument("what", choices=instruments, help="the instrument")
    measure.add_argument("path", help="a graph file (delta), or the folder of a run")
    measure.add_argument("--data", metavar="DATA", help="the graph, text or pictures in place of the run's own")
    measure.add_argument("--twin", metavar="RUN", help="another run to show beside it, for tokens")
    measure.add_argument("--graph", action="store_true", help="an undirected graph: cycles are fine")
    measure.add_argument("--unique", action="store_true", help="drop repeated edges instead of refusing them")
    measure.add_argument("--unweighted", action="store_true", help="drop the weights of edges instead of refusing them")
    nodes = f"how many nodes to sample on large data (default {NODES})"
    measure.add_argument("--nodes", metavar="N", type=of(Count), help=nodes)
    measure.add_argument("--seed", metavar="N", type=of(Seed), default=0, help="of the sample (default 0)")
    output(measure, None, "a page or a folder of pictures, for tokens")


def run(args: argparse.Namespace) -> None:
    sampling, graphs = ("delta", "distortion", "reconstruction"), ("delta",)
    owners = {"twin": ("tokens",), "out": ("tokens",), "data": ("tokens", "distortion", "reconstruction", "clusters")}
    owners |= {"nodes": sampling, "graph": graphs}
    owners |= dict.fromkeys(("unique", "unweighted"), (*graphs, "distortion", "reconstruction"))
    for option, instruments in owners.items():
        if getattr(args, option) and args.what not in instruments:
            raise UserError(f"--{option}: {args.what} has no such option; it is for {', '.join(instruments)}")
    if args.what == "tokens":
        return _tokens(args)
    if args.what == "clusters":
        return _clusters(args)
    if args.what == "delta" and not Path(args.path).is_dir():
        from horosphere.data import read_graph
        from horosphere.measure import delta

        graph = read_graph(args.path, directed=not args.graph, unique=args.unique, unweighted=args.unweighted)
        return table([], delta(graph, nodes=args.nodes or NODES, seed=args.seed).rows(len(graph)))
    table([], _embedding(args))


def _embedding(args: argparse.Namespace) -> list[list[str]]:
    from dataclasses import replace

    from horosphere.measure import delta, distortion, radius, reconstruction
    from horosphere.runs import Run

    run = Run.open(args.path, "nodes")
    embedded = run.load()
    points, manifold, sample = embedded.points, embedded.manifold, {"nodes": args.nodes or NODES, "seed": args.seed}
    if args.what == "delta":
        return delta(points, manifold, **sample).rows(len(points))
    if args.what == "radius":
        return radius(points, manifold).rows()
    dropped = {"unique": args.unique, "unweighted": args.unweighted}
    task = replace(embedded.task, data=args.data, **dropped) if args.data else embedded.task
    graph, relations = task.graph_of(run)
    if args.what == "distortion":
        return distortion(points, manifold, graph, **sample).rows()
    return reconstruction(points, manifold, relations, **sample).rows()


def _clusters(args: argparse.Namespace) -> None:
    from horosphere.measure.vision import by_stage
    from horosphere.runs import Run
    from horosphere.train.training import readings

    read = readings(Run.open(args.path, "pictures"), args.data)
    if not read:
        raise UserError(f"{args.path}: its network clusters nothing; measure clusters takes runs of HCFormer")
    stages = by_stage(read)
    last = max(max(of) for of in stages.values())
    rows = [
        [what.replace("_", " "), *(f"{of[stage]:.4g}" if stage in of else "" for stage in range(1, last + 1))]
        for what, of in stages.items()
    ]
    table(["mean of", *(f"stage {stage}" for stage in range(1, last + 1))], rows)


def _tokens(args: argparse.Namespace) -> None:
    from horosphere.extras import require
    from horosphere.plots.language_report import save_study
    from horosphere.plots.report import require_page_place
    from horosphere.tasks.language import token_study

    if args.out:
        require_page_place(args.out, args.overwrite)
        require("plots")
    folders = [Path(path) for path in (args.path, args.twin) if path]
    runs = {folder.name: folder for folder in folders}
    if len(runs) < len(folders):
        raise UserError(f"{args.path}, {args.twin}: folders of one name cannot be told apart in a picture; rename one")
    study = token_study(runs, args.data, args.seed, args.quiet)
    if args.out:
        save_study(study, args.out, args.overwrite)
    table([], study.rows())
