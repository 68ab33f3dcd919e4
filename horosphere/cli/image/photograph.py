"""What the verbs of `horosphere image` share: settings, a photograph, a picture at the end."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from horosphere.cli.common import Parser, command, place, settings_argument, stem, table
from horosphere.described import describe, from_words, help_lines
from horosphere.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

Rows = list[list[str]]
PHOTO = "a picture, or builtin:NAME: camera, coins, coffee and others of scikit-image's"


def verb(commands: Any, run: Any, summary: str, example: str, settings: str | None = None) -> argparse.ArgumentParser:
    """A verb named as its example has it. settings: "module:Class", which its help shows."""
    parser = command(commands, example.split()[2], run, summary, example)
    if settings is not None:
        help_later(parser, lambda: help_lines(describe(settings), {}), example)
    return parser


def help_later(parser: argparse.ArgumentParser, lines: Callable[[], list[str]], example: str) -> None:
    """Help that ends with lines which take a while to find."""
    assert isinstance(parser, Parser)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.later = lambda: "\n".join([*lines(), "", f"example: {example}"])


def photo_and_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("photo", help=PHOTO)
    settings_argument(parser, "as below")


def picture_out(parser: argparse.ArgumentParser, what: str) -> None:
    place(parser, None, f"the picture: .png, .jpg or .webp (default PHOTO-{what}.png, here)")
    parser.set_defaults(what=what)


def said(args: argparse.Namespace, *references: str) -> dict[str, str]:
    """key=value and --key value of a command, by name; each is a setting of one of these classes."""
    known = {name: setting for reference in references for name, setting in describe(reference).items()}
    pairs = [word.partition("=") for word in from_words([*args.settings, *args.more], known)]
    return {key.strip().replace("-", "_"): value.strip() for key, _, value in pairs}


def asked(args: argparse.Namespace, settings: type[Any]) -> Any:
    from horosphere.settings import build

    return build(settings, said(args, f"{settings.__module__}:{settings.__name__}"), settings.__name__.lower())


def choose_out(args: argparse.Namespace, source: str, *others: str | None) -> None:
    """Where the picture goes, and `others` beside it. A place that is taken is told before the work."""
    from horosphere.files import require_new_file
    from horosphere.plots.photographs import require_picture_place

    args.out = args.out or f"{stem(source.replace(':', '-'))}-{args.what}.png"
    require_picture_place(args.out, args.overwrite)
    for file in filter(None, others):
        require_new_file(file, args.overwrite)


def csv(heads: str, rows: Iterable[Sequence[str]]) -> bytes:
    """A table as a file, a line of names first."""
    return "".join(f"{line}\n" for line in [heads, *map(",".join, rows)]).encode()


class Seen(NamedTuple):
    """A photograph as it is worked on."""

    pixels: np.ndarray  # (H, W, 3) uint8
    rows: Rows  # what people should know of it

    @property
    def colours(self) -> Tensor:
        """(1, 3, H, W) from 0 to 1"""
        import torch

        return torch.from_numpy(self.pixels).permute(2, 0, 1)[None].float() / 255

    @property
    def light(self) -> Tensor:
        """The same; (1, 1, H, W) where it has no colours"""
        x = self.colours
        return x[:, :1] if bool((x == x[:, :1]).all()) else x

    @property
    def grey(self) -> Tensor:
        """(1, 1, H, W)"""
        from horosphere.ops.darkroom import grey

        return grey(self.light)


def look(source: str, longest: int) -> Seen:
    """A photograph, shrunk where it is longer, which is told."""
    import numpy as np

    from horosphere.data.photographs import open_photograph, shrunk

    whole = open_photograph(source)
    picture = shrunk(whole, longest)
    (wide, tall), (width, height) = whole.size, picture.size
    rows = [["photograph", f"{width} x {height} pixels"]]
    if whole.size != picture.size:
        how = f"from {wide} x {tall}; longest={max(wide, tall)} takes all of them"
        rows.append(["shrunk", f"{how}. All numbers are in the pixels above"])
    return Seen(np.array(picture), rows)


def show(
    args: argparse.Namespace,
    rows: Rows,
    pixels: np.ndarray,
    files: Mapping[str, bytes] | None = None,
    found: tuple[Sequence[str], Rows] = ((), []),
) -> None:
    """The picture into its file, others beside it, then the tables: what was found, with heads, and the rest."""
    from horosphere.files import write_whole
    from horosphere.plots.photographs import save_photograph

    for path, content in (files or {}).items():
        write_whole(path, content, new=not args.overwrite)
    save_photograph(pixels, args.out, new=not args.overwrite)
    heads, cells = found
    if cells:
        table(heads, cells)
    table([], [*rows, ["picture", args.out]])


def need_colours(source: str, light: Tensor, what: str) -> None:
    if light.shape[1] == 1:
        raise UserError(f"{source}: one channel, and {what} needs three; give a photograph in colours")
