"""What a layer asks of its first input: later calls, and compiled ones, are not asked and cost nothing.

A tensor does not know its manifold, so layers remember which points they made. Mistakes of a whole program show in
the first batch: points of another manifold, coordinates outside the ball. What may go wrong later is watched (`watch`).
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from horosphere.errors import UserError
from horosphere.geometry import Manifold, Poincare, Product
from horosphere.geometry._shapes import no_tensor_words
from horosphere.nn.watch import has_numbers

ROUNDED = 1 + 1e-3  # radii of the ball: points near the edge may be rounded beyond it
_made: Any = WeakIdKeyDictionary()  # points that are still there: the layer and the manifold they come from


def settle(
    layer: nn.Module, manifold: Manifold, makes: Manifold | None = None, dim: int = -1, reads: bool = True
) -> Manifold:
    """The manifold, for a layer to keep. Its first input will be looked at, whose points lie along `dim`.

    makes: the manifold of its output, where that is another one. reads: whether it reads points at all.

    >>> from horosphere.geometry import Lorentz
    >>> settle(nn.Identity(), Lorentz)
    Traceback (most recent call last):
        ...
    horosphere.errors.UserError: Identity: the manifold is the class Lorentz; give one of it, as in Lorentz(c=1.0)
    """
    require_manifold(manifold, type(layer).__name__)
    for hooks in (layer._forward_pre_hooks, layer._forward_hooks):
        for key in [key for key, hook in hooks.items() if isinstance(hook, (_Meeting, _Leaving))]:
            del hooks[key]
    if reads:
        layer.register_forward_pre_hook(_Meeting(manifold, dim))
    layer.register_forward_hook(_Leaving(makes or manifold))
    return manifold


def require_manifold(manifold: Any, layer: str) -> None:
    """Complain about a class or a name where a manifold is expected."""
    if isinstance(manifold, Manifold):
        return
    if isinstance(manifold, type):
        name = manifold.__name__
        raise UserError(f"{layer}: the manifold is the class {name}; give one of it, as in {name}(c=1.0)")
    if isinstance(manifold, str):
        name = manifold.capitalize()
        raise UserError(f'{layer}: the manifold is the name "{manifold}"; give the manifold, as in {name}(c=1.0)')
    raise UserError(f"{layer}: {type(manifold).__name__} is no manifold; give one, as in Lorentz(c=1.0)")


def require_tensor(x: Any, layer: str) -> None:
    """Complain about arrays of numpy, lists, numbers and None. What else is no tensor may be an argument of torch's."""
    if type(x).__module__ == "numpy":
        raise UserError(f"{layer}: {no_tensor_words('x', x)}.float()")
    if x is None or isinstance(x, list | int | float):
        raise UserError(f"{layer}: {no_tensor_words('x', x)}")


class _Meeting:
    """Before the first call."""

    def __init__(self, manifold: Manifold, dim: int):
        self.manifold, self.dim = manifold, dim

    def __call__(self, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling() or not inputs:
            return
        x, name = inputs[0], type(layer).__name__.removeprefix("_Flat")
        require_tensor(x, name)
        if not has_numbers(x):
            return
        if (known := _made.get(x)) is not None and not _same(known[1], self.manifold):
            maker, other = known
            how = "use one manifold in both, or maps between models of the same curvature (horosphere.geometry)"
            raise UserError(f"{name} on {_told(self.manifold)}: x holds points of {_told(other)}, from {maker}; {how}")
        if isinstance(self.manifold, Poincare):
            require_inside(x.movedim(self.dim, -1), self.manifold, name)
        _forget(layer._forward_pre_hooks, self)


class _Leaving:
    """After the first call."""

    def __init__(self, manifold: Manifold):
        self.manifold = manifold

    def __call__(self, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        y = output[0] if isinstance(output, tuple) else output
        if not has_numbers(y):
            return
        if not self.manifold.flat:  # flat outputs may be free coordinates, which `Manifold.point` takes as they are
            _made[y] = (type(layer).__name__, self.manifold)
        _forget(layer._forward_hooks, self)


def _forget(hooks: dict[int, Any], hook: Any) -> None:
    for key in [key for key, other in hooks.items() if other is hook]:
        del hooks[key]


def require_inside(x: Tensor, manifold: Poincare, layer: str) -> None:
    """Complain about coordinates outside the ball.   (..., d)"""
    longest = float(torch.linalg.vector_norm(x.detach(), dim=-1).max()) if x.numel() else 0.0
    radius = float(torch.as_tensor(manifold.c).detach()) ** -0.5
    if longest > radius * ROUNDED:
        how = "put Lift(manifold) before it, or use manifold.exp0"
        raise UserError(f"{layer}: x is {longest:.3g} long, outside the ball of radius {radius:.3g}; {how}")


def _same(a: Manifold, b: Manifold) -> bool:
    """Whether points of one are points of the other, now and after a step of training."""
    if isinstance(a, Product) and isinstance(b, Product):
        pairs = zip(a.factors, b.factors, strict=False)
        return a.dims == b.dims and all(_same(m, n) for m, n in pairs)
    if a is b or type(a) is not type(b):
        return a is b
    return not any(True for m in (a, b) for _ in m.parameters()) and float(a.c) == float(b.c)


def _told(manifold: Manifold) -> str:
    return " x ".join(map(str, manifold.factors)) if isinstance(manifold, Product) else str(manifold)
