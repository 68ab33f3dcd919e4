"""What is no tensor, or has another dimension, is refused in one line; leading axes still broadcast."""

import inspect

import numpy as np
import pytest
import torch

from horosphere.geometry import Euclidean, Lorentz, Poincare, Product, WrappedNormal, exterior_angle
from tests.geometry.samples import CURVED, DIM, HYPERBOLIC, MANIFOLDS, manifold

VECTORS = ("x", "y", "u", "v", "w", "p", "g", "r", "by")  # the names manifolds give to points and vectors
OTHERS = {"t": 0.3, "dist": torch.zeros(2)}
NO_VECTORS = {"self", "weights", "weight", "std", "generator", "shape", "factory", "dtype", *OTHERS}


def functions(m):
    """(name, arguments) of every public function of the manifold that takes two points or vectors, or more."""
    for name, f in inspect.getmembers(type(m), inspect.isfunction):
        mine = f.__module__.startswith("horosphere.") and not name.startswith("_")
        arguments = list(inspect.signature(f).parameters) if mine else []
        if sum(a in VECTORS for a in arguments) >= 2:
            yield name, [a for a in arguments if a in VECTORS or a in OTHERS]


EVERY = [(name, f, arguments) for name in MANIFOLDS for f, arguments in functions(manifold(name, 1.0))]
NAMED = {"ids": lambda value: value if isinstance(value, str) else ""}
REFUSED = [case for case in EVERY if case[:2] != ("product", "dist_to_hyperplane")]  # which a product refuses anyway


def call(m, f, arguments, sizes, named=False):
    """f of zeros (2, size) for each vector; by position or by name."""
    sizes = iter(sizes)
    values = {a: OTHERS[a] if a in OTHERS else torch.zeros(2, next(sizes)) for a in arguments}
    return getattr(m, f)(**values) if named else getattr(m, f)(*values.values())


def test_every_argument_is_known():
    """A new function with vectors by other names must not slip through: neither here nor in the check itself."""
    for name in MANIFOLDS:
        for f, function in inspect.getmembers(type(manifold(name, 1.0)), inspect.isfunction):
            if function.__module__.startswith("horosphere.geometry") and not f.startswith("_"):
                unknown = set(inspect.signature(function).parameters) - {*VECTORS, *NO_VECTORS}
                assert not unknown, (f, unknown)
    assert len({f for _, f, _ in EVERY}) >= 17


@pytest.mark.parametrize("name", MANIFOLDS)
@pytest.mark.parametrize("given", [np.zeros((2, DIM)), [[0.0] * DIM] * 2, None], ids=["numpy", "list", "None"])
def test_what_is_no_tensor_is_refused(name, given):
    m = manifold(name, 1.0)
    for f, arguments in functions(m):
        if (name, f) == ("product", "dist_to_hyperplane"):
            continue
        for wrong in (a for a in arguments if a in VECTORS):
            values = {a: OTHERS[a] if a in OTHERS else torch.zeros(2, DIM) for a in arguments} | {wrong: given}
            with pytest.raises(TypeError, match=r"; give (a tensor, as in torch\.(from_numpy|tensor)\(|it)") as error:
                getattr(m, f)(**values)
            assert "\n" not in str(error.value)
    if name != "euclidean":  # where these functions give back what they get
        for f in (m.exp0, m.log0, m.dist0, m.lift, m.lower, m.ambient, m.log_volume):
            with pytest.raises(TypeError, match="; give "):
                f(given)


def test_how_to_make_a_tensor_is_said():
    L, x = Lorentz(), np.zeros((2, DIM))
    for call, line in (
        (lambda: L.dist(x, x), "dist: x is an array of numpy; give a tensor, as in torch.from_numpy(x)"),
        (lambda: L.dist(torch.zeros(2), [0.0, 0.0]), "dist: y is a list; give a tensor, as in torch.tensor(y)"),
        (lambda: L.exp0(1.0), "exp0: v is a float; give a tensor, as in torch.tensor(v)"),
        (lambda: L.exp0(None), "exp0: v is None; give it as a tensor (..., d)"),
    ):
        with pytest.raises(TypeError) as error:
            call()
        assert str(error.value) == line


