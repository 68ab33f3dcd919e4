"""Dense models with full attention in three geometries and every form, written out: one token and head at a time.

A point is a plain vector here: (time, space) on the hyperboloid, √n long on the sphere.
"""

import math

import torch
from torch import Tensor

from horosphere.models.helm import HelmForCausalLM


class Flat:
    times = 0

    def point(self, u: Tensor) -> Tensor:
        return u

    def read(self, x: Tensor) -> Tensor:
        """What a matrix sees of a point."""
        return x

    def normed(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return weight * x / (x.square().mean() + eps).sqrt()

    def squared(self, x: Tensor, y: Tensor) -> Tensor:
        """Squared distance, but for what a softmax over y does not see."""
        return (x - y).square().sum()

    def centre(self, z: Tensor) -> Tensor:
        return z

    def joined(self, x: Tensor, y: Tensor, layer: torch.nn.Module) -> Tensor:
        return x + y if layer.weight is None else x + layer.weight * (self.direction(y) - x)

    def direction(self, u: Tensor) -> Tensor:
        return u / (u.square().mean() + 1e-6).sqrt()


class Sphere(Flat):
    def point(self, u: Tensor) -> Tensor:
        return u / (u.square().mean() + 1e-6).sqrt()

    def squared(self, x: Tensor, y: Tensor) -> Tensor:
        """Points are √n long but for the floor, which is not to be seen here."""
        return -2 * x @ y

    def normed(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        u = weight * x
        return u / (u.square().mean() + eps).sqrt()

    def centre(self, z: Tensor) -> Tensor:
        return self.point(z)

    def joined(self, x: Tensor, y: Tensor, layer: torch.nn.Module) -> Tensor:
        if layer.form == "additive":
            return x + y
        if layer.form == "centroid":
            return self.point(self.point(x) + layer.weight * self.point(y))
        return self.point(x + layer.weight * (self.point(y) - x))


class Hyperboloid(Flat):
    times = 1

    def __init__(self, c: float):
        self.c = c

    def point(self, u: Tensor) -> Tensor:
        space = u[1:]
        return torch.cat(((1 / self.c + space.square().sum()).sqrt().view(1), space))

    def read(self, x: Tensor) -> Tensor:
        x = self.point(x)
        return torch.cat((x[:1] / math.sqrt(len(x)), x[1:]))

    def normed(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        space = weight[1:] * x[1:] / (x[1:].square().mean() + eps).sqrt()
        return self.point(torch.cat((x[:1], space)))

    def product(self, x: Tensor, y: Tensor) -> Tensor:
        return (x[1:] * y[1:]).sum() - x[0] * y[0]

    def squared(self, x: Tensor, y: Tensor) -> Tensor:
        return self.product(x - y, x - y)

    def centre(self, z: Tensor) -> Tensor:
        return z / (-self.c * self.product(z, z)).sqrt()

    def joined(self, x: Tensor, y: Tensor, layer: torch.nn.Module) -> Tensor:
        if layer.form == "additive":
            return self.point(x + y)
        if layer.form == "interpolate":
            space = y[1:] / (y[1:].square().mean() + 1e-6).sqrt()
            return self.point(torch.cat((x[:1], x[1:] + layer.weight[1:] * (space - x[1:]))))
        z = self.point(x) + layer.weight * self.point(y)
        # a negative weight leads beyond x, and perhaps off the cone: there the floor decides
        length = (-self.c * self.product(z, z)).clamp_min(((1 + layer.weight) ** 2).squeeze()).sqrt()
        return self.point(layer.scale * z / length)


def linear(layer: torch.nn.Module, u: Tensor) -> Tensor:
    out = layer.weight @ u
    return out if layer.lengths is None else layer.lengths * out


def turned(u: Tensor, position: int, still: int, theta: float) -> Tensor:
    """Slots j and j + n/2 by position · frequency; the first `still` pairs stay."""
    half, out = len(u) // 2, list(u)
    for j in range(still, half):
        angle = position * theta ** (-(j - still) / (half - still))
        out[j] = u[j] * math.cos(angle) - u[j + half] * math.sin(angle)
        out[j + half] = u[j + half] * math.cos(angle) + u[j] * math.sin(angle)
    return torch.stack(out)


def attention(layer: torch.nn.Module, x: list[Tensor], config, space: Flat) -> list[Tensor]:
    n, flat_distance = config.head_dim, config.geometry == "euclidean" and config.score == "distance"
    still = 1 if flat_distance else space.times
    seen = [space.read(point) for point in x]
    q, k, v = ([linear(p, u).split(n) for u in seen] for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    outputs = []
    for h in range(config.num_attention_heads):
        queries, keys = ([heads[h] for heads in points] for points in (q, k))
        if config.qk_norm:
            queries = [space.normed(u, layer.q_norm.weight, config.rms_norm_eps) for u in queries]
            keys = [space.normed(u, layer.k_norm.weight, config.rms_norm_eps) for u in keys]
        queries, keys = (
            [turned(u, i, still, config.rope_theta) for i, u in enumerate(points)] for points in (queries, keys)
        )
        values = [space.point(heads[h]) for heads in v]
        out = []
        for i, query in enumerate(queries):
            if flat_distance:  # slot 0 is taken by the score
                scores = [-(query[1:] - key[1:]).square().sum() for key in keys[: i + 1]]
            elif config.geometry == "euclidean":
                scores = [query @ key for key in keys[: i + 1]]
            elif config.score == "dot" and config.geometry == "lorentz":
                scores = [2 * query[1:] @ key[1:] for key in keys[: i + 1]]
            else:
                scores = [-space.squared(space.point(query), space.point(key)) for key in keys[: i + 1]]
            tau = math.sqrt(n) * (1 if layer.temperature.log is None else layer.temperature.log.exp())
            weights = (torch.stack(scores).flatten() / tau).softmax(0)
            z = sum(w * value for w, value in zip(weights, values, strict=False))
            out.append(z if config.average == "mean" else space.centre(z))
        outputs.append(out)
    return [linear(layer.o_proj, torch.cat([out[i] for out in outputs])) for i in range(len(x))]


def feedforward(layer: torch.nn.Module, x: Tensor, space: Flat) -> Tensor:
    u = space.read(x)
    gate, up = linear(layer.gate_proj, u), linear(layer.up_proj, u)
    return linear(layer.down_proj, space.read(space.point(torch.nn.functional.silu(gate) * up)))


def logits(model: HelmForCausalLM, ids: Tensor) -> Tensor:
    config, net, rows = model.config, model.model, []
    space = {"euclidean": Flat, "sphere": Sphere, "lorentz": lambda: Hyperboloid(config.curvature)}[config.geometry]()
    for row in ids:
        x = [space.point(net.embed_tokens.weight[token]) for token in row]
        blocks = net.layers
        for n, block in enumerate(blocks):
            y = attention(block.self_attn, [_norm(block.input_layernorm, u, space) for u in x], config, space)
            x = [space.joined(u, v, block.attention_residual) for u, v in zip(x, y, strict=True)]
            y = [feedforward(block.mlp, _norm(block.post_attention_layernorm, u, space), space) for u in x]
            last = blocks[n + 1].input_residual if n + 1 < len(blocks) else net.output_residual
            x = [space.joined(u, v, last) for u, v in zip(x, y, strict=True)]
        rows.append(torch.stack([linear(model.lm_head, space.read(_norm(net.norm, u, space))) for u in x]))
    return torch.stack(rows)


def _norm(layer: torch.nn.Module, x: Tensor, space: Flat) -> Tensor:
    return space.normed(x, layer.weight, layer.eps)


def ngpt(model: HelmForCausalLM, ids: Tensor) -> Tensor:
    """nGPT on vectors of length 1: h <- unit(h + α(unit(y) - h)). Its s_u, s_v and s_z are our lengths."""
    config, n, width = model.config, model.config.hidden_size, model.config.head_dim
    rows = []
    for row in ids:
        h = unit(model.model.embed_tokens.weight[row])
        blocks = model.model.layers
        for number, block in enumerate(blocks):
            layer, mlp = block.self_attn, block.mlp
            q, k, v = (
                unit((h @ p.weight.T).unflatten(-1, (-1, width))) for p in (layer.q_proj, layer.k_proj, layer.v_proj)
            )
            q, k = (
                torch.stack(
                    [torch.stack([turned(u, i, 0, config.rope_theta) for u in heads]) for i, heads in enumerate(x)]
                )
                for x in (q, k)
            )
            scores = math.sqrt(width) * torch.einsum("thn,shn->hts", q, k)
            seen = torch.ones(len(row), len(row), dtype=torch.bool).tril()
            mean = torch.einsum("hts,shn->thn", scores.masked_fill(~seen, -math.inf).softmax(-1), v)
            h = step(h, mean.flatten(1) @ layer.o_proj.weight.T, block.attention_residual.weight)
            gate, up = (math.sqrt(n) * p.lengths * (h @ p.weight.T) for p in (mlp.gate_proj, mlp.up_proj))
            last = blocks[number + 1].input_residual if number + 1 < len(blocks) else model.model.output_residual
            h = step(h, (torch.nn.functional.silu(gate) * up) @ mlp.down_proj.weight.T, last.weight)
        rows.append(math.sqrt(n) * model.lm_head.lengths * (h @ model.lm_head.weight.T))
    return torch.stack(rows)


def unit(u: Tensor) -> Tensor:
    return u / u.norm(dim=-1, keepdim=True)


def step(h: Tensor, y: Tensor, share: Tensor) -> Tensor:
    return unit(h + share * (unit(y) - h))
