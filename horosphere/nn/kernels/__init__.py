"""Fused CUDA kernels, for slots and for clusters of patches.

They make one pass over memory where torch would make three or more. Each computes in fp32 what its torch form in
`geometry/slots.py` or `nn/` computes, forward and backward; tests hold the two together. A backward pass recomputes
what is cheaper to compute than to keep. In rows of slots on the hyperboloid, slot 0 is the time, and is never read.

Triton wants flat lists of arguments, and so do torch's operators. They come in one order: pointers to what is read,
pointers to what is written (`dx_ptr`: the gradient of x), numbers, then in capitals the constants that a kernel is
compiled for. Everywhere n or N is the number of slots in a row, and a BLOCK the power of two that covers a row. C says
the geometry (`Slots.kernel_c`): c > 0 of the hyperboloid, 0 in flat space, -1 on the sphere. FLOOR and EPS keep mean
squares from zero.
"""

from horosphere.nn.kernels.clusters import clusters
from horosphere.nn.kernels.gate import gate
from horosphere.nn.kernels.heads import centre, heads, keys_values, queries_keys_values
from horosphere.nn.kernels.mixture import mixture
from horosphere.nn.kernels.stream import norm, residual, residual_norm, towards_norm, unit_rows

__all__ = [
    "centre",
    "clusters",
    "gate",
    "heads",
    "keys_values",
    "mixture",
    "norm",
    "queries_keys_values",
    "residual",
    "residual_norm",
    "towards_norm",
    "unit_rows",
]