@pytest.mark.parametrize(("name", "f", "arguments"), REFUSED, **NAMED)
def test_different_dimensions_are_refused(name, f, arguments):
    m = manifold(name, 1.0)
    count = sum(a in VECTORS for a in arguments)
    call(m, f, arguments, [DIM] * count)
    for position in range(count):
        for size in (1, DIM - 1, DIM + 1):  # one coordinate is what torch broadcasts without a word
            sizes = [DIM] * count
            sizes[position] = size
            for named in (False, True):
                with pytest.raises(ValueError, match=rf"(has {size}\b|\b{size} coordinates?\b)") as error:
                    call(m, f, arguments, sizes, named)
                assert "\n" not in str(error.value)


BROADCAST = [case for case in REFUSED if case[1] not in ("flow_", "pairwise", "pairwise_sq", "pairwise_reach")]


@pytest.mark.parametrize(("name", "f", "arguments"), BROADCAST, **NAMED)
def test_leading_axes_broadcast(name, f, arguments):
    """As if every argument had been expanded to the same shape before, the result too."""
    m = manifold(name, 1.0)
    shapes = [(3, 1, DIM), (4, DIM), (DIM,), (2, 1, 1, DIM)]
    values, whole = [], torch.broadcast_shapes(*shapes[: sum(a in VECTORS for a in arguments)])
    for a in arguments:
        random = torch.Generator().manual_seed(len(values))
        values.append(0.1 * torch.rand(shapes[len(values)], generator=random) if a in VECTORS else 0.3)
    got = getattr(m, f)(*values)
    expected = getattr(m, f)(*(a.expand(whole) if isinstance(a, torch.Tensor) else a for a in values))
    for one, other in zip(got, expected, strict=True) if f == "flow" else ((got, expected),):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", ["euclidean", *HYPERBOLIC])
def test_the_line_says_who_has_how_many(name):
    with pytest.raises(ValueError, match=r"dist: x has 3 coordinates, y has 1; they need as many .* leading axes"):
        manifold(name, 1.0).dist(torch.zeros(2, 3), torch.zeros(2, 1))
    with pytest.raises(ValueError, match=r"dist: x has 3 coordinates, y is a single number"):
        manifold(name, 1.0).dist(torch.zeros(2, 3), torch.tensor(0.0))
    with pytest.raises(ValueError, match=r"exterior_angle: x has 3 coordinates, y has 1"):
        exterior_angle(torch.zeros(2, 3), torch.zeros(2, 1), manifold(name, 1.0))


def test_a_product_says_which_dimensions_it_has():
    m = Product((Lorentz(), 2), (Euclidean(), 3))
    for f in (m.exp, m.log, m.translate, m.add):
        with pytest.raises(ValueError, match=r"1 coordinates? for a product of dimensions 2 \+ 3"):
            f(torch.zeros(4, 5), torch.zeros(4, 1))


@pytest.mark.parametrize("name", MANIFOLDS)
def test_as_many_weights_as_points(name):
    m, x = manifold(name, 1.0), torch.zeros(2, 5, DIM)
    assert m.midpoint(x, torch.ones(5)).shape == m.midpoint(x, torch.ones(3, 1, 5)).shape[1:] == (2, DIM)
    for shape in ((1,), (2,), (2, 1), (5, 1), (2, 5, 1), ()):
        for call in (lambda w: m.midpoint(x, w), lambda w: m.midpoint(x, weights=w)):
            with pytest.raises(ValueError, match=r"midpoint: .* weights? for 5 points; give \(..., 5\)"):
                call(torch.ones(shape))
    with pytest.raises(ValueError, match=r"midpoint: x is a single point"):
        m.midpoint(torch.zeros(DIM))


