"""Recurrent layers: the printed formulas in every geometry, torch's call, and a flat limit that is torch's own."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

from horosphere.geometry import Euclidean, Lorentz, Poincare, Product, lorentz_to_poincare
from horosphere.nn import GRU, LSTM, RNN
from horosphere.nn.part_way import part_way
from horosphere.nn.recurrent import gated
from tests.nn import recurrent_reference
from tests.nn.samples import CURVATURES, CURVED, DIM, manifold, points

MADE = {
    "rnn": RNN,
    "gru": GRU,
    "gru, reset before": lambda *args, **options: GRU(*args, reset="before", **options),
    "lstm": LSTM,
}
TORCHS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
kinds = pytest.mark.parametrize("kind", MADE)
curvatures = pytest.mark.parametrize("c", CURVATURES)


def make(kind, m, *sizes, times=True, seed=0, dtype=torch.float64, **options):
    torch.manual_seed(seed)
    layer = MADE[kind](*(sizes or (DIM, DIM)), m, **options).to(dtype)
    with torch.no_grad():
        for name, p in layer.named_parameters():
            if name.startswith("time_weight") and times:
                p.normal_(std=0.3)
    return layer


def sequences(m, steps=4, batch=3, seed=0, dim=DIM, std=0.5):
    generator = torch.Generator().manual_seed(seed)
    return m.random(steps, batch, dim, std=std, generator=generator, dtype=torch.float64)


def state_of(layer, batch=3, seed=5):
    layers = layer.num_layers * (1 + layer.bidirectional)
    h = sequences(layer.manifold, layers, batch, seed, layer.hidden_size)
    return (h, torch.randn(h.shape, dtype=h.dtype)) if isinstance(layer, LSTM) else h


def assert_close(a, b, **how):
    a, b = (t if isinstance(t, tuple) else (t,) for t in (a, b))
    for one, two in zip(a, b, strict=True):
        torch.testing.assert_close(one, two, **{"rtol": 1e-9, "atol": 1e-11, **how})


# -- the formulas -----------------------------------------------------------------------------------------------------


@curvatures
@pytest.mark.parametrize("name", ["euclidean", *CURVED])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"num_layers": 2, "bidirectional": True}])
@kinds
def test_layers_are_the_slow_formulas(kind, options, name, c):
    if name == "product" and options.get("bidirectional"):
        pytest.skip("refused")
    layer = make(kind, manifold(name, c), **options)
    x, given = sequences(layer.manifold), state_of(layer)
    for hx in (None, given):
        out, last = layer(x, hx)
        last = last if isinstance(last, tuple) else (last,)
        for row in range(3):
            parts = None if hx is None else [part[:, row] for part in (hx if isinstance(hx, tuple) else (hx,))]
            states = None if parts is None else list(zip(*parts, strict=True))
            expected, ends = recurrent_reference.run(layer, x[:, row], states)
            assert_close(out[:, row], expected)
            assert_close(tuple(part[:, row] for part in last), ends)


def test_reset_before_the_product_is_the_textbooks():
    """H̃ = tanh(X W_x + (R⊙H) W_h + b), and H' = Z⊙H + (1-Z)⊙H̃."""
    layer = make("gru, reset before", Euclidean(), 5, 4)
    x, h = sequences(Euclidean(), 1, 3, dim=5)[0], torch.zeros(3, 4, dtype=torch.float64)
    h = torch.randn_like(h)
    (W_r, W_z, W_n), (U_r, U_z, U_n) = layer.weight_ih_l0.chunk(3), layer.weight_hh_l0.chunk(3)
    b_r, b_z, b_n = (layer.bias_ih_l0 + layer.bias_hh_l0).chunk(3)
    r, z = torch.sigmoid(x @ W_r.T + h @ U_r.T + b_r), torch.sigmoid(x @ W_z.T + h @ U_z.T + b_z)
    expected = z * h + (1 - z) * torch.tanh(x @ W_n.T + (r * h) @ U_n.T + b_n)
    assert_close(layer(x[None], h[None])[0][0], expected)
    after = GRU(5, 4, Euclidean()).double()
    after.load_state_dict(layer.state_dict())
    assert (after(x[None], h[None])[0][0] - expected).abs().max() > 1e-3  # another map


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_the_loop_in_flat_space_is_torchs_layer(kind):
    """What curved layers run, run on a flat product: no kernel of torch's is left in it."""
    m = Product((Euclidean(), 2), (Euclidean(), 4))
    layer, theirs = make(kind, m, num_layers=2), TORCHS[kind](DIM, DIM, num_layers=2).double()
    theirs.load_state_dict(layer.state_dict())
    x, hx = sequences(m), state_of(layer)
    (a, mine), (b, other) = layer(x, hx), theirs(x, hx)
    assert_close((a, *mine), (b, *other))


