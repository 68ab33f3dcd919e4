"""The ClusterMixer as the paper has it: one image, one window, one head, one patch and one centre at a time."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from horosphere.geometry import Lorentz
from horosphere.nn.clustering import ClusterMixer

Places = list[tuple[int, int]]


def mixer(m: ClusterMixer, image: Tensor) -> Tensor:
    """(H, W, dim) -> (H, W, dim)"""
    height, width, _ = image.shape
    f, v = (image @ m.project.weight.T + m.project.bias).unflatten(-1, (2, m.heads, -1)).unbind(2)
    bias = None
    if m.patch_bias is not None:
        bias = m.patch_bias
        if bias.shape[-2:] != (height, width):
            bias = F.interpolate(bias, (height, width), mode="bilinear")
    tall, wide = math.ceil(height / m.windows), math.ceil(width / m.windows)
    down, right = (tall // 2, wide // 2) if m.shift else (0, 0)
    if m.shift:
        f, v = f.roll((-down, -right), (0, 1)), v.roll((-down, -right), (0, 1))
        bias = None if bias is None else bias.roll((-down, -right), (2, 3))

    windows: dict[tuple[int, int], Places] = {}  # of those that hold a patch
    patch = torch.zeros_like(f)
    for r in range(m.windows):
        for c in range(m.windows):
            places = on_map(range(r * tall, (r + 1) * tall), range(c * wide, (c + 1) * wide), height, width)
            if not places:
                continue
            windows[r, c] = places
            cells = {}
            for i in range(m.side):
                for j in range(m.side):
                    rows = range(r * tall + i * tall // m.side, r * tall + math.ceil((i + 1) * tall / m.side))
                    columns = range(c * wide + j * wide // m.side, c * wide + math.ceil((j + 1) * wide / m.side))
                    cells[i * m.side + j] = on_map(rows, columns, height, width)
            cells = {k: members for k, members in cells.items() if members}
            for h in range(m.heads):
                centres = {k: (mean(f, members, h), mean(v, members, h)) for k, members in cells.items()}
                points = {place: (f[place][h], v[place][h]) for place in places}
                b = {(p, k): 0.0 if bias is None else bias[h, k, p[0], p[1]] for p in points for k in centres}
                for place, g in clustering(points, centres, m.patch_scale, m.patch_manifold, b, m.hard).items():
                    patch[place][h] = g
    mixed = patch.flatten(2)
    if m.window_side:
        mixed = torch.cat((window_level(m, f, v, windows).flatten(2), mixed), -1)
    if m.shift:
        mixed = mixed.roll((down, right), (0, 1))
    mixed = (mixed - mixed.mean()) / (mixed.var(correction=0) + m.norm.eps).sqrt() * m.norm.weight + m.norm.bias
    return mixed @ m.fc.weight.T + m.fc.bias


def window_level(m: ClusterMixer, f: Tensor, v: Tensor, windows: dict[tuple[int, int], Places]) -> Tensor:
    height, width = f.shape[:2]
    if m.window_side == 1:
        return v.mean((0, 1)).expand_as(v)
    out, k = torch.zeros_like(v), m.window_side
    for h in range(m.heads):
        points = {w: (mean(f, places, h), mean(v, places, h)) for w, places in windows.items()}
        centres = {}
        for i in range(k):
            for j in range(k):
                rows = range(i * height // k, math.ceil((i + 1) * height / k))
                columns = range(j * width // k, math.ceil((j + 1) * width / k))
                members = on_map(rows, columns, height, width)
                centres[i * k + j] = mean(f, members, h), mean(v, members, h)
        b = {(w, j): 0.0 if m.window_bias is None else m.window_bias[h, j, w[0], w[1]] for w in points for j in centres}
        for w, g in clustering(points, centres, m.window_scale, m.window_manifold, b, m.hard).items():
            for place in windows[w]:
                out[place][h] = g
    return out


def clustering(points, centres, scale, manifold, bias, hard):
    """{i: (x_i, v_i)}, {j: (c_j, value of c_j)} -> {i: g_i}"""
    a = {}
    for i, (x, _) in points.items():
        logits = torch.stack([scale.squeeze() * likeness(x, c, manifold) + bias[i, j] for j, (c, _) in centres.items()])
        weights = F.one_hot(logits.argmax(), len(logits)).to(x.dtype) if hard else logits.exp() / logits.exp().sum()
        a |= {(i, j): weights[n] for n, j in enumerate(centres)}
    new = {
        j: (c + sum(a[i, j] * v for i, (_, v) in points.items())) / (1 + sum(a[i, j] for i in points))
        for j, (_, c) in centres.items()
    }
    return {i: sum(a[i, j] * new[j] for j in centres) for i in points}


def likeness(x: Tensor, c: Tensor, manifold) -> Tensor:
    if manifold.flat:
        return x @ c / (x.norm() * c.norm())
    x, c = (u / max(1.0, u.norm().item()) for u in (x, c))
    space = Lorentz(manifold.c)
    return -space.dist(space.exp0(x), space.exp0(c))


def mean(x: Tensor, places: Places, head: int) -> Tensor:
    return torch.stack([x[place][head] for place in places]).mean(0)


def on_map(rows: range, columns: range, height: int, width: int) -> Places:
    return [(y, x) for y in rows for x in columns if y < height and x < width]
