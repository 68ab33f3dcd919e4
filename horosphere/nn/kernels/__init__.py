"""Fused CUDA kernels, for slots on the hyperboloid and for clusters of patches: one pass over memory where torch would make three or more.

Each computes what its torch form in `geometry/lorentz.py` or `nn/` computes (the tests hold them together), in fp32, in both directions; the
backward passes recompute what is cheaper to compute than to keep. In rows of slots, slot 0 is the time and never read.
"""

from horosphere.nn.kernels.clusters import clusters
from horosphere.nn.kernels.gate import gate
from horosphere.nn.kernels.heads import centre, heads, keys_values, queries_keys_values
from horosphere.nn.kernels.mixture import mixture
from horosphere.nn.kernels.stream import norm, residual, residual_norm

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
]
