"""A report in one HTML file: no scripts, nothing fetched, light and dark, good on a phone and on paper."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import horosphere
from horosphere.errors import UserError
from horosphere.files import new_folder, require_new_file, require_new_folder, write_whole
from horosphere.foreign import read_text
from horosphere.plots.style import render
from horosphere.tables import is_numeric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "report.html"
CSS = Path(__file__).with_name("report.css")


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
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], highlight: Collection[int] = (), caption: str = ""
    ) -> None:
        """Rows of cells; columns of numbers are right-aligned, the rows `highlight` stand out.

        Long text belongs into the last column, where it is wrapped. Columns without names have no head.
        """
        for row in rows:
            if len(row) != len(columns):
                raise UserError(f"a table row has {len(row)} cells for {len(columns)} columns: {row}")
        numeric = [is_numeric(rows, i) for i in range(len(columns))]

        def line(cells: Sequence[str], tag: str, mark: str = "") -> str:
            inner = (
                f"<{tag}{' class=number' if n else ''}>{escape(str(cell))}</{tag}>"
                for cell, n in zip(cells, numeric, strict=True)
            )
            return f"<tr{mark}>{''.join(inner)}</tr>"

        body = "\n".join(line(row, "td", " class=best" if i in highlight else "") for i, row in enumerate(rows))
        head = f"<thead>{line(columns, 'th')}</thead>\n" if any(columns) else ""
        table = f"<table>{head}<tbody>{body}</tbody></table>"
        self.parts.append(f"<figure><div class=scroll>{table}</div>{_caption(caption)}</figure>")

    def figure(self, figure: Figure, caption: str = "", alt: str = "") -> None:
        """A matplotlib figure, embedded as PNG."""
        width, height = (round(96 * inches) for inches in figure.get_size_inches())
        pixels = b64encode(render(figure, dpi=192)).decode()  # two for each one of the page: sharp on good screens
        source = f"data:image/png;base64,{pixels}"
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
<style>{read_text(CSS)}</style>
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

    def save(self, path: str | Path, new: bool = False) -> None:
        """new: nothing may be there yet."""
        write_whole(path, self.html().encode(errors="replace"), new)  # names of files may be no text


def _caption(text: str) -> str:
    return f"<figcaption>{escape(text)}</figcaption>" if text else ""


# -- a page, or a folder of it and its pictures -----------------------------------------------------------------------


def require_page_place(out: str | Path, overwrite: bool = False) -> None:
    """Complain before the work, not after it."""
    (require_new_file if _is_page(out) else lambda path, overwrite: require_new_folder(path, overwrite, PAGE))(
        out, overwrite
    )


def save_page(report: Report, pictures: Mapping[str, Figure], out: str | Path, overwrite: bool = False) -> list[Path]:
    """A page where the name ends in .html, else a folder of the page and its pictures, by name.

    Returns what was written.
    """
    out = Path(out)
    if _is_page(out):
        require_new_file(out, overwrite)
        report.save(out, new=not overwrite)
        return [out]
    with new_folder(out, overwrite, PAGE) as folder:
        report.save(folder / PAGE)
        for name, figure in pictures.items():
            write_whole(folder / f"{name}.png", render(figure))
    return [out / PAGE, *(out / f"{name}.png" for name in pictures)]


def _is_page(out: str | Path) -> bool:
    return Path(out).suffix.lower() in (".html", ".htm")
