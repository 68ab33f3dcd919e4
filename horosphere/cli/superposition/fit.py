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
    models = len(set(law.table.model.tolist()))
    offsets = f"an offset for each of {len(law.offsets)} (family, dataset)"
    rows = [
        ["losses", f"{len(law.table)} of {models} models at {law.sizes} widths"],
        ["law", f"L = {law.scale:.3g}/m^{law.exponent:.3f} + {offsets}"],
        ["α", f"{law.exponent:.3f}"],
        ["  profile, 95 %", interval(law.profile)],
        ["  bootstrap over models, 95 %", interval(law.bootstrap)],
        ["mean square error", f"{law.mse:.2e}"],
    ]
    errors = {name: error for name, error in law.left_out.items() if error == error}
    rows += [[f"error on a model left out, {name}", f"{error:.3f} nats"] for name, error in errors.items()]
    table([], rows)
    if not args.losses:
        sizes = published("chinchilla")
        c = width_exponent(sizes["N_million"], sizes["d_model"])
        means = f"its α_N = 0.35 ± 0.02 means α_m = {c.exponent:.2f} ± {c.error:.2f}"
        print(f"Chinchilla: N ~ m^{c.growth:.2f}, so {means}")
    if args.out:
        from horosphere.plots.superposition_heads import draw_width_fit

        draw_width_fit(law, args.out)


def interval(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.3f} … {ends[1]:.3f}" if ends[0] == ends[0] else "none: too few sizes"
