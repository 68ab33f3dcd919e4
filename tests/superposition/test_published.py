"""The published points are there, and say what their README says."""

import numpy as np
import pytest

from horosphere.errors import UserError
from horosphere.superposition.published import FILES, FOLDER, published, published_file


@pytest.mark.parametrize("name", FILES)
def test_each_is_there(name):
    points = published(name)
    assert points
    assert all(len(values) and np.isfinite(values).all() for values in points.values() if values.dtype.kind == "f")
    assert published_file(name).name in (FOLDER / "README.md").read_text()


def test_figures_are_points_and_tables_columns():
    assert all(points.shape[1] == 2 for name in FILES if name.startswith("fig") for points in published(name).values())
    for name in ("language-losses", "language-overlaps", "chinchilla"):
        assert len({len(column) for column in published(name).values()}) == 1
    overlaps = published("language-overlaps")
    np.testing.assert_allclose(
        overlaps["m"] * overlaps["mean_square_overlap"], overlaps["m_times_overlap"], rtol=2e-4, atol=0.005
    )


def test_figures_7a_and_7b_meet_where_the_readme_says():
    """7a is at m = 63; 7b at γ = -0.556, its curves at the densities 1, 1.811, 3.432, 5.053, 7.485."""
    by_density = dict(published("fig7a")["-0.556"].round(3).tolist())
    for density, curve in zip((1, 1.811, 3.432, 5.053, 7.485), published("fig7b").values(), strict=True):
        assert dict(curve.tolist())[63] == pytest.approx(by_density[density], abs=6e-4)


def test_an_unknown_name_is_answered_with_all_of_them():
    with pytest.raises(UserError, match=r"fig9.*choose fig1, .*chinchilla"):
        published("fig9")
