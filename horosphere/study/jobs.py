"""Commands of `horosphere` as jobs: so many at a time, none left behind, those that are lost begun again."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from horosphere.errors import Diverged, UserError
from horosphere.progress import Update, progress
from horosphere.runs import RUN, Run, steps_done
from horosphere.stopping import sigterm_as_ctrl_c
from horosphere.study.executors import Executor, Handle

POLL = 0.2  # seconds between looks at the jobs
RETRIES = 2  # times that a job which was killed is begun again


@dataclass(frozen=True)
class Job:
    """`horosphere WORDS --out FOLDER --continue`: whoever gives it twice gets the same folder."""

    name: str  # for people
    words: tuple[str, ...]
    folder: Path
    steps: int
    done: Callable[[Path], int] = steps_done  # how many of them a folder has
    mark: str = RUN  # the file of the folder that says what it holds
    replaced: bytes | None = None  # what that file says of what is to be replaced

    @property
    def command(self) -> list[str]:
        """Where the folder holds what is to be replaced still, it is; else what is there goes on."""
        how = "--overwrite" if self.replaced is not None and self._said() == self.replaced else "--continue"
        return [*self.words, "--out", str(self.folder.resolve()), how, "--quiet"]

    def anew(self) -> "Job":
        """The same job, which replaces what is there now."""
        return replace(self, replaced=self._said())

    def require_place(self) -> None:
        """Its folder appears with the mark. One without it is not ours: neither --continue nor --overwrite helps."""
        inside = self.folder.is_dir() and any(self.folder.iterdir())
        if inside and not (self.folder / self.mark).is_file():
            raise UserError(f"{self.folder} holds no {self.mark}: remove it, or choose another --out")

    def _said(self) -> bytes | None:
        file = self.folder / self.mark
        return file.read_bytes() if file.is_file() else None


def run_all(jobs: Sequence[Job], executor: Executor, update: Update) -> dict[str, str]:
    """All of them. {name: what it said} of those whose training diverged.

    When one fails in another way, or on Ctrl-C or SIGTERM, the others save and stop.
    """
    waiting, finished, lost = list(jobs), 0, Counter[str]()
    diverged: dict[str, str] = {}
    running: dict[Handle, Job] = {}
    for job in jobs:
        job.require_place()
    with sigterm_as_ctrl_c():
        try:
            while waiting or running:
                room = max(0, executor.at_once - len(running))
                begun, waiting = waiting[:room], waiting[room:]
                if begun:
                    running |= zip(executor.submit([job.command for job in begun]), begun, strict=True)
                time.sleep(POLL)
                for handle, job in list(running.items()):
                    outcome = handle.outcome()
                    if outcome is None:
                        continue
                    del running[handle]
                    if outcome.lost and lost[job.name] < RETRIES:
                        lost[job.name] += 1
                        waiting.insert(0, job)
                    elif outcome.code == Diverged.exit_code:
                        diverged[job.name] = outcome.said
                        finished += job.steps
                    elif outcome.code:
                        raise UserError(f"{job.name}: {outcome.said or f'it ended with code {outcome.code}'}")
                    else:
                        finished += job.steps
                taken = sum(min(job.steps, job.done(job.folder)) for job in running.values())
                update(finished + taken, ", ".join(job.name for job in list(running.values())[:3]))
        finally:
            for handle in running:
                handle.stop()
            for handle in running:
                handle.wait()
            executor.close()
    return diverged


@dataclass(frozen=True)
class Trainer:
    """Trains what a study needs, each by a job, and knows which of them diverged."""

    executor: Executor
    device: str
    steps: int
    overwrite: bool
    quiet: bool

    def job(self, words: Sequence[str], folder: Path) -> Job:
        """Of "train", a recipe and its settings."""
        return Job(folder.name, (*words, "--device", self.device), folder, self.steps)

    def __call__(self, what: str, jobs: Sequence[Job]) -> dict[Path, str]:
        """{folder: why} of the trainings that diverged, those of an earlier call too: they are not tried again."""
        if self.overwrite:
            jobs = [job.anew() for job in jobs]
        before = {} if self.overwrite else {job.folder: _failure(job.folder) for job in jobs}
        waiting = [job for job in jobs if not before.get(job.folder)]
        with progress(what, sum(job.steps for job in waiting), self.quiet) as update:
            said = run_all(waiting, self.executor, update)
        now = {job.folder: said[job.name] for job in waiting if job.name in said}
        return {folder: f"diverged: {why}" for folder, why in {**before, **now}.items() if why}


def _failure(folder: Path) -> str:
    return Run.open(folder).failure() if (folder / RUN).is_file() else ""
