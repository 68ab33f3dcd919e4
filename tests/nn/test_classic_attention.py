"""Attention of the classics: torch's in flat space; on the hyperboloid the slow formula, and the geometry's laws."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from horosphere.geometry import Euclidean, Lorentz, Poincare, Product
from horosphere.nn import CAUSAL, FULL, AdditiveAttention, MultiHeadAttention
from horosphere.nn.attention import attend
from tests.nn.samples import CURVATURES, manifold

DIM, HEADS, BATCH, QUERIES, KEYS = 8, 2, 3, 5, 7
SIZE = DIM // HEADS
curvatures = pytest.mark.parametrize("c", CURVATURES)


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


def points(*shape, std=1.0):
    return std * torch.randn(*shape, dtype=torch.float64)


def moved(module):
    """Every parameter in general position, fp64."""
    with torch.no_grad():
        for name, p in module.named_parameters():
            p.add_(0.2 * torch.randn(p.shape)) if "log_ratio" not in name else p.fill_(0.2)
    return module.double()


def attention(m):
    return moved(MultiHeadAttention(DIM, HEADS, m))


MASKS = {
    "full": FULL,
    "causal": CAUSAL,
    "booleans": torch.rand(BATCH, 1, QUERIES, KEYS) > 0.4,
    "numbers": torch.randn(BATCH, HEADS, QUERIES, KEYS, dtype=torch.float64),
}
MASKS["booleans"][..., 0] = True


def additive(mask):
    """Any mask as numbers to add."""
    if mask is FULL:
        return torch.zeros(1, 1, QUERIES, KEYS, dtype=torch.float64)
    seen = torch.ones(1, 1, QUERIES, KEYS).tril() > 0 if mask is CAUSAL else mask
    return torch.zeros(seen.shape).double().masked_fill(~seen, -torch.inf) if seen.dtype == torch.bool else seen


# Flat: torch's own


def torchs_run(module, x, memory, mask=FULL):
    """torch wants masks (B·heads, T, S), and none for full attention."""
    numbers = None if mask is FULL else additive(mask).expand(BATCH, HEADS, -1, -1).flatten(0, 1)
    return module(x, memory, memory, attn_mask=numbers, need_weights=False)[0]


def twins():
    made = []
    for make in (lambda: MultiHeadAttention(DIM, HEADS, Euclidean()), lambda: nn.MultiheadAttention(DIM, HEADS)):
        torch.manual_seed(0)
        made.append(make())
    made[1].batch_first = True
    return made


def test_a_seed_gives_the_weights_of_torch():
    ours, torchs = (module.state_dict() for module in twins())
    assert ours.keys() == torchs.keys()
    assert all(torch.equal(ours[name], torchs[name]) for name in torchs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_flat_attention_is_torchs_bit_for_bit(dtype):
    """One sequence: torch then multiplies the same rows in the same order."""
    ours, torchs = (module.to(dtype) for module in twins())
    x, memory = torch.randn(1, 6, DIM).to(dtype), torch.randn(1, 4, DIM).to(dtype)
    assert torch.equal(ours(x), torchs_run(torchs, x, x))
    assert torch.equal(ours(x, memory), torchs_run(torchs, x, memory))


@pytest.mark.parametrize("kind", MASKS)
def test_flat_attention_is_torchs_under_every_mask(kind):
    ours, torchs = (module.double() for module in twins())
    x, memory = points(BATCH, QUERIES, DIM).requires_grad_(), points(BATCH, KEYS, DIM)
    results = [ours(x, memory, MASKS[kind]), torchs_run(torchs, x, memory, MASKS[kind])]
    assert_close(*results, rtol=0, atol=1e-12)
    grads = [
        torch.autograd.grad((y**2).sum(), (x, *module.parameters()))
        for y, module in zip(results, (ours, torchs), strict=True)
    ]
    for a, b in zip(*grads, strict=True):
        assert_close(a, b, rtol=0, atol=1e-11)


def test_d2l_additive_attention():
    """softmax(w_vᵀ tanh(W_q q + W_k k)) V, padding masked; formula of d2l's AdditiveAttention."""
    ours = moved(AdditiveAttention(4, 6, 8, Euclidean()))
    query, keys, values = points(2, 3, 4), points(2, 5, 6), points(2, 5, 10)
    lengths = torch.tensor([2, 5])
    features = torch.tanh((query @ ours.query.weight.T).unsqueeze(2) + (keys @ ours.key.weight.T).unsqueeze(1))
    scores = features @ ours.v.weight[0]
    seen = torch.arange(5) < lengths[:, None, None]
    expected = torch.bmm(torch.where(seen, scores, -1e6).softmax(-1), values)
    assert_close(ours(query, keys, values, seen), expected, rtol=0, atol=1e-12)


# The hyperboloid: the slow formula


