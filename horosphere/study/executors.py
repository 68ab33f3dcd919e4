"""Where jobs run: in processes of this machine, on Ray, or on Slurm. A folder that all machines see is all they share.

--executor here:jobs=2                              processes of this machine (the default)
--executor ray:address=auto,gpus=1                  Ray: without an address it starts itself on this machine
--executor slurm:partition=gpu,gpus=1,minutes=240   a job array by submitit
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryFile
from typing import IO, Any

from horosphere.errors import UserError, choices, one_line
from horosphere.extras import require
from horosphere.settings import Count, Natural, build

PARENT_DIES = 1  # Linux: PR_SET_PDEATHSIG
LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None  # opened now: who just forked should load nothing
SAVED = 130  # exit code of a run that was told to stop, and has saved


@dataclass(frozen=True)
class Outcome:
    code: int
    said: str = ""  # the last line it complained with

    @property
    def lost(self) -> bool:
        """Whether it was killed, or told to stop: begun again it goes on where it was."""
        return self.code < 0 or self.code == SAVED


@dataclass(frozen=True, eq=False)
class Handle:
    """A job under way."""

    outcome: Callable[[], Outcome | None]
    stop: Callable[[], object]  # lets it save and end
    wait: Callable[[], object] = lambda: None  # until it has


class Executor:
    jobs: int  # at once

    @property
    def at_once(self) -> int:
        """How many to submit before the first has ended."""
        return self.jobs

    def device(self, here: str) -> str:
        """The device of jobs, where this process has chosen `here`."""
        return here

    def submit(self, commands: Sequence[Sequence[str]]) -> list[Handle]:
        """Begin jobs: words behind `horosphere`."""
        raise NotImplementedError

    def close(self) -> None:
        """Called when all jobs have ended."""


def executor(text: str, jobs: int | None = None) -> Executor:
    """ "here", "ray", "slurm", with settings behind a colon: "slurm:partition=gpu,gpus=1". jobs: how many at once.

    >>> executor("here:jobs=3")
    Here(jobs=3)
    """
    name, _, given = text.partition(":")
    known: dict[str, Any] = {"here": Here, "ray": Ray, "slurm": Slurm}
    if name not in known:
        raise UserError(f"--executor {name}: there is no such executor; {choices(name, known)}")
    pairs = [pair.partition("=") for pair in given.split(",") if pair]
    if wrong := [key for key, equals, _ in pairs if not equals]:
        raise UserError(f"--executor {text}: {wrong[0]} has no value; write {name}:key=value,key=value")
    values: dict[str, Any] = {key.strip(): value for key, _, value in pairs}
    if jobs is not None and values.setdefault("jobs", jobs) != jobs:
        raise UserError(f"--jobs {jobs} and --executor {text}: how many at once? Leave one of them out")
    made: Executor = build(known[name], values, f"--executor {name}")
    return made


# -- a command, wherever it runs --------------------------------------------------------------------------------------


def start(command: Sequence[str], errors: IO[bytes], **place: Any) -> subprocess.Popen[bytes]:
    """A process of `horosphere` that does not outlive this one, however that ends. `place`: its cwd, its env."""
    words, silent = [sys.executable, "-m", "horosphere", *command], subprocess.DEVNULL
    return subprocess.Popen(words, stdout=silent, stderr=errors, preexec_fn=_die_with_parent, **place)


def _die_with_parent() -> None:
    if LIBRARY is not None:
        LIBRARY.prctl(PARENT_DIES, signal.SIGTERM)


def run_command(command: Sequence[str], folder: str) -> tuple[int, str]:
    """What a worker of Ray or Slurm calls: the exit code of a command in a folder, and its last complaint."""
    with TemporaryFile() as errors:
        code = start(command, errors, cwd=folder).wait()
        return code, last_line(errors)


def last_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("horosphere: ") if lines else ""


# -- this machine -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Here(Executor):
    """Processes, which share the cores."""

    jobs: Count = 1  # at once

    def submit(self, commands: Sequence[Sequence[str]]) -> list[Handle]:
        threads = str(max(1, (os.cpu_count() or 1) // self.jobs))  # processes that share cores must not fight for them
        return [self._process(command, {"OMP_NUM_THREADS": threads, **os.environ}) for command in commands]

    def _process(self, command: Sequence[str], env: dict[str, str]) -> Handle:
        errors = TemporaryFile()  # noqa: SIM115 (it lives as long as the process)
        process = start(command, errors, env=env)

        def outcome() -> Outcome | None:
            return None if process.poll() is None else Outcome(process.returncode, last_line(errors))

        return Handle(outcome, process.terminate, process.wait)


# -- clusters ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cluster(Executor):
    """Whose machines may have other devices than this one."""

    jobs: Count = 64  # at once, where cores and GPUs are free
    gpus: Natural = 0  # of a job

    def device(self, here: str) -> str:
        return "cuda" if self.gpus else "cpu"


@dataclass(frozen=True)
class Ray(Cluster):
    """A cluster that is there already, by its address, or one of this machine alone."""

    address: str | None = None  # of a cluster: "auto", "ray://head:10001"; none: Ray starts itself here
    cpus: Count = 1  # of a job

    def submit(self, commands: Sequence[Sequence[str]]) -> list[Handle]:
        require("ray")
        import ray

        if not ray.is_initialized():
            quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error", "configure_logging": False}
            ray.init(address=self.address, include_dashboard=None if self.address else False, **quiet)
        remote = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=0)(run_command)
        tasks = [remote.remote(list(command), os.getcwd()) for command in commands]
        # the command ends with its worker, by SIGTERM: it saves
        return [Handle(partial(self._outcome, task), partial(ray.cancel, task, force=True)) for task in tasks]

    def _outcome(self, task: Any) -> Outcome | None:
        import ray

        lost = (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError)
        if not ray.wait([task], timeout=0)[0]:
            return None
        try:
            return Outcome(*ray.get(task))
        except lost:
            return Outcome(-signal.SIGKILL, "its worker died")
        except ray.exceptions.TaskCancelledError:
            return Outcome(SAVED)

    def close(self) -> None:
        ray = sys.modules.get("ray")
        if ray is not None and ray.is_initialized() and self.address is None:
            ray.shutdown()


@contextmanager
def _voiceless() -> Iterator[None]:
    """Processes begun in the block say nothing: on Ctrl-C those of submitit's local cluster show tracebacks."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@dataclass(frozen=True)