# -- laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lorentz", "poincare"])
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_no_curvature_is_torchs_layer(kind, name):
    """H1: the error is O(c), with no weight for times."""
    flat = make(kind, Euclidean(), 5, 4, num_layers=2, bidirectional=True)
    u = sequences(Euclidean(), dim=5)
    expected, errors = flat(u)[0], []
    for c in (1e-2, 1e-4, 1e-6):
        m = manifold(name, c)
        layer = make(kind, m, 5, 4, times=False, num_layers=2, bidirectional=True)
        layer.load_state_dict(flat.state_dict(), strict=False)
        errors.append((m.ambient(layer(m.point(u))[0])[0] - expected).abs().max().item())
    assert errors[0] < 0.1
    assert errors[1] <= 0.02 * errors[0] + 1e-12
    assert errors[2] <= 0.02 * errors[1] + 1e-12


@curvatures
def test_a_part_of_the_way_is_a_change_of_units_and_of_charts(c):
    """H2 and H3 of what a gate does; tanh, which is not homogeneous, has no H2."""
    L, P, one = Lorentz(c), Poincare(c), Lorentz()
    x, y = points(L, seed=1, std=c**-0.5), points(L, seed=2, std=c**-0.5)
    part = torch.rand(x.shape, dtype=x.dtype)
    got = part_way(x, y, part, L)
    assert_close(got, part_way(c**0.5 * x, c**0.5 * y, part, one) / c**0.5)
    p, q = (lorentz_to_poincare(t, c) for t in (x, y))
    on_ball = P.translate(P.lift(part * P.lower(P.translate(q, -p))), p)
    assert_close(lorentz_to_poincare(got, c), on_ball)
    assert_close(part_way(x, y, torch.zeros_like(x), L), x, rtol=1e-15, atol=0)
    assert_close(part_way(x, y, torch.ones_like(x), L), y)


@curvatures
def test_one_gate_for_all_coordinates_is_the_geodesic_wherever_the_pair_lies(c):
    """H4: a common translation moves it along."""
    m = Lorentz(c)
    x, y, by = (points(m, seed=seed, std=0.5 * c**-0.5) for seed in (1, 2, 3))
    part = torch.full_like(x, 0.3)
    assert_close(part_way(x, y, part, m), m.geodesic(x, y, 0.3))
    moved = part_way(m.translate(x, by), m.translate(y, by), part, m)
    assert_close(moved, m.translate(part_way(x, y, part, m), by), rtol=1e-8)


@curvatures
@pytest.mark.parametrize("radius", [0.0, 1e-9, 1.0, 3.0])
def test_gradients_of_a_gate(c, radius):
    """H5: at the origin, near it, at the middle and at the edge of what a network reaches; second ones too."""
    generator, unit = torch.Generator().manual_seed(1), radius / math.sqrt(c * 4)
    x, y = (unit * torch.randn(3, 4, generator=generator, dtype=torch.float64) for _ in "xy")
    y[0] = x[0]
    leaves = [t.requires_grad_() for t in (x, y, torch.rand(3, 4, generator=generator, dtype=torch.float64))]
    for m in (Lorentz(c), Product((Lorentz(c), 2), (Euclidean(), 2))):
        assert torch.autograd.gradcheck(lambda *leaves, m=m: part_way(*leaves, m), leaves)
        assert torch.autograd.gradgradcheck(lambda *leaves, m=m: part_way(*leaves, m), leaves, rtol=2e-3)


