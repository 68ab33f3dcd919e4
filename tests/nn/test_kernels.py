"""The fused kernels against their torch forms, values and gradients: on a GPU, elsewhere in Triton's interpreter."""

import pytest

from tests.interpreter import checked, require_triton

require_triton()

KERNELS = [
    "centred_norm",
    "clusters",
    "twice",
    "norm",
    "residual",
    "residual_norm",
    "gate",
    "heads",
    "normed_heads",
    "queries_keys_values",
    "normed_queries_keys_values",
    "towards_norm",
    "unit_rows",
    "models",
    "keys_values",
    "centre",
    "mixture",
]


@pytest.fixture(scope="module")
def report():
    return checked("tests.nn.kernel_worker")


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_agrees_with_torch(kernel, report):
    assert f"agrees: {kernel}\n" in report.stdout, report.stderr[-2000:]
