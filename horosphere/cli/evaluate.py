"""`horosphere eval`: the scores of a run, of a language model on questions and texts, of towers on benchmarks."""

import argparse
from pathlib import Path
from typing import Any

from horosphere.cli.benchmarks import BENCHMARKS
from horosphere.cli.common import choose_device, command, names, of, study_options, table
from horosphere.errors import UserError, choices
from horosphere.runs import RUN, Run
from horosphere.settings import Count

LANGUAGE = "language"


def add(commands: Any) -> None:
    example = "horosphere eval runs/helm-d-tiny --task blimp --data blimp.jsonl.gz"
    evaluate = command(commands, "eval", run, "judge a model on data held out, or on other data", example)
    known = "; ".join(f"{name}: {summary}" for name, (_, summary) in BENCHMARKS.items())
    evaluate.add_argument("folder", metavar="RUN", help=f"a folder made by `horosphere train`, or a benchmark. {known}")
    towers = "of a benchmark: a run of image_text, a folder of a CLIP, hf:NAME, open_clip:NAME:WEIGHTS, text:minilm"
    evaluate.add_argument("towers", metavar="TOWERS", nargs="?", help=towers)
    evaluate.add_argument("settings", metavar="key=value", nargs="*", help="of a benchmark")
    data = "in place of what was held out: pictures, or a text; the file or folder of --task"
    evaluate.add_argument("--data", metavar="PATH", help=data)
    tasks = "of a language model: perplexity (default), blimp, mmlu, arc_challenge, openbookqa, …; separated by commas"
    evaluate.add_argument("--task", metavar="A,B", type=names, help=tasks)
    limit = "items of a task, windows of a text (default all)"
    evaluate.add_argument("--limit", metavar="N", type=of(Count), help=limit)
    evaluate.add_argument("--harness", action="store_true", help="through lm-evaluation-harness")
    evaluate.add_argument(
        "--shots", metavar="A,B", type=names, help="of fewshot (default 1,2,4,8,16), base-to-novel (16)"
    )
    methods = "of fewshot and base-to-novel, as in linear-probe,lathadapter (default all)"
    evaluate.add_argument("--methods", metavar="A,B", type=names, help=methods)
    study_options(evaluate, 3, "of fewshot and base-to-novel: folder of the runs (default runs/BENCHMARK)")


def run(args: argparse.Namespace) -> None:
    if args.folder in BENCHMARKS:
        return _benchmark(args)
    if args.more or args.towers:
        raise UserError(f"eval {args.folder}: nothing goes behind a run; {choices(args.folder, BENCHMARKS)}")
    if foreign := [name for name in ("shots", "methods", "jobs", "out", "overwrite") if getattr(args, name)]:
        raise UserError(f"--{foreign[0]} is for the benchmarks fewshot and base-to-novel, not for a run; leave it out")
    # a folder of Hugging Face's making is no run
    kind = Run.open(args.folder).about.task if (Path(args.folder) / RUN).is_file() else LANGUAGE
    asked = [name for name in ("task", "limit", "harness") if getattr(args, name)]
    if kind != LANGUAGE and asked:
        raise UserError(f"--{asked[0]} is for language models; {args.folder} is a run of the task {kind}")
    if kind != LANGUAGE:
        return _scores(args)
    if (args.task or ["perplexity"]) == ["perplexity"] and not args.harness:
        return _perplexity(args)
    _questions(args)


def _benchmark(args: argparse.Namespace) -> None:
    args.what = args.folder
    if args.towers is None or ("=" in args.towers and not Path(args.towers).exists()):
        raise UserError(f"eval {args.what}: whose? Name towers, as in `horosphere eval {args.what} runs/two-towers`")
    BENCHMARKS[args.what][0](args)


def _scores(args: argparse.Namespace) -> None:
    from horosphere.catalogue import resolve, tasks
    from horosphere.train.training import evaluate

    run = Run.open(args.folder)
    scores = evaluate(run, args.data, choose_device(args.device), args.quiet)
    metrics = [metric for metric in resolve(tasks()[run.about.task].build).metrics if metric.name in scores]
    table([], [[metric.title, metric.show(scores[metric.name])] for metric in metrics])


def _questions(args: argparse.Namespace) -> None:
    from horosphere.evaluate import TASKS, TaskResult, evaluate_task, harness, read_task
    from horosphere.evaluate.harness import harness_row
    from horosphere.models.writing import autocast
    from horosphere.tasks.language import load

    for task in args.task or ["perplexity"]:
        if task == "perplexity":
            why = "it reads a text, the other tasks read questions"
            raise UserError(f"--task perplexity stands alone, and without --harness: {why}")
        if task not in TASKS:
            raise UserError(f"there is no task {task}: {choices(task, ['perplexity', *TASKS])}")
    if not args.data:
        where = "name the task's .jsonl file, or the folder that holds it, with --data"
        raise UserError(f"--task {','.join(args.task)}: {where}")
    device = choose_device(args.device)
    items = {task: read_task(task, args.data, args.limit) for task in args.task}
    model, tokenizer = load(args.folder)
    model.to(device)
    with autocast(device):
        if args.harness:
            scores = harness(model, tokenizer, args.task, args.data, args.limit)
            rows = [harness_row(task, scores[task], items[task]) for task in args.task]
        else:
            how: Any = {"device": device, "limit": args.limit, "quiet": args.quiet}
            rows = [evaluate_task(task, args.data, model, tokenizer, **how).row() for task in args.task]
    table(TaskResult.heads, rows)


def _perplexity(args: argparse.Namespace) -> None:
    import torch

    from horosphere.data.tokens import text_tokens
    from horosphere.evaluate.text import validate
    from horosphere.models.writing import autocast
    from horosphere.progress import progress
    from horosphere.tasks.language import load, run_corpus
    from horosphere.train.distributed import World

    device = choose_device(args.device)
    model, tokenizer = load(args.folder)
    tokens = text_tokens(args.data, tokenizer) if args.data else run_corpus(args.folder, tokenizer).valid
    length = model.config.max_position_embeddings
    windows = min(args.limit or len(tokens), -(-len(tokens) // length))
    with progress("perplexity", windows, args.quiet) as update, autocast(device):
        cost = validate(model.to(device), tokens, length, World(device=torch.device(device)), args.limit, update)
    text = args.data or "the run's own validation text"
    table([], [["text", text], *cost.rows(length, tokens.vocab_size)])
