"""`horosphere predict`: what the model of a run says to inputs."""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from horosphere.cli.common import command, of, table
from horosphere.errors import UserError
from horosphere.settings import Count


def add(commands: Any) -> None:
    summary = "what a trained model says to inputs: texts, users, words, rows of numbers, pictures"
    example = 'horosphere predict runs/textcnn "a fine film" "a bore"'
    predict = command(commands, "predict", run, summary, example)
    predict._negative_number_matcher = re.compile(r"-\.?\d")  # -1,2 is a row of numbers, and no option
    predict.add_argument("folder", metavar="RUN", help="a folder made by `horosphere train`")
    what = "a text, a user, a word, numbers as in 5.1,3.5, the file of a picture: what the run has learned from"
    predict.add_argument("inputs", metavar="INPUT", nargs="*", help=what)
    many = "a file of inputs, one a line (rows of a table with their header), or a folder of files"
    predict.add_argument("--data", metavar="FILE", help=many)
    best = "answers to each input (default: 1 of classes, 10 of items, words and objects, 5 of pictures and [MASK])"
    predict.add_argument("--k", metavar="N", type=of(Count), help=best)
    predict.add_argument("--json", action="store_true", help="for other programs")


def run(args: argparse.Namespace) -> None:
    from horosphere import catalogue
    from horosphere.runs import Run

    run = Run.open(args.folder)
    task = catalogue.resolve(catalogue.task(run.about.task).build)
    task.require_inputs(run)
    answers = task.predict(run, [*args.inputs, *(inputs_in(args.data) if args.data else [])], args.k)
    if args.json:
        print(json.dumps(answers.as_json(), ensure_ascii=False, indent=1))
    else:
        table(answers.heads(), answers.rows())


def inputs_in(place: str) -> list[str]:
    """The lines of a file that have something in them, or the files of a folder."""
    from horosphere.foreign import Unreadable, read_lines

    path = Path(place)
    if path.is_dir():
        return [str(file) for file in sorted(path.iterdir()) if file.is_file()]
    if not path.is_file():
        raise UserError(f"--data {place}: no such file; check the path")
    try:
        return [line for line in read_lines(path) if line.strip()]
    except Unreadable as error:
        raise UserError(f"--data {place}: {error}; give a text in UTF-8") from error
