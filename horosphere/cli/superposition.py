"""`horosphere superposition …`: the toy model, fits, and the heads of real language models."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from horosphere.cli.common import (
    choose_device,
    command,
    device_option,
    names,
    output,
    positive,
    require_pictures,
    stem,
    table,
)
from horosphere.errors import UserError

SHOWN = 24  # rows of a table on a terminal; the rest is in the file


def add_commands(commands: Any) -> None:
    summary = "why loss falls with width: a toy model, fits, the heads of language models"
    parent = command(commands, "superposition", None, summary, "horosphere superposition sweep --grid small --seeds 2")
    parent.set_defaults(run=lambda args: parent.print_help())
    parts = parent.add_subparsers(title="commands", metavar="COMMAND")

    sweep = command(
        parts,
        "sweep",
        _sweep,
        "train a grid of toy models",
        "horosphere superposition sweep --laws power:1.5 --gammas=-0.556,0.333 --seeds 3",
    )
    sweep.add_argument(
        "--grid",
        choices=("a", "b", "c", "small"),
        help="a grid of the paper (a: skew x decay, b: density x decay, c: n = 10240), or small",
    )
    sweep.add_argument("--n", metavar="N", type=positive, help="features (default 1000)")
    sweep.add_argument(
        "--widths",
        metavar="A,B",
        type=names,
        help="dimensions (default 10,15,25,39,63,100); with --grid: only these of it",
    )
    laws = "power:ALPHA, exponential:SCALE, linear, uniform, counts:FILE (default power:1); with --grid: only these"
    sweep.add_argument("--laws", metavar="A,B", type=names, help=laws)
    sweep.add_argument(
        "--densities",
        metavar="A,B",
        type=names,
        help="mean number of active features (default 1); with --grid: only these",
    )
    decays = "decay; below zero growth to unit norm (default -0.556,0.333); with --grid: only these"
    sweep.add_argument("--gammas", metavar="A,B", type=names, help=decays)
    sweep.add_argument(
        "--bias",
        metavar="A,B",
        type=names,
        default=["normal"],
        help="how b starts: normal, as in the paper's scripts, and/or zero",
    )
    sweep.add_argument(
        "--readouts", metavar="A,B", type=names, default=["dot"], help="dot, lorentz, distance (default dot)"
    )
    sweep.add_argument("--lr", metavar="X", type=float, help="learning rate at its peak (default 0.01)")
    sweep.add_argument("--steps", metavar="N", type=positive, help="of training (default the grid's, or 20,000)")
    sweep.add_argument("--batch", metavar="N", type=positive, help="samples a step (default the grid's, or 2048)")
    sweep.add_argument("--seeds", metavar="N", type=positive, default=3, help="runs of each setting (default 3)")
    sweep.add_argument("--resume", action="store_true", help="go on with a sweep that was stopped")
    sweep.set_defaults(kept=("sweep.json", "what is done is in {out}, and the same command with --resume goes on"))
    sweep.add_argument("--parquet", action="store_true", help="write results.parquet too")
    device_option(sweep)
    output(sweep, None, "folder of the results (default runs/superposition-NAME)")

    figures = command(
        parts,
        "figures",
        _figures,
        "redraw the paper's figures from sweeps",
        "horosphere superposition figures runs/superposition-a",
    )
    figures.add_argument("results", nargs="+", help="folders or results.csv of sweeps")
    figures.add_argument("--out", metavar="FOLDER", default="figures", help="where the pictures go (default figures)")

    analyze = command(
        parts,
        "analyze",
        _analyze,
        "how crowded the head of a language model is",
        "horosphere superposition analyze runs/helm-d-tiny",
    )
    analyze.add_argument("models", nargs="+", help="folder of a model or run, or hf:NAME on Hugging Face")
    analyze.add_argument("--text", metavar="DATA", help="a text: norms by how often a token occurs in it")
    analyze.add_argument("--out", metavar="FOLDER", help="pictures (default none)")

    fit = command(
        parts,
        "fit",
        _fit,
        "the law of loss against width of language models",
        "horosphere superposition fit losses.csv",
    )
    fit.add_argument("losses", nargs="?", help="CSV with family, dataset, m, loss (default: 108 published losses)")
    fit.add_argument("--out", metavar="PICTURE", help="draw it")

    predict = command(
        parts,
        "predict",
        _predict,
        "the loss to expect of a wider model",
        "horosphere superposition predict losses.csv --width 4096",
    )
    predict.add_argument("losses", nargs="?", help="CSV with family, dataset, m, loss (default: 108 published losses)")
    predict.add_argument("--width", metavar="M", type=positive, required=True, help="of the model")
    predict.add_argument("--family", help="of the model (default: all)")
    predict.add_argument("--dataset", help="it is judged on (default: all)")

    example = "horosphere superposition widths 32,64,128 steps=500 --seeds 2 --jobs 2"
    widths = command(parts, "widths", _widths, "HELM and its flat twin at several widths", example)
    widths.add_argument("widths", type=names, help="separated by commas")
    widths.add_argument("settings", metavar="key=value", nargs="*", help="of the recipe: data, steps, lr, …")
    widths.add_argument("--recipe", default="helm-d-tiny", help="a dense HELM recipe (default helm-d-tiny)")
    widths.add_argument("--seeds", metavar="N", type=positive, default=2, help="trainings of each (default 2)")
    widths.add_argument("--jobs", metavar="N", type=positive, default=1, help="trainings at once (default 1)")
    device_option(widths)
    widths.set_defaults(kept=(".", "what is done is in {out}, and the same command goes on"))
    output(widths, "runs/widths", "folder of the trainings (default runs/widths)")


# -- the toy model ---------------------------------------------------------------------------------------------------


def _sweep(args: argparse.Namespace) -> None:
    from dataclasses import replace

    from horosphere.plots.superposition import draw_figures
    from horosphere.superposition.frequencies import plain_law
    from horosphere.superposition.results import RESULTS, settings
    from horosphere.superposition.sweep import SweepOptions, sweep
    from horosphere.superposition.toy import WIDTHS, Schedule, Toy, grid

    require_pictures()
    for name in ("laws", "widths", "densities", "gammas", "bias", "readouts"):
        if getattr(args, name) == []:
            raise UserError(f"--{name}: nothing is named; give values separated by commas, or leave it out")
    spelled: dict[str, str] = {}
    for law in args.laws or []:
        spelled.setdefault(plain_law(law), law)  # of two spellings the first
    laws = list(spelled.values())
    widths = _widths_of("--widths", args.widths)
    densities, gammas = _numbers("--densities", args.densities), _numbers("--gammas", args.gammas)
    if args.grid:
        if decided := [name for name in ("n", "lr") if getattr(args, name) is not None]:
            raise UserError(f"--{decided[0]}: grid {args.grid} has its own; leave it out, or leave out --grid")
        runs, schedule = grid(args.grid, args.seeds)
        chosen: dict[str, list[Any]] = {
            "laws": list(spelled),
            "widths": widths,
            "densities": densities,
            "gammas": gammas,
        }
        for (option, wanted), name in zip(chosen.items(), ("law", "m", "density", "gamma"), strict=True):
            has = list(dict.fromkeys(getattr(run, name) for run in runs))
            if strange := [value for value in wanted if not any(_same(value, known) for known in has)]:
                raise UserError(
                    f"--{option} {_short(strange[0])}: grid {args.grid} has {', '.join(map(_short, has))}; choose from these"
                )
            runs = [run for run in runs if not wanted or any(_same(value, getattr(run, name)) for value in wanted)]
        runs = [
            replace(run, bias=bias, readout=readout) for readout in args.readouts for bias in args.bias for run in runs
        ]
    else:
        schedule = Schedule()
        runs = [
            Toy(args.n or 1000, m, law, density, gamma, bias, readout, seed, 1e-2 if args.lr is None else args.lr)
            for readout in args.readouts
            for bias in args.bias
            for seed in range(args.seeds)
            for law in laws or ["power:1"]
            for density in densities or [1.0]
            for gamma in gammas or [-5 / 9, 1 / 3]
            for m in widths or WIDTHS
        ]
    steps, batch = args.steps or schedule.steps, args.batch or schedule.batch
    schedule = replace(schedule, steps=steps, batch=batch, warmup=min(schedule.warmup, steps // 10))
    args.out = args.out or str(Path("runs") / f"superposition-{args.grid or stem(runs[0].law.replace(':', ''))}")
    how = {"resume": args.resume, "overwrite": args.overwrite, "parquet": args.parquet, "quiet": args.quiet}
    rows = sweep(runs, schedule, args.out, SweepOptions(choose_device(args.device), **how))
    _print_settings(settings(rows))
    if diverged := sum(not math.isfinite(row["loss"]) for row in rows):
        print(
            f"{diverged:,} of {len(rows):,} runs diverged: lower --lr"
            + " (without --grid, which has its own)" * bool(args.grid),
            file=sys.stderr,
        )
    pictures = draw_figures(rows, args.out)
    print(
        f"{len(rows):,} runs: {Path(args.out) / RESULTS}"
        + (f"; pictures: {', '.join(path.name for path in pictures)}" if pictures else "")
    )


def _print_settings(found: Any) -> None:
    rows = []
    for s in found[:SHOWN]:
        kind = (
            f"{s.law}, E = {s.density:g}, γ = {s.gamma:.3g}"
            + ", b = 0" * (s.bias == "zero")
            + f", {s.readout}" * (s.readout != "dot")
        )
        between = f"{s.fit.low:.2f} … {s.fit.high:.2f}" if s.fit.low == s.fit.low else ""
        seeds, widths = s.losses.shape
        widest = [f"{s.losses[:, -1].mean():.4f}", f"{s.represented[:, -1].mean():.2f}"]
        rows.append([kind, f"{s.fit.exponent:.2f}", between, *widest, f"{widths} x {seeds}"])
    if rows:
        table(["setting", "α_m", "95 %", "widest: loss", "φ½", "widths x seeds"], rows)
        if len(found) > SHOWN:
            print(f"… and {len(found) - SHOWN} more settings")
        print(f"intervals: {found[0].fit.how}")


def _figures(args: argparse.Namespace) -> None:
    from horosphere.plots.superposition import FIGURES, draw_figures
    from horosphere.superposition.results import read_results

    require_pictures()
    rows = read_results(args.results)
    written = draw_figures(rows, args.out)
    if not written:
        raise UserError(f"these {len(rows)} runs fill none of {', '.join(FIGURES)}: sweep --grid a, b or c first")
    table([], [["picture", str(path)] for path in written])


def _numbers(option: str, texts: list[str] | None) -> list[float]:
    try:
        return list(dict.fromkeys(float(text) for text in texts or []))
    except ValueError:
        raise UserError(f"{option} {','.join(texts or [])}: numbers separated by commas") from None


def _same(a: Any, b: Any) -> bool:
    """Numbers to the digits that are printed"""
    return abs(a - b) < 5e-3 if isinstance(b, float) else bool(a == b)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _widths_of(option: str, texts: list[str] | None) -> list[int]:
    if wrong := [text for text in texts or [] if not text.isdecimal() or int(text) < 1]:
        raise UserError(f'{option}: "{wrong[0]}" is no width; give whole numbers separated by commas')
    return list(dict.fromkeys(int(text) for text in texts or []))


# -- language models -------------------------------------------------------------------------------------------------


def _analyze(args: argparse.Namespace) -> None:
    from horosphere.superposition.heads import head, head_counts, head_geometry

    if args.out:
        require_pictures()
    found, rows = {}, []
    for model in args.models:
        h = head(model)
        counts = head_counts(model, args.text, len(h.weight)) if args.text else None
        g = found[model] = head_geometry(h.weight, counts, dims=h.dims)
        rows += [["model", model + (f"  ({h.note})" if h.note else "")]]
        rows += [
            [
                "head",
                f"{h.tensor}, {g.rows:,} x {g.dims}, {'tied' if h.tied else 'its own'}"
                + (f", {h.padded} padded rows dropped" if h.padded else ""),
            ]
        ]
        for name, overlap in (
            ("overlap", g.raw),
            ("  centred", g.centred),
            (f"  without {g.components} components", g.trimmed),
        ):
            rows.append([name, f"{overlap.mean_square:.3e}  ({overlap.times_isotropic:.2f} times 1/m)"])
        rows += [
            ["effective dimensions", f"{g.effective_dims:.1f}"],
            ["norms", f"{g.norm_mean:.3f} ± {g.norm_std:.3f}"],
        ]
        if g.by_frequency is not None:
            rows.append(["norms follow frequency", f"{g.by_frequency.correlation:.2f}  (rank correlation)"])
    table([], rows)
    if args.out:
        from horosphere.plots.superposition_heads import draw_norms, draw_overlaps

        Path(args.out).mkdir(parents=True, exist_ok=True)
        draw_overlaps(found, Path(args.out) / "overlaps.png")
        if args.text:
            draw_norms(found, Path(args.out) / "norms.png")
        print(f"pictures: {args.out}/")


def _fit(args: argparse.Namespace) -> None:
    from horosphere.superposition.fits import fit_widths, read_losses, width_exponent
    from horosphere.superposition.published import published, published_file

    found = fit_widths(read_losses(args.losses or published_file("language-losses")))
    rows = [["losses", f"{len(found.table)} of {len(set(found.table.model.tolist()))} models at {found.sizes} widths"]]
    rows += [
        [
            "law",
            f"L = {found.scale:.3g}/m^{found.exponent:.3f} + an offset for each of {len(found.offsets)} (family, dataset)",
        ]
    ]
    rows += [
        ["α", f"{found.exponent:.3f}"],
        ["  profile, 95 %", _interval(found.profile)],
        ["  bootstrap over models, 95 %", _interval(found.bootstrap)],
    ]
    rows += [["mean square error", f"{found.mse:.2e}"]]
    rows += [
        [f"error on a model left out, {law}", f"{error:.3f} nats"]
        for law, error in found.left_out.items()
        if error == error
    ]
    table([], rows)
    if not args.losses:
        models = published("chinchilla")
        c = width_exponent(models["N_million"], models["d_model"])
        print(
            f"Chinchilla: N ~ m^{c.growth:.2f}, so its α_N = 0.35 ± 0.02 means α_m = {c.exponent:.2f} ± {c.error:.2f}"
        )
    if args.out:
        from horosphere.plots.superposition_heads import draw_width_fit

        draw_width_fit(found, args.out)


def _predict(args: argparse.Namespace) -> None:
    from horosphere.superposition.fits import fit_widths, predict, read_losses
    from horosphere.superposition.published import published_file

    found = fit_widths(read_losses(args.losses or published_file("language-losses")))
    asked = [(f, d) for f, d in found.offsets if args.family in (None, f) and args.dataset in (None, d)]
    if not asked:
        raise UserError(
            f"no losses of {args.family or 'any family'} on {args.dataset or 'any dataset'}: choose from {_pairs(found.offsets)}"
        )
    rows: list[list[str]] = []
    notes: dict[str, int] = {}
    for family, dataset in asked:
        p = predict(found, args.width, family, dataset)
        interval = _interval((p.low, p.high)) if p.low is not None and p.high is not None else "none"
        rows.append(
            [f"{family} on {dataset}", f"{p.loss:.3f}", interval, f"[{notes.setdefault(p.note, len(notes) + 1)}]"]
        )
    table([f"width {args.width}", "loss", "95 %", "how sure"], rows)
    for note, number in notes.items():
        print(f"[{number}] {note}")
    error = found.left_out["1/m^α"]
    print(
        f"on models left out of the fit this law was wrong by {error:.3f} nats"
        if error == error
        else "no model can be left out to test this law"
    )


def _interval(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.3f} … {ends[1]:.3f}" if ends[0] == ends[0] else "none: too few sizes"


def _pairs(offsets: Any) -> str:
    return ", ".join(f"{family} on {dataset}" for family, dataset in offsets)


def _widths(args: argparse.Namespace) -> None:
    from horosphere.superposition.widths import PICTURE, TABLE, study_widths

    require_pictures()
    chosen = _widths_of("widths", args.widths)
    if not chosen:
        raise UserError("widths: nothing is named; give whole numbers separated by commas")
    options = {
        "seeds": args.seeds,
        "jobs": args.jobs,
        "device": choose_device(args.device),
        "overwrite": args.overwrite,
        "quiet": args.quiet,
    }
    study = study_widths(chosen, args.settings, args.out, args.recipe, **options)
    table(*study.cells())
    if (found := study.fit()) is not None:
        offsets = ", ".join(f"{model} {offset:.3f}" for (model, _), offset in found.offsets.items())
        print(
            f"L = {found.scale:.3g}/m^{found.exponent:.2f} + {offsets}; α over trainings, 95 %: {_interval(found.bootstrap)}"
        )
    print(f"table and picture: {Path(args.out) / TABLE}, {Path(args.out) / PICTURE}")
