"""A sweep in parts, each a job: on several machines, or beside each other. The rows are those of one sweep."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from horosphere.progress import progress
from horosphere.study.executors import Executor
from horosphere.study.jobs import Job, run_all
from horosphere.superposition.asked import part_of
from horosphere.superposition.sweep import ABOUT, Row, SweepOptions, finished, grid_of, write_rows
from horosphere.superposition.toy import Schedule, Toy

PARTS = "parts"  # the folder of their folders


def sweep_in_parts(
    runs: Sequence[Toy],
    schedule: Schedule,
    out: Path,
    words: Sequence[str],
    count: int,
    executor: Executor,
    options: SweepOptions,
) -> list[Row]:
    """Train all runs in `count` jobs, `horosphere superposition sweep WORDS --part NUMBER/COUNT`; one row each."""
    runs, grid = list(runs), grid_of(runs, schedule)
    rows = finished(out, grid, options.resume, options.overwrite)
    if options.overwrite and not rows:
        shutil.rmtree(out / PARTS, ignore_errors=True)  # of another grid, perhaps
    parts = {number: members for number in range(1, count + 1) if (members := part_of(runs, number, count))}
    jobs, there = [], executor.device(options.device)
    for number, members in parts.items():
        command = ("superposition", "sweep", *words, "--part", f"{number}/{count}", "--device", there)
        folder, steps = out / PARTS / f"{number}-of-{count}", len(members) * schedule.steps
        if not all(index in rows for index in members):
            jobs.append(Job(f"part {number}", command, folder, steps, _done(schedule.steps)))
    with progress("training", sum(job.steps for job in jobs), options.quiet) as update:
        run_all(jobs, executor, update)
    for number, members in parts.items():
        folder = out / PARTS / f"{number}-of-{count}"
        if (folder / ABOUT).is_file():
            own = json.loads((folder / ABOUT).read_text(encoding="utf-8"))["rows"]
            rows |= {members[int(place)]: row for place, row in own.items()}
    write_rows(out, grid, rows, options.parquet)
    return [rows[index] for index in range(len(runs))]


class _done:
    """How many steps of its runs the folder of a part has behind it."""

    def __init__(self, steps: int):
        self.steps = steps

    def __call__(self, folder: Path) -> int:
        if not (folder / ABOUT).is_file():
            return 0
        return len(json.loads((folder / ABOUT).read_text(encoding="utf-8"))["rows"]) * self.steps
