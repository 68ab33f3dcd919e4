"""What theory says about the loss of the toy model against its width m."""

from collections.abc import Sequence

import numpy as np

from horosphere.errors import UserError
from horosphere.superposition.frequencies import frequencies


def weak_loss(p: np.ndarray, represented: int | Sequence[int] | np.ndarray) -> np.ndarray:
    """Loss with the first `represented` features exact and the others answered by their mean.   (n,), (...) -> (...)

    Σ_{i > φn} (4/3·p_i - p_i²), the variance of u·v with v ~ U(0, 2), summed to the finite n. The asymptote m^(1-α) is
    far off at n = 1000.

    >>> weak_loss(np.array([0.5, 0.3, 0.2]), [0, 1, 3]).round(3)
    array([0.953, 0.537, 0.   ])
    """
    count = np.asarray(represented)
    if not np.issubdtype(count.dtype, np.integer) or count.min() < 0 or count.max() > len(p):
        raise UserError(f"represented features are counted, 0 to n = {len(p)}; these are {represented}")
    left = np.cumsum((4 / 3 * p - p**2)[::-1])[::-1]  # from the small end: the far tail keeps its digits
    return np.append(left, 0.0)[count]


def weak_exponent(law: str, n: int, density: float, widths: Sequence[int]) -> float:
    """α_m of `weak_loss` with as many features represented as dimensions: minus its log-log slope over the widths.

    >>> round(weak_exponent("power:1.5", n=1000, density=1.0, widths=[10, 25, 63]), 2)
    0.59
    """
    m = np.unique(widths)
    if len(m) < 2 or m[0] < 1 or m[-1] >= n:
        raise UserError(
            f"widths {', '.join(map(str, widths))}: a slope needs two different ones between 1 and n - 1 = {n - 1}"
        )
    return float(-np.polyfit(np.log(m), np.log(weak_loss(frequencies(law, n, density), m)), 1)[0])


def weak_asymptote(alpha: float) -> float:
    """α_m = α - 1 for p ∝ i^-α with α > 1 and endless n; below there is no power law (0).

    >>> weak_asymptote(1.5), weak_asymptote(0.5)
    (0.5, 0.0)
    """
    return max(0.0, alpha - 1)


def strong_exponent(alpha: float) -> float:
    """α_m = 1: many vectors in m dimensions overlap by 1/m in the mean square. 2(α - 1) for very skewed p, α > 3/2.

    >>> strong_exponent(1.0), strong_exponent(2.0)
    (1.0, 2.0)
    """
    return max(1.0, 2 * (alpha - 1))
