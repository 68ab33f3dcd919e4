"""Speed of the geometry core beside geoopt and HypLL: forward + backward, as ratios to the Euclidean operation.

    pip install 'horosphere[peers]'
    python benchmarks/geometry.py                # about a minute on two cores
    python benchmarks/geometry.py --device cuda  # without peers where they are not installed
    python benchmarks/geometry.py --digits       # instead: correct digits of distances on the sphere

Each column has a Euclidean twin that moves the same data: exp0 and log0 beside F.normalize (a norm and a scaling),
pairwise beside torch.cdist, midpoint beside the (weighted) mean, linear beside F.linear, the optimizer beside
torch.optim.Adam(foreach=True).
Measurements of all rows alternate; the median of each is divided by the median of its twin.
"""

import argparse
import importlib.util
import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.geometry import Lorentz, Manifold, Poincare, Sphere
from horosphere.nn import Linear
from horosphere.optim import RiemannianAdam

Job = Callable[[], Any]
REACH = {"exp0": 1.0, "log0": 1.0, "pairwise": 1.15, "mean": 1.2, "midpoint": 1.2, "linear": 1.15, "adam": 2.0}  # goals
ROWS, WIDTH = 16384, 64  # points and their width
PAIRS = 512  # sides of the matrix of pairs
SET = (64, 256, 512)  # sets of wide points
TABLE = (10_000, 64)  # points an optimizer moves
CURVATURES = (0.1, 1.0, 4.0)
ANGLES = (1e-6, 1e-4, 1e-2, 1.0, 2.0, 3.0, math.pi - 1e-2, math.pi - 1e-4, math.pi - 1e-6)
COUNTED = 100  # pairs an angle


