"""HELM as a textbook would write it: ambient vectors with explicit times, one token, head and expert at a time."""

import math

import torch
from torch import Tensor

from horosphere.models.helm import HelmForCausalLM
from horosphere.nn import MixtureOfExperts
from horosphere.nn.experts import Experts


def point(x: Tensor, c: float | Tensor) -> Tensor:
    """[x_t, x]"""
    return torch.cat(((1 / c + x.square().sum(-1, keepdim=True)).sqrt(), x), -1)


def lorentz(a: Tensor, b: Tensor) -> Tensor:
    return (a[..., 1:] * b[..., 1:]).sum(-1) - a[..., 0] * b[..., 0]


def centroid(z: Tensor, c: float) -> Tensor:
    return z / (-c * lorentz(z, z)).sqrt().unsqueeze(-1)


def linear(weight: Tensor, x: Tensor) -> Tensor:
    """W on an ambient vector, its time over √n.   (..., n), n counting the time"""
    return x[..., 1:] @ weight[:, 1:].T + x[..., :1] / math.sqrt(x.shape[-1]) * weight[:, 0]


def point_of(u: Tensor, c: float | Tensor) -> Tensor:
    """The point in slots u: the first is kept for the time, the space part is the rest."""
    return point(u[..., 1:], c)


def norm(layer: torch.nn.RMSNorm, x: Tensor, c: float) -> Tensor:
    space = x[..., 1:]
    return point(space / (space.square().mean(-1, keepdim=True) + layer.eps).sqrt() * layer.weight[1:], c)


def residual(layer: torch.nn.Module, x: Tensor, y: Tensor, c: float) -> Tensor:
    if layer.weight is None:
        return point(x[..., 1:] + y[..., 1:], c)
    return point(layer.scale * centroid(x + layer.weight * y, c)[..., 1:], c)


def turn(x: Tensor, position: int, planes: list[tuple[int, int, float]]) -> Tensor:
    """Planes (i, j, frequency) of one vector."""
    out = list(x)
    for i, j, frequency in planes:
        cos, sin = math.cos(position * frequency), math.sin(position * frequency)
        out[i], out[j] = x[i] * cos - x[j] * sin, x[j] * cos + x[i] * sin
    return torch.stack(out)


def attention(q: Tensor, k: Tensor, v: Tensor, tau: Tensor, c: float) -> Tensor:
    """softmax(-d_L²/τ), d_L² = |q - k|²_L, and the centroid of the values.   (T, n + 1), … -> (T, m + 1), one head"""
    rows = []
    for i in range(len(q)):
        difference = q[i] - k[: i + 1]
        weights = (-lorentz(difference, difference) / tau).softmax(-1)
        rows.append(centroid((weights.unsqueeze(-1) * v[: i + 1]).sum(0), c))
    return torch.stack(rows)


