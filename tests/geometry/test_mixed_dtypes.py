"""Arguments of several dtypes: what is in half precision is widened first, and the first says what comes out."""

import pytest
import torch

from horosphere.geometry import Lorentz, Poincare

MANIFOLDS = [Lorentz(0.7), Poincare(0.7)]  # flat space does as torch does
CALLS = {
    "dist": lambda m, x, y: m.dist(x, y),
    "pairwise": lambda m, x, y: m.pairwise(x, y),
    "log": lambda m, x, y: m.log(x, y),
    "midpoint": lambda m, x, y: m.midpoint(x, y[:, 0].abs()),
}


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("m", MANIFOLDS, ids=lambda m: type(m).__name__)
def test_halves_are_widened_wherever_they_stand(m, call, half):
    generator = torch.Generator().manual_seed(0)
    x, y = (0.5 * m.random(5, 3, generator=generator, dtype=torch.float32) for _ in range(2))
    rough = y.to(half)
    second, first = CALLS[call](m, x, rough), CALLS[call](m, rough, x)
    assert torch.equal(second, CALLS[call](m, x, rough.float()))
    assert torch.equal(first, CALLS[call](m, rough.float(), x).to(half))
    assert (second.dtype, first.dtype) == (torch.float32, half)
