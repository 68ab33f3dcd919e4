"""A report in one HTML file: no scripts, nothing fetched, light and dark, good on a phone and on paper."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import horosphere
from horosphere.errors import UserError
from horosphere.files import new_folder, require_new_file, require_new_folder, write_whole
from horosphere.plots.style import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "report.html"
NUMBER = re.compile(r"[-+−±<>≈~]?\s*[\d.]|[-–—]?$|nan|-?inf", re.IGNORECASE)  # how a cell of a numeric column begins
CSS = """
:root {
  color-scheme: light dark; --ink: #1c2430; --muted: #66717f; --line: #e1e6eb;
  --paper: #fff; --card: #f6f8fa; --accent: #0b7285; --best: #e6f4f1
}
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9ef; --muted: #93a0ae; --line: #2c3541; --paper: #12171e; --card: #1a212a; --accent: #4fc1d4; --best: #12343a }
}
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink); font: 17px/1.6 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif }
main { max-width: 960px; margin: 0 auto; padding: 56px 24px 40px }
h1 { margin: 0; font-size: clamp(1.8rem, 5vw, 2.5rem); line-height: 1.15; letter-spacing: -.02em; overflow-wrap: anywhere }
h2 { margin: 2.4em 0 .6em; font-size: 1.35rem; line-height: 1.3; letter-spacing: -.01em }
p { max-width: 68ch; margin: 0 0 1em; overflow-wrap: anywhere }
header p { margin: .5em 0 0; color: var(--muted); font-size: 1.15rem }
header { margin-bottom: 2em; padding-bottom: 1.6em; border-bottom: 1px solid var(--line) }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 12px; margin: 1.6em 0 }
dl div { display: flex; flex-direction: column-reverse; justify-content: flex-end; padding: 14px 16px; border-radius: 10px; background: var(--card) }
dt { color: var(--muted); font-size: .82rem; line-height: 1.35 }
dd { margin: 0; font-size: 1.4rem; font-weight: 600; line-height: 1.3; font-variant-numeric: tabular-nums; overflow-wrap: anywhere }
figure { margin: 1.6em 0 2em }
figcaption { max-width: 80ch; margin-top: .7em; color: var(--muted); font-size: .88rem; line-height: 1.5 }
figure.picture { text-align: center }
figure.picture figcaption { margin-inline: auto }
img { max-width: 100%; height: auto; padding: 12px; border-radius: 10px; background: #fff }
.scroll { overflow-x: auto }
table { width: 100%; border-collapse: collapse; font-size: .95rem; font-variant-numeric: tabular-nums }
th, td { padding: .55em .9em; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap }
th { color: var(--muted); font-size: .82rem; font-weight: 600; border-bottom-width: 2px }
.number { text-align: right }
tr.best td { background: var(--best); font-weight: 600 }
tr.best td:first-child { box-shadow: inset 3px 0 var(--accent) }
footer { margin-top: 4em; padding-top: 1em; border-top: 1px solid var(--line); color: var(--muted); font-size: .82rem }
@media print { body { font-size: 11pt } main { padding: 0 } figure, dl, tr { break-inside: avoid } h2 { break-after: avoid } }
"""


class Report:
    """Parts in the order they are added; `save` writes the page. All text is plain text, and escaped."""

    def __init__(self, title: str, subtitle: str = ""):
        self.title, self.subtitle = title, subtitle
        self.parts: list[str] = []

    def section(self, heading: str) -> None:
        self.parts.append(f"<h2>{escape(heading)}</h2>")

    def text(self, text: str) -> None:
        """Paragraphs, apart by an empty line."""
        self.parts += [
            f"<p>{escape(paragraph.strip())}</p>" for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()
        ]

    def facts(self, facts: Mapping[str, object]) -> None:
        """A row of numbers worth reading first, as {name: value}."""
        cards = (f"<div><dt>{escape(name)}</dt><dd>{escape(str(value))}</dd></div>" for name, value in facts.items())
        self.parts.append(f"<dl>{''.join(cards)}</dl>")

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], highlight: int | None = None, caption: str = ""
    ) -> None:
        """Rows of cells; columns of numbers are right-aligned, the row number `highlight` stands out."""
        for row in rows:
            if len(row) != len(columns):
                raise UserError(f"a table row has {len(row)} cells for {len(columns)} columns: {row}")
        numeric = [bool(rows) and all(NUMBER.match(str(row[i])) for row in rows) for i in range(len(columns))]

        def line(cells: Sequence[str], tag: str, mark: str = "") -> str:
            inner = (
                f"<{tag}{' class=number' if n else ''}>{escape(str(cell))}</{tag}>"
                for cell, n in zip(cells, numeric, strict=True)
            )
            return f"<tr{mark}>{''.join(inner)}</tr>"

        body = "\n".join(line(row, "td", " class=best" if i == highlight else "") for i, row in enumerate(rows))
        table = f"<table><thead>{line(columns, 'th')}</thead>\n<tbody>{body}</tbody></table>"
        self.parts.append(f"<figure><div class=scroll>{table}</div>{_caption(caption)}</figure>")

    def figure(self, figure: Figure, caption: str = "", alt: str = "") -> None:
        """A matplotlib figure, embedded as PNG."""
        width, height = (round(96 * inches) for inches in figure.get_size_inches())
        source = f"data:image/png;base64,{b64encode(render(figure, dpi=192)).decode()}"  # two pixels for each one of the page: sharp on good screens
        image = f'<img src="{source}" width={width} height={height} alt="{escape(alt or caption)}">'
        self.parts.append(f"<figure class=picture>{image}{_caption(caption)}</figure>")

    def made_with(self, facts: Mapping[str, object]) -> None:
        """The last section: date, command, machine, versions."""
        self.section("Made with")
        flat = {name: value for name, value in facts.items() if not isinstance(value, Mapping)}
        flat |= {name: value for part in facts.values() if isinstance(part, Mapping) for name, value in part.items()}
        self.table(["", ""], [[name, str(value)] for name, value in flat.items()])

    def html(self) -> str:
        subtitle = f"<p>{escape(self.subtitle)}</p>" if self.subtitle else ""
        body = "\n".join(self.parts)
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(self.title)}</title>
<style>{CSS}</style>
</head>
<body>
<main>
<header><h1>{escape(self.title)}</h1>{subtitle}</header>
{body}
<footer>Horosphere {horosphere.__version__}</footer>
</main>
</body>
</html>
"""

    def save(self, path: str | Path) -> None:
        write_whole(path, self.html().encode())


def _caption(text: str) -> str:
    return f"<figcaption>{escape(text)}</figcaption>" if text else ""


# -- a page, or a folder of it and its pictures -----------------------------------------------------------------------


def require_page_place(out: str | Path, overwrite: bool = False) -> None:
    """Complain before the work, not after it."""
    (require_new_file if _is_page(out) else lambda path, overwrite: require_new_folder(path, overwrite, PAGE))(
        out, overwrite
    )


def save_page(report: Report, pictures: Mapping[str, Figure], out: str | Path, overwrite: bool = False) -> list[Path]:
    """The page where the name ends in .html; else a folder of the page and its pictures, by name. Returns what was written."""
    out = Path(out)
    if _is_page(out):
        require_new_file(out, overwrite)
        report.save(out)
        return [out]
    with new_folder(out, overwrite, PAGE) as folder:
        report.save(folder / PAGE)
        for name, figure in pictures.items():
            write_whole(folder / f"{name}.png", render(figure))
    return [out / PAGE, *(out / f"{name}.png" for name in pictures)]


def _is_page(out: str | Path) -> bool:
    return Path(out).suffix.lower() in (".html", ".htm")
