"""Runs the notebooks of docs/notebooks, each in a new kernel, and keeps what they print.

    python docs/run_notebooks.py                    # all of them, in place
    python docs/run_notebooks.py 1-manifolds        # one of them

What a run leaves that is another one each time (dates, counters) is not kept.
"""

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).with_name("notebooks")
LONGEST = 300  # seconds of a cell


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def executed(name: str) -> Any:
    """The notebook after a run; what a cell raises is raised here."""
    book = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    NotebookClient(book, timeout=LONGEST, resources={"metadata": {"path": FOLDER}}).execute()
    for cell in book.cells:
        cell.metadata.pop("execution", None)
    return book


def main() -> None:
    for name in sys.argv[1:] or names():
        print(name, flush=True)
        nbformat.write(executed(name), FOLDER / f"{name}.ipynb")


if __name__ == "__main__":
    main()
