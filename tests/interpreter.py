"""CUDA kernels where there is no GPU: a script of checks, run in Triton's interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[1]


def _version(text):
    return tuple(map(int, text.split(".")[:2]))


def require_triton():
    triton = pytest.importorskip("triton", reason="the kernels are written in Triton")
    if not torch.cuda.is_available() and _version(triton.__version__) < (3, 7) and _version(np.__version__) >= (2, 4):
        pytest.skip("the interpreter of Triton before 3.7 does not work with numpy 2.4", allow_module_level=True)


def checked(module):
    """What the checks of a module said, in a process of its own: Triton reads TRITON_INTERPRET when it is imported."""
    interpret = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    environment = {**os.environ, **interpret, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", module],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
