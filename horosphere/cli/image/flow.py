"""`horosphere image flow`: how every pixel moved from one picture to the next."""

import argparse
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from horosphere.cli.common import settings_argument
from horosphere.cli.image import photograph
from horosphere.errors import UserError, one_line
from horosphere.settings import Few, Positive, Range, Size

if TYPE_CHECKING:
    import numpy as np

STEREO = "builtin:motorcycle"
COARSEST = 12  # pixels of the shorter side at the coarsest level, where levels are not asked for


@dataclass(frozen=True)
class Flow:
    method: Literal["lucas-kanade", "horn-schunck"] = "horn-schunck"  # a window's motion, or a smooth one
    levels: Annotated[int, Range(least=1, most=12)] | None = None  # of the pyramid; none: as many as the size needs
    window: Few = 15  # pixels a side, odd, of Lucas and Kanade
    alpha: Positive = 1e-3  # Horn and Schunck's weight of smoothness, in squared brightness
    longest: Size = 1024  # pixels of the longer side; larger pictures are shrunk


def add(commands: Any) -> None:
    example = "horosphere image flow a.png b.png method=lucas-kanade --out flow.png"
    summary = "how every pixel moved from one picture to the next"
    parser = photograph.verb(commands, run, summary, example, f"{__name__}:Flow")
    pictures = "two pictures of one size; none: scikit-image's stereo pair with its truth. And settings, as below"
    settings_argument(parser, pictures)
    parser.add_argument("--truth", metavar="NPY", help="the true flow, (2, H, W) as (u, v) in pixels: prints the error")
    parser.add_argument("--save", metavar="NPY", help="the flow as an array (2, H, W)")
    photograph.picture_out(parser, "flow")


def run(args: argparse.Namespace) -> None:
    import torch

    from horosphere.evaluate.flow import endpoint_error
    from horosphere.ops.flow import horn_schunck, lucas_kanade
    from horosphere.plots.photographs import draw_flow

    files = [word for word in args.settings if "=" not in word]
    args.settings = [word for word in args.settings if "=" in word]
    how: Flow = photograph.asked(args, Flow)
    if len(files) not in (0, 2):
        how_many = f"{len(files)} picture{'s' * (len(files) > 1)}"
        raise UserError(f"{how_many}: a flow leads from one to another; give two, or none for the stereo pair")
    photograph.choose_out(args, files[0] if files else STEREO, args.save)
    first, second, truth, rows = _pair(files, args.truth, how.longest)
    height, width = first.shape[-2:]
    levels = how.levels or max(1, 1 + int(math.log2(min(height, width) / COARSEST)))
    with torch.no_grad():
        if how.method == "lucas-kanade":
            flow = lucas_kanade(first, second, how.window, levels)
        else:
            flow = horn_schunck(first, second, how.alpha, levels)
    lengths = torch.linalg.vector_norm(flow, dim=1)
    u, v = flow[0].flatten(1).median(1).values.tolist()
    rows += [
        ["method", f"{how.method}, {levels} levels"],
        ["motion", f"{float(lengths.mean()):.2f} px in the mean, {float(lengths.max()):.2f} at most"],
        ["median", f"{u:+.2f} px to the right, {v:+.2f} px down"],
    ]
    if truth is not None:
        true = torch.from_numpy(truth)[None].to(flow)
        error, still = (float(endpoint_error(z, true)) for z in (flow, torch.zeros_like(flow)))
        known = 100 * float(true.isfinite().all(1).float().mean())
        rows.append(["endpoint error", f"{error:.2f} px over {known:.1f} % of the pixels"])
        rows.append(["of no motion", f"{still:.2f} px"])
    saved = {args.save: _npy(flow[0].numpy())} if args.save else {}
    rows += [["flow", f"{path}, (2, {height}, {width}) as (u, v)"] for path in saved]
    photograph.show(args, rows, draw_flow(flow[0].numpy(), truth), saved)


def _pair(files: list[str], truth: str | None, longest: int) -> tuple[Any, Any, "np.ndarray | None", photograph.Rows]:
    """Both pictures as (1, 3, H, W), the true flow where there is one, and what people should know."""
    import numpy as np

    from horosphere.data.photographs import open_photograph, shrunk, shrunk_flow, stereo_pair

    if files:
        (left, right), true = (open_photograph(file) for file in files), None
    else:
        left, right, true = stereo_pair()
    if left.size != right.size:
        sizes = f"{left.width} x {left.height} and {right.width} x {right.height} pixels"
        raise UserError(f"{files[0]}, {files[1]}: {sizes}; a flow needs pictures of one size")
    if truth is not None:
        true = _read(truth, left.height, left.width)
    pair = [np.array(shrunk(picture, longest)) for picture in (left, right)]
    height, width = pair[0].shape[:2]
    rows = [["pictures", f"{files[0]}, {files[1]}" if files else "scikit-image's motorcycle, seen by two eyes"]]
    rows.append(["size", f"{width} x {height} pixels"])
    if (width, height) != left.size:
        how = f"from {left.width} x {left.height}; longest={max(left.size)} takes all of them"
        rows.append(["shrunk", f"{how}. All numbers are in the pixels above"])
        true = None if true is None else shrunk_flow(true, height, width)
    first, second = (photograph.Seen(pixels, []) for pixels in pair)
    return first.colours, second.colours, true, rows


def _read(file: str, height: int, width: int) -> "np.ndarray":
    from horosphere.foreign import Unreadable, read_npy

    try:
        flow = read_npy(file)
    except Unreadable as error:
        raise UserError(f"{file}: no readable .npy ({one_line(error)}); save the flow by numpy.save") from error
    if flow.shape != (2, height, width) or flow.dtype.kind not in "fiu":
        what = f"{flow.dtype} of shape {flow.shape}, and a flow of these pictures is (2, {height}, {width})"
        raise UserError(f"{file}: {what}: u to the right, then v down")
    return flow.astype("float32")


def _npy(flow: "np.ndarray") -> bytes:
    import numpy as np

    file = io.BytesIO()
    np.save(file, flow)
    return file.getvalue()
