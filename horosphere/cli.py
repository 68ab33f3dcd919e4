"""The command line: reads the arguments, calls the library, prints for people."""

import argparse
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

from horosphere import __version__
from horosphere.errors import UserError


def main(argv: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no δ still gets its table
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        if "run" in args:
            args.run(args)
        else:
            parser.print_help()
    except (UserError, OSError) as error:
        if args.debug:
            raise
        print(f"horosphere: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("horosphere: stopped; nothing was written", file=sys.stderr)
        return 130
    return 0


# -- commands --------------------------------------------------------------------------------------------------------


def _embed(args: argparse.Namespace) -> None:
    from dataclasses import replace

    from horosphere.data import read_graph
    from horosphere.files import new_folder, require_new_folder
    from horosphere.geometry.manifold import Curved
    from horosphere.measure import depth_correlation, radius, reconstruction
    from horosphere.plots import draw_disk
    from horosphere.train.embed import ABOUT, embed
    from horosphere.train.progress import progress

    config = _config(args)
    config.check()
    out = Path(args.out or Path("runs") / f"{_stem(args.data)}-{args.geometry.replace(':', '')}-{args.dim}")
    require_new_folder(out, args.overwrite, ABOUT)
    require_pictures()
    device = _device(args.device)
    graph = read_graph(args.data, directed=not args.graph, unique=args.unique)
    with progress("embedding", config.epochs, args.quiet) as update:
        result = embed(graph, config, device, update)
    relations = config.relations(graph)
    with progress("ranking", len(graph), args.quiet) as update:
        score = reconstruction(
            result.points, result.manifold, relations, device=device, nodes=args.rank_nodes, progress=lambda done, total: update(done, "nodes")
        )
    spread = radius(result.points, result.manifold)
    metrics = {"mean_rank": score.mean_rank, "map": score.map, "radius_mean": spread.mean, "radius_max": spread.max}
    depth = graph.depth() if graph.directed else None
    if depth is not None:
        metrics["radius_depth_correlation"] = depth_correlation(result.points, result.manifold, depth)
    with new_folder(out, args.overwrite, ABOUT) as folder:
        replace(result, metrics=metrics).write(folder)
        title = f"{_stem(args.data)}: {len(graph):,} nodes, {config.geometry}, {config.dim} dimensions"
        draw_disk(result.points, result.manifold, graph.edges, graph.labels, depth=depth, title=title, path=folder / "disk.png")

    rows = [["nodes", f"{len(graph):,}"], ["relations", f"{len(relations):,}"], ["geometry", f"{config.geometry}, {config.dim} dimensions"]]
    if curved := [f"{-float(m.c):.3g}" for m in result.manifold.modules() if isinstance(m, Curved)]:
        rows.append(["curvature", ", ".join(curved) + (" (learned)" if config.learn_curvature else "")])
    rows += [["mean rank", f"{score.mean_rank:.2f}  (1 is perfect)"], ["mAP", f"{score.map:.3f}  (1 is perfect)"]]
    rows.append(["radius", f"mean {spread.mean:.2f}, largest {spread.max:.2f}"])
    if depth is not None:
        rows.append(["radius follows depth", f"{metrics['radius_depth_correlation']:.2f}  (rank correlation)"])
    rows += [["training", f"{result.seconds:.1f} s, {result.seconds / config.epochs * 1e3:.0f} ms an epoch"], ["picture", f"{out / 'disk.png'}"]]
    _table([], [*rows, ["written", f"{out}/"]])


def _compare(args: argparse.Namespace) -> None:
    from horosphere.data import read_graph
    from horosphere.files import require_new_file
    from horosphere.plots.tree_report import tree_report
    from horosphere.train.compare import compare
    from horosphere.train.progress import progress

    config = _config(args)
    require_new_file(args.out, args.overwrite)
    require_pictures()
    device = _device(args.device)
    graph = read_graph(args.data, directed=not args.graph, unique=args.unique)
    with progress("comparing", config.epochs * args.seeds * len(args.geometries), args.quiet) as update:
        comparison = compare(graph, config, args.geometries, args.seeds, device, update)
    tree_report(_stem(args.data), graph, comparison).save(args.out)
    print_comparison(comparison)
    print(f"report: {args.out}")


def require_pictures() -> None:
    """Complain before the training, not after it, when matplotlib is missing."""
    from horosphere.plots.style import style

    with style():
        pass


def print_comparison(comparison: Any) -> None:
    heads, cells = comparison.cells()
    _table(heads, cells, best=0)
    print(comparison.verdict())


def _measure(args: argparse.Namespace) -> None:
    from horosphere.data import read_graph
    from horosphere.measure import delta, distortion, radius, reconstruction
    from horosphere.train.embed import Embedded

    if args.what == "delta" and not Path(args.path).is_dir():
        graph = read_graph(args.path, directed=not args.graph, unique=args.unique)
        _print_delta(delta(graph, nodes=args.nodes, seed=args.seed), len(graph))
        return
    run = Embedded.load(args.path)
    if args.what == "delta":
        _print_delta(delta(run.points, run.manifold, nodes=args.nodes, seed=args.seed), len(run.points))
    elif args.what == "radius":
        r = radius(run.points, run.manifold)
        _table([], [[name, f"{getattr(r, name):.3f}"] for name in ("mean", "std", "min", "median", "max")])
    else:
        if not args.data:
            raise UserError(f"{args.what} compares the embedding with its graph: pass --data tree.tsv")
        graph = read_graph(args.data, directed=run.directed, unique=args.unique)
        if graph.labels != run.labels:
            raise UserError(f"{args.data} has other nodes than {args.path}: give the graph it was trained on")
        if args.what == "distortion":
            d = distortion(run.points, run.manifold, graph, nodes=args.nodes, seed=args.seed)
            rows = [["average", f"{d.average:.3f}  (0 is perfect)"], ["worst", f"{d.worst:.2f}  (1 is perfect)"]]
            _table([], [*rows, ["mAP of edges", f"{d.map:.3f}  (1 is perfect)"], ["best scale", f"{d.scale:.3f}"]])
        else:
            s = reconstruction(run.points, run.manifold, run.config.relations(graph), nodes=args.nodes, seed=args.seed)
            rows = [["mean rank", f"{s.mean_rank:.2f}  (1 is perfect)"], ["mAP", f"{s.map:.3f}  (1 is perfect)"]]
            _table([], [*rows, ["nodes ranked", f"{s.nodes:,}"]])


def _print_delta(found: Any, size: int) -> None:
    how = "exact" if found.exact else f"largest of {found.quadruples:,} sampled quadruples: a lower bound"
    part = "" if found.share == 1 else f"  ({found.share:.0%} of them in the largest connected part, the one measured)"
    rows = [["nodes", f"{size:,}{part}"], ["δ", f"{found.delta:.3f}  ({how})"], ["diameter", f"{found.diameter:.3f}"]]
    _table([], [*rows, ["2δ/diameter", f"{found.relative:.3f}  (0 is a tree, 1 the least tree-like)"]])


def _demo(args: argparse.Namespace) -> None:
    from horosphere.demo import demo

    demo(args.out, args.overwrite, args.quiet)


# -- arguments -------------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, like every other mistake, instead of the whole usage."""
        self.exit(2, f"horosphere: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="horosphere",
        description="Deep learning in any geometry, and instruments that say whether curvature pays.",
        epilog="start with `horosphere demo`, then `horosphere compare tree.tsv`",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"horosphere {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    embed = _command(commands, "embed", _embed, "embed a tree or graph", "horosphere embed tree.tsv --geometry lorentz --dim 10")
    _data(embed)
    embed.add_argument("--geometry", default="lorentz", help="euclidean, poincare, lorentz, product, or e.g. lorentz:6+euclidean:4 (default lorentz)")
    _training(embed, dim=10)
    embed.add_argument("--rank-nodes", metavar="N", type=_positive, help="evaluate this many nodes (default all)")
    _output(embed, None, "folder for points, labels and picture (default runs/DATA-GEOMETRY-DIM)")

    compare = _command(commands, "compare", _compare, "the same data in several geometries", "horosphere compare tree.tsv --dim 5 --seeds 3")
    _data(compare)
    everything = "euclidean,poincare,lorentz,product"
    compare.add_argument("--geometries", metavar="A,B", type=_names, default=_names(everything), help=f"separated by commas (default {everything})")
    compare.add_argument("--seeds", metavar="N", type=_positive, default=3, help="runs of each geometry (default 3)")
    _training(compare, dim=5)
    _output(compare, "report.html", "the report (default report.html)")

    summary = "how tree-like is a graph, and how good is an embedding of it"
    measure = _command(commands, "measure", _measure, summary, "horosphere measure delta tree.tsv")
    measure.add_argument("what", choices=("delta", "distortion", "reconstruction", "radius"), help="the instrument")
    measure.add_argument("path", help="a graph file (delta) or a folder made by `horosphere embed`")
    measure.add_argument("--data", metavar="GRAPH", help="the graph, for distortion and reconstruction")
    _reading(measure)
    measure.add_argument("--nodes", metavar="N", type=_positive, default=1000, help="how many nodes to sample on large data (default 1000)")
    measure.add_argument("--seed", metavar="N", type=_seed, default=0, help="of the sample (default 0)")

    demo = _command(commands, "demo", _demo, "a first look: PyPI's classifiers in four geometries", "horosphere demo")
    _output(demo, "report.html", "the report (default report.html)")
    return parser


def _command(commands: Any, name: str, run: Any, summary: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=summary, epilog=f"example: {example}", allow_abbrev=False)
    parser.set_defaults(run=run)
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)  # as well behind the command
    return parser


def _data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="edge list (child, parent) .tsv .csv .txt (.gz); .json nested; .gml .graphml .gexf .adjlist .edgelist")
    _reading(parser)


def _reading(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--graph", action="store_true", help="an undirected graph: cycles are fine")
    parser.add_argument("--unique", action="store_true", help="drop repeated edges instead of refusing them")


def _training(parser: argparse.ArgumentParser, dim: int) -> None:
    from horosphere.train.config import EmbedConfig

    default = EmbedConfig()

    def number(name: str, kind: Any, value: float | None, text: str) -> None:
        shown = text if value is None else f"{text} (default {value:g})"
        parser.add_argument(f"--{name}", metavar="X" if kind is float else "N", type=kind, default=value, help=shown)

    number("dim", _positive, dim, "dimensions")
    number("curvature", float, default.curvature, "c of the curved parts, whose curvature is -c (default: 3/(d-1)² in d dimensions)")
    parser.add_argument("--learn-curvature", action="store_true", help="let training choose the curvature")
    on = "relate each node to all its ancestors, or to its parents only (default closure)"
    parser.add_argument("--on", choices=("closure", "edges"), default=default.on, help=on)
    number("epochs", _positive, default.epochs, "passes over the data")
    number("batch", _positive, default.batch, "nodes a step (default: an eighth of them, 32 to 2048)")
    number("negatives", _positive, default.negatives, "random nodes a step pushes away")
    number("lr", float, default.lr, "learning rate at its peak, in curvature radii")
    number("seed", _seed, default.seed, "of all randomness")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, or auto (default)")


def _output(parser: argparse.ArgumentParser, default: str | None, text: str) -> None:
    parser.add_argument("--out", metavar="PATH", default=default, help=text)
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} should be a whole number of at least 1")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"{text} should be a whole number from 0 to {2**32 - 1}")
    return int(text)


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _config(args: argparse.Namespace) -> Any:
    from dataclasses import fields

    from horosphere.train.config import EmbedConfig

    return EmbedConfig(**{f.name: getattr(args, f.name) for f in fields(EmbedConfig) if hasattr(args, f.name)})


def _device(name: str) -> str:
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return "cuda" if gpus else "cpu"
    here = ["cpu", *["cuda"] * bool(gpus), *(f"cuda:{i}" for i in range(gpus))]
    if name not in here:
        raise UserError(f"--device {name}: torch has only {', '.join(here)} here; choose from that")
    return name


def _stem(path: str) -> str:
    return Path(path.removesuffix(".gz")).stem


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], best: int | None = None) -> None:
    """Columns just wide enough, numbers to the right, in plain text: fits a terminal and a log."""
    lines = [list(heads), *map(list, rows)] if heads else [list(r) for r in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for n, line in enumerate(lines):
        cells = [c.ljust(w) if i == 0 or not heads else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))]
        print(("  ".join(cells) + ("   <- best" if best is not None and n == best + bool(heads) else "")).rstrip())
