"""How the learning rate goes over a run, as a share of its peak."""

import math


def cosine(done: float, final: float) -> float:
    """From 1 down to `final` while `done` goes from 0 to 1: final + (1 - final)(1 + cos π·done)/2.

    >>> [round(cosine(done, final=0.2), 2) for done in (0, 0.5, 1)]
    [1.0, 0.6, 0.2]
    """
    return final + (1 - final) * (1 + math.cos(math.pi * done)) / 2


def stairs(done: float, final: float) -> float:
    """1, √final, final, each for a third of the way.

    >>> [round(stairs(done, final=0.01), 2) for done in (0, 0.4, 1)]
    [1.0, 0.1, 0.01]
    """
    return float(final ** (min(2, int(3 * done)) / 2))


def share_of_peak(step: int, steps: int, warmup: float, final: float, form: str = "cosine") -> float:
    """The share in a step, counted from 0: linear up to 1 over the warm-up, then as `form` says.

    form: "cosine", "step" (`stairs`), "constant". warmup: a share of the steps; from 1 on, a number of steps.

    >>> [round(share_of_peak(step, 10, warmup=0.2, final=0.0), 2) for step in (0, 1, 5, 9)]
    [0.5, 1.0, 0.5, 0.0]
    """
    rise = warmup if warmup >= 1 else warmup * steps
    if step + 1 < rise:
        return (step + 1) / rise
    if form == "constant":
        return 1.0
    done = (step + 1 - rise) / max(1.0, steps - rise)
    return stairs(done, final) if form == "step" else cosine(done, final)
