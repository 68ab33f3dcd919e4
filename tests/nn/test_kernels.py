"""The fused kernels against their torch forms, values and gradients: on a GPU as they are, elsewhere in Triton's interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="the kernels are written in Triton")

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kernel", ["norm", "residual", "residual_norm", "gate", "heads", "keys_values", "centre", "mixture"])
def test_kernel_agrees_with_torch(kernel):
    interpret = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}  # read when Triton is imported: a process of its own
    environment = {**os.environ, **interpret, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    worker = [sys.executable, "-m", "tests.nn.kernel_worker", kernel]
    done = subprocess.run(worker, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"agrees: {kernel}" in done.stdout
