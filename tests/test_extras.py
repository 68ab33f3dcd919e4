"""What an error tells the user to install exists."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from horosphere import catalogue
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


def test_a_model_whose_package_is_missing_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "horosphere.models.recurrent", raising=False)
    with pytest.raises(UserError, match=r"language models need the package transformers: pip install 'horosphere"):
        catalogue.resolve("horosphere.models.recurrent:RecurrentConfig")
    with pytest.raises(ModuleNotFoundError):
        catalogue.resolve("horosphere.nothing:here")
