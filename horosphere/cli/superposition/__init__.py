"""`horosphere superposition …`: the toy model, fits, and the heads of real language models."""

from importlib import import_module
from typing import Any

from horosphere.cli.common import command

VERBS = ("sweep", "figures", "analyze", "fit", "predict", "widths")


def add(commands: Any) -> None:
    summary = "why loss falls with width: a toy model, fits, the heads of language models"
    example = "horosphere superposition sweep --grid small --seeds 2"
    parent = command(commands, "superposition", None, summary, example)
    parent.set_defaults(run=lambda args: parent.print_help())
    parts = parent.add_subparsers(title="commands", metavar="COMMAND")
    for verb in VERBS:
        import_module(f"horosphere.cli.superposition.{verb}").add(parts)
