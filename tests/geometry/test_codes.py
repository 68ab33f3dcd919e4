"""Directions well apart: unit vectors, no two nearer than promised, and the known best where there are few."""

import math

import numpy as np
import pytest

from horosphere.geometry.codes import spherical_code, widest_angle

SIZES = [1, 2, 3, 4, 5, 7, 12, 33, 200, 1000]


def angles(code):
    """Of all pairs, from their chords: a cosine near 1 would lose them."""
    chords = np.linalg.norm(code[:, None] - code[None], axis=-1)[np.triu_indices(len(code), 1)]
    return 2 * np.arcsin(np.minimum(chords / 2, 1))


@pytest.mark.parametrize("dim", [2, 3, 4, 7])
@pytest.mark.parametrize("count", SIZES)
def test_no_two_are_nearer_than_promised(count, dim):
    code = spherical_code(count, dim)
    assert code.shape == (count, dim)
    np.testing.assert_allclose(np.linalg.norm(code, axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(code[0], -np.eye(dim)[0], atol=0)
    if count > 1:
        assert angles(code).min() >= widest_angle(count, dim) - 1e-8


@pytest.mark.parametrize("dim", [3, 4, 7])
def test_simplices_and_cross_polytopes_come_out(dim):
    for count in range(2, dim + 2):  # dim + 1 is all a simplex has
        np.testing.assert_allclose(angles(spherical_code(count, dim)), math.acos(-1 / (count - 1)), rtol=1e-6)
    assert math.isclose(widest_angle(2 * dim, dim), math.pi / 2)


def test_a_circle_is_cut_evenly():
    code = spherical_code(7, 2)
    turn = np.sort(np.arctan2(code[:, 1], code[:, 0]))
    np.testing.assert_allclose(np.diff(turn), 2 * math.pi / 7)


@pytest.mark.parametrize(("count", "best"), [(8, 74.858), (12, 63.435), (20, 47.431), (100, 21.134)])
def test_on_the_sphere_it_is_near_the_best_known(count, best):
    """Tables of spherical codes by Sloane."""
    assert 0.92 * best < math.degrees(widest_angle(count, 3)) <= best + 1e-3


def test_more_directions_are_nearer():
    for dim in (2, 3, 5):
        wide = [widest_angle(count, dim) for count in (2, 4, 16, 64, 256, 5000)]
        assert wide == sorted(wide, reverse=True)