@pytest.mark.parametrize("name", MANIFOLDS)
def test_one_time_and_one_weight_for_each_point(name):
    """(3,) beside points (3, 3) would be a time for each coordinate: in flat space it may be, as optimizers use it."""
    m = Product((Lorentz(), 2), (Euclidean(), 1)) if name == "product" else manifold(name, 1.0)
    x, y = torch.zeros(3, 3), torch.full((3, 3), 0.1)
    for one in (0.5, torch.tensor(0.5), torch.full((1,), 0.5), torch.full((3, 1), 0.5), torch.full((7, 3, 1), 0.5)):
        assert m.geodesic(x, y, one).shape[-2:] == m.flow(x, y, one)[0].shape[-2:] == m.add(x, y, one).shape[-2:]
    calls = [lambda t, f=f: f(x, y, t) for f in (m.geodesic, m.add, m.flow, m.flow_)]
    for wrong in (2, 4):
        for f in calls:
            with pytest.raises(ValueError, match=rf"(t|weight) has {wrong} numbers .* \(\.\.\., 1\)"):
                f(torch.ones(wrong))
    if name in CURVED:
        for f in calls:
            with pytest.raises(ValueError, match=r"(t|weight) has 3 numbers .* \(\.\.\., 1\)"):
                f(torch.ones(3))
    else:
        assert m.flow(x, y, torch.ones(3))[0].shape == (3, 3)


def test_a_wrapped_normal_has_one_dimension():
    for m in (Euclidean(), Lorentz(), Poincare()):
        for std in (torch.ones(4), torch.ones(2, 4), torch.ones(2, 3, 2)):
            with pytest.raises(ValueError, match=r"WrappedNormal: mean has 3 coordinates, std has \d"):
                WrappedNormal(m, torch.zeros(2, 3), std)
        normal = WrappedNormal(m, torch.zeros(2, 3), torch.ones(2, 1))
        with pytest.raises(ValueError, match=r"(has 1\b|\b1 coordinate)"):
            normal.log_prob(torch.zeros(2, 1))


def test_slots_of_different_width_are_not_joined():
    for m in (Euclidean(), Lorentz()):
        with pytest.raises(ValueError, match=r"join: .* has 4 coordinates, .* has 1"):
            m.slots.join([(torch.zeros(2, 4), 1.0), (torch.zeros(2, 1), 1.0)])


@pytest.mark.parametrize("name", MANIFOLDS)
def test_meta_tensors_have_shapes_too(name):
    m = manifold(name, 1.0)
    x = torch.zeros(2, DIM, device="meta")
    assert m.dist(x, x[:1]).shape == (2,)
    with pytest.raises(ValueError, match=r"(has 1\b|\b1 coordinate)"):
        m.dist(x, x[:, :1])


def test_inside_vmap_and_compiled():
    m, x = Lorentz(), torch.zeros(4, 3)
    with pytest.raises(ValueError, match="y has 1"):
        torch.func.vmap(m.dist)(x, x[:, :1])
    with pytest.raises(Exception, match="y has 1"):
        torch.compile(m.dist, fullgraph=True, backend="eager")(x, x[:, :1])
    assert torch.func.vmap(m.dist, in_dims=(0, None))(x, x[0]).shape == (4,)


NO_FACTORS = (
    *([[Lorentz(), Poincare()]], [Lorentz(), Poincare()], [(Lorentz(), Poincare())], [(5, Lorentz())], [None]),
    *([(Lorentz(), dim)] for dim in (0, -1, 2.5, True, "5", None)),
    *([("lorentz", 5)], [(Lorentz, 5)], [(Lorentz(), 5, 1.0)]),
)


@pytest.mark.parametrize("factors", NO_FACTORS, ids=str)
def test_factors_of_a_product_that_are_none(factors):
    with pytest.raises(TypeError) as error:
        Product(*factors)
    how = "give factors as (manifold, dimension), e.g. Product((Lorentz(), 5), (Euclidean(), 5))"
    assert str(error.value).endswith(f" is no factor: {how}")
    assert "\n" not in str(error.value)


def test_weights_that_are_none():
    for weights in ((float("nan"), 1.0), (0.0, 1.0), (1.0,), (float("inf"), 1.0), "ab", (None, 1.0), 2.0):
        with pytest.raises(ValueError, match=r"^weights .*: give one positive number for each of the 2 factors$"):
            Product((Lorentz(), 2), (Euclidean(), 2), weights=weights)
    with pytest.raises(TypeError, match=r"^midpoint: weights is an array of numpy; give a tensor"):
        Lorentz().midpoint(torch.zeros(3, 2), np.ones(3))