def slow(module, x, memory, mask):
    """Head by head and query by query: softmax(-d_L²/τ), d_L² = 2(cosh(√c dist) - 1)/c, `midpoint` of values."""
    m, c = module.manifold, float(module.manifold.c)
    mask = additive(mask).expand(BATCH, HEADS, -1, -1)

    def project(x, part):
        rows = slice(part * DIM, (part + 1) * DIM)
        y = x @ module.in_proj_weight[rows].T + module.in_proj_bias[rows]
        return (y + m.time(x) / math.sqrt(DIM) @ module.in_proj_time[rows].T).unflatten(-1, (HEADS, SIZE))[..., 1:]

    q, k, v = project(x, 0), project(memory, 1), project(memory, 2)
    tau = math.sqrt(SIZE) * module.temperature.log.exp().item()
    out = torch.empty(*x.shape[:-1], DIM, dtype=torch.float64)
    for b in range(BATCH):
        for h in range(HEADS):
            for t in range(x.shape[1]):
                d2 = 2 * ((c**0.5 * m.dist(q[b, t, h], k[b, :, h])).cosh() - 1) / c
                value = m.midpoint(v[b, :, h], (-d2 / tau + mask[b, h, t]).softmax(-1))
                out[b, t, h * SIZE : (h + 1) * SIZE] = torch.cat((m.time(value), value))
    return out @ module.out_proj.weight.T + module.out_proj.bias


@curvatures
@pytest.mark.parametrize("kind", MASKS)
def test_hyperbolic_attention_is_the_slow_formula(kind, c):
    module = attention(Lorentz(c))
    x, memory = points(BATCH, QUERIES, DIM), points(BATCH, KEYS, DIM)
    with torch.no_grad():
        assert_close(module(x, memory, MASKS[kind]), slow(module, x, memory, MASKS[kind]), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["euclidean", "lorentz"])
def test_a_token_does_not_see_those_after_it(name):
    module, x = attention(manifold(name)), points(BATCH, QUERIES, DIM)
    other = x.clone()
    other[:, 3:] += 1
    assert torch.equal(module(x, mask=CAUSAL)[:, :3], module(other, mask=CAUSAL)[:, :3])
    assert not torch.equal(module(x)[:, :3], module(other)[:, :3])


@pytest.mark.parametrize("name", ["euclidean", "lorentz"])
def test_what_is_kept_is_what_is_seen(name):
    module, x, memory = attention(manifold(name)), points(BATCH, QUERIES, DIM), points(BATCH, KEYS, DIM)
    assert_close(module.look(x, module.keys_values(memory)), module(x, memory))
    assert_close(module.look(x, module.keys_values(x)), module(x))


@pytest.mark.parametrize("m", [Poincare(), Product((Lorentz(), 4), (Euclidean(), 4))], ids=["ball", "product"])
def test_other_geometries_are_refused(m):
    with pytest.raises(NotImplementedError, match="use Lorentz or Euclidean"):
        MultiHeadAttention(DIM, HEADS, m)


def test_heads_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="8 dimensions do not divide into 3 heads"):
        MultiHeadAttention(8, 3, Euclidean())
    with pytest.raises(ValueError, match="leave none beside the time"):
        MultiHeadAttention(8, 8, Lorentz())


# Laws


def flat_limit(module, x):
    """softmax(-|q - k|²/τ) and means, on the slots beside the times; time columns count for nothing."""
    u = (x @ module.in_proj_weight.T + module.in_proj_bias).unflatten(-1, (3, HEADS, SIZE))[..., 1:]
    q, k, v = u.permute(2, 0, 3, 1, 4)
    tau = math.sqrt(SIZE) * module.temperature.log.exp().item()
    mean = (-torch.cdist(q, k).square() / tau).softmax(-1) @ v
    out = torch.cat((torch.zeros_like(mean[..., :1]), mean), -1).transpose(1, 2).flatten(-2)
    return out @ module.out_proj.weight.T + module.out_proj.bias


def still(module):
    """Time columns at 0: time grows as 1/√c, and with others there is no limit."""
    with torch.no_grad():
        module.in_proj_time.zero_()
        module.out_proj.still_time()
    return module


def test_flat_limit():
    x, errors = points(BATCH, QUERIES, DIM), []
    for c in (1e-3, 1e-4):
        torch.manual_seed(1)
        module = still(attention(Lorentz(c)))
        errors.append((module(x) - flat_limit(module, x)).abs().max().item())
    assert errors[0] < 0.05
    assert errors[1] == pytest.approx(errors[0] / 10, rel=0.1)


@curvatures
def test_scaling(c):
    """f_c(x) = f₁(√c x)/√c with biases, which are lengths, and τ, a squared one, scaled alike."""
    curved, x = attention(Lorentz(c)), points(BATCH, QUERIES, DIM)
    unit = MultiHeadAttention(DIM, HEADS, Lorentz(1.0)).double()
    unit.load_state_dict(dict(curved.state_dict()))
    with torch.no_grad():
        unit.in_proj_bias.mul_(c**0.5)
        unit.out_proj.bias.mul_(c**0.5)
        unit.temperature.log.add_(math.log(c))
    assert_close(unit(c**0.5 * x) / c**0.5, curved(x))


