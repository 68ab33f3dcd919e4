"""What an error tells the user to install exists."""

import re
import tomllib
from pathlib import Path

import pytest

from horosphere.errors import UserError
from horosphere.extras import NEEDS, require

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAMED = {
    name: match[1] for name, (_, _, line) in NEEDS.items() if (match := re.fullmatch(r"'horosphere\[(\w+)\]'", line))
}


@pytest.mark.parametrize(("feature", "extra"), NAMED.items())
def test_every_extra_that_is_named_exists(feature, extra):
    assert extra in PROJECT["optional-dependencies"]


def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(NEEDS, "moon", ("journeys", ("no_such_rocket",), "'horosphere[moon]'"))
    with pytest.raises(UserError, match=r"journeys need the package no_such_rocket: pip install 'horosphere\[moon\]'"):
        require("moon")
