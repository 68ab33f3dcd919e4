"""How far out features are taken: lengths in radii of curvature, 1/√c."""

import math

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

from horosphere.errors import UserError
from horosphere.geometry import Manifold, Product
from horosphere.geometry._scalar import length
from horosphere.geometry.manifold import HALF

NO_SCALE = "leave scale= out to have it matched, or divide them by their mean length"


def in_radii(v: Tensor, manifold: Manifold) -> Tensor:
    """√c·|v|: how many radii of curvature from the origin `lift` puts features.   (..., d) -> (...)

    Of a product its farthest factor's; 0 in flat space.

    >>> from horosphere.geometry import Lorentz
    >>> in_radii(torch.tensor([3.0, 4.0]), Lorentz(c=4.0))
    tensor(10.)
    """
    if manifold.flat:
        return v.new_zeros(v.shape[:-1])
    if isinstance(manifold, Product):
        weighted = zip(manifold.factors, manifold.weights, manifold.split(v), strict=True)
        return torch.stack([in_radii(part / w**0.5, m) for m, w, part in weighted]).amax(0)
    v = v.float() if v.dtype in HALF else v
    return length(v, any_size=True).squeeze(-1) * manifold.c**0.5


def farthest_out(v: Tensor, manifold: Manifold) -> Tensor:
    """The largest of `in_radii`, in one pass over v; infinite where a square overflows.   (..., d) -> ()

    >>> from horosphere.geometry import Lorentz
    >>> farthest_out(torch.tensor([[3.0, 4.0], [0.0, 1.0]]), Lorentz(c=4.0))
    tensor(10.)
    """
    if manifold.flat:
        return v.new_zeros(())
    if isinstance(manifold, Product):
        weighted = zip(manifold.factors, manifold.weights, manifold.split(v), strict=True)
        return torch.stack([farthest_out(part, m) / w**0.5 for m, w, part in weighted]).max()
    longest = torch.linalg.vector_norm(v, dim=-1, dtype=torch.float32 if v.dtype in HALF else v.dtype).max()
    return (longest * manifold.c**0.5).squeeze()  # a learned c has the shape (1,)


def farthest(dtype: torch.dtype) -> float:
    """Radii of curvature at which points leave a dtype: c·|x|² of coordinates sinh(√c r)/√c overflows.

    fp16 is computed in fp32. There the coordinates themselves overflow.

    >>> round(farthest(torch.float32)), round(farthest(torch.float64)), round(farthest(torch.float16))
    (44, 355, 11)
    """
    return math.log(torch.finfo(dtype).max) / (1 if dtype == torch.float16 else 2)


@torch.no_grad()
def require_near(v: Tensor, manifold: Manifold) -> None:
    """Complain about features so long that the points they are lifted to overflow.   (..., d)

    It reads values, which makes a GPU wait: ask `has_values` before.

    >>> from horosphere.geometry import Lorentz
    >>> require_near(torch.tensor([[3.0, 4.0]]), Lorentz())
    >>> require_near(torch.tensor([[746.0, 14.0]]), Lorentz())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    horosphere.errors.UserError: Lift: features lie up to 746 radii of curvature out, and float32 ends at 44; leave ...
    """
    if not manifold.flat and v.numel():
        refuse_far(float(in_radii(v, manifold).max()), v.dtype)


def refuse_far(out: float, dtype: torch.dtype, how: str = NO_SCALE) -> None:
    """Complain where features lie so many radii of curvature out that points of this dtype overflow."""
    if out > farthest(dtype):
        what = f"features lie up to {out:.3g} radii of curvature out, and {str(dtype).removeprefix('torch.')}"
        raise UserError(f"Lift: {what} ends at {farthest(dtype):.0f}; {how}")


def has_values(x: Tensor) -> bool:
    """Whether a check may look at numbers: not while torch compiles, traces, maps, captures, or only plays with shapes.

    >>> has_values(torch.ones(2)), has_values(torch.ones(2, device="meta"))
    (True, False)
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or x.is_meta or is_fake(x):
        return False
    if torch._C._functorch.maybe_current_level() is not None:  # within vmap, grad, jvp
        return False
    return not (x.is_cuda and torch.cuda.is_current_stream_capturing())
