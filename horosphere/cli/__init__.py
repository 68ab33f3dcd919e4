"""The command line: reads the arguments, calls the library, prints for people."""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from horosphere import __version__
from horosphere.cli.common import (
    Parser,
    choose_device,
    command,
    device_option,
    is_main,
    names,
    output,
    positive,
    print_comparison,
    require_pictures,
    seed_number,
    stem,
    table,
)
from horosphere.cli.pictures import add_explain, compare_pictures, train_classifier, train_dense_model
from horosphere.cli.superposition import add_commands as add_superposition
from horosphere.errors import UserError

LANGUAGE = ("helm", "llama", "deepseek")  # what names of language models begin with
DENSE = ("semantic-fpn", "mask-rcnn")
BROKEN_PIPE = 141  # as a shell has it for a program that SIGPIPE ended
PATIENCE = 5.0  # seconds that other processes leave the main one to say what is wrong: torchrun ends all as soon as one has ended


def main(argv: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no δ still gets its table
    parser = _parser()
    args, more = parser.parse_known_args(argv)
    if "settings" in args:  # argparse takes them right behind the recipe only
        args.settings, more = (
            [*args.settings, *(word for word in more if _is_setting(word))],
            [word for word in more if not _is_setting(word)],
        )
    if more:
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    try:
        if "run" in args:
            args.run(args)
        else:
            parser.print_help()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has seen enough: head, less
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # or Python complains about it once more at its end
        return BROKEN_PIPE
    except (UserError, OSError) as error:
        if args.debug:
            raise
        _complain(str(error))
        return 2
    except KeyboardInterrupt:
        _complain(f"stopped; {_kept(args)}")
        return 130
    return 0


def _complain(text: str) -> None:
    """Once, however many processes torchrun has started."""
    if is_main():
        print(f"horosphere: {text}", file=sys.stderr)
    else:
        time.sleep(PATIENCE)


def _kept(args: argparse.Namespace) -> str:
    """What is on the disk after Ctrl-C. A command that keeps something says what shows it and what to tell: its default `kept`."""
    mark, text = getattr(args, "kept", ("", ""))
    out = Path(getattr(args, "out", None) or "nothing was chosen yet")
    return text.format(out=out) if text and out.is_dir() and (out / mark).exists() else "nothing was written"


# -- commands --------------------------------------------------------------------------------------------------------


def _embed(args: argparse.Namespace) -> None:
    from dataclasses import replace

    from horosphere.data import read_graph
    from horosphere.files import new_folder, require_new_folder
    from horosphere.geometry.manifold import Curved
    from horosphere.measure import depth_correlation, radius, reconstruction
    from horosphere.plots import draw_disk
    from horosphere.progress import progress
    from horosphere.train.embed import ABOUT, embed

    config = _config(args)
    config.check()
    out = Path(args.out or Path("runs") / f"{stem(args.data)}-{args.geometry.replace(':', '')}-{args.dim}")
    require_new_folder(out, args.overwrite, ABOUT)
    require_pictures()
    device = choose_device(args.device)
    graph = read_graph(args.data, directed=not args.graph, unique=args.unique)
    with progress("embedding", config.epochs, args.quiet) as update:
        result = embed(graph, config, device, update)
    relations = config.relations(graph)
    with progress("ranking", len(graph), args.quiet) as update:
        score = reconstruction(
            result.points,
            result.manifold,
            relations,
            device=device,
            nodes=args.rank_nodes,
            progress=lambda done, total: update(done, "nodes"),
        )
    spread = radius(result.points, result.manifold)
    metrics = {"mean_rank": score.mean_rank, "map": score.map, "radius_mean": spread.mean, "radius_max": spread.max}
    depth = graph.depth() if graph.directed else None
    if depth is not None:
        metrics["radius_depth_correlation"] = depth_correlation(result.points, result.manifold, depth)
    with new_folder(out, args.overwrite, ABOUT) as folder:
        replace(result, metrics=metrics).write(folder)
        title = f"{stem(args.data)}: {len(graph):,} nodes, {config.geometry}, {config.dim} dimensions"
        draw_disk(
            result.points,
            result.manifold,
            graph.edges,
            graph.labels,
            depth=depth,
            title=title,
            path=folder / "disk.png",
        )

    rows = [
        ["nodes", f"{len(graph):,}"],
        ["relations", f"{len(relations):,}"],
        ["geometry", f"{config.geometry}, {config.dim} dimensions"],
    ]
    if curved := [f"{-float(m.c):.3g}" for m in result.manifold.modules() if isinstance(m, Curved)]:
        rows.append(["curvature", ", ".join(curved) + (" (learned)" if config.learn_curvature else "")])
    rows += [["mean rank", f"{score.mean_rank:.2f}  (1 is perfect)"], ["mAP", f"{score.map:.3f}  (1 is perfect)"]]
    rows.append(["radius", f"mean {spread.mean:.2f}, largest {spread.max:.2f}"])
    if depth is not None:
        rows.append(["radius follows depth", f"{metrics['radius_depth_correlation']:.2f}  (rank correlation)"])
    rows += [
        ["training", f"{result.seconds:.1f} s, {result.seconds / config.epochs * 1e3:.0f} ms an epoch"],
        ["picture", f"{out / 'disk.png'}"],
    ]
    table([], [*rows, ["written", f"{out}/"]])


def _compare(args: argparse.Namespace) -> None:
    from horosphere.train.compare_language import FAMILIES
    from horosphere.train.recipe import recipe_names

    if args.data in FAMILIES:
        return _compare_language(args)
    if args.data in recipe_names() or args.data.endswith(".yaml"):
        return compare_pictures(args)
    if args.settings:
        raise UserError(
            f"{' '.join(args.settings)}: settings are for {', '.join(FAMILIES)}; {args.data} is taken for the file of a graph"
        )
    args.out = args.out or "report.html"
    _compare_graph(args)


def _compare_language(args: argparse.Namespace) -> None:
    from horosphere.train.compare_language import CURVES, compare_language

    args.out = args.out or str(Path("runs") / f"compare-{args.data}")
    require_pictures()
    device = choose_device(args.device)
    found = compare_language(
        args.data, args.settings, args.out, args.seeds, args.jobs, device, args.blimp, args.overwrite, args.quiet
    )
    print_comparison(found)
    print(f"{found.tokens:,} tokens each; curves: {Path(args.out) / CURVES}")


def _compare_graph(args: argparse.Namespace) -> None:
    from horosphere.data import read_graph
    from horosphere.files import require_new_file
    from horosphere.plots.tree_report import tree_report
    from horosphere.progress import progress
    from horosphere.train.compare import compare

    config = _config(args)
    require_new_file(args.out, args.overwrite)
    require_pictures()
    device = choose_device(args.device)
    graph = read_graph(args.data, directed=not args.graph, unique=args.unique)
    with progress("comparing", config.epochs * args.seeds * len(args.geometries), args.quiet) as update:
        comparison = compare(graph, config, args.geometries, args.seeds, device, update)
    tree_report(stem(args.data), graph, comparison).save(args.out)
    print_comparison(comparison)
    print(f"report: {args.out}")


def _measure(args: argparse.Namespace) -> None:
    from horosphere.data import read_graph
    from horosphere.measure import delta, distortion, radius, reconstruction
    from horosphere.train.embed import Embedded

    if args.what == "tokens":
        return _measure_tokens(args)
    if args.what == "delta" and not Path(args.path).is_dir():
        graph = read_graph(args.path, directed=not args.graph, unique=args.unique)
        _print_delta(delta(graph, nodes=args.nodes, seed=args.seed), len(graph))
        return
    run = Embedded.load(args.path)
    if args.what == "delta":
        _print_delta(delta(run.points, run.manifold, nodes=args.nodes, seed=args.seed), len(run.points))
    elif args.what == "radius":
        r = radius(run.points, run.manifold)
        table([], [[name, f"{getattr(r, name):.3f}"] for name in ("mean", "std", "min", "median", "max")])
    else:
        if not args.data:
            raise UserError(f"{args.what} compares the embedding with its graph: pass --data tree.tsv")
        graph = read_graph(args.data, directed=run.directed, unique=args.unique)
        if graph.labels != run.labels:
            raise UserError(f"{args.data} has other nodes than {args.path}: give the graph it was trained on")
        if args.what == "distortion":
            d = distortion(run.points, run.manifold, graph, nodes=args.nodes, seed=args.seed)
            rows = [["average", f"{d.average:.3f}  (0 is perfect)"], ["worst", f"{d.worst:.2f}  (1 is perfect)"]]
            table([], [*rows, ["mAP of edges", f"{d.map:.3f}  (1 is perfect)"], ["best scale", f"{d.scale:.3f}"]])
        else:
            s = reconstruction(run.points, run.manifold, run.config.relations(graph), nodes=args.nodes, seed=args.seed)
            rows = [["mean rank", f"{s.mean_rank:.2f}  (1 is perfect)"], ["mAP", f"{s.map:.3f}  (1 is perfect)"]]
            table([], [*rows, ["nodes ranked", f"{s.nodes:,}"]])


def _measure_tokens(args: argparse.Namespace) -> None:
    from horosphere.measure.language import measure_tokens
    from horosphere.plots.language_report import save_study
    from horosphere.plots.report import require_page_place

    if args.out:
        require_page_place(args.out, args.overwrite)
        require_pictures()
    found = measure_tokens([args.path, *([args.twin] if args.twin else [])], args.data, seed=args.seed)
    if args.out:
        save_study(found, args.out, args.overwrite)
    table([], found.rows())


def _print_delta(found: Any, size: int) -> None:
    how = "exact" if found.exact else f"largest of {found.quadruples:,} sampled quadruples: a lower bound"
    part = "" if found.share == 1 else f"  ({found.share:.0%} of them in the largest connected part, the one measured)"
    rows = [["nodes", f"{size:,}{part}"], ["δ", f"{found.delta:.3f}  ({how})"], ["diameter", f"{found.diameter:.3f}"]]
    table([], [*rows, ["2δ/diameter", f"{found.relative:.3f}  (0 is a tree, 1 the least tree-like)"]])


def _train(args: argparse.Namespace) -> None:
    from horosphere.train.recipe import read_recipe

    kind = str(read_recipe(args.recipe, args.settings).get("model"))
    train = _train_language if kind.startswith(LANGUAGE) else train_dense_model if kind in DENSE else train_classifier
    train(args)


def _train_language(args: argparse.Namespace) -> None:
    from horosphere.train.language import LanguageRecipe, train

    recipe = LanguageRecipe.read(args.recipe, args.settings)
    args.out = args.out or str(Path("runs") / stem(args.recipe))
    result = train(
        recipe,
        args.out,
        resume=args.resume,
        overwrite=args.overwrite,
        quiet=args.quiet,
        device=choose_device(args.device),
    )
    if is_main():
        about = json.loads(Path(args.out, "run.json").read_text(encoding="utf-8"))
        tokens, found = recipe.engine.steps * recipe.engine.batch * recipe.length, result.evaluation
        rows = [
            ["model", f"{recipe.model}, {about['recipe']['parameters']:,} parameters"],
            ["tokens", f"{tokens:,}"],
            ["perplexity", f"{found['perplexity']:.2f}"],
            ["bits/byte", f"{found['bits_per_byte']:.4f}"],
        ]
        rows.append(
            [
                "training",
                f"{result.seconds:.0f} s, {result.seconds / result.step * 1e3:.0f} ms a step with all evaluations",
            ]
        )
        table([], [*rows, ["written", f"{args.out}/"], ["next", f'horosphere generate {args.out} "Once upon"']])


def _eval(args: argparse.Namespace) -> None:
    from horosphere.evaluate import TASKS, TaskResult, evaluate_task, harness, read_task
    from horosphere.train.language import autocast, load

    for task in args.task:
        if task != "perplexity" and task not in TASKS:
            raise UserError(f"there is no task {task}: choose from perplexity, {', '.join(TASKS)}")
    if "perplexity" in args.task:
        return _eval_perplexity(args)
    if not args.data:
        raise UserError(
            f"--task {','.join(args.task)}: name the task's .jsonl file, or the folder that holds it, with --data"
        )
    device = choose_device(args.device)
    items = {task: read_task(task, args.data, args.limit) for task in args.task}
    model, tokenizer = load(args.folder)
    model.to(device)
    with autocast(device):
        if not args.harness:
            results = [
                evaluate_task(task, args.data, model, tokenizer, device, args.limit, quiet=args.quiet)
                for task in args.task
            ]
            return table(TaskResult.heads, [result.row() for result in results])
        found = harness(model, tokenizer, args.task, args.data, args.limit)
    rows = []
    for task, numbers in found.items():
        values = [
            f"{numbers[name]:.3f} ± {numbers[f'{name}_stderr']:.3f}" if name in numbers else ""
            for name in ("acc", "acc_norm")
        ]
        rows.append(
            [
                task,
                f"{len(items[task]):,}",
                *values,
                f"{sum(1 / len(item.choices) for item in items[task]) / len(items[task]):.3f}",
            ]
        )
    table(TaskResult.heads, rows)


def _eval_perplexity(args: argparse.Namespace) -> None:
    import torch

    from horosphere.progress import progress
    from horosphere.train.distributed import World
    from horosphere.train.language import autocast, load, run_corpus, text_tokens, validate

    if len(args.task) > 1 or args.harness:
        raise UserError(
            "--task perplexity stands alone, and without --harness: it reads a text, the other tasks read questions"
        )
    device = choose_device(args.device)
    model, tokenizer = load(args.folder)
    tokens = text_tokens(args.data, tokenizer) if args.data else run_corpus(args.folder, tokenizer).valid
    length = model.config.max_position_embeddings
    with (
        progress("perplexity", min(args.limit or len(tokens), -(-len(tokens) // length)), args.quiet) as update,
        autocast(device),
    ):
        found = validate(model.to(device), tokens, length, World(device=torch.device(device)), args.limit, update)
    assert found.bits_per_byte is not None
    error = "" if found.stderr is None else f" ± {found.stderr:.4f}"
    per_byte = "" if found.stderr is None else f" ± {found.stderr * found.bits_per_byte / found.loss:.4f}"
    rows = [
        ["text", args.data or "the run's own validation text"],
        ["predictions", f"{found.tokens:,} in windows of {length}"],
    ]
    rows += [["nats/token", f"{found.loss:.4f}{error}  (chance {torch.tensor(tokens.vocab_size).log():.4f})"]]
    rows += [
        ["perplexity", f"{found.per_token:.2f}  (chance {tokens.vocab_size:,})"],
        ["bits/byte", f"{found.bits_per_byte:.4f}{per_byte}"],
    ]
    table([], rows)


def _generate(args: argparse.Namespace) -> None:
    import torch

    from horosphere.train.language import autocast, load, write

    if not args.temperature > 0:
        raise UserError(
            f"--temperature {args.temperature:g}: it must be positive; for the likeliest text pass --greedy"
        )
    device = choose_device(args.device)
    model, tokenizer = load(args.folder)
    from transformers import TextStreamer  # after `load`, which says what to install where it is missing

    torch.manual_seed(args.seed)
    with autocast(device):
        streamer = TextStreamer(tokenizer, skip_special_tokens=True)
        write(
            model.to(device),
            tokenizer,
            args.prompt,
            args.tokens,
            args.temperature,
            args.top_k,
            args.greedy,
            streamer=streamer,
        )


def _demo(args: argparse.Namespace) -> None:
    from horosphere.demo import demo

    demo(args.out, args.overwrite, args.quiet)


# -- arguments -------------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    from horosphere.train.recipe import recipe_names

    parser = Parser(
        prog="horosphere",
        description="Deep learning in any geometry, and instruments that say whether curvature pays.",
        epilog="start with `horosphere demo`, then `horosphere compare tree.tsv`",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"horosphere {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    embed = command(
        commands, "embed", _embed, "embed a tree or graph", "horosphere embed tree.tsv --geometry lorentz --dim 10"
    )
    _data(embed)
    embed.add_argument(
        "--geometry",
        default="lorentz",
        help="euclidean, poincare, lorentz, product, or e.g. lorentz:6+euclidean:4 (default lorentz)",
    )
    _training(embed, dim=10)
    embed.add_argument("--rank-nodes", metavar="N", type=positive, help="evaluate this many nodes (default all)")
    output(embed, None, "folder for points, labels and picture (default runs/DATA-GEOMETRY-DIM)")

    examples = "horosphere compare tree.tsv --dim 5 --seeds 3, or horosphere compare helm-tiny data=books/ steps=1000 --seeds 2"
    compare = command(commands, "compare", _compare, "the same data in several geometries", examples)
    _data(compare, "; or helm-tiny, …: HELM and its flat twins on text; or a recipe of pictures")
    compare.set_defaults(kept=(".", "what is done is in {out}, and the same command goes on"))
    compare.add_argument(
        "settings", metavar="key=value", nargs="*", help="of the recipes, where trainings are compared"
    )
    everything = "euclidean,poincare,lorentz,product"
    compare.add_argument(
        "--geometries",
        metavar="A,B",
        type=names,
        default=names(everything),
        help=f"separated by commas (default {everything})",
    )
    compare.add_argument("--seeds", metavar="N", type=positive, default=3, help="runs of each geometry (default 3)")
    _training(compare, dim=5)
    compare.add_argument("--jobs", metavar="N", type=positive, default=1, help="trainings at once (default 1)")
    compare.add_argument("--blimp", metavar="FILE", help="judge language models on BLiMP's pairs too")
    output(compare, None, "the report (default report.html); for language models a folder (default runs/compare-NAME)")

    summary = "how tree-like is a graph, how good an embedding of it; where a language model keeps its tokens"
    measure = command(commands, "measure", _measure, summary, "horosphere measure delta tree.tsv")
    measure.add_argument(
        "what", choices=("delta", "distortion", "reconstruction", "radius", "tokens"), help="the instrument"
    )
    measure.add_argument(
        "path",
        help="a graph file (delta), a folder made by `horosphere embed`, or one made by `horosphere train` (tokens)",
    )
    measure.add_argument(
        "--data",
        metavar="DATA",
        help="the graph, for distortion and reconstruction; the text, for tokens (default: the run's)",
    )
    measure.add_argument("--twin", metavar="RUN", help="another run to show beside it, for tokens")
    _reading(measure)
    measure.add_argument(
        "--nodes",
        metavar="N",
        type=positive,
        default=1000,
        help="how many nodes to sample on large data (default 1000)",
    )
    measure.add_argument("--seed", metavar="N", type=seed_number, default=0, help="of the sample (default 0)")
    output(measure, None, "a page or a folder of pictures, for tokens")

    train = command(
        commands,
        "train",
        _train,
        "train a language model, or one of pictures",
        "horosphere train helm-d-tiny data=books/ geometry=lorentz steps=500 lr=1e-3",
    )
    train.set_defaults(kept=("run.json", "{out} is at its last checkpoint, and the same command with --resume goes on"))
    train.add_argument("recipe", help=f"{', '.join(recipe_names())}, or a .yaml file")
    train.add_argument(
        "settings",
        metavar="key=value",
        nargs="*",
        help="in place of the recipe's: data, steps, lr, num_hidden_layers, …",
    )
    train.add_argument("--resume", action="store_true", help="go on with a run that was stopped")
    device_option(train)
    output(train, None, "folder of the run (default runs/RECIPE)")

    evaluate = command(
        commands,
        "eval",
        _eval,
        "evaluate a language model",
        "horosphere eval runs/helm-d-tiny --task blimp --data blimp.jsonl.gz",
    )
    evaluate.add_argument("folder", metavar="RUN", help="a folder made by `horosphere train`")
    tasks = "perplexity, blimp, mmlu, arc_challenge, openbookqa, commonsense_qa, hellaswag, …; separated by commas (default perplexity)"
    evaluate.add_argument("--task", metavar="A,B", type=names, default=["perplexity"], help=tasks)
    evaluate.add_argument(
        "--data",
        metavar="PATH",
        help="text for perplexity (default the run's validation text); the file or folder of other tasks",
    )
    evaluate.add_argument(
        "--limit", metavar="N", type=positive, help="items of a task, windows of a text (default all)"
    )
    evaluate.add_argument("--harness", action="store_true", help="through lm-evaluation-harness")
    device_option(evaluate)
    evaluate.add_argument("--quiet", action="store_true", help="no progress bar")

    generate = command(
        commands,
        "generate",
        _generate,
        "let a language model write",
        'horosphere generate runs/helm-d-tiny "Once upon"',
    )
    generate.add_argument("folder", metavar="RUN", help="a folder made by `horosphere train`")
    generate.add_argument("prompt", help="how the text begins")
    generate.add_argument("--tokens", metavar="N", type=positive, default=100, help="at most (default 100)")
    generate.add_argument(
        "--temperature", metavar="X", type=float, default=0.8, help="below 1 likelier, above 1 wilder (default 0.8)"
    )
    generate.add_argument(
        "--top-k", metavar="N", type=positive, default=50, help="choose among so many tokens (default 50)"
    )
    generate.add_argument("--greedy", action="store_true", help="always the likeliest token")
    generate.add_argument("--seed", metavar="N", type=seed_number, default=0, help="of the choices (default 0)")
    device_option(generate)

    add_explain(commands)
    add_superposition(commands)

    demo = command(commands, "demo", _demo, "a first look: PyPI's classifiers in four geometries", "horosphere demo")
    output(demo, "report.html", "the report (default report.html)")
    return parser


def _data(parser: argparse.ArgumentParser, more: str = "") -> None:
    parser.add_argument(
        "data",
        help=f"edge list (child, parent) .tsv .csv .txt (.gz); .json nested; .gml .graphml .gexf .adjlist .edgelist{more}",
    )
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

    number("dim", positive, dim, "dimensions")
    number(
        "curvature",
        float,
        default.curvature,
        "c of the curved parts, whose curvature is -c (default: 3/(d-1)² in d dimensions)",
    )
    parser.add_argument("--learn-curvature", action="store_true", help="let training choose the curvature")
    on = "relate each node to all its ancestors, or to its parents only (default closure)"
    parser.add_argument("--on", choices=("closure", "edges"), default=default.on, help=on)
    number("epochs", positive, default.epochs, "passes over the data")
    number("batch", positive, default.batch, "nodes a step (default: an eighth of them, 32 to 2048)")
    number("negatives", positive, default.negatives, "random nodes a step pushes away")
    number("lr", float, default.lr, "learning rate at its peak, in curvature radii")
    number("seed", seed_number, default.seed, "of all randomness")
    device_option(parser)


def _config(args: argparse.Namespace) -> Any:
    from dataclasses import fields

    from horosphere.train.config import EmbedConfig

    return EmbedConfig(**{f.name: getattr(args, f.name) for f in fields(EmbedConfig) if hasattr(args, f.name)})


def _is_setting(word: str) -> bool:
    return "=" in word and not word.startswith("-")
