"""Gradients that are written by hand."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable

ON_CUDA = "CUDA kernels have no second derivative: take it on the CPU"


def once(backward: Callable[..., Any], refusal: str = ON_CUDA) -> Callable[..., Any]:
    """Decorates the backward of an autograd.Function that has no derivative itself: asked for one, it refuses.

    torch's once_differentiable, which compiled functions need, is not enough. In eager mode a gradient taken by
    `autograd.grad` never comes to the place that would refuse it, and is wrong.
    """
    first = once_differentiable(backward)

    @functools.wraps(backward)
    def run(ctx: Any, *grads: Any) -> Any:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # within backward: create_graph=True
            raise RuntimeError(refusal)
        return first(ctx, *grads)

    return run
