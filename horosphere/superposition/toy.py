"""The toy model of superposition: n sparse features through m dimensions, y = ReLU(x W Wᵀ + b)."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from horosphere.errors import UserError
from horosphere.geometry import Lorentz
from horosphere.nn.linear import hyperplane_logits

BIASES = ("normal", "zero")
READOUTS = ("dot", "lorentz", "distance")
# read-outs that are products of h and W_i, which the compiled kernels know, and the sign of the first term
PRODUCTS = {"dot": 1.0, "lorentz": -1.0}
GRIDS = ("a", "b", "c", "small")
WIDTHS = (10, 15, 25, 39, 63, 100)  # of the published grids at n = 1000
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # of Adam
STATE = ("W", "b", "W_mean", "W_square", "b_mean", "b_square")  # tensors of a run: weights, and Adam's moments
DENSITIES = tuple(round(1 + 6.485 * k / 8, 3) for k in range(9))  # up to where the first feature of i^-1 is always on
BIAS_KEY = 0x62696173  # "bias": b has its own random numbers, so that W does not depend on how b starts


@dataclass(frozen=True)
class Toy:
    """One run. `law` and `density` as in `frequencies`; γ >= 0 is weight decay, γ < 0 pulls the rows of W to norm 1.

    bias: b starts at N(0, 1), as in the published scripts, or at zero. It decides the exponent.
    bias_lr: the learning rate of b, None for lr.

    >>> Toy(n=1000, m=10, law="power:1", gamma=-0.5).rate_of_bias
    0.01
    """

    n: int
    m: int
    law: str
    density: float = 1.0
    gamma: float = 0.0
    bias: str = "normal"
    readout: str = "dot"
    seed: int = 0
    lr: float = 1e-2
    bias_lr: float | None = None

    def __post_init__(self) -> None:
        if self.n < 1 or self.m < 1:
            raise UserError(f"n = {self.n} features in m = {self.m} dimensions: both must be positive")
        if self.bias not in BIASES:
            raise UserError(f"bias {self.bias}: choose from {', '.join(BIASES)}")
        if self.readout not in READOUTS:
            raise UserError(f"readout {self.readout}: choose from {', '.join(READOUTS)}")
        if self.readout == "lorentz" and self.m < 2:
            raise UserError("readout lorentz needs m >= 2: one dimension is the time")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed {self.seed}: must lie between 0 and 2^63 - 1")
        if not (0 < self.lr < math.inf and 0 < self.rate_of_bias < math.inf and math.isfinite(self.gamma)):
            raise UserError(
                f"lr {self.lr}, bias_lr {self.bias_lr}, gamma {self.gamma}: rates must be positive, all must be finite"
            )

    @property
    def rate_of_bias(self) -> float:
        return self.lr if self.bias_lr is None else self.bias_lr


@dataclass(frozen=True)
class Schedule:
    """What all runs of a sweep share: a linear warm-up, then a cosine down to `final` of the peak learning rate.

    >>> schedule = Schedule(steps=100, warmup=10)
    >>> [round(schedule.factor(step), 3) for step in (0, 9, 55, 99)]
    [0.1, 1.0, 0.525, 0.05]
    """

    steps: int = 20_000
    batch: int = 2048
    warmup: int = 2000
    final: float = 0.05

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch < 1:
            raise UserError(f"{self.steps} steps of {self.batch} samples: both must be positive")
        if not 0 <= self.warmup < self.steps:
            raise UserError(
                f"a warm-up of {self.warmup} steps in a run of {self.steps}: it must be shorter than the run"
            )
        if not 0 <= self.final <= 1:
            raise UserError(
                f"final {self.final}: the share of the learning rate that is left at the end lies between 0 and 1"
            )

    def factor(self, step: int) -> float:
        """Share of the peak learning rate in a step, counted from 0.

        (step + 1)/warmup, then final + (1 - final)(1 + cos πs)/2 with s from 0 to 1
        """
        if step < self.warmup:
            return (step + 1) / self.warmup
        done = (step - self.warmup) / (self.steps - self.warmup)
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * done)) / 2


def initial(toy: Toy) -> tuple[Tensor, Tensor]:
    """W (n, m) = N(0, 1)/√m and b (n,), fp32.

    Column k depends only on seed and n: runs of all widths start alike, up to the scale.

    >>> W, b = initial(Toy(n=20, m=4, law="power:1", bias="zero"))
    >>> W.shape, b.abs().sum()
    (torch.Size([20, 4]), tensor(0.))
    """
    seed = toy.seed & 0xFFFFFFFF ^ toy.seed >> 32  # torch's generator looks at 32 bits
    generator = torch.Generator().manual_seed(seed)
    W = torch.stack([torch.randn(toy.n, generator=generator) for _ in range(toy.m)], 1) / math.sqrt(toy.m)
    if toy.bias == "zero":
        return W, torch.zeros(toy.n)
    return W, torch.randn(toy.n, generator=torch.Generator().manual_seed(seed ^ BIAS_KEY))


def preactivation(h: Tensor, W: Tensor, b: Tensor, readout: str = "dot") -> Tensor:
    """What the ReLU sees.   (..., m), (n, m), (n,) -> (..., n)

    dot: h·W_i + b_i. lorentz: the same with slot 0 as time, -h_0 W_i0 + Σ h_k W_ik + b_i.
    distance: |W_i| times the signed distance from the point h of the hyperboloid (c = 1) to the hyperplane across W_i,
    with the value b_i at the origin.

    >>> h, W, b = torch.tensor([1.0, 2.0]), torch.tensor([[3.0, 1.0]]), torch.zeros(1)
    >>> preactivation(h, W, b), preactivation(h, W, b, "lorentz")
    (tensor([5.]), tensor([-1.]))
    """
    if readout == "distance":
        return hyperplane_logits(h, W, b, Lorentz())
    if PRODUCTS[readout] < 0:
        h = torch.cat([-h[..., :1], h[..., 1:]], -1)
    return h @ W.T + b


def loss(x: Tensor, W: Tensor, b: Tensor, readout: str = "dot") -> Tensor:
    """Mean over samples of Σ_i (y_i - x_i)², y = ReLU(preactivation(x W)).   (B, n) -> ()

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    >>> loss(x, torch.eye(2), torch.zeros(2)), loss(x, torch.zeros(2, 2), torch.zeros(2))
    (tensor(0.), tensor(2.5000))
    """
    return (preactivation(x @ W, W, b, readout).relu() - x).square().sum(-1).mean()


def decay(W: Tensor, lr: float, gamma: float) -> Tensor:
    """γ >= 0: (1 - lr γ) W. γ < 0: W + lr γ (W - Ŵ), rows go to norm 1 and a zero row stays.   (n, m) -> (n, m)

    >>> W = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
    >>> decay(W, 0.1, 1.0)[0], decay(W, 0.1, -1.0)[0]
    (tensor([1.8000, 0.0000]), tensor([1.9000, 0.0000]))
    """
    if gamma >= 0:
        return (1 - lr * gamma) * W
    length = torch.linalg.vector_norm(W, dim=-1, keepdim=True).clamp_min(torch.finfo(W.dtype).tiny)
    return W + lr * gamma * (W - W / length)


def grid(name: str, seeds: int = 1) -> tuple[list[Toy], Schedule]:
    """The published grids: "a" (skew x decay), "b" (density x decay at α = 1), "c" (n = 10240).

    "small" is ours and takes minutes on two cores. Runs that share batches (law, density and seed) stand together.

    >>> runs, schedule = grid("small", seeds=2)
    >>> len(runs), schedule.steps
    (48, 8000)
    """
    gammas = [-1 + 2 * k / 9 for k in range(10)]
    if name == "a":
        points = [(f"power:{k / 8:g}", 1.0, gamma) for k in range(17) for gamma in gammas]
        return _runs(1000, WIDTHS, points, seeds), Schedule()
    if name == "b":
        points = [("power:1", density, gamma) for density in DENSITIES for gamma in gammas]
        return _runs(1000, WIDTHS, points, seeds), Schedule()
    if name == "c":
        widths = tuple(2**k for k in range(3, 11))
        points = [(law, 1.0, gamma) for law in ("power:1.2", "exponential:400", "linear") for gamma in (-1.0, 0.1)]
        runs = _runs(10240, widths, points, seeds)
        scaled = [replace(toy, lr=0.02 * (8 / toy.m) ** 0.25, bias_lr=2 / toy.m) for toy in runs]
        return scaled, Schedule(steps=40_000, batch=8192)
    if name == "small":
        points = [(law, 1.0, gamma) for law in ("power:0.5", "power:1.5") for gamma in (-5 / 9, 1 / 3)]
        schedule = Schedule(steps=8000, batch=1024, warmup=800)  # fewer steps give smaller exponents
        return _runs(1000, WIDTHS, points, seeds), schedule
    raise UserError(f"grid {name}: choose from {', '.join(GRIDS)}")


def _runs(n: int, widths: tuple[int, ...], points: list[tuple[str, float, float]], seeds: int) -> list[Toy]:
    return [
        Toy(n=n, m=m, law=law, density=float(density), gamma=gamma, seed=seed)
        for seed in range(seeds)
        for law, density, gamma in points
        for m in widths
    ]
