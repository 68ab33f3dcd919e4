"""What the commands share: arguments, settings, devices, tables."""

import argparse
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from horosphere import catalogue
from horosphere.errors import UserError, choices
from horosphere.settings import Setting, describe
from horosphere.tables import table_lines

HELP_WIDTH = 100
ENGINE = "horosphere.train.config:EngineConfig"


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, like every other mistake, instead of the whole usage."""
        self.exit(2, f"horosphere: {message}; see {self.prog} --help\n")


def command(commands: Any, name: str, run: Any, summary: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=summary, epilog=f"example: {example}", allow_abbrev=False
    )
    parser.set_defaults(run=run)
    # as well behind the command
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser


def settings_argument(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("settings", metavar="key=value", nargs="*", help=text)


def device_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, or auto (default)")


def resume_options(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--resume", action="store_true", help=f"go on with a {what} that was stopped")
    parser.add_argument(
        "--continue", dest="go_on", action="store_true", help=f"the same; begin the {what} where there is none"
    )


def executor_options(parser: argparse.ArgumentParser, jobs: int) -> None:
    places = "here (default), ray, slurm; settings as in slurm:partition=gpu,gpus=1 (docs/scale.md)"
    parser.add_argument("--executor", metavar="WHERE", default="here", help=places)
    parser.add_argument("--jobs", metavar="N", type=positive, help=f"trainings at once (default {jobs} here)")


def output(parser: argparse.ArgumentParser, default: str | None, text: str) -> None:
    parser.add_argument("--out", metavar="PATH", default=default, help=text)
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")
    parser.add_argument("--quiet", action="store_true", help="no progress")


# -- values -----------------------------------------------------------------------------------------------------------


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} should be a whole number of at least 1")
    return int(text)


def seed_number(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"{text} should be a whole number from 0 to {2**32 - 1}")
    return int(text)


def names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def stem(path: str) -> str:
    return Path(path.removesuffix(".gz")).stem


def choose_device(name: str) -> str:
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if name == "auto":
        name = "cuda" if gpus else "cpu"
    here = ["cpu", *["cuda"] * bool(gpus), *(f"cuda:{i}" for i in range(gpus))]
    if name not in here:
        raise UserError(f"--device {name}: torch has only {', '.join(here)} here; choose from that")
    if name != "cpu" and processes > gpus:
        how = f"start one for each with --nproc-per-node {gpus}, or pass --device cpu"
        raise UserError(f"{processes} processes for {gpus} GPUs: {how}")
    return name


def is_main() -> bool:
    return os.environ.get("RANK", "0") == "0"


# -- settings ---------------------------------------------------------------------------------------------------------


def known_settings(task: str, network: str = "") -> dict[str, Setting]:
    """The settings of a task with a network, and of the engine, read from their sources: nothing heavy is imported."""
    entry = catalogue.models().get(f"{network.partition(':')[0]}:" if ":" in network else network)
    classes = [catalogue.task(task).build, ENGINE, *([entry.settings] if entry and entry.settings else [])]
    return {setting.name: setting for reference in classes for setting in describe(reference)}


def take_settings(
    args: argparse.Namespace, known: Mapping[str, Setting], options: Mapping[str, Setting] | None = None
) -> tuple[list[str], dict[str, str]]:
    """What the parser left over, as `key=value` settings and as values of options: `--dim 5` is dim=5, `--graph` is graph=true."""
    settings, values, words = list(args.settings), {}, list(args.more)
    while words:
        word = words.pop(0)
        key, equals, value = word.removeprefix("--").partition("=")
        name = key.replace("-", "_")
        if not word.startswith("--"):
            if not equals:
                raise UserError(f"{word}: what is this for? A setting is written key=value or --key value")
            settings.append(word)
            continue
        setting = {**known, **(options or {})}.get(name)
        if setting is None:
            raise UserError(_unknown(key, name, {**(options or {}), **known}))
        if not equals and setting.kind == "bool" and (not words or words[0] not in ("true", "false")):
            value = "true"
        elif not equals:
            if not words:
                raise UserError(f"--{key} has no value; write --{key} {setting.default or 'VALUE'}")
            value = words.pop(0)
        if options and name in options:
            values[name] = value
        else:
            settings.append(f"{name}={value}")
    return settings, values


def _unknown(option: str, name: str, known: Mapping[str, Setting]) -> str:
    tasks = [task for task in catalogue.tasks().values() if task.options]
    owners = [task.name for task in tasks if name in {setting.name for setting in describe(task.options)}]
    if owners:
        return f"--{option}: it is for {' and '.join(owners)}; choose from {', '.join(known)}"
    return f"--{option}: there is no such option here; {choices(name, known)}"


def settings_help(known: Mapping[str, Setting], given: Mapping[str, Any]) -> str:
    """Lines for the end of a command's help: what can be set, and the value where nobody sets it."""
    width = max(map(len, known)) + 4
    lines = ["settings, as --key value or key=value:"]
    for setting in known.values():
        option = f"--{setting.name.replace('_', '-')}"
        text = f"{setting.help} ({setting.value(given)})" if setting.value(given) else setting.help
        indent = " " * (width + 4)
        lines += textwrap.wrap(text, HELP_WIDTH, initial_indent=f"  {option:{width}}  ", subsequent_indent=indent)
    return "\n".join(lines)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print("\n".join(table_lines(heads, rows)))
