"""Pages without the seconds that pixels take."""

import pytest

from tests.plots.reading import Album


@pytest.fixture
def album(monkeypatch):
    """Figures that reports embed or write, by the bytes that stand for them."""
    from horosphere.plots import report

    album = Album()
    monkeypatch.setattr(report, "render", album)
    return album
