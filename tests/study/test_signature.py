"""The search over products: what is tried, what is kept, and that it finds the geometry the data come from."""

import json
import math

import pytest

from horosphere.errors import Diverged, UserError
from horosphere.geometry import Sphere, geometry
from horosphere.runs import Run
from horosphere.study import signature
from horosphere.study.executors import Here
from horosphere.study.signature import FAST, Round, search, signatures
from horosphere.train.recipe import Recipe
from tests.tasks.test_distances import PATH, sampled


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 10, 11, 20])
def test_signatures_are_products_of_the_dimension_each_once(dim):
    names = signatures(dim)
    assert len(names) == len(set(names))
    assert {"euclidean", "sphere", *["lorentz"] * (dim > 1)} <= set(names)
    assert not any("lorentz:1" in name.split("+") for name in names)  # a line, flat as any
    for name in names:
        assert getattr(geometry(name, dim), "dim", dim) == dim


def test_signatures_of_ten_dimensions_are_those_of_the_paper():
    assert signatures(10)[3:] == [
        "lorentz:5+lorentz:5",
        "sphere:5+sphere:5",
        "lorentz:5+sphere:5",
        "lorentz:5+euclidean:5",
        "euclidean:5+sphere:5",
        "lorentz:4+euclidean:3+sphere:3",
        "+".join(["lorentz:2"] * 5),
        "+".join(["sphere:2"] * 5),
        "lorentz:2+lorentz:2+euclidean:2+sphere:2+sphere:2",
    ]


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """quick(text, *settings, out=…): a search whose jobs run in this process, in two rounds."""
    monkeypatch.setattr(signature, "ROUNDS", (Round(4, None, (FAST, 1.0)), Round(1, 2, ())))
    begun = []

    def here(jobs, executor, update):
        from horosphere.cli import main

        codes = {}
        for job in jobs:
            begun.append(job.name)
            codes[job.name] = main(job.command)
        assert {*codes.values()} <= {0, Diverged.exit_code}
        return {name: "diverged" for name, code in codes.items() if code}

    monkeypatch.setattr("horosphere.study.jobs.run_all", here)

    def quick(text, *settings, out="found", **how):
        begun.clear()
        (tmp_path / "graph.edges").write_text(text)
        words = [f"data={tmp_path}/graph.edges", "graph=true", *settings]
        return search(words, tmp_path / out, Here(), "cpu", quiet=True, **how), begun

    return quick


def test_the_sphere_is_found_for_distances_of_a_sphere(quick, tmp_path, monkeypatch):
    monkeypatch.setattr(signature, "signatures", lambda dim: ["euclidean", "lorentz", "sphere", "lorentz:2+sphere:1"])
    found, _ = quick(sampled(Sphere(1.0), 30, 0.7), "dim=3", "steps=1200")
    assert found.best.signature == "sphere"
    assert found.best.lr > Recipe.read("distances", ["data=x"]).engine.lr  # briefly trained, flat space learns faster
    assert found.best.distortion < 0.01
    assert math.copysign(1, found.best.curvatures[0]) == 1
    run = Run.open(tmp_path / "found")
    assert run.load().config.geometry == "sphere"
    assert run.scores()["distortion"] == found.best.distortion
    table = json.loads((tmp_path / "found/signatures.json").read_text())
    assert [row["signature"] for row in table] == [one.signature for one in found.candidates]


def test_the_best_go_on_and_the_same_search_finds_the_same(quick, tmp_path):
    found, begun = quick(PATH, "dim=2", "steps=8")
    first, last = signatures(2), [one for one in found.candidates if one.round == 2]
    assert len(begun) == 2 * len(first) + 2  # each at two rates
    assert [one.steps for one in found.candidates] == [8, 8] + [2] * (len(first) - 2)
    assert {one.signature for one in found.candidates} == set(first)
    assert last == sorted(last, key=lambda one: one.distortion) == found.candidates[:2]
    _, begun = quick(PATH, "dim=2", "steps=8", "lr=0.1", out="one")
    assert len(begun) == len(first) + 2
    again, _ = quick(PATH, "dim=2", "steps=8", overwrite=True)
    assert [one.distortion for one in again.candidates] == [one.distortion for one in found.candidates]
    with pytest.raises(UserError, match="exists already"):
        quick(PATH, "dim=2", "steps=8")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["geometry=sphere"], "geometry=sphere and --signature: both choose the geometry; leave one of them out"),
        (["place=tree"], "place=tree is of objective=ranking"),
    ],
)
def test_what_a_search_cannot_do_is_told_before_it_begins(quick, tmp_path, settings, said):
    with pytest.raises(UserError, match=said):
        quick(PATH, *settings)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph.edges"]
