"""Layers on slots: what each makes of the points in them, and that flat space gets torch's own layers."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from horosphere.geometry import Euclidean, Lorentz
from horosphere.nn import (
    Attention,
    LatentAttention,
    LatentSizes,
    MixtureOfExperts,
    SlotLinear,
    SlotNorm,
    SlotResidual,
    TokenHead,
)
from horosphere.nn.slots import residual_norm, side_by_side


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


def random(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


def test_no_layer_reads_what_a_matrix_left_in_the_slot_of_the_time():
    L = Lorentz(1.0)
    u = random(5, 8)
    other = u.clone()
    other[:, 0] = 100
    norm, residual = SlotNorm(8, L).double(), SlotResidual(8, L).double()
    assert torch.equal(norm(u), norm(other))
    assert torch.equal(residual(u, u), residual(other, other))


def test_norm_does_not_depend_on_the_scale_of_its_input():
    norm = SlotNorm(64, Lorentz(1.0), eps=1e-12).double()
    u = random(5, 64)
    assert_close(norm(u), norm(1000 * u))
    assert_close(norm(u)[:, 1:].square().mean(-1), torch.ones(5, dtype=torch.float64))


def test_flat_layers_are_torch():
    flat = Euclidean()
    u, v = random(4, 8, dtype=torch.float32), random(4, 8, dtype=torch.float32)
    assert torch.equal(SlotNorm(8, flat)(u), F.rms_norm(u, (8,), torch.ones(8), 1e-6))
    assert torch.equal(SlotResidual(8, flat)(u, v), u + v)
    assert SlotResidual(8, flat).weight is None
    linear = SlotLinear(8, 5, flat)
    assert linear.weight[:, 0].abs().min() > 0
    assert torch.equal(linear(u), F.linear(u, linear.weight))


def test_columns_of_times_start_at_zero_for_each_point():
    linear = SlotLinear(24, 5, Lorentz(1.0), points=3)
    weight = linear.weight.view(5, 3, 8)
    assert (weight[..., 0] == 0).all()
    assert (weight[..., 1:] != 0).all()


def test_the_stream_keeps_its_length_and_its_old_content():
    """s·N(x + w·y): without s the stream would shrink to length about 1 in one layer."""
    L = Lorentz(1.0)
    residual = SlotResidual(256, L).double()
    x = L.slots.space(60 * F.normalize(random(10, 256), dim=-1))
    y = L.slots.space(0.5 * F.normalize(random(10, 256), dim=-1))
    out = residual(x, y)
    assert (out.norm(dim=-1) > 20).all()
    assert (F.cosine_similarity(out, x) > 0.99).all()


def test_residual_and_norm_together_are_one_after_the_other():
    L = Lorentz(0.5)
    residual, norm = SlotResidual(16, L).double(), SlotNorm(16, L).double()
    x, y = random(4, 16), random(4, 16)
    normed, joined = residual_norm(x, y, residual, norm)
    assert torch.equal(joined, residual(x, y))
    assert torch.equal(normed, norm(joined))


def test_layers_side_by_side_are_the_layers_one_by_one():
    layers = [SlotLinear(8, size, Lorentz()).double() for size in (4, 6, 4)]
    for layer in layers:
        torch.nn.init.normal_(layer.weight)
    x = random(3, 8).requires_grad_()
    weights = [layer.weight for layer in layers]
    forms = (side_by_side(x, layers), torch.cat([layer(x) for layer in layers], -1))
    results = [(form, *torch.autograd.grad(form.square().sum(), [x, *weights])) for form in forms]
    for one, apart in zip(*results, strict=True):
        assert_close(one, apart)


LATENT = LatentSizes(q_latent=6, kv_latent=8, nope=4, rope=4, value=4)
SLOT_LAYERS = {
    "linear": lambda m: SlotLinear(8, 5, m),
    "norm": lambda m: SlotNorm(8, m),
    "centroid": lambda m: SlotResidual(8, m),
    "additive": lambda m: SlotResidual(8, m, "additive"),
    "attention": lambda m: Attention(8, 2, 4, m),
    "latent attention": lambda m: LatentAttention(8, 2, m, LATENT),
    "mixture": lambda m: MixtureOfExperts(8, 6, m, routed=3, active=2, shared=1, spread=(0.5, 2.0)),
    "head": lambda m: TokenHead(8, 11, m),
}


@pytest.mark.parametrize("manifold", [Lorentz(0.7), Euclidean()], ids=["lorentz", "euclidean"])
@pytest.mark.parametrize("kind", SLOT_LAYERS)
def test_reset_makes_a_layer_anew(kind, manifold):
    """What a model made on the meta device needs: to_empty() leaves garbage, reset_parameters() a start."""
    torch.manual_seed(0)
    fresh = SLOT_LAYERS[kind](manifold)
    used = SLOT_LAYERS[kind](manifold)
    for t in (*used.parameters(), *used.buffers()):
        torch.nn.init.constant_(t, torch.nan)
    torch.manual_seed(0)
    for module in used.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    for (name, a), b in zip(fresh.state_dict().items(), used.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_a_wrapped_layer_is_heard_in_training():
    """Adapters replace a layer by one of their own: its weight alone is not what it computes."""

    class Doubled(SlotLinear):
        def forward(self, x):
            return 2 * super().forward(x)

    layers = [SlotLinear(8, 4, Lorentz()), Doubled(8, 4, Lorentz())]
    x = random(3, 8, dtype=torch.float32)
    assert_close(side_by_side(x, layers), torch.cat([layer(x) for layer in layers], -1))
