"""How the kernels are launched, in eager mode and by torch.compile."""

import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

F = TypeVar("F", bound=Callable[..., Any])
STAY = nullcontext()
PROGRAMS = 2112  # of kernels that sum a gradient over rows: each program sums a share, torch sums the shares


_direct = threading.local()  # backward passes run in threads of their own


def launch(kernel: Any) -> Any:
    """The kernel, as eager mode or torch.compile wants it launched."""
    return kernel if getattr(_direct, "on", False) else wrap_triton(kernel)


def on_device_of(x: Tensor) -> AbstractContextManager[None]:
    """Triton launches on the current device, wherever its arguments are."""
    return torch.cuda.device_of(x) if x.is_cuda and x.get_device() != torch.cuda.current_device() else STAY


def operator(name: str) -> Callable[[F], F]:
    """An operator that torch.compile can look into; in eager mode the plain function.

    The way through the dispatcher takes longer than a kernel.
    """

    def decorate(function: F) -> F:
        registered = triton_op(f"horosphere::{name}", mutates_args={})(function)

        @functools.wraps(function)
        def call(*args: Any) -> Any:
            if torch.compiler.is_compiling():
                return registered(*args)
            _direct.on = True
            try:
                with on_device_of(args[0]):
                    return function(*args)
            finally:
                _direct.on = False

        return call  # type: ignore[return-value]

    return decorate


def apply(function: type[torch.autograd.Function], forward: Callable[..., Any], *args: Any) -> Any:
    """The function, or its forward operator alone where no gradient is wanted.

    In eager decoding autograd's records take as long as a kernel.
    """
    return function.apply(*args) if torch.is_grad_enabled() else forward(*args)


def pointers_to(first: Tensor, *others: Tensor | None) -> list[Tensor]:
    """What to point a kernel at: for a tensor that is not there, which it will not read, the first."""
    return [first, *(first if t is None else t for t in others)]


def block_of(n: int) -> int:
    """The next power of two. Triton's own is a function for kernels, and takes seven microseconds a call."""
    return 1 << (n - 1).bit_length()


def warps_of(block: int) -> int:
    """One warp for the rows of a stream: its sums need no barrier."""
    return min(16, max(1, block // 1024))


def rows_of(x: Tensor) -> Tensor:
    """(..., n) as (N, n), contiguous.

    Never a view with other strides: torch.compile may hand a kernel another layout than it was traced with.
    """
    return x.contiguous().view(-1, x.shape[-1])
