"""The kernels against their torch forms: run by test_kernels.py under TRITON_INTERPRET=1, and as it is on a GPU."""

import functools
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from horosphere.geometry import Euclidean, Lorentz, Sphere
from horosphere.nn import centred, clustering, kernels
from horosphere.nn.clustering import ClusterSizes
from horosphere.nn.rotary import Angles, rotary_angles, rotate

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
kernels.stream.PROGRAMS = 3  # rows are shared out among few: the interpreter takes one after the other
C = 0.7
L = Lorentz(C)
FLAT, SPHERE = Euclidean(), Sphere()


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype).requires_grad_()


def agree(fast, slow, inputs: list[Tensor], atol: float = 2e-5) -> None:
    """Values, with and without autograd, and gradients, the latter of a random linear function of the outputs."""
    results = []
    for form in (fast, slow):
        outputs = form(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        total = sum((o.float() * random(*o.shape, seed=9 + n).detach()).sum() for n, o in enumerate(outputs))
        results.append((outputs, torch.autograd.grad(total, inputs)))
    (a, da), (b, db) = results
    with torch.no_grad():
        alone = fast(*inputs)
    for x, y in zip(alone if isinstance(alone, tuple) else (alone,), a, strict=True):
        assert_close(x, y.detach(), atol=0, rtol=0)
    for x, y in zip(a, b, strict=True):
        assert_close(x.float(), y.float(), atol=atol, rtol=atol)
    for x, y in zip(da, db, strict=True):
        scale = y.float().abs().max().clamp_min(1e-6)
        assert_close(x.float() / scale, y.float() / scale, atol=2 * atol, rtol=0)


def value_and_gradients(y: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    return [y.detach().float(), *torch.autograd.grad((y.float() * random(*y.shape, seed=9).detach()).sum(), inputs)]


def as_near(fast: list[Tensor], slow: list[Tensor], truth: list[Tensor], eps: float) -> None:
    """|fast - truth| is not much more than |slow - truth|; a few eps more, as one number may be right by luck."""
    for x, y, z in zip(fast, slow, truth, strict=True):
        assert (x - z).norm() <= 1.5 * (y - z).norm() + (8 if z.numel() == 1 else 0.25) * eps * z.norm()


def norm(dtype: torch.dtype, atol: float) -> None:
    def slow(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        s = L.slots.space(x.float())
        mean = s.square().sum(-1, keepdim=True) / (x.shape[-1] - 1)
        return L.slots.reading(s * (mean + 1e-6).rsqrt() * weight).to(x.dtype), L.slots.space(x)

    def fast(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        out, same = kernels.norm(x, weight, C, 1e-6)
        return out, L.slots.space(same)

    agree(fast, slow, [random(3, 5, 24, dtype=dtype), random(24, seed=1)], atol)


def residual(dtype: torch.dtype, atol: float) -> None:
    w = torch.tensor([0.8], device=DEVICE, requires_grad=True)
    for size in (0.1, 1.0, 5.0):
        x, y = (size * random(2, 4, 20, dtype=dtype, seed=s) for s in (1, 2))
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        agree(
            lambda x, y, w: kernels.residual(x, y, w, 7.0, C),
            lambda x, y, w: (7.0 * L.slots.join([(x, 1.0), (y, w)])).to(x.dtype),
            [x, y, w],
            7 * atol,
        )


def residual_norm(dtype: torch.dtype, atol: float) -> None:
    w = torch.tensor([0.8], device=DEVICE, requires_grad=True)

    def slow(x: Tensor, y: Tensor, w: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        joined = 7.0 * L.slots.join([(x, 1.0), (y, w)])
        mean = joined.square().sum(-1, keepdim=True) / (x.shape[-1] - 1)
        return L.slots.reading(joined * (mean + 1e-6).rsqrt() * weight).to(x.dtype), joined.to(x.dtype)

    for size in (0.1, 2.0):
        x, y = ((size * random(2, 4, 20, seed=s)).detach().to(dtype).requires_grad_() for s in (1, 2))
        agree(lambda *a: kernels.residual_norm(*a, 7.0, C, 1e-6), slow, [x, y, w, random(20, seed=3)], 7 * atol)


def gate(dtype: torch.dtype, atol: float) -> None:
    factor = torch.linspace(0.5, 2, 6, device=DEVICE).requires_grad_()

    def slow(joint: Tensor, factor: Tensor) -> Tensor:
        g, u = joint.float().chunk(2, -1)
        s = factor.unsqueeze(-1)
        return L.slots.reading(F.silu(s * g) * (s * u), s.square() / C).to(joint.dtype)

    joint = random(6, 40, dtype=dtype, seed=2)
    agree(lambda j, f: kernels.gate(j, f, C), slow, [joint, factor], atol)
    agree(lambda j: kernels.gate(j, None, C), lambda j: slow(j, torch.ones(6, device=DEVICE)), [joint], atol)

    def on_sphere(joint: Tensor) -> Tensor:
        g, u = joint.float().chunk(2, -1)
        return SPHERE.slots.reading(F.silu(g) * u).to(joint.dtype)

    agree(lambda j: kernels.gate(j, None, SPHERE.slots.kernel_c), on_sphere, [joint], atol)


def heads(dtype: torch.dtype, atol: float) -> None:
    positions = torch.tensor([[0, 1, 2, 3, 4], [3, 4, 0, 1, 7]], device=DEVICE)
    scale = torch.tensor([0.3], device=DEVICE, requires_grad=True)
    wide = random(2, 5, 3, 20, dtype=dtype)  # a strided view, as a split leaves it
    for p in (positions, positions[:1]):
        full, part = rotary_angles(p, 16, 100.0, still=1), rotary_angles(p, 6, 100.0)
        agree(
            lambda u, s, a=full: kernels.heads(u[..., 2:18], a, s, True, 0, C),
            lambda u, s, a=full: L.slots.heads(rotate(u[..., 2:18], a), s, query=True),
            [wide, scale],
            atol,
        )
        agree(
            lambda u, a=part: kernels.heads(u[..., :16], a, None, False, 10, C),
            lambda u, a=part: L.slots.heads(torch.cat((u[..., :10], rotate(u[..., 10:16], a)), -1)),
            [wide],
            atol,
        )
    agree(lambda u: kernels.heads(u, None, None, False, 0, C), lambda u: L.slots.heads(u), [wide], atol)


def normed_heads(dtype: torch.dtype, atol: float) -> None:
    """With a norm first, on the hyperboloid and on the sphere, there without one too."""
    weight = (1 + 0.3 * random(16, seed=4)).detach().requires_grad_()
    scale = torch.tensor([0.3], device=DEVICE, requires_grad=True)
    angles = rotary_angles(torch.arange(5, device=DEVICE)[None], 6, 100.0)
    u = random(2, 5, 3, 16, dtype=dtype)

    def slow(slots, u: Tensor, s: Tensor, w: Tensor | None, eps: float = 1e-6) -> Tensor:
        y = u.float() if w is None else slots.normed(u.float(), w, eps)
        y = torch.cat((y[..., :10], rotate(y[..., 10:], angles)), -1)
        return slots.heads(y.to(dtype), s, query=True)

    for slots, eps in ((L.slots, 1e-3), (SPHERE.slots, 1e-6)):
        agree(
            lambda u, s, w, slots=slots, eps=eps: kernels.heads(u, angles, s, True, 10, slots.kernel_c, w, eps),
            lambda u, s, w, slots=slots, eps=eps: slow(slots, u, s, w, eps),
            [u, scale, weight],
            atol,
        )
    agree(
        lambda u, s: kernels.heads(u, angles, s, True, 10, SPHERE.slots.kernel_c),
        lambda u, s: slow(SPHERE.slots, u, s, None),
        [u, scale],
        atol,
    )


def queries_keys_values(dtype: torch.dtype, atol: float) -> None:
    positions = torch.tensor([[0, 1, 2, 3, 4], [3, 4, 0, 1, 7]], device=DEVICE)
    scale = torch.tensor([0.3], device=DEVICE, requires_grad=True)

    def slow(u: Tensor, s: Tensor, angles: Angles | None) -> tuple[Tensor, ...]:
        q, k, v = u.unflatten(-1, (3, 3, 16)).unbind(2)
        q, k = (q, k) if angles is None else (rotate(q, angles), rotate(k, angles))
        return L.slots.heads(q, s, query=True), L.slots.heads(k), L.slots.heads(v)

    for angles in (
        None,
        rotary_angles(positions, 16, 100.0, still=1),
        rotary_angles(positions[:1], 16, 100.0, still=1),
    ):
        agree(
            lambda u, s, a=angles: kernels.queries_keys_values(u, a, s, 3, C),
            lambda u, s, a=angles: slow(u, s, a),
            [random(2, 5, 3 * 3 * 16, dtype=dtype), scale],
            atol,
        )


def normed_queries_keys_values(dtype: torch.dtype, atol: float) -> None:
    """On the hyperboloid, the sphere and in flat space, whose scores have no scale."""
    u, scale = random(2, 5, 3 * 3 * 16, dtype=dtype), torch.tensor([0.3], device=DEVICE, requires_grad=True)
    weights = [(1 + 0.3 * random(16, seed=seed)).detach().requires_grad_() for seed in (4, 5)]
    for slots, eps, scales in ((L.slots, 1e-3, [scale]), (SPHERE.slots, 1e-6, [scale]), (FLAT.slots, 1e-3, [])):
        angles = rotary_angles(torch.arange(5, device=DEVICE)[None], 16, 100.0, still=slots.times)

        def slow(
            u: Tensor, of_q: Tensor, of_k: Tensor, s: Tensor | None = None, slots=slots, angles=angles, eps=eps
        ) -> tuple[Tensor, ...]:
            q, k, v = u.unflatten(-1, (3, 3, 16)).unbind(2)
            q, k = slots.normed(q.float(), of_q, eps), slots.normed(k.float(), of_k, eps)
            q, k = rotate(q, angles).to(dtype), rotate(k, angles).to(dtype)
            return slots.heads(q, s, query=True), slots.heads(k), slots.heads(v)

        def fast(
            u: Tensor, of_q: Tensor, of_k: Tensor, s: Tensor | None = None, slots=slots, angles=angles, eps=eps
        ) -> tuple[Tensor, ...]:
            return kernels.queries_keys_values(u, angles, s, 3, slots.kernel_c, (of_q, of_k), eps)

        agree(fast, slow, [u, *weights, *scales], atol)


def towards_norm(dtype: torch.dtype, atol: float) -> None:
    step = (0.2 + 0.1 * random(20, seed=5)).detach().requires_grad_()
    weight = (1 + 0.3 * random(20, seed=3)).detach().requires_grad_()
    x, y = (random(2, 4, 20, dtype=dtype, seed=s) for s in (1, 2))
    for slots in (L.slots, SPHERE.slots, FLAT.slots):

        def slow(x: Tensor, y: Tensor, step: Tensor, weight: Tensor, slots=slots) -> tuple[Tensor, Tensor]:
            joined = slots.towards(x.float(), y.float(), step)
            return slots.normed(joined, weight, 1e-3).to(x.dtype), slots.space(joined).to(x.dtype)

        def fast(*inputs: Tensor, slots=slots) -> tuple[Tensor, Tensor]:
            out, joined = kernels.towards_norm(*inputs, slots.kernel_c, 1e-3)
            return out, slots.space(joined)

        agree(fast, slow, [x, y, step, weight], 2 * atol)


def unit_rows(dtype: torch.dtype, atol: float) -> None:
    weight = random(3, 5, 20, dtype=dtype).detach()
    weight[1, 2] = 0
    expected = torch.where(weight == 0, 0.0, F.normalize(weight.float(), dim=-1))
    kernels.unit_rows(weight)
    assert_close(weight.float(), expected, atol=atol, rtol=0)


def keys_values(dtype: torch.dtype, atol: float) -> None:
    def slow(kv: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        k, v = kv.split((10, 8), -1)
        return L.slots.heads(torch.cat((k, key.unsqueeze(2).expand(-1, -1, 3, -1)), -1)), L.slots.heads(v)

    agree(
        lambda kv, key: kernels.keys_values(kv, key, 10, C),
        slow,
        [random(2, 5, 3, 18, dtype=dtype), random(2, 5, 6, dtype=dtype, seed=1)],
        atol,
    )


def centre(dtype: torch.dtype, atol: float) -> None:
    points = L.slots.heads(random(2, 3, 5, 16, dtype=dtype).detach().float())
    weights = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(3)).to(DEVICE).softmax(-1)
    z = (weights @ points).to(dtype).transpose(1, 2).requires_grad_()  # (B, T, H, n), strided
    agree(lambda z: kernels.centre(z, C), L.slots.centre, [z], atol)
    agree(lambda z: kernels.centre(z, SPHERE.slots.kernel_c), SPHERE.slots.centre, [z], atol)


def mixture(dtype: torch.dtype, atol: float) -> None:
    tokens, active, n = 7, 2, 24
    place = torch.randperm(tokens * active, generator=torch.Generator().manual_seed(5)).to(DEVICE)
    y, shared = random(tokens * active, n, dtype=dtype), random(3, tokens, n, dtype=dtype, seed=1)
    weight = torch.rand(tokens, active, generator=torch.Generator().manual_seed(6)).to(DEVICE).requires_grad_()
    factor = (0.5 + torch.rand(tokens, active, generator=torch.Generator().manual_seed(7))).to(DEVICE).requires_grad_()
    shared_factor = torch.tensor([0.5, 1.0, 2.0], device=DEVICE, requires_grad=True)

    def slow(
        y: Tensor, weight: Tensor, factor: Tensor | None, shared: Tensor | None, shared_factor: Tensor | None
    ) -> Tensor:
        rows = y.float()[place].view(tokens, active, n)
        rows = rows if factor is None else rows / factor.unsqueeze(-1)
        weighted = list(zip(rows.unbind(1), weight.split(1, -1), strict=True))
        if shared is not None:
            every = shared.float() if shared_factor is None else shared.float() / shared_factor.view(-1, 1, 1)
            weighted += [(s, 1.0) for s in every.unbind(0)]
        return (3.0 * L.slots.join(weighted)).to(y.dtype)

    def fast(
        y: Tensor, weight: Tensor, factor: Tensor | None, shared: Tensor | None, shared_factor: Tensor | None
    ) -> Tensor:
        return kernels.mixture(y, place, weight, factor, shared, shared_factor, 3.0, C)

    agree(fast, slow, [y, weight, factor, shared, shared_factor], 3 * atol)
    agree(lambda y, w: fast(y, w, None, None, None), lambda y, w: slow(y, w, None, None, None), [y, weight], 3 * atol)


def clusters(dtype: torch.dtype, atol: float) -> None:
    """Through the layer: the map with and without the kernel, and all gradients; windows of one chunk and of several.

    In half precision the layer's own rounding is as large as a tolerance would have to be. There the kernel must be as
    near to fp32 as torch is.
    """
    if dtype == torch.bfloat16:
        clusters(torch.float16, atol)
        if DEVICE == "cpu":
            return  # the interpreter cannot multiply bf16
    clustering.kernels = kernels  # type: ignore[attr-defined]
    one = ClusterSizes(heads=1, head_width=16, map_size=14, windows=1, patch_centres=4, window_centres=0)
    cases: list[tuple[ClusterSizes, dict[str, Any]]] = [
        (replace(one, heads=2, map_size=8, windows=2, window_centres=1), {}),
        (replace(one, head_width=24, map_size=6, windows=3, window_centres=4), {"shift": True}),
        (replace(one, head_width=8, patch_centres=49), {"position_bias": False}),
        (replace(one, map_size=6, patch_centres=9), {"patch_scale": 30.0}),
        (replace(one, patch_centres=49, window_centres=1), {}),
        # cells that overlap; and with a window level beside them
        (replace(one, map_size=7, patch_centres=16), {}),
        (replace(one, map_size=10, windows=2, window_centres=4), {}),
        # windows that reach beyond the map, some wholly
        (replace(one, map_size=9, windows=4, window_centres=4), {}),
        (replace(one, map_size=9, windows=2, patch_centres=9), {"shift": True}),
        # in chunks; and on a map of another shape, not cut evenly
        (replace(one, heads=2, map_size=17), {"position_bias": False}),
        (replace(one, head_width=40, map_size=24, windows=2, patch_centres=9, window_centres=1), {}),
    ]
    for sizes, options in cases:
        torch.manual_seed(0)
        mixer = clustering.ClusterMixer(6, sizes, **options)
        with torch.no_grad():
            for p in mixer.parameters():  # on the CPU: the same everywhere. And no gradient of a scale sums to nothing
                p += 0.5 * torch.randn_like(p)
        mixer = mixer.to(DEVICE)
        x = random(2, sizes.map_size, 31 if sizes.map_size == 24 else sizes.map_size, 6)
        inputs = [x, *mixer.parameters()]

        def run(
            serves: bool, dtype: torch.dtype = dtype, mixer: clustering.ClusterMixer = mixer, x: Tensor = x
        ) -> Tensor:
            clustering.on_chip = lambda *_, **__: serves
            with torch.autocast(DEVICE, dtype, enabled=dtype != torch.float32):
                return mixer(x)

        if dtype == torch.float32:
            agree(lambda *_, run=run: run(True), lambda *_, run=run: run(False), inputs, 2 * atol)
        else:
            forms = ((True,), (False,), (False, torch.float32))
            fast, slow, truth = (value_and_gradients(run(*form), inputs) for form in forms)
            as_near(fast, slow, truth, torch.finfo(dtype).eps)
            with torch.no_grad():
                assert torch.equal(run(True).float(), fast[0])


def centred_norm(dtype: torch.dtype, atol: float) -> None:
    """Rows and planes; points at the origin, near it and far out; a width that fills no block, one tile and several."""
    from horosphere.nn.centred import by_torch, on_cuda

    on_cuda.TILE, on_cuda.PROGRAMS = 64, 3
    weight, bias = ((a + b * random(6, seed=3)).detach().requires_grad_() for a, b in ((1, 1), (0, 0.3)))
    for shape, layout in (
        ((30, 6), torch.contiguous_format),
        ((3, 6, 5, 3), torch.contiguous_format),
        ((3, 6, 5, 3), torch.channels_last),
    ):
        x = random(*shape) * torch.logspace(-4, 0.7, shape[0], device=DEVICE).view(-1, *(1 for _ in shape[1:]))
        x = x.detach().to(dtype).contiguous(memory_format=layout).requires_grad_()

        def run(form, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            centred.passes = lambda *_: form
            return centred.batch_norm_of_batch(x, weight, bias, C, 1e-5)[0]

        agree(functools.partial(run, on_cuda), functools.partial(run, by_torch), [x, weight, bias], atol)


UNIT = {"qk_norm": True, "unit_weights": True, "residual": "interpolate"}
MIXTURE = {"n_routed_experts": 3, "moe_intermediate_size": 16, "attention": "latent", "qk_norm": True}
LATENT = {"kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}


def models(dtype: torch.dtype, atol: float) -> None:
    """Whole language models, with and without the kernels: loss and gradients."""
    if dtype != torch.float32:
        return
    from horosphere.models.helm import HelmConfig, HelmForCausalLM
    from horosphere.nn import attention, experts, feedforward, latent_attention, slots

    rooms = (attention, experts, feedforward, latent_attention, slots)
    sizes = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 8}
    tokens = torch.randint(30, (2, 5), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    served = slots.fused
    for forms in (
        {},
        {"qk_norm": True},
        UNIT,
        {"geometry": "sphere", **UNIT},
        {"geometry": "euclidean", **UNIT},
        {"geometry": "sphere", **MIXTURE, **LATENT, **UNIT},
        {**MIXTURE, **LATENT},
    ):
        torch.manual_seed(0)
        model = HelmForCausalLM(HelmConfig(**sizes, intermediate_size=24, **forms)).to(DEVICE).train()
        found = []
        for serves in (True, False):
            for room in rooms:
                room.kernels = kernels
                room.fused = lambda x, m, kinds=(Lorentz,), serves=serves: serves and isinstance(m, kinds)
            model.zero_grad()
            loss = model(tokens, labels=tokens).loss
            loss.backward()
            found.append((loss.detach(), {name: p.grad for name, p in model.named_parameters()}))
        for room in rooms:
            room.fused = served
        (a, da), (b, db) = found
        assert_close(a, b, atol=atol, rtol=0)
        for name, grad in db.items():
            if grad is not None:
                assert_close(
                    da[name], grad, atol=10 * atol * float(grad.abs().max()) + 1e-7, rtol=0, msg=f"{forms} {name}"
                )


def twice(dtype: torch.dtype, atol: float) -> None:
    """A second derivative is refused: the backward kernels have none, and silence would be a wrong answer."""
    joint = random(6, 40, dtype=dtype)
    for total in (lambda y: y.square().sum(), lambda y: y.sum()):  # the gradient of y needs a gradient, or not
        with pytest.raises(RuntimeError, match="no second derivative"):
            torch.autograd.grad(total(kernels.gate(joint, None, C).float()), joint, create_graph=True)


CHECKS = {
    f.__name__: f
    for f in (
        centred_norm,
        clusters,
        twice,
        norm,
        residual,
        residual_norm,
        gate,
        heads,
        normed_heads,
        queries_keys_values,
        normed_queries_keys_values,
        towards_norm,
        unit_rows,
        models,
        keys_values,
        centre,
        mixture,
    )
}

if __name__ == "__main__":
    for name in sys.argv[1:] or CHECKS:
        CHECKS[name](torch.float32, 2e-5)
        CHECKS[name](torch.bfloat16, 2e-2)
        print("agrees:", name)
