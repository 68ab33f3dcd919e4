"""Points and vectors are tensors, and of one dimension side by side: torch would broadcast a single coordinate.

Parameters are known by their names, which mean the same in every function of every manifold. Only shapes are read, so
the check works on meta tensors, in `vmap` and in compiled graphs, where it leaves nothing behind.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from torch import Tensor

VECTORS = frozenset({"x", "y", "u", "v", "w", "p", "g", "r", "by"})  # a point or a vector (..., d)
SCALES = frozenset({"t", "weight"})  # a number, or one for each point (..., 1)

P = ParamSpec("P")
R = TypeVar("R")


def same_dimension(method: Callable[P, R]) -> Callable[P, R]:
    """Refuse what is no tensor, or of another dimension, in functions that need no `full_precision`, which does so."""
    check = dimension_check(method)

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        check(args, kwargs)
        return method(*args, **kwargs)

    return wrapper


def dimension_check(method: Callable[..., Any]) -> Callable[[tuple[Any, ...], dict[str, Any]], None]:
    """What raises an error when arguments of this method are no tensors, or do not fit beside one another."""
    names = tuple(inspect.signature(method).parameters)
    vectors = [i for i, name in enumerate(names) if name in VECTORS]
    scales = [i for i, name in enumerate(names) if name in SCALES]
    weights = names.index("weights") if "weights" in names else None
    if not vectors:
        return lambda args, kwargs: None
    first, *others = vectors
    where = method.__name__

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if kwargs:
            args = (*args, *(kwargs.get(name) for name in names[len(args) :]))
        if len(args) <= vectors[-1]:
            return  # the method itself says what is missing
        for i in vectors:
            if not isinstance(args[i], Tensor):
                raise no_tensor(where, names[i], args[i])
        size = size_of(args[first])
        for i in others:
            if size_of(args[i]) != size:
                raise different(where, [names[i] for i in vectors], [args[i] for i in vectors])
        if not others and weights is None:
            return
        for i in scales:
            if i < len(args) and isinstance(args[i], Tensor):
                _check_scale(where, names[i], args[i], size if args[0].per_coordinate else 1)
        if weights is not None:
            _check_weights(where, args[first], args[weights] if weights < len(args) else None)

    return check


def no_tensor(where: str, name: str, given: Any) -> TypeError:
    """The one line about what is no tensor."""
    return TypeError(f"{where}: {no_tensor_words(name, given)}")


def no_tensor_words(name: str, given: Any) -> str:
    if given is None:
        return f"{name} is None; give it as a tensor (..., d)"
    is_array = type(given).__module__ == "numpy"
    what = "an array of numpy" if is_array else f"a {type(given).__name__}"
    return f"{name} is {what}; give a tensor, as in torch.{'from_numpy' if is_array else 'tensor'}({name})"


def size_of(vector: Any) -> int:
    """How many coordinates it has; 0 for a single number."""
    shape = vector.shape
    return shape[-1] if shape else 0


def different(where: str, names: Sequence[str], vectors: Sequence[Any]) -> ValueError:
    """The one line about vectors of different dimension."""
    sizes: list[str] = []
    for name, size in zip(names, map(size_of, vectors), strict=True):
        noun = "" if sizes else " coordinate" if size == 1 else " coordinates"
        sizes.append(f"{name} has {size}{noun}" if size else f"{name} is a single number")
    return ValueError(f"{where}: {', '.join(sizes)}; they need as many coordinates, only leading axes broadcast")


def _check_scale(where: str, name: str, scale: Tensor, most: int) -> None:
    if size_of(scale) not in (0, 1, most):
        what = f"{where}: {name} has {scale.shape[-1]} numbers along its last axis"
        raise ValueError(f"{what}; give one number, or one for each point as (..., 1)")


def _check_weights(where: str, x: Tensor, weights: Tensor | None) -> None:
    if x.dim() < 2:
        raise ValueError(f"{where}: x is a single point {tuple(x.shape)}; give points as (..., N, d)")
    points = x.shape[-2]
    if weights is not None and not isinstance(weights, Tensor):
        raise no_tensor(where, "weights", weights)
    if weights is not None and size_of(weights) != points:
        count = f"{size_of(weights) or 1} weight" + ("s" if size_of(weights) > 1 else "")
        raise ValueError(f"{where}: {count} for {points} points; give (..., {points})")
