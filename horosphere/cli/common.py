"""What the commands share: arguments, settings, devices, tables."""

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, NoReturn

from horosphere import catalogue
from horosphere.described import Setting, from_words
from horosphere.errors import UserError
from horosphere.settings import Few, convert
from horosphere.tables import table_lines

JOBS = 2  # trainings at once on one machine


class Parser(argparse.ArgumentParser):
    later: Callable[[], str] | None = None  # what its help ends with, where every other command need not wait for it

    def format_help(self) -> str:
        if self.later is not None:
            self.epilog = self.later()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """One line, like every other mistake, instead of the whole usage. A command's `hint`: what a word may be."""
        if message.startswith("the following arguments are required") and (hint := self.get_default("hint")):
            message = f"{message}; {hint}"
        self.exit(2, f"horosphere: {message}; see {self.prog} --help\n")


class Formatter(argparse.HelpFormatter):
    """Names with hyphens stay whole."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap(" ".join(text.split()), width, break_on_hyphens=False)


def command(commands: Any, name: str, run: Any, summary: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=f"example: {example}",
        allow_abbrev=False,
        formatter_class=Formatter,
    )
    parser.set_defaults(run=run)
    # as well behind the command
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser


def settings_argument(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("settings", metavar="key=value", nargs="*", help=text)


def device_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, or auto (default)")


def run_options(parser: argparse.ArgumentParser, what: str, out: str) -> None:
    """Of what can be stopped and resumed, into a folder."""
    parser.add_argument("--resume", action="store_true", help=f"go on with a {what} that was stopped")
    again = f"the same; begin the {what} where there is none"
    parser.add_argument("--continue", dest="go_on", action="store_true", help=again)
    device_option(parser)
    output(parser, None, out)


def study_options(parser: argparse.ArgumentParser, seeds: int, out: str) -> None:
    """Of what trains many runs, each a job."""
    text = f"trainings of each (default {seeds})"
    parser.add_argument("--seeds", metavar="N", type=of(Few), default=seeds, help=text)
    executor_options(parser)
    device_option(parser)
    parser.set_defaults(kept=(".", "what is done is in {out}, and the same command goes on"))
    output(parser, None, out)


def executor_options(parser: argparse.ArgumentParser) -> None:
    places = "here (default), ray, slurm; settings as in slurm:partition=gpu,gpus=1 (docs/scale.md)"
    parser.add_argument("--executor", metavar="WHERE", default="here", help=places)
    parser.add_argument("--jobs", metavar="N", type=of(Few), help=f"at once (default {JOBS} here)")


def output(parser: argparse.ArgumentParser, default: str | None, text: str) -> None:
    place(parser, default, text)
    parser.add_argument("--quiet", action="store_true", help="no progress")


def place(parser: argparse.ArgumentParser, default: str | None, text: str) -> None:
    """Of a result that is there at once."""
    parser.add_argument("--out", metavar="PATH", default=default, type=named, help=text)
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")


# -- values -----------------------------------------------------------------------------------------------------------


def named(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it should be the name of a file or folder; this is empty")
    return text


def of(kind: Any) -> Callable[[str], Any]:
    """What turns the text behind an option into a value of a setting's type, such as `Count`."""

    def value(text: str) -> Any:
        try:
            return convert(text, kind, "")
        except UserError as error:
            raise argparse.ArgumentTypeError(str(error).removeprefix("=")) from None

    return value


def names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def stem(path: str) -> str:
    """What a result is called after its data. The name of a file may be no text; those of our folders are."""
    return re.sub("[\ud800-\udfff]", "_", Path(path.removesuffix(".gz")).stem)


def choose_device(name: str) -> str:
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        name = "cuda" if gpus else "cpu"
    here = ["cpu", *["cuda"] * bool(gpus), *(f"cuda:{i}" for i in range(gpus))]
    if name not in here:
        raise UserError(f"--device {name}: torch has only {', '.join(here)} here; choose from that")
    return name


def is_main() -> bool:
    return os.environ.get("RANK", "0") == "0"


def choose_executor(args: argparse.Namespace) -> Any:
    from horosphere.study.executors import executor

    return executor(args.executor, args.jobs or (JOBS if args.executor == "here" else None))


def settings_of(args: argparse.Namespace, known: Mapping[str, Setting]) -> list[str]:
    """key=value, also of what the parser left over: `--dim 5` is dim=5, `--graph` is graph=true."""
    return [*args.settings, *from_words(args.more, known, catalogue.owners)]


def refuse_data(what: str, said: Sequence[str]) -> None:
    """The data are named already, in front."""
    if other := [setting for setting in said if setting.partition("=")[0].strip() == "data"]:
        raise UserError(f"{other[0]}: the data are {what} already; leave one of them out")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print("\n".join(table_lines(heads, rows)))