def trained(f: Callable[..., Tensor], *inputs: Tensor) -> Job:
    """Forward and backward of f, gradients of all inputs."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    with torch.no_grad():
        upstream = torch.randn_like(f(*leaves))

    def job() -> None:
        for leaf in leaves:
            leaf.grad = None
        f(*leaves).backward(upstream)

    return job


def stepped(make: Callable[[list[Tensor]], torch.optim.Optimizer], table: Tensor, parameter: Any = nn.Parameter) -> Job:
    p = parameter(table.clone())
    p.grad = 1e-3 * torch.randn_like(p)
    return make([p]).step


def adam(manifold: Manifold, parameters: list[Tensor]) -> RiemannianAdam:
    return RiemannianAdam([{"params": parameters, "manifold": manifold}])


def jobs(device: str) -> dict[str, dict[str, Job]]:
    """column -> row -> job"""
    torch.manual_seed(0)
    x = 0.3 * torch.randn(ROWS, WIDTH, device=device) / WIDTH**0.5
    a, b = 0.3 * torch.randn(2, PAIRS, WIDTH, device=device) / WIDTH**0.5
    sets = 0.3 * torch.randn(*SET, device=device) / SET[-1] ** 0.5
    weights = torch.rand(*SET[:-1], device=device)
    wide = 0.3 * torch.randn(4096, 512, device=device) / 512**0.5
    flat = nn.Linear(512, 512, device=device)
    table = 0.1 * torch.randn(*TABLE, device=device)

    def mean(x: Tensor, w: Tensor) -> Tensor:
        return (w.unsqueeze(-2) @ x).squeeze(-2) / w.sum(-1, keepdim=True)

    columns: dict[str, dict[str, Job]] = {
        "exp0": {"euclidean": trained(lambda x: F.normalize(x, dim=-1), x)},
        "log0": {"euclidean": trained(lambda x: F.normalize(x, dim=-1), x)},
        "pairwise": {"euclidean": trained(torch.cdist, a, b)},
        "mean": {"euclidean": trained(lambda x: x.mean(-2), sets)},
        "midpoint": {"euclidean": trained(mean, sets, weights)},
        "linear": {"euclidean": trained(flat, wide)},
        "adam": {"euclidean": stepped(lambda p: torch.optim.Adam(p, foreach=True), table)},
    }
    for name, m in (
        ("horosphere lorentz", Lorentz()),
        ("horosphere ball", Poincare()),
        ("horosphere sphere", Sphere()),
    ):
        columns["exp0"][name] = trained(m.exp0, x)
        columns["log0"][name] = trained(m.log0, x)
        columns["pairwise"][name] = trained(m.pairwise, a, b)
        columns["mean"][name] = trained(m.midpoint, sets)
        columns["midpoint"][name] = trained(m.midpoint, sets, weights)
        columns["linear"][name] = trained(Linear(512, 512, m).to(device), wide)
        columns["adam"][name] = stepped(partial(adam, m), table)
    if importlib.util.find_spec("geoopt"):
        _geoopt(columns, x, a, b, sets, weights, wide, table)
    if importlib.util.find_spec("hypll"):
        _hypll(columns, x, a, b, sets, weights, wide, table)
    return columns


def _geoopt(
    columns: dict[str, dict[str, Job]],
    x: Tensor,
    a: Tensor,
    b: Tensor,
    sets: Tensor,
    weights: Tensor,
    wide: Tensor,
    table: Tensor,
) -> None:
    import geoopt

    lorentz, ball, sphere, chart = geoopt.Lorentz(), geoopt.PoincareBall(), geoopt.Sphere(), geoopt.SphereProjection()

    def padded(v: Tensor) -> Tensor:  # geoopt stores the time as coordinate 0
        return F.pad(v, (1, 0))

    def on_sheet(v: Tensor) -> Tensor:
        return lorentz.projx(padded(v))

    columns["exp0"]["geoopt lorentz"] = trained(lambda v: lorentz.expmap0(v), padded(x))
    columns["log0"]["geoopt lorentz"] = trained(lambda v: lorentz.logmap0(v), on_sheet(x))
    columns["pairwise"]["geoopt lorentz"] = trained(
        lambda p, q: lorentz.dist(p[:, None], q[None]), on_sheet(a), on_sheet(b)
    )
    columns["adam"]["geoopt lorentz"] = stepped(
        geoopt.optim.RiemannianAdam, on_sheet(table), lambda t: geoopt.ManifoldParameter(t, manifold=lorentz)
    )
    columns["exp0"]["geoopt ball"] = trained(ball.expmap0, x)
    columns["log0"]["geoopt ball"] = trained(ball.logmap0, x)
    columns["pairwise"]["geoopt ball"] = trained(lambda p, q: ball.dist(p[:, None], q[None]), a, b)
    columns["mean"]["geoopt ball"] = trained(lambda s: ball.weighted_midpoint(s, reducedim=[-2]), sets)
    columns["midpoint"]["geoopt ball"] = trained(
        lambda s, w: ball.weighted_midpoint(s, w, reducedim=[-2]), sets, weights
    )
    weight = nn.Parameter(nn.Linear(512, 512).weight.detach().to(wide.device))
    columns["linear"]["geoopt ball"] = trained(lambda v: ball.mobius_matvec(weight, v), wide)
    columns["adam"]["geoopt ball"] = stepped(
        geoopt.optim.RiemannianAdam, table, lambda t: geoopt.ManifoldParameter(t, manifold=ball)
    )
    columns["exp0"]["geoopt sphere chart"] = trained(chart.expmap0, x)
    columns["log0"]["geoopt sphere chart"] = trained(chart.logmap0, x)
    columns["pairwise"]["geoopt sphere chart"] = trained(lambda p, q: chart.dist(p[:, None], q[None]), a, b)
    columns["pairwise"]["geoopt sphere"] = trained(
        lambda p, q: sphere.dist(p[:, None], q[None]), *(F.normalize(padded(v) + 1, dim=-1) for v in (a, b))
    )
    columns["adam"]["geoopt sphere"] = stepped(
        geoopt.optim.RiemannianAdam,
        F.normalize(padded(table), dim=-1),
        lambda t: geoopt.ManifoldParameter(t, manifold=sphere),
    )


def _hypll(
    columns: dict[str, dict[str, Job]],
    x: Tensor,
    a: Tensor,
    b: Tensor,
    sets: Tensor,
    weights: Tensor,
    wide: Tensor,
    table: Tensor,
) -> None:
    from hypll.manifolds.poincare_ball import Curvature, PoincareBall
    from hypll.nn import HLinear
    from hypll.optim import RiemannianAdam as HypllAdam
    from hypll.tensors import ManifoldParameter, ManifoldTensor, TangentTensor

    ball = PoincareBall(Curvature(0.5413, requires_grad=False))  # softplus(0.5413) = 1

    def point(t: Tensor) -> Any:
        return ManifoldTensor(t, manifold=ball, man_dim=-1)

    columns["exp0"]["hypll ball"] = trained(
        lambda v: ball.expmap(TangentTensor(v, manifold=ball, man_dim=-1)).tensor, x
    )
    columns["log0"]["hypll ball"] = trained(lambda v: ball.logmap(None, point(v)).tensor, x)
    columns["pairwise"]["hypll ball"] = trained(lambda p, q: ball.dist(point(p[:, None]), point(q[None])), a, b)
    columns["mean"]["hypll ball"] = trained(lambda s: ball.midpoint(point(s), batch_dim=1).tensor, sets)
    columns["midpoint"]["hypll ball"] = trained(
        lambda s, w: ball.midpoint(point(s), batch_dim=1, w=w.unsqueeze(-1)).tensor, sets, weights
    )
    layer = HLinear(512, 512, manifold=ball).to(wide.device)
    columns["linear"]["hypll ball"] = trained(lambda v: layer(point(v)).tensor, wide)
    p = ManifoldParameter(table.clone(), manifold=ball, man_dim=-1)
    p.tensor.grad = 1e-3 * torch.randn_like(table)
    columns["adam"]["hypll ball"] = HypllAdam([p], lr=1e-3).step


def measure(rows: dict[str, Job], repeats: int, device: str) -> dict[str, float]:
    """Median seconds of each job; the jobs take turns, so that a busy moment hits them all."""
    times: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(repeats):
        for name, job in rows.items():
            begin = time.perf_counter()
            job()
            if device == "cuda":
                torch.cuda.synchronize()
            times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(t[1:]) for name, t in times.items()}


def digits(got: Tensor, exact: list[Any]) -> str:
    """Correct digits of distances, against mpmath: median, and all but the worst twentieth."""
    right = sorted(
        -math.log10(max(abs(float(value) / e - 1), 10**-7.8)) for value, e in zip(got.tolist(), exact, strict=True)
    )
    return f"{statistics.median(right):8.2f} /{right[len(right) // 20]:6.2f}"


def digits_table() -> None:
    """fp32 distances of pairs this far apart on the sphere of dimension 6, against those of the points as stored."""
    import geoopt
    from mpmath import mp, mpf

    mp.dps = 40

    def angle(p: list[Any], q: list[Any]) -> Any:
        p, q = ([x / mp.norm(v) for x in v] for v in (p, q))
        difference, total = (mp.norm([a + sign * b for a, b in zip(p, q, strict=True)]) for sign in (-1, 1))
        return 2 * mp.atan2(difference, total)

    def vector(x: list[float], c: float) -> list[Any]:
        q = mpf(c) * sum(mpf(value) ** 2 for value in x)
        return [2 * mp.sqrt(c) * mpf(value) / (1 + q) for value in x] + [(1 - q) / (1 + q)]

    names = ("horosphere Sphere", "geoopt SphereProjection", "geoopt Sphere")
    print("correct digits of fp32 distances: median / 5th percentile, of pairs that are an angle apart")
    print(f"{'c':>4}{'angle':>12}" + "".join(f"{name:>26}" for name in names))
    for c in CURVATURES:
        m, random = Sphere(c), torch.Generator().manual_seed(0)
        for wanted in ANGLES:
            first, second = torch.randn(2, COUNTED, 6, dtype=torch.float64, generator=random)
            x = m.lift(torch.linspace(0, 2.5, COUNTED)[:, None] * F.normalize(first, dim=-1) / math.sqrt(c))
            away = m.transport(wanted / 2 / math.sqrt(c) * F.normalize(second, dim=-1), torch.zeros_like(x), x)
            y = m.exp(x, away)
            p, q = m.vector(x).float(), m.vector(y).float()
            x, y = x.float(), y.float()
            stored = [
                angle(vector(a, c), vector(b, c)) / mp.sqrt(c) for a, b in zip(x.tolist(), y.tolist(), strict=True)
            ]
            ambient = [angle(a, b) / mp.sqrt(c) for a, b in zip(p.tolist(), q.tolist(), strict=True)]
            kept = [i for i, (s, a) in enumerate(zip(stored, ambient, strict=True)) if min(s, a) > 1e-8]
            cells = (
                (m.dist(x, y), stored),
                (geoopt.SphereProjection(k=c).dist(x, y), stored),
                (geoopt.Sphere().dist(p, q) / math.sqrt(c), ambient),
            )
            said = f"{wanted:g}" if wanted <= 3 else f"π - {math.pi - wanted:.0e}"
            columns = [digits(got[kept], [exact[i] for i in kept]) for got, exact in cells]
            print(f"{c:4g}{said:>12}" + "".join(f"{cell:>26}" for cell in columns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--digits", action="store_true")
    args = parser.parse_args()
    if args.digits:
        return digits_table()
    columns = jobs(args.device)
    ratios: dict[str, dict[str, float]] = {}
    for column, rows in columns.items():
        median = measure(rows, args.repeats, args.device)
        for name, seconds in median.items():
            ratios.setdefault(name, {})[column] = seconds / median["euclidean"]
    where = f"torch {torch.__version__}, {args.device}, {torch.get_num_threads()} threads"
    print(f"forward + backward, ratio to the Euclidean operation; {where}")
    print(f"{'':20}" + "".join(f"{c:>10}" for c in columns))
    order = sorted(ratios, key=lambda name: (name.startswith("horosphere"), name))
    for name in order:
        print(
            f"{name:20}" + "".join(f"{ratios[name][c]:10.2f}" if c in ratios[name] else f"{'-':>10}" for c in columns)
        )
    print(f"{'to reach':20}" + "".join(f"{REACH[c]:10.2f}" for c in columns))


if __name__ == "__main__":
    main()