def full_attention(layer: torch.nn.Module, x: Tensor, config, c: float) -> Tensor:
    heads, width = config.num_attention_heads, config.head_dim
    q, k, v = (linear(p.weight, x).view(len(x), heads, width) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    pairs = width // 2 - 1
    planes = [(i, i + width // 2, config.rope_theta ** (-(i - 1) / pairs)) for i in range(1, width // 2)]
    tau = math.sqrt(width) * layer.temperature.log.exp()
    out = []
    for h in range(heads):
        turned = [
            torch.stack([turn(u[i, h], i, planes) for i in range(len(x))]) if config.position == "rotary" else u[:, h]
            for u in (q, k)
        ]
        out.append(attention(point_of(turned[0], c), point_of(turned[1], c), point_of(v[:, h], c), tau, c))
    return point_of(torch.cat(out, -1) @ layer.o_proj.weight.T, c)


def latent_attention(layer: torch.nn.Module, x: Tensor, config, c: float) -> Tensor:
    heads, nope, rope, value = (
        config.num_attention_heads,
        config.qk_nope_head_dim,
        config.qk_rope_head_dim,
        config.v_head_dim,
    )
    if config.q_lora_rank is None:
        q = linear(layer.q_proj.weight, x)
    else:
        q = linear(layer.q_b_proj.weight, norm(layer.q_a_layernorm, point_of(linear(layer.q_a_proj.weight, x), c), c))
    q = q.view(len(x), heads, nope + rope)
    if config.qk_norm:
        q = torch.stack([norm(layer.q_norm, u, c) for u in q.unbind(1)], 1)
    joint = linear(layer.kv_a_proj_with_mqa.weight, x)
    if config.qk_norm:
        key = joint[:, config.kv_lora_rank :]
        key = key / (key.square().mean(-1, keepdim=True) + config.rms_norm_eps).sqrt() * layer.k_norm.weight
        joint = torch.cat((joint[:, : config.kv_lora_rank], key), -1)
    z = norm(layer.kv_a_layernorm, point_of(joint[:, : config.kv_lora_rank], c), c)
    kv = linear(layer.kv_b_proj.weight, z).view(len(x), heads, nope + value)
    planes = (
        [(i, i + rope // 2, config.rope_theta ** (-i / (rope // 2))) for i in range(rope // 2)]
        if config.position == "rotary"
        else []
    )
    key = torch.stack([turn(joint[i, config.kv_lora_rank :], i, planes) for i in range(len(x))])
    tau = math.sqrt(nope + rope) * layer.temperature.log.exp()
    out = []
    for h in range(heads):
        turned = torch.stack([turn(q[i, h, nope:], i, planes) for i in range(len(x))])
        qh, kh = torch.cat((q[:, h, :nope], turned), -1), torch.cat((kv[:, h, :nope], key), -1)
        out.append(attention(point_of(qh, c), point_of(kh, c), point_of(kv[:, h, nope:], c), tau, c))
    return point_of(torch.cat(out, -1) @ layer.o_proj.weight.T, c)


def expert(experts: Experts, e: int, x: Tensor, c: float) -> Tensor:
    """√(c/c_e)·x in, SwiGLU at curvature -c_e, √(c_e/c)·y out.   One ambient vector."""
    c_e = c if experts.c is None else experts.c[e]
    inside = math.sqrt(c) / c_e**0.5 * x
    gate, up = linear(experts.gate_up_proj[e], inside).chunk(2)
    h = point_of(torch.nn.functional.silu(gate) * up, c_e)
    y = point_of(linear(experts.down_proj[e], h), c_e)
    return (c_e / c) ** 0.5 * y


def mixture(layer: MixtureOfExperts, x: Tensor, config, c: float) -> Tensor:
    rows = []
    for token in x:
        logits = layer.gate.weight[:, 1:] @ token[1:]
        affinity = logits.sigmoid() if config.gate == "sigmoid" else logits.softmax(-1)
        best = (affinity + layer.gate.e_score_correction_bias).topk(config.num_experts_per_tok).indices
        z = sum(affinity[e] / affinity[best].sum() * expert(layer.experts, e, token, c) for e in best.tolist())
        z = z + sum(expert(layer.shared_experts, s, token, c) for s in range(config.n_shared_experts))
        rows.append(point(4 * math.sqrt(len(token)) * centroid(z, c)[1:], c))
    return torch.stack(rows)


def feedforward(layer: torch.nn.Module, x: Tensor, c: float) -> Tensor:
    gate, up = linear(layer.gate_proj.weight, x), linear(layer.up_proj.weight, x)
    return point_of(linear(layer.down_proj.weight, point_of(torch.nn.functional.silu(gate) * up, c)), c)


def hyperplanes(weight: Tensor, x: Tensor, c: float) -> Tensor:
    weight = weight[:, 1:]
    length = weight.norm(dim=-1)
    return length / math.sqrt(c) * (math.sqrt(c) * x[:, 1:] @ (weight / length.unsqueeze(-1)).T).asinh()


def logits(model: HelmForCausalLM, ids: Tensor) -> Tensor:
    config, c, rows = model.config, model.config.curvature, []
    for row in ids:
        space = model.model.embed_tokens.weight[row]
        if config.position == "learned":
            space = space + model.model.embed_positions.weight[: len(row)]
        x = point_of(space, c)
        blocks = model.model.layers
        for n, block in enumerate(blocks):
            attend = latent_attention if config.attention == "latent" else full_attention
            x = residual(
                block.attention_residual, x, attend(block.self_attn, norm(block.input_layernorm, x, c), config, c), c
            )
            y = norm(block.post_attention_layernorm, x, c)
            y = (
                mixture(block.mlp, y, config, c)
                if isinstance(block.mlp, MixtureOfExperts)
                else feedforward(block.mlp, y, c)
            )
            x = residual(blocks[n + 1].input_residual if n + 1 < len(blocks) else model.model.output_residual, x, y, c)
            on_manifold = -c * lorentz(x, x)
            assert torch.allclose(on_manifold, torch.ones_like(on_manifold), rtol=1e-6), "a point left its manifold"
        x = norm(model.model.norm, x, c)
        head = model.lm_head
        rows.append(hyperplanes(head.weight, x, c) if config.head == "hyperplane" else linear(head.weight, x))
    return torch.stack(rows)
