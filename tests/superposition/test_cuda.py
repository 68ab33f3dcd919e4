"""The GPU's kernels against autograd on the same batches: on a GPU as they are, elsewhere in Triton's interpreter."""

import pytest

from tests.interpreter import checked, require_triton

require_triton()

CHECKS = [
    "sampler",
    "gradient",
    "training",
    "wide",
    "minkowski",
    "always_on",
    "dense",
    "half_precision",
    "resume",
    "overflow",
    "memory",
]


@pytest.fixture(scope="module")
def report():
    return checked("tests.superposition.cuda_worker")


@pytest.mark.parametrize("check", CHECKS)
def test_kernels_agree_with_autograd(check, report):
    assert f"agrees: {check}\n" in report.stdout, report.stderr[-2000:]


def test_without_gpu_or_interpreter_there_is_a_clear_error():
    from horosphere.superposition.cuda import CudaGroup
    from horosphere.superposition.toy import Schedule, Toy

    toy = Toy(n=8, m=2, law="uniform")
    with pytest.raises(ValueError, match="need a GPU"):
        CudaGroup([toy], Schedule(steps=3, batch=4, warmup=1), "cpu")
