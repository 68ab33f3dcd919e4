"""Small graphs for the command line, and the folder before and after a command."""

from pathlib import Path

import pytest

from horosphere.train import compare, embed

TREE = "".join(f"n{i}\tn{(i - 1) // 2}\n" for i in range(1, 31))
RING = "".join(f"{i},{(i + 1) % 9}\n" for i in range(9))
SHORT = ["--epochs", "3", "--dim", "3", "--negatives", "20"]


def everything():
    return {str(path): path.read_bytes() if path.is_file() else None for path in Path().rglob("*")}


def refuser(run, monkeypatch):
    """refused(*words): the one line that refuses a command; nothing was written, and to train is a mistake."""
    monkeypatch.setattr(embed, "embed", lambda *_: pytest.fail("it trained before it complained"))
    monkeypatch.setattr(compare, "embed", lambda *_: pytest.fail("it trained before it complained"))

    def refused(*words):
        before = everything()
        code, out, err = run(*words)
        assert (code, out) == (2, ""), (code, out, err)
        assert err.startswith("horosphere: "), err
        assert err.count("\n") == 1, err
        assert err.endswith("\n"), err
        assert everything() == before, sorted(everything())
        return err

    return refused
