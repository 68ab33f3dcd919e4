"""PyPI's classifiers are one tree, named by their paths."""

import sys

import pytest

from horosphere.data.builtin import trove_classifiers
from horosphere.errors import UserError


def test_the_classifiers_are_one_tree():
    tree = trove_classifiers()
    assert tree.directed
    assert len(tree) > 700
    assert len(tree.edges) == len(tree) - 1
    assert (tree.depth() == 0).sum() == 1
    assert tree.labels[0] == "PyPI"


def test_a_classifier_lies_below_its_path():
    tree = trove_classifiers()
    parent = {tree.labels[child]: tree.labels[above] for child, above in tree.edges}
    assert parent["Topic :: Scientific/Engineering :: Physics"] == "Topic :: Scientific/Engineering"
    assert parent["Topic :: Scientific/Engineering"] == "Topic"
    assert parent["Topic"] == "PyPI"


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "trove_classifiers", None)
    with pytest.raises(UserError, match="pip install"):
        trove_classifiers()
