"""A bar on a terminal, silence elsewhere."""

import io
from contextlib import redirect_stderr

import pytest

from horosphere.train.progress import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "140")
    return Terminal()


def test_a_terminal_shows_a_bar_and_clears_it(terminal):
    with redirect_stderr(terminal), progress("embedding", 3) as update:
        update(2, "loss 0.125")
    shown = terminal.getvalue()
    assert "embedding" in shown
    assert "2/3" in shown
    assert "loss 0.125" in shown
    assert shown.endswith("\x1b[2K")  # the line is erased at the end


def test_quiet_is_silent_on_a_terminal(terminal):
    with redirect_stderr(terminal), progress("embedding", 3, quiet=True) as update:
        update(2, "loss 0.125")
    assert terminal.getvalue() == ""


def test_a_log_file_stays_empty():
    with redirect_stderr(io.StringIO()) as stream, progress("embedding", 3) as update:
        update(2, "loss 0.125")
    assert stream.getvalue() == ""


def test_the_cursor_returns_when_the_work_fails(terminal):
    with pytest.raises(KeyboardInterrupt), redirect_stderr(terminal), progress("embedding", 3):
        raise KeyboardInterrupt
    assert "\x1b[?25h" in terminal.getvalue()
