"""Pictures in several geometries: who is compared, what the verdict may say, and a comparison from the first step to the table."""

import json

import pytest

pytest.importorskip("torchvision", reason="pictures need torchvision")

from horosphere.errors import UserError
from horosphere.train.compare_images import RESULTS, ImageComparison, Row, compare_images, entrants
from tests.data.pictures import write_npz
from tests.train.tiny_images import SMALL


def row(name, *top1):
    return Row(name, 10, {"top1": list(top1), "tree_error": [1.0] * len(top1)}, 100.0)


def test_hcformer_is_compared_in_its_geometries_and_hi_mapper_with_none():
    assert [e.name for e in entrants("hcformer-nano-32", ["data=a.npz"])] == ["E + E", "H + H", "H + E"]
    assert [e.name for e in entrants("himapper-32", ["data=a.npz"])] == [
        "Hi-Mapper",
        "Hi-Mapper, flat loss",
        "without Hi-Mapper",
    ]


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        (
            [row("H + E", 0.5, 0.52), row("E + E", 0.4, 0.41)],
            "H + E beats E + E on top-1 beyond the spread of seeds. Curvature pays on these pictures.",
        ),
        (
            [row("H + E", 0.5, 0.6), row("E + E", 0.45, 0.6)],
            "H + E and E + E are within the spread of seeds of each other on top-1. Curvature does not pay",
        ),
        (
            [row("E + E", 0.5, 0.6), row("H + E", 0.1, 0.2)],
            "E + E beats H + E on top-1 beyond the spread of seeds. Curvature does not pay",
        ),
        (
            [row("E + E", 0.5, 0.6), row("H + E", 0.5, 0.58)],
            "E + E and H + E are within the spread of seeds of each other on top-1. Curvature does not pay",
        ),
        ([row("H + E", 0.5), row("E + E", 0.1)], "one run says nothing about chance"),
    ],
)
def test_the_verdict_says_no_more_than_the_table(rows, verdict):
    assert verdict in ImageComparison(rows, len(rows[0].metrics["top1"])).verdict()


def test_a_comparison_is_trained_tabled_and_kept(tmp_path):
    data = write_npz(tmp_path / "colours.npz")
    settings = [f"data={data}", *SMALL, "steps=2", "eval_every=2"]
    found = compare_images("hcformer-nano-32", settings, tmp_path / "out", seeds=1, jobs=2, quiet=True)
    assert {r.name for r in found.rows} == {"E + E", "H + H", "H + E"}
    heads, cells = found.cells()
    assert heads == ["network", "parameters", "top-1 ↑", "top-5 ↑", "images/s"]
    assert len(cells) == 3
    assert len(json.loads((tmp_path / "out" / RESULTS).read_text())["rows"]) == 3
    with pytest.raises(UserError, match="this is what the compared networks differ in"):
        compare_images("hcformer-nano-32", [*settings, "patch_geometry=lorentz"], tmp_path / "out", quiet=True)
