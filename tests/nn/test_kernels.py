"""The fused kernels against their torch forms, values and gradients: on a GPU as they are, elsewhere in Triton's interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

triton = pytest.importorskip("triton", reason="the kernels are written in Triton")
if not torch.cuda.is_available() and tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9):
    pytest.skip("the interpreter of Triton before 3.9 does not work with numpy 2.4", allow_module_level=True)

ROOT = Path(__file__).parents[2]


KERNELS = ["norm", "residual", "residual_norm", "gate", "heads", "queries_keys_values", "keys_values", "centre", "mixture"]


@pytest.fixture(scope="module")
def report():
    """All in one process of its own: Triton reads TRITON_INTERPRET when it is imported."""
    interpret = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    environment = {**os.environ, **interpret, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    worker = [sys.executable, "-m", "tests.nn.kernel_worker"]
    return subprocess.run(worker, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_agrees_with_torch(kernel, report):
    assert f"agrees: {kernel}\n" in report.stdout, report.stderr[-2000:]
