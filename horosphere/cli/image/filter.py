"""`horosphere image filter`: one filter over one photograph."""

import argparse
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from horosphere.cli.common import settings_argument
from horosphere.cli.image import photograph
from horosphere.described import WIDTH, describe, help_lines
from horosphere.errors import UserError, choices
from horosphere.settings import Size

if TYPE_CHECKING:
    from torch import Tensor

ROOM = "horosphere.ops.darkroom"
# name: its class there
KINDS = {
    **{"gaussian": "Gaussian", "box": "Box", "median": "Median", "sharpen": "Sharpen", "high-pass": "HighPass"},
    **{"laplacian": "Laplacian", "log": "Log", "dog": "Dog", "prewitt": "Prewitt", "sobel": "Sobel", "canny": "Canny"},
    **{"bayer": "Bayer", "cmyk": "Cmyk", "quantise": "Quantise"},
}
IN_COLOURS = ("bayer", "cmyk")


@dataclass(frozen=True)
class Filter:
    longest: Size = 2048  # pixels of the longer side; a larger photograph is shrunk


def add(commands: Any) -> None:
    example = "horosphere image filter photo.jpg gaussian sigma=2 --out soft.png"
    parser = photograph.verb(commands, run, "one filter over one photograph", example)
    photograph.help_later(parser, _kinds, example)
    parser.add_argument("photo", help=photograph.PHOTO)
    parser.add_argument("kind", help="what to do, as below")
    settings_argument(parser, "of the filter, as below")
    photograph.picture_out(parser, "KIND")


def _kinds() -> list[str]:
    """Every kind with its settings, for help."""
    lines = ["kinds, and their settings:"]
    for kind, name in KINDS.items():
        settings = describe(f"{ROOM}:{name}").values()
        told = ", ".join(f"{setting.name}={setting.value({})} ({setting.help})" for setting in settings)
        lines += wrap(f"  {kind:10}  {told}".rstrip(), WIDTH, subsequent_indent=" " * 14)
    return [*lines, "", *help_lines(describe(f"{__name__}:Filter"), {})]


def run(args: argparse.Namespace) -> None:
    if args.kind not in KINDS:
        raise UserError(f"{args.kind}: there is no such filter; {choices(args.kind, KINDS)}")
    from horosphere.extras import require
    from horosphere.ops import darkroom
    from horosphere.plots.photographs import developed
    from horosphere.settings import assign, make

    require("kornia")
    kind = getattr(darkroom, KINDS[args.kind])
    values = photograph.said(args, f"{ROOM}:{KINDS[args.kind]}", f"{__name__}:Filter")
    own, general = assign((kind, Filter), values, f"filter {args.kind}")
    chosen: darkroom.Filter = make(kind, own)
    args.what = args.kind
    photograph.choose_out(args, args.photo)
    seen = photograph.look(args.photo, make(Filter, general).longest)
    light = seen.light
    if args.kind in IN_COLOURS:
        photograph.need_colours(args.photo, light, args.kind)
    made = chosen(light)
    photograph.show(args, [*seen.rows, *_numbers(chosen.gives, light, made)], developed(made[0], chosen.gives))


def _numbers(gives: str, before: "Tensor", after: "Tensor") -> photograph.Rows:
    """One or two, with their units, and how values are shown where that is not as they are."""
    from horosphere.plots.photographs import INKS, brightest

    if gives == "light":
        from kornia.metrics import psnr

        from horosphere.ops.darkroom import mean_slope

        slopes = f"{mean_slope(before):.4f} before, {mean_slope(after):.4f} after, in brightness a pixel"
        likeness = float(psnr(after.clamp(0, 1), before, 1.0))
        return [["mean slope", slopes], ["PSNR", f"{likeness:.1f} dB to the photograph"]]
    if gives == "inks":
        means = zip(after[0].mean((1, 2)).tolist(), INKS, strict=True)
        inks = ", ".join(f"{100 * mean:.1f} % {name}" for mean, name in means)
        return [["ink", inks], ["shown", "cyan and magenta above, yellow and black below"]]
    if gives == "edges":
        return [["edges", f"{100 * float(after.mean()):.2f} % of the pixels"]]
    low, high, mean = float(after.min()), float(after.max()), float(after.abs().mean())
    if gives == "slopes":
        slopes = f"{mean:.4f} in the mean, {high:.4f} at most, in brightness a pixel"
        return [["slope", slopes], ["shown", f"{brightest(after):.4f} and more is white"]]
    unit = "brightness a squared pixel" if gives == "bends" else "brightness"
    values = f"{low:.4f} to {high:.4f}, and {mean:.4f} in the mean without signs, in {unit}"
    white = brightest(after)
    return [["values", values], ["shown", f"0 is grey, {white:.4f} and more white, -{white:.4f} and less black"]]
