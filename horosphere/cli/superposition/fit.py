"""`horosphere superposition fit`: the law of loss against width of language models."""

import argparse
from typing import Any

from horosphere.cli.common import command, table

LOSSES = "CSV with family, dataset, m, loss (default: 108 published losses)"


def add(commands: Any) -> None:
    summary = "the law of loss against width of language models"
    fit = command(commands, "fit", run, summary, "horosphere superposition fit losses.csv")
    fit.add_argument("losses", nargs="?", help=LOSSES)
    fit.add_argument("--out", metavar="PICTURE", help="draw it")


def fitted(losses: str | None) -> Any:
    from horosphere.superposition.fits import fit_widths, read_losses
    from horosphere.superposition.published import published_file

    return fit_widths(read_losses(losses or published_file("language-losses")))


def run(args: argparse.Namespace) -> None:
    from horosphere.superposition.fits import width_exponent
    from horosphere.superposition.published import published

    law = fitted(args.losses)
    table([], law.rows())
    if not args.losses:
        sizes = published("chinchilla")
        c = width_exponent(sizes["N_million"], sizes["d_model"])
        means = f"its α_N = 0.35 ± 0.02 means α_m = {c.exponent:.2f} ± {c.error:.2f}"
        print(f"Chinchilla: N ~ m^{c.growth:.2f}, so {means}")
    if args.out:
        from horosphere.plots.superposition_heads import draw_width_fit

        draw_width_fit(law, args.out)