def test_states_stay_where_candidates_are():
    """As printed, gates that differ from coordinate to coordinate throw states farther out at every step."""
    m, generator = Lorentz(), torch.Generator().manual_seed(0)
    h = plain = torch.zeros(20, 64)
    for _ in range(40):
        candidate, z = (torch.rand(20, 64, generator=generator) for _ in "cz")
        candidate, z = (6 * candidate - 3).tanh(), (z > 0.5).float()
        h, plain = gated(h, candidate, z, m), part_way(plain, candidate, 1 - z, m)
    assert not plain.isfinite().all()
    assert h.abs().max() <= 1


@curvatures
def test_the_bound_on_states_changes_no_geodesic(c):
    m = Lorentz(c)
    x, y = points(m, seed=1, std=c**-0.5), points(m, seed=2, std=c**-0.5)
    assert_close(gated(x, y, torch.full_like(x, 0.7), m), m.geodesic(x, y, 0.3))


@kinds
def test_gradients_through_time_and_layers(kind):
    m = Lorentz(0.7, learn=True)
    layer = make(kind, m, 3, 2, num_layers=2, bidirectional=True)
    names = [name for name, _ in layer.named_parameters()]
    x = sequences(m, 3, 2, dim=3).detach().requires_grad_()

    def call(x, *leaves):
        return torch.func.functional_call(layer, dict(zip(names, leaves, strict=True)), (x,))[0]

    assert torch.autograd.gradcheck(call, (x, *layer.parameters()))


def test_gates_agree_with_geoopts_of_the_hyperbolic_gru():
    """H6: HNN's GRU at c = 1 takes h ⊕ diag(z)((-h) ⊕ h̃), its z being ours of the other side."""
    geoopt = pytest.importorskip("geoopt")
    ball, P = geoopt.PoincareBall(1.0), Poincare(1.0)
    h, candidate = points(P, seed=1, std=0.4), points(P, seed=2, std=0.4)
    z = torch.rand(h.shape, dtype=h.dtype)
    theirs = ball.mobius_add(h, ball.mobius_pointwise_mul(z, ball.mobius_add(-h, candidate)))
    ours = part_way(P.ambient(h)[0], P.ambient(candidate)[0], z, P.free_chart)
    assert_close(P.point(ours), theirs, rtol=1e-7, atol=1e-9)


# -- torch's call -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["euclidean", "lorentz"])
@kinds
def test_batches_first_and_sequences_alone(kind, name):
    m = manifold(name)
    layer, first = make(kind, m, num_layers=2), make(kind, m, num_layers=2, batch_first=True)
    x, hx = sequences(m), state_of(layer)
    (out, last), (other, end) = layer(x, hx), first(x.transpose(0, 1), hx)
    assert_close(other.transpose(0, 1), out)
    assert_close(end, last)
    alone = tuple(part[:, 0] for part in hx) if isinstance(hx, tuple) else hx[:, 0]
    for same in (layer, first):
        out_alone, last_alone = same(x[:, 0], alone)
        assert_close(out_alone, out[:, 0])
        assert_close(last_alone, tuple(p[:, 0] for p in last) if isinstance(last, tuple) else last[:, 0])


@pytest.mark.parametrize("name", ["euclidean", "lorentz", "poincare"])
@pytest.mark.parametrize("bidirectional", [False, True])
@kinds
def test_packed_sequences_are_each_as_alone(kind, bidirectional, name):
    m = manifold(name)
    layer, lengths = make(kind, m, num_layers=2, bidirectional=bidirectional), [2, 5, 3, 5]
    x = sequences(m, 5, 4)
    rows = [x[:n, row] for row, n in enumerate(lengths)]
    packed = pack_sequence(rows, enforce_sorted=False)
    out, last = layer(packed)
    assert torch.equal(out.batch_sizes, packed.batch_sizes)
    assert torch.equal(out.sorted_indices, packed.sorted_indices)
    padded, _ = pad_packed_sequence(out)
    for row, sequence in enumerate(rows):
        alone, end = layer(sequence)
        assert_close(padded[: len(sequence), row], alone)
        assert_close(tuple(p[:, row] for p in last) if isinstance(last, tuple) else last[:, row], end)
    ordered = pack_padded_sequence(x[:, [1, 3, 2]], [5, 5, 3])
    assert layer(ordered)[0].sorted_indices is None