class Slurm(Cluster):
    """One job array, by submitit. Jobs that a node lost are submitted again."""

    partition: str | None = None
    account: str | None = None
    minutes: Count = 240  # at most, of a job
    cpus: Count = 2  # of a job
    memory: Count = 16  # GB of a job
    cluster: str = "slurm"  # "local": processes of this machine, to try it out
    folder: str = "slurm-jobs"  # where submitit keeps its files; all machines must see it

    @property
    def at_once(self) -> int:
        return 10**6  # the array itself holds back

    def submit(self, commands: Sequence[Sequence[str]]) -> list[Handle]:
        require("slurm")
        import submitit

        try:
            queue = submitit.AutoExecutor(folder=self.folder, cluster=self.cluster)
        except (RuntimeError, ValueError) as error:
            how = "start it where Slurm is, or try it here with slurm:cluster=local"
            raise UserError(f"--executor slurm: {one_line(error)}; {how}") from error
        sizes = {"cpus_per_task": self.cpus, "gpus_per_node": self.gpus, "mem_gb": self.memory}
        place = {"slurm_partition": self.partition, "slurm_account": self.account}
        limits = {"timeout_min": self.minutes, "slurm_array_parallelism": self.jobs}
        queue.update_parameters(name="horosphere", **sizes, **place, **limits)
        with _voiceless(), queue.batch():
            jobs = [queue.submit(run_command, list(command), os.getcwd()) for command in commands]
        return [Handle(partial(self._outcome, job), job.cancel) for job in jobs]

    def _outcome(self, job: Any) -> Outcome | None:
        from submitit.core.utils import UncompletedJobError

        if not job.done():
            return None
        try:
            return Outcome(*job.result())
        except UncompletedJobError:
            return Outcome(-signal.SIGKILL, "its process died")
