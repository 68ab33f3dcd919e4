"""`horosphere superposition predict`: the loss to expect of a wider model."""

import argparse
from typing import Any

from horosphere.cli.common import command, of, table
from horosphere.cli.superposition.fit import LOSSES, fitted
from horosphere.errors import UserError
from horosphere.settings import Size


def add(commands: Any) -> None:
    example = "horosphere superposition predict losses.csv --width 4096"
    predict = command(commands, "predict", run, "the loss to expect of a wider model", example)
    predict.add_argument("losses", nargs="?", help=LOSSES)
    predict.add_argument("--width", metavar="M", type=of(Size), required=True, help="of the model")
    predict.add_argument("--family", help="of the model (default: all)")
    predict.add_argument("--dataset", help="it is judged on (default: all)")


def run(args: argparse.Namespace) -> None:
    from horosphere.superposition.fits import interval, predict

    law = fitted(args.losses)
    asked = [(f, d) for f, d in law.offsets if args.family in (None, f) and args.dataset in (None, d)]
    if not asked:
        pairs = ", ".join(f"{family} on {dataset}" for family, dataset in law.offsets)
        what = f"no losses of {args.family or 'any family'} on {args.dataset or 'any dataset'}"
        raise UserError(f"{what}: choose from {pairs}")
    rows: list[list[str]] = []
    notes: dict[str, int] = {}
    for family, dataset in asked:
        p = predict(law, args.width, family, dataset)
        between = interval((p.low, p.high)) if p.low is not None and p.high is not None else "none"
        number = notes.setdefault(p.note, len(notes) + 1)
        rows.append([f"{family} on {dataset}", f"{p.loss:.3f}", between, f"[{number}]"])
    table([f"width {args.width}", "loss", "95 %", "how sure"], rows)
    for note, number in notes.items():
        print(f"[{number}] {note}")
    error = law.left_out["1/m^α"]
    if error == error:
        print(f"on models left out of the fit this law was wrong by {error:.3f} nats")
    else:
        print("no model can be left out to test this law")
