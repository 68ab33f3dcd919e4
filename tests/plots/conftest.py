"""Pages without the seconds that pixels take, and one look for everything that is drawn."""

import pytest

from tests.plots.reading import Album


@pytest.fixture
def album(monkeypatch):
    """Figures that reports embed or write, by the bytes that stand for them."""
    from horosphere.plots import report

    album = Album()
    monkeypatch.setattr(report, "render", album)
    return album


@pytest.fixture(autouse=True)
def one_look(request, monkeypatch):
    """What the house drew in a test is looked at when the test is over."""
    figures = pytest.importorskip("matplotlib.figure", reason="pictures need matplotlib")
    from tests.plots.look import check

    made, begin = [], figures.Figure.__init__

    def begun(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(figures.Figure, "__init__", begun)
    yield
    # they draw something of their own, or over photographs, whose size says how wide a line is
    if request.path.stem not in ("test_style", "test_report", "test_photographs"):
        for figure in made:
            check(figure)
