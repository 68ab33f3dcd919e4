"""The GPU's kernels against autograd on the same batches: on a GPU as they are, elsewhere in Triton's interpreter."""

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
CHECKS = ["sampler", "gradient", "training", "wide", "always_on", "dense", "precisions", "resume", "overflow", "memory"]


@pytest.fixture(scope="module")
def report():
    """All in one process of its own: Triton reads TRITON_INTERPRET when it is imported."""
    interpret = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    environment = {**os.environ, **interpret, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    worker = [sys.executable, "-m", "tests.superposition.cuda_worker"]
    return subprocess.run(worker, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("check", CHECKS)
def test_kernels_agree_with_autograd(check, report):
    assert f"agrees: {check}\n" in report.stdout, report.stderr[-2000:]


def test_without_gpu_or_interpreter_there_is_a_clear_error():
    from horosphere.superposition.cuda import CudaGroup
    from horosphere.superposition.toy import Schedule, Toy

    toy = Toy(n=8, m=2, law="uniform")
    with pytest.raises(ValueError, match="need a GPU"):
        CudaGroup([toy], Schedule(steps=3, batch=4, warmup=1), "cpu")
