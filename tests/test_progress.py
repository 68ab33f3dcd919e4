"""A bar on a terminal, a line now and then elsewhere."""

import io
from contextlib import redirect_stderr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horosphere import progress as module
from horosphere.progress import about, progress


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


def logged(monkeypatch, total, updates):
    """What a log holds after updates (second, done, note)."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with redirect_stderr(io.StringIO()) as stream, progress("training", total) as update:
        for now[0], done, note in updates:
            update(done, note)
    return stream.getvalue().splitlines()


def test_a_log_gets_a_line_now_and_then_and_the_first_says_how_long(monkeypatch):
    said = logged(monkeypatch, 600, [(second, second, f"loss {second}") for second in range(1, 70)])
    assert said == [
        "training: 5 of 600, loss 5, about 10 minutes left",
        "training: 35 of 600, loss 35, about 9 minutes left",
        "training: 65 of 600, loss 65, about 9 minutes left",
    ]


def test_short_work_leaves_a_log_empty(monkeypatch):
    assert logged(monkeypatch, 3, [(1, 1, ""), (2, 2, ""), (6, 3, "")]) == []


def test_the_pace_of_a_resumed_job_is_that_of_the_rest(monkeypatch):
    assert logged(monkeypatch, 600, [(1, 541, ""), (5, 545, "")]) == ["training: 545 of 600, about a minute left"]


def test_where_nothing_is_done_yet_nothing_is_promised(monkeypatch):
    assert logged(monkeypatch, 600, [(1, 0, "a-0"), (6, 0, "a-0")]) == ["training: 0 of 600, a-0"]


def test_work_within_work_has_a_line_of_its_own(terminal):
    with redirect_stderr(terminal), progress("training", 3) as outer, progress("ranking", 7) as inner:
        outer(1, "loss 2")
        inner(5, "nodes")
        inner(6, "nodes")
    assert "ranking" in terminal.getvalue()
    assert "training" in terminal.getvalue()


def test_inner_work_that_fails_takes_its_line_with_it(terminal):
    with redirect_stderr(terminal), progress("training", 3) as outer:
        with pytest.raises(OSError, match="no disk"), progress("ranking", 7):
            raise OSError("no disk")
        assert [task.description for task in module._bars[-1].tasks] == ["training"]
        outer(2, "loss 1")
    assert module._bars == []


def test_no_work_has_no_bar(terminal):
    with redirect_stderr(terminal), progress("embedding", 0) as update:
        update(0, "")
    assert terminal.getvalue() == ""


@given(st.floats(0, 1e6), st.floats(1, 10))
def test_a_longer_time_is_said_to_be_no_shorter(seconds, times):
    sizes = {"second": 1, "minute": 60, "hour": 3600}

    def meant(text):
        _, count, unit = text.split()
        return sizes[unit.rstrip("s")] * (1 if count == "a" else int(count))

    assert meant(about(seconds)) <= meant(about(seconds * times))
    assert meant(about(seconds)) == pytest.approx(seconds, rel=0.34, abs=1)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "1 second"), (1.4, "1 second"), (20, "20 seconds"), (50, "a minute"), (100, "2 minutes"), (7000, "2 hours")],
)
def test_durations_are_said_as_people_say_them(seconds, said):
    assert about(seconds) == f"about {said}"


def test_the_cursor_returns_when_the_work_fails(terminal):
    with pytest.raises(KeyboardInterrupt), redirect_stderr(terminal), progress("embedding", 3):
        raise KeyboardInterrupt
    assert "\x1b[?25h" in terminal.getvalue()
