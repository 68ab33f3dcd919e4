"""Geometries by name, products, and what is said to who gets them wrong."""

import pytest
import torch

from horosphere.errors import UserError
from horosphere.geometry import (
    GEOMETRIES,
    Euclidean,
    Lorentz,
    Poincare,
    Product,
    exterior_angle,
    geometry,
    half_aperture,
)


def test_every_name_is_a_geometry():
    for name in GEOMETRIES:
        x = geometry(name, 5).random(3, 5)
        assert x.shape == (3, 5)


def test_names_mean_what_they_say():
    assert isinstance(geometry("euclidean", 3), Euclidean)
    assert isinstance(geometry("lorentz", 3, c=2.0), Lorentz)
    assert geometry("poincare", 3, c=2.0).c == 2.0
    assert geometry("lorentz", 3, learn=True).learn
    assert geometry("product", 5).dims == [3, 2]
    mixed = geometry("lorentz:2+poincare:3+euclidean:1", 6, c=0.5)
    assert mixed.dims == [2, 3, 1]
    assert [type(m) for m in mixed.factors] == [Lorentz, Poincare, Euclidean]
    assert [m.c for m in mixed.factors] == [0.5, 0.5, 0.0]
    assert geometry("lorentz:4", 4).dims == [4]


@pytest.mark.parametrize(
    ("name", "dim", "c", "says"),
    [
        ("hyperbolic", 3, 1.0, "unknown geometry"),
        ("", 3, 1.0, "unknown geometry"),
        ("Lorentz", 3, 1.0, "unknown geometry"),
        ("torus:3", 3, 1.0, "unknown geometry"),
        ("lorentz:", 3, 1.0, "should read name:dimension"),
        ("lorentz:x", 3, 1.0, "should read name:dimension"),
        ("lorentz:0+euclidean:3", 3, 1.0, "should read name:dimension"),
        ("lorentz:-2+euclidean:5", 3, 1.0, "should read name:dimension"),
        ("lorentz:²", 2, 1.0, "should read name:dimension"),
        ("lorentz:2+", 2, 1.0, "should read name:dimension"),
        ("product:4", 4, 1.0, "should read name:dimension"),
        ("lorentz:6+euclidean:4", 9, 1.0, "10 dimensions, not 9"),
        ("product", 1, 1.0, "at least 2"),
        ("sphere", 3, 0.0, "positive"),
        ("lorentz", 3, -1.0, "positive"),
        ("lorentz", 3, float("nan"), "positive"),
    ],
)
def test_a_wrong_name_is_the_users_error(name, dim, c, says):
    with pytest.raises(UserError, match=says):
        geometry(name, dim, c)


def test_a_wrong_product_says_what_to_do():
    m = Product((Lorentz(), 2), (Euclidean(), 3), weights=(1, 2))
    x = torch.zeros(4, 5)
    assert m.dim == 5
    assert "weights=[1.0, 2.0]" in repr(m)
    with pytest.raises(ValueError, match="4 coordinates for a product of dimensions 2 \\+ 3"):
        m.exp0(torch.zeros(4))
    with pytest.raises(ValueError, match="is empty"):
        Product()
    for weights in ((1,), (1, 0), (1, -2)):
        with pytest.raises(ValueError, match="one positive number for each of the 2 factors"):
            Product((Lorentz(), 2), (Euclidean(), 3), weights=weights)
    with pytest.raises(TypeError, match="ask its factors"):
        m.c  # noqa: B018
    with pytest.raises(TypeError, match="on each factor"):
        m.dist_to_hyperplane(x, x, x)
    for cone in (lambda: half_aperture(x, m), lambda: exterior_angle(x, x, m)):
        with pytest.raises(TypeError, match="on each factor"):
            cone()


def test_products_of_products():
    inner = Product((Lorentz(), 2), (Euclidean(), 1), weights=(2, 1))
    nested = Product((inner, 3), (Poincare(), 2), weights=(3, 1))
    plain = Product((Lorentz(), 2), (Euclidean(), 1), (Poincare(), 2), weights=(6, 3, 1))
    x, y = plain.random(4, 5), plain.random(4, 5)
    torch.testing.assert_close(nested.dist(x, y), plain.dist(x, y))
    torch.testing.assert_close(nested.lower(x), plain.lower(x))
    torch.testing.assert_close(nested.exp(x, y), plain.exp(x, y))
    torch.testing.assert_close(nested.component_sqnorm(x, y), plain.component_sqnorm(x, y))
    torch.testing.assert_close(nested.flow(x, y, 0.5), plain.flow(x, y, 0.5))