@curvatures
def test_attention_moves_with_its_points(c):
    """Weights depend on distances only, and centroids move along: translating all three translates the outcome."""
    m = Lorentz(c)
    q, k, v, by = (points(1, 1, n, DIM, std=0.7) for n in (QUERIES, KEYS, KEYS, 1))

    def look(q, k, v):
        slots, empty = m.slots, torch.zeros(1, dtype=torch.float64)
        q, k, v = (torch.cat((empty.expand(*u.shape[:-1], 1), u), -1) for u in (q, k, v))
        out = attend(slots.heads(q, query=True), slots.heads(k), slots.heads(v), FULL, scale=0.5)
        return slots.centre(out.transpose(1, 2))[..., 1:]

    expected = m.translate(look(q, k, v), by)
    assert_close(look(*(m.translate(u, by) for u in (q, k, v))), expected)


@pytest.mark.parametrize("radius", [0.0, 1.0, 8.0])
@curvatures
def test_gradients(c, radius):
    """At the origin, where points usually are, and far out; of a learned curvature too."""
    module = attention(Lorentz(c, learn=True))
    direction = nn.functional.normalize(points(1, 3, DIM), dim=-1)
    x = module.manifold.exp0(radius / c**0.5 * direction).detach().requires_grad_()
    with torch.no_grad():
        for weight in (module.in_proj_weight, module.in_proj_time):  # heads of order 1, as norms make them
            weight.div_(max(1.0, math.sinh(radius)))
    names, leaves = zip(*module.named_parameters(), strict=True)

    def call(x, *leaves):
        return torch.func.functional_call(module, dict(zip(names, leaves, strict=True)), (x,))

    # far out coordinates are thousands, and so is what a step of a weight does
    assert torch.autograd.gradcheck(call, (x, *leaves), eps=1e-8 if radius > 1 else 1e-6, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_lower_precision_stays_near(dtype):
    exact = attention(Lorentz(1.0))
    x = points(BATCH, QUERIES, DIM)
    y = copy.deepcopy(exact).to(dtype)(x.to(dtype))
    assert y.dtype == dtype
    assert_close(y.double(), exact(x), rtol=0, atol=0.1 if dtype == torch.bfloat16 else 1e-5)


def test_one_graph_holds_it():
    module, x = MultiHeadAttention(DIM, HEADS, Lorentz()), torch.randn(2, 5, DIM)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for mask in (FULL, CAUSAL):
        assert_close(compiled(x, mask=mask), module(x, mask=mask))


@pytest.mark.parametrize("name", ["euclidean", "lorentz"])
def test_reset_makes_a_layer_anew(name):
    """What a model made on the meta device needs."""
    torch.manual_seed(0)
    fresh = MultiHeadAttention(DIM, HEADS, manifold(name))
    used = copy.deepcopy(fresh)
    for p in used.parameters():
        nn.init.constant_(p, torch.nan)
    torch.manual_seed(0)
    for module in used.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), used.parameters(), strict=True))


# Additive


@pytest.mark.parametrize("score", ["additive", "distance"])
@pytest.mark.parametrize("name", ["euclidean", "lorentz", "poincare", "product"])
def test_rows_sum_to_one_and_skip_what_is_hidden(name, score):
    m = manifold(name)
    module = moved(AdditiveAttention(6, 6, 6, m, score))
    query, keys = m.random(2, 3, 6, dtype=torch.float64), m.random(2, 5, 6, dtype=torch.float64)
    seen = (torch.arange(5) < torch.tensor([2, 5])[:, None]).unsqueeze(1)
    weights = module.weights(query, keys, seen)
    assert_close(weights.sum(-1), torch.ones(2, 3, dtype=torch.float64))
    assert not weights[0, :, 2:].any()
    assert_close(module(query, keys, visible=seen)[0], module(query[:1], keys[:1, :2])[0])


@curvatures
def test_distance_weights_do_not_notice_a_translation(c):
    m = Lorentz(c)
    module = AdditiveAttention(4, 4, 4, m, "distance").double()
    for linear in (module.query, module.key):
        nn.init.eye_(linear.weight)
    query, keys, by = points(1, 3, 4), points(1, 5, 4), points(4)
    expected = (-m.pairwise(query, keys)).softmax(-1)
    assert_close(module.weights(query, keys), expected)
    assert_close(module.weights(m.translate(query, by), m.translate(keys, by)), expected)


def test_unknown_scores_are_named():
    with pytest.raises(ValueError, match='"dot": choose "additive" or "distance"'):
        AdditiveAttention(4, 4, 4, Euclidean(), "dot")
