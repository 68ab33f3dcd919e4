"""The notebooks of the docs run as they are printed, and stay small."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

pytest.importorskip("nbclient")
pytest.importorskip("sklearn")
FOLDER = Path(__file__).parents[1] / "docs"
spec = spec_from_file_location("run_notebooks", FOLDER / "run_notebooks.py")
run_notebooks = module_from_spec(spec)
spec.loader.exec_module(run_notebooks)


def test_there_are_six_in_an_order():
    assert [name.partition("-")[0] for name in run_notebooks.names()] == list("123456")


@pytest.mark.parametrize("name", run_notebooks.names())
def test_it_runs(name, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    book = run_notebooks.executed(name)
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert any(output.get("text") for cell in cells for output in cell.outputs)
    assert not any(output.get("name") == "stderr" for cell in cells for output in cell.outputs)


@pytest.mark.parametrize("name", run_notebooks.names())
def test_what_is_kept_is_small_and_no_failure(name):
    file = FOLDER / "notebooks" / f"{name}.ipynb"
    book = run_notebooks.nbformat.read(file, as_version=4)
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    assert outputs, "run it: python docs/run_notebooks.py"
    assert all(output.output_type != "error" for output in outputs)
    assert file.stat().st_size < 100_000
