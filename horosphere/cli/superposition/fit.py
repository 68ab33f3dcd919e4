"""`horosphere superposition fit`: the law of loss against width of language models."""

import argparse
from typing import Any

from horosphere.cli.common import command, place, table

LOSSES = "CSV with family, dataset, m, loss (default: 108 published losses)"


def add(commands: Any) -> None:
    summary = "the law of loss against width of language models"
    fit = command(commands, "fit", run, summary, "horosphere superposition fit losses.csv")
    fit.add_argument("losses", nargs="?", help=LOSSES)
    place(fit, None, "a picture of it")


def fitted(losses: str | None) -> Any:
    from horosphere.superposition.fits import fit_widths, read_losses
    from horosphere.superposition.published import published_file

    return fit_widths(read_losses(losses or published_file("language-losses")))


def run(args: argparse.Namespace) -> None:
    from horosphere.extras import require
    from horosphere.files import require_new_file
    from horosphere.superposition.fits import width_exponent
    from horosphere.superposition.published import published

    if args.out:
        require("plots")
        from horosphere.plots.style import format_of

        format_of(args.out)
        require_new_file(args.out, args.overwrite)
    law = fitted(args.losses)
    table([], law.rows())
    if not args.losses:
        sizes = published("chinchilla")
        c = width_exponent(sizes["N_million"], sizes["d_model"])
        means = f"its α_N = 0.35 ± 0.02 means α_m = {c.exponent:.2f} ± {c.error:.2f}"
        print(f"Chinchilla: N ~ m^{c.growth:.2f}, so {means}")
    if args.out:
        from horosphere.plots.style import save
        from horosphere.plots.superposition_heads import draw_width_fit

        save(draw_width_fit(law), args.out, new=not args.overwrite)
