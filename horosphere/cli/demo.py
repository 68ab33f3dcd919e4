"""`horosphere demo`: a first look."""

import argparse
from typing import Any

from horosphere.cli.common import command, output


def add(commands: Any) -> None:
    summary = "a first look: a tree in four geometries, a hyperbolic language model beside its twin"
    demo = command(commands, "demo", run, summary, "horosphere demo")
    output(demo, "report.html", "the report (default report.html); explorer.html lies beside it, the runs in runs/demo")


def run(args: argparse.Namespace) -> None:
    from horosphere.demo import demo

    demo(args.out, args.overwrite, args.quiet)
