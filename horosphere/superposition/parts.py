"""A sweep in parts, each a job: on several machines, or beside each other. The rows are those of one sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from horosphere.files import locked, make_staged, settle, staged
from horosphere.foreign import LARGE, read_json
from horosphere.progress import progress
from horosphere.study.executors import Executor
from horosphere.study.jobs import Job, run_all
from horosphere.superposition.asked import part_of
from horosphere.superposition.sweep import ABOUT, Row, SweepOptions, begin, finished, grid_of, mark_of, write_rows
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
    with locked(out):
        rows = finished(out, grid, options.resume, options.overwrite)
        if rows is None and not (out / ABOUT).is_file():
            begin(out, grid)
        rows = rows or {}
        parts = {number: members for number in range(1, count + 1) if (members := part_of(runs, number, count))}
        # of another grid they are other folders
        folders = {number: out / PARTS / f"{number}-of-{count}-{mark_of(grid)[:8]}" for number in parts}
        jobs, there = [], executor.device(options.device)
        for number, members in parts.items():
            command = ("superposition", "sweep", *words, "--part", f"{number}/{count}", "--device", there)
            done, steps = _done(schedule.steps), len(members) * schedule.steps
            job = Job(f"part {number}", command, folders[number], steps, done, ABOUT)
            if not all(index in rows for index in members):
                jobs.append(job.anew() if options.overwrite else job)
        with progress("training", sum(job.steps for job in jobs), options.quiet) as update:
            run_all(jobs, executor, update)
        for number, members in parts.items():
            rows |= {members[int(place)]: row for place, row in _rows(folders[number]).items()}
        new = make_staged(out) if options.overwrite else out.resolve()  # what is left of another grid goes
        write_rows(new, grid, rows, options.parquet)
        settle(new, out)
    return [rows[index] for index in range(len(runs))]


def _rows(folder: Path) -> Row:
    """Of a part, by their places in it; none where it has not begun."""
    file = folder / ABOUT
    return dict(read_json(file, most=LARGE, infinite=True)["rows"]) if file.is_file() else {}


class _done:
    """How many steps of its runs the folder of a part has behind it."""

    def __init__(self, steps: int):
        self.steps = steps

    def __call__(self, folder: Path) -> int:
        new = staged(folder)
        return len(_rows(new if new.is_dir() else folder)) * self.steps
