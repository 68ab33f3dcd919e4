"""Published points to compare ours with, read off figures and tables. published/README.md says which."""

from pathlib import Path

import numpy as np

from horosphere.errors import UserError
from horosphere.foreign import read_json, read_table

FOLDER = Path(__file__).with_name("published")
SMALL = "small_toy_fig3a_5b_6e_7a_7b.json"
FILES = {
    "fig1": "fig1_toy_losses_n10240.json",
    **dict.fromkeys(["fig3a", "fig5b", "fig6e", "fig7a", "fig7b"], SMALL),
    "language-losses": "llm_losses_digitised.csv",
    "language-overlaps": "llm_overlap_fig8a.csv",
    "chinchilla": "chinchilla_tableA9.csv",
}


def published(name: str) -> dict[str, np.ndarray]:
    """A figure as its series, each (points, 2); a table as its columns, each (rows,), numbers where all are numbers.

    >>> {name: column.shape for name, column in published("chinchilla").items()}
    {'N_million': (50,), 'd_model': (50,)}
    """
    path = published_file(name)
    if path.suffix == ".csv":
        head, *rows = [cells for _, cells in read_table(path)]
        return {column: _column(cells) for column, cells in zip(head, zip(*rows, strict=True), strict=True)}
    content = read_json(path)
    figure = content[name] if path.name == SMALL else content
    return {series: np.array(points, np.float64) for series, points in figure.items()}


def published_file(name: str) -> Path:
    """The file with the points.

    >>> published_file("chinchilla").name
    'chinchilla_tableA9.csv'
    """
    if name not in FILES:
        raise UserError(f'nothing published is called "{name}": choose {", ".join(FILES)}')
    return FOLDER / FILES[name]


def _column(cells: tuple[str, ...]) -> np.ndarray:
    try:
        return np.array([float(cell) for cell in cells])
    except ValueError:
        return np.array(cells)
