"""Several trainings, each in a process of its own, some at a time: what comparisons are made of."""

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from horosphere.errors import UserError
from horosphere.progress import Update

POLL = 0.2  # seconds between looks at the trainings


@dataclass(frozen=True)
class Entrant:
    name: str
    recipe: str
    settings: tuple[str, ...] = ()
    twin_of: str | None = None


@dataclass(frozen=True)
class Training:
    entrant: Entrant
    settings: list[str]
    folder: Path
    steps: int

    def command(self, device: str, overwrite: bool) -> list[str]:
        begun = (self.folder / "run.json").is_file() and not overwrite
        how = ["--resume"] * begun + ["--overwrite"] * overwrite
        train = [sys.executable, "-m", "horosphere", "train", self.entrant.recipe, *self.settings]
        return [*train, "--out", str(self.folder), "--device", device, "--quiet", *how]

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; one that is just being written is left out."""
        path = self.folder / "metrics.jsonl"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def done(self) -> int:
        return max((line["step"] for line in self.metrics()), default=0)


def run_all(trainings: Sequence[Training], jobs: int, device: str, overwrite: bool, update: Update) -> None:
    """All of them, `jobs` at a time. When one fails, or on Ctrl-C or SIGTERM, the others save and stop."""
    threads = {
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // jobs)),
        **os.environ,
    }  # processes that share cores must not fight for them
    waiting, finished = list(trainings), 0
    running: dict[subprocess.Popen[bytes], tuple[Training, Any]] = {}  # with what it says on stderr
    main = threading.current_thread() is threading.main_thread()  # Python lets no other set handlers
    before = (
        signal.signal(signal.SIGTERM, signal.default_int_handler) if main else None
    )  # by itself it would leave the trainings without a parent
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                training, errors = waiting.pop(0), TemporaryFile()  # noqa: SIM115 (it lives as long as the process)
                process = subprocess.Popen(
                    training.command(device, overwrite), stdout=subprocess.DEVNULL, stderr=errors, env=threads
                )
                running[process] = training, errors
            time.sleep(POLL)
            for process in [process for process in running if process.poll() is not None]:
                training, errors = running.pop(process)
                finished += training.steps
                if process.returncode:
                    raise UserError(f"{training.entrant.name}: {_last_line(errors, process.returncode)}")
            names = ", ".join(training.folder.name for training, _ in running.values())
            update(finished + sum(training.done() for training, _ in running.values()), names)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
        if main:
            signal.signal(signal.SIGTERM, before)


def _last_line(errors: IO[bytes], code: int) -> str:
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("horosphere: ") if lines else f"the training ended with code {code}"


def spread(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
