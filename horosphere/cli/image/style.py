"""`horosphere image style`: one photograph in the style of another. It learns: a run of the recipe `style`."""

import argparse
from pathlib import Path
from typing import Any

from horosphere import catalogue
from horosphere.cli import common
from horosphere.cli.image import photograph
from horosphere.cli.train import KEPT, train_and_tell
from horosphere.described import help_lines
from horosphere.recipes import read_recipe

RECIPE = "style"


def add(commands: Any) -> None:
    example = "horosphere image style content.jpg style.jpg --out mix.png steps=300 pretrained=true"
    summary = "one photograph in the style of another, by a network that looks at both"
    parser = photograph.verb(commands, run, summary, example)
    photograph.help_later(parser, _settings, example)
    parser.set_defaults(kept=KEPT)
    parser.add_argument("photo", metavar="content", help=photograph.PHOTO)
    parser.add_argument("style", help="likewise: whose colours and strokes")
    common.settings_argument(parser, "as below")
    common.run_options(parser, "run", "the picture: .png, .jpg or .webp (default CONTENT-STYLE.png, here)")


def _settings() -> list[str]:
    recipe = read_recipe(RECIPE)
    named = ("model", "data", "style")  # in front, or not to be chosen
    return help_lines({name: s for name, s in catalogue.known_settings(recipe).items() if name not in named}, recipe)


def run(args: argparse.Namespace) -> None:
    from horosphere.plots.photographs import require_picture_place

    known = catalogue.known_settings(read_recipe(RECIPE))
    settings = common.settings_of(args, known)
    common.refuse_data(args.photo, settings)
    content, style = (common.stem(source.replace(":", "-")) for source in (args.photo, args.style))
    picture = args.out or f"{content}-{style}.png"
    require_picture_place(picture, args.overwrite)
    args.out = str(Path("runs") / f"style-{common.stem(picture)}")  # where the run lies, and goes on with --resume

    def copied(folder: Path) -> list[list[str]]:
        from horosphere.data.photographs import read_photograph
        from horosphere.plots.photographs import save_photograph
        from horosphere.tasks.style import PICTURE

        save_photograph(read_photograph(str(folder / PICTURE)), picture, new=not args.overwrite)
        return [["copied to", picture]]

    train_and_tell(args, RECIPE, [f"data={args.photo}", f"style={args.style}", *settings], more=copied)
