"""`horosphere image …`: what can be done with a photograph without learning, and what runs that learned see in it."""

from importlib import import_module
from typing import Any

from horosphere.cli.common import command

# the file of each verb, in the order of the help
VERBS = ("filter", "lines", "circles", "corners", "match", "flow", "track", "camera", "proposals", "find", "style")


def add(commands: Any) -> None:
    summary = "photographs: filters, lines, corners, matches, flow, tracks, cameras, style"
    example = "horosphere image lines photo.jpg --out lines.png"
    parent = command(commands, "image", None, summary, example)
    parent.set_defaults(run=lambda args: parent.print_help())
    parts = parent.add_subparsers(title="commands", metavar="COMMAND")
    for verb in VERBS:
        import_module(f"horosphere.cli.image.{verb}").add(parts)
