"""`horosphere adapt clip`: a part of towers that are there learns; what is gained, what is forgotten."""

import argparse
from pathlib import Path
from typing import Any

from horosphere import catalogue
from horosphere.cli import common
from horosphere.cli.train import KEPT, Rows, train_and_tell
from horosphere.recipes import read_recipe

METHODS = {
    "hyperclip": "scales of hyperbolic radius in the attention",
    "lathadapter": "attributes between classes and pictures, from a few pictures",
    "radial": "general before specific: Radial Embeddings",
    "lora": "peft's LoRA",
    "oft": "peft's OFT",
    "full": "all of the text tower",
}


def add(commands: Any) -> None:
    example = "horosphere adapt clip --method radial towers=runs/two-towers data=captions/"
    adapt = common.command(commands, "adapt", run, "adapt a CLIP, or two towers of one's own", example)
    adapt.set_defaults(kept=KEPT)
    adapt.add_argument("what", choices=("clip",), help="clip: any pair of towers; towers=NAME says which")
    methods = "; ".join(f"{name}: {what}" for name, what in METHODS.items())
    adapt.add_argument("--method", choices=METHODS, required=True, help=methods)
    settings = "towers, data, steps, lr, …; `horosphere list adapt-METHOD` shows all"
    common.settings_argument(adapt, settings)
    common.run_options(adapt, "run", "folder of the run, with report.html (default runs/adapt-METHOD)")


def run(args: argparse.Namespace) -> None:
    name = f"adapt-{args.method}"
    settings = common.settings_of(args, catalogue.known_settings(read_recipe(name, args.settings)))
    args.out = args.out or str(Path("runs") / name)
    train_and_tell(args, name, settings, more=_page)


def _page(folder: Path) -> Rows:
    """What was before and what is after, for people to look at."""
    from horosphere.runs import Run

    run = Run.open(folder)
    if run.about.task != "image_text":
        return []
    from horosphere.extras import require
    from horosphere.plots.image_text import adaptation_report

    require("plots")
    adaptation_report(run).save(folder / "report.html")
    return [["report", f"{folder / 'report.html'}"]]