def test_dropout_between_layers_only():
    m = Lorentz()
    layer = make("gru", m, num_layers=2, dropout=0.5)
    x = sequences(m)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert_close(layer(x)[0], make("gru", m, num_layers=2)(x)[0])


@pytest.mark.parametrize("name", ["lorentz", "poincare"])
@kinds
def test_one_graph_holds_the_loop(kind, name):
    m = manifold(name, learn=True)
    layer = make(kind, m, num_layers=2, dtype=torch.float32)
    x = sequences(m).float().detach()
    expected = layer(x)[0]
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)[0]
    torch.testing.assert_close(compiled, expected, rtol=1e-4, atol=1e-5)
    weights = list(layer.parameters())
    for a, b in zip(*(torch.autograd.grad(t.square().sum(), weights) for t in (compiled, expected)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["lorentz", "poincare"])
@kinds
def test_a_compiled_layer_compiles_its_step_once(kind, name):
    m = manifold(name)
    layer = make(kind, m, num_layers=2, dtype=torch.float32)
    x = sequences(m, 7).float()
    expected = layer(x)[0]
    torch._dynamo.reset()
    graphs = []

    def counted(graph, inputs):
        graphs.append(graph)
        return graph.forward

    layer.compile(backend=counted)
    for _ in range(3):
        torch.testing.assert_close(layer(x)[0], expected, rtol=1e-4, atol=1e-5)
    assert len(graphs) <= 2  # the first layer's input is wanted no gradient of


@pytest.mark.parametrize("name", ["euclidean", "lorentz", "poincare"])
@kinds
def test_autocast_stays_near(kind, name):
    m = manifold(name)
    layer = make(kind, m, dtype=torch.float32)
    x = sequences(m).float()
    expected = layer(x)[0]
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x)[0]
    out.float().sum().backward()
    assert (out.float() - expected).abs().max() < 0.05
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@kinds
def test_times_have_no_weight_at_first_and_a_reset_makes_a_layer_anew(kind):
    for m in (Euclidean(), Lorentz(1.0, learn=True)):
        torch.manual_seed(0)
        fresh = MADE[kind](5, 4, m)
        used = copy.deepcopy(fresh)
        with torch.no_grad():
            for p in used.parameters():
                p.fill_(0.5)
        torch.manual_seed(0)
        used.reset_parameters()
        named = dict(fresh.named_parameters())
        times = [name for name in named if name.startswith("time_weight")]
        assert len(times) == (0 if m.flat else 2)
        assert not any(named[name].any() for name in times)
        for name, p in used.named_parameters():
            assert torch.equal(p, named[name]) != name.startswith("manifold")  # whose curvature is its own


def test_what_makes_no_sense_is_refused_in_one_line():
    L = Lorentz()
    product = Product((L, 2), (Euclidean(), 4))
    for wrong, complaint in (
        (lambda: GRU(DIM, DIM, product, bidirectional=True), "in one direction only"),
        (lambda: GRU(DIM, 4, product), "points of this product have 6 coordinates"),
        (lambda: GRU(DIM, 4, L, reset="never"), 'choose "after" or "before"'),
        (lambda: RNN(DIM, 4, L)(torch.zeros(3, 2, 5, 6)), "give points as"),
        (lambda: RNN(DIM, 4, L)(torch.zeros(3, 2, 6), torch.zeros(2, 2, 4)), r"\(2, 2, 4\); give 1 x \(1, 2, 4\)"),
        (lambda: LSTM(DIM, 4, L)(torch.zeros(3, 2, 6), torch.zeros(1, 2, 4)), "give 2 x"),
    ):
        with pytest.raises(ValueError, match=complaint) as error:
            wrong()
        assert "\n" not in str(error.value)


def test_parameters_are_counted_with_both_biases():
    assert sum(p.numel() for p in RNN(28, 32, Euclidean()).parameters()) == 1984
    assert sum(p.numel() for p in RNN(28, 32, Lorentz()).parameters()) == 1984 + 2 * 32
