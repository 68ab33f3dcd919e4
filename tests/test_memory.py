"""Memory that is not there is refused in one line; what fits is not."""

import resource
import subprocess
import sys

import numpy as np
import pytest
import torch

from horosphere.errors import UserError
from horosphere.memory import memory_of_machine, within_memory

HELD = """
import sys, torch
from horosphere.errors import UserError
from horosphere.memory import within_memory
kept = []
try:
    with within_memory(3 * 10**9):
        for _ in range(int(sys.argv[1])):
            kept.append(torch.ones(25 * 10**6))  # a tenth of a gigabyte each, used at once
    print("it fits")
except UserError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "take", [lambda: torch.empty(10**13), lambda: np.ones(10**14), lambda: bytearray(10**14), lambda: [0] * 10**13]
)
def test_more_than_there_is_is_told_in_one_line(take):
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(UserError, match=r"does not fit into the memory of this machine \(\d+ GB\)"), within_memory():
        take()
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts what a process maps")
@pytest.mark.parametrize(("pieces", "said"), [(5, "it fits"), (40, "this does not fit into the memory of")])
def test_many_small_pieces_count_too(pieces, said):
    """One by one they would be promised, until the system kills the process."""
    done = subprocess.run([sys.executable, "-c", HELD, str(pieces)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(said)


def test_the_memory_of_a_gpu_is_another():
    with pytest.raises(UserError, match="the memory of the GPU"), within_memory():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB.")


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), ValueError("no"), UserError("a mistake")])
def test_other_failures_pass(error):
    with pytest.raises(type(error), match=str(error)), within_memory():
        raise error


def test_a_machine_has_memory():
    total, free = memory_of_machine()
    assert 0 < free <= total


FAULTS = """
import resource, sys, torch
from horosphere.memory import keep_what_is_freed
if not keep_what_is_freed():
    print("none")
    sys.exit()
def step():
    return [torch.zeros(10**6) for _ in range(4)]
for _ in range(20):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_what_is_freed_can_be_kept():
    """No new pages for steps that need as much as the one before."""
    said = subprocess.check_output([sys.executable, "-c", FAULTS], text=True).strip()
    if said == "none":
        pytest.skip("not glibc")
    assert int(said) < 1000  # of 50 steps with 4,000 pages each
