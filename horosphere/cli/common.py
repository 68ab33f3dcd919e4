"""What the commands share: arguments, devices, tables."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from horosphere.errors import UserError


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, like every other mistake, instead of the whole usage."""
        self.exit(2, f"horosphere: {message}; see {self.prog} --help\n")


def command(commands: Any, name: str, run: Any, summary: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=summary, epilog=f"example: {example}", allow_abbrev=False
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )  # as well behind the command
    return parser


def device_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, or auto (default)")


def output(parser: argparse.ArgumentParser, default: str | None, text: str) -> None:
    parser.add_argument("--out", metavar="PATH", default=default, help=text)
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


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


def choose_device(name: str) -> str:
    import torch

    gpus, processes = (
        torch.cuda.device_count() if torch.cuda.is_available() else 0,
        int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
    )
    if name == "auto":
        name = "cuda" if gpus else "cpu"
    here = ["cpu", *["cuda"] * bool(gpus), *(f"cuda:{i}" for i in range(gpus))]
    if name not in here:
        raise UserError(f"--device {name}: torch has only {', '.join(here)} here; choose from that")
    if name != "cpu" and processes > gpus:
        raise UserError(
            f"{processes} processes for {gpus} GPUs: start one for each with --nproc-per-node {gpus}, or pass --device cpu"
        )
    return name


def stem(path: str) -> str:
    return Path(path.removesuffix(".gz")).stem


def require_pictures() -> None:
    """Complain before the training, not after it, when matplotlib is missing."""
    from horosphere.plots.style import style

    with style():
        pass


def is_main() -> bool:
    return os.environ.get("RANK", "0") == "0"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], best: int | None = None) -> None:
    """Columns just wide enough, numbers to the right, in plain text: fits a terminal and a log."""
    lines = [list(heads), *map(list, rows)] if heads else [list(r) for r in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for n, line in enumerate(lines):
        cells = [
            c.ljust(w) if i == 0 or not heads else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))
        ]
        print(("  ".join(cells) + ("   <- best" if best is not None and n == best + bool(heads) else "")).rstrip())


def print_comparison(comparison: Any) -> None:
    heads, cells = comparison.cells()
    table(heads, cells, best=0)
    print(comparison.verdict())
