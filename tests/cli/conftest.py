"""What tests of several commands share: a folder of its own for each, the command line, and what a refusal must be."""

from pathlib import Path

import pytest

from horosphere.train import engine
from tests.cli.command_line import runner
from tests.cli.graph_commands import TREE, everything


@pytest.fixture
def _beside_a_tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tree.tsv").write_text(TREE)


@pytest.fixture
def run(capsys):
    return runner(capsys)


@pytest.fixture
def refused(run, monkeypatch):
    """refused(*words): the one line that refuses a command; nothing was written, and to train is a mistake."""
    monkeypatch.setattr(engine._Loop, "step", lambda *_: pytest.fail("it trained before it complained"))

    def refused(*words):
        before = everything()
        code, out, err = run(*words)
        assert (code, out) == (2, "")
        assert err.startswith("horosphere: ")
        assert err.count("\n") == 1
        assert err.endswith("\n")
        assert everything() == before
        return err

    return refused
