"""What does not fit into memory is told in one line, before the system ends the process without a word."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from horosphere.errors import UserError

GROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
# how torch says it; its error has no type of its own on the CPU
SAID = ("can't allocate memory", "not enough memory", "out of memory", "Cannot allocate memory")


@contextmanager
def within_memory(most: int | None = None) -> Iterator[None]:
    """Who asks for more memory than there is gets a refusal at once. `most`: bytes in place of what there is.

    Linux promises memory that it does not have, and kills whoever uses it. So the process is held to what is free now,
    or to half of the machine's: what others use may be free later.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    total, free = memory_of_machine()
    ends = [end for end in (most or max(free, total // 2), soft, hard) if end not in (0, resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(ends, default=soft), hard))
    try:
        yield
    except MemoryError as error:
        raise _too_much(error) from error
    except RuntimeError as error:
        if not any(words in str(error) for words in SAID):
            raise
        raise _too_much(error) from error
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def memory_of_machine() -> tuple[int, int]:
    """Bytes of the machine, or of the container this process runs in, and how many of them it could have; 0: unknown.

    >>> total, free = memory_of_machine()
    >>> 10**8 < free <= total
    True
    """
    total, free = _kilobytes("/proc/meminfo", "MemTotal", "MemAvailable")
    for file in GROUPS:
        with suppress(OSError, ValueError):  # "max" where there is no limit
            total = min(total, int(file.read_text(encoding="ascii")))
    (mine,) = _kilobytes("/proc/self/status", "VmData")
    return total, min(total, free + mine)


def _kilobytes(file: str, *names: str) -> list[int]:
    """Bytes by name, in a file of Linux that counts them in kB; 0 where there is none."""
    sizes: dict[str, int] = {}
    with suppress(OSError, ValueError, IndexError):
        for line in Path(file).read_text(encoding="utf-8").splitlines():
            if line.endswith("kB"):
                sizes[line.partition(":")[0]] = 1024 * int(line.split()[1])
    return [sizes.get(name, 0) for name in names]


def _too_much(error: Exception) -> UserError:
    on = "the GPU" if "CUDA" in str(error) else f"this machine ({memory_of_machine()[0] / 1e9:.0f} GB)"
    return UserError(f"this does not fit into the memory of {on}; make the model, the batch or the data smaller")


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's mallopt
KEPT, LARGEST = 1 << 30, 32 << 20  # bytes that are kept when freed, and of one block that may be; glibc takes no more


def keep_what_is_freed() -> bool:
    """Freed memory stays with the process, for the next step of a training to use. Whether it could be asked for.

    By itself glibc gives large blocks back at once. A training that frees its gradients in every step then gets new
    pages in every step, and the system clears each of them.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other libraries have none
    return mallopt is not None and all((mallopt(M_MMAP_THRESHOLD, LARGEST), mallopt(M_TRIM_THRESHOLD, KEPT)))
