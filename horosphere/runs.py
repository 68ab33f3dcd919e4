"""The folder of a run. Nothing else reads or writes these files:

    run.json        the task, its recipe in sections (task, model, engine), facts on data and model, what made it
    metrics.jsonl   a line of numbers every so many steps, a line an evaluation, a sample, a baseline
    checkpoints/    step-00001000/, …: what they hold is `train.checkpoint`'s business

Beside them a task keeps what its model needs (a tokenizer, names of classes), and at the end the weights.
A run that is to replace another one is written aside until its first checkpoint.
"""

import json
import os
import platform
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from horosphere import __version__
from horosphere.catalogue import resolve, tasks
from horosphere.errors import UserError, one_line
from horosphere.files import (
    forget_partial,
    make_staged,
    new_folder,
    require_new_folder,
    settle,
    staged,
    write_whole,
    writing,
)
from horosphere.foreign import LARGE, Unreadable, parse_json, read_bytes, read_json

RUN, METRICS, CHECKPOINTS = "run.json", "metrics.jsonl", "checkpoints"
SWEEP = "sweep.json"  # marks a sweep of toy models, which lies among runs and is none
CHECKPOINT = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True)
class About:
    """What run.json says."""

    task: str  # its name in the catalogue
    recipe: dict[str, dict[str, Any]]  # sections: task, model, engine
    facts: dict[str, Any]  # what data and model turned out to be: parameters, sizes
    made_with: dict[str, Any]

    def decisions(self) -> dict[str, Any]:
        """All that decides the run, by name, "engine.lr": what it was asked for and found, not where it ran."""
        return _flat({**self.recipe, "facts": self.facts})

    def count(self, fact: str) -> int:
        """A fact that is a number of things."""
        if not _is_count(value := self.facts.get(fact)):
            raise UserError(f"{RUN} says {fact}={value!r} where a number of them belongs; train the model again")
        return int(self.facts[fact])


@dataclass(frozen=True)
class Run:
    """A run that was begun: `Run.open("runs/helm-d-tiny")`."""

    folder: Path
    about: About

    @staticmethod
    def open(folder: str | Path, task: str | None = None) -> "Run":
        """The run in a folder; one of this task, where a task is named."""
        folder = Path(folder)
        if not (folder / RUN).is_file():
            inside = sorted(file.parent.name for file in folder.glob(f"*/{RUN}"))
            hint = f"its runs are {', '.join(inside)}" if inside else "check the path"
            if (folder / SWEEP).is_file():
                raise UserError(
                    f"{folder}: a sweep of toy models, no run; see `horosphere superposition figures {folder}`"
                )
            raise UserError(f"{folder}: no folder of a run (it has no {RUN}); {hint}")
        try:
            written = read_json(folder / RUN)
            if written and not {"task", "recipe"} & set(written):
                how = "give a folder made by `horosphere train`"
                raise UserError(f"{folder}: its {RUN} is not one of horosphere's (it names no task); {how}")
            about = About(**written)
            sections = [about.recipe[name] for name in ("task", "model", "engine")]
            if not all(isinstance(section, dict) for section in (*sections, about.facts, about.made_with)):
                raise TypeError("a part of it is no object")
            if not isinstance(about.task, str):
                raise TypeError("its task has no name")
        except (ValueError, LookupError, TypeError) as error:
            raise UserError(f"{folder / RUN}: a damaged file ({one_line(error)}); train the model again") from error
        if task not in (None, about.task):
            raise UserError(f"{folder}: a run of the task {about.task}; give one of {task}")
        return Run(folder, about)

    def load(self) -> Any:
        """What was trained, as its task gives it: of a run under way, or stopped, the last checkpoint's."""
        known = tasks()
        if self.about.task not in known:
            how = f"known are {', '.join(known)}"
            raise UserError(f"{self.folder}: a run of the task {self.about.task}, which is not installed here; {how}")
        return resolve(known[self.about.task].build).load(self)

    def lines(self) -> list[dict[str, Any]]:
        """Of metrics.jsonl. One that is just being written is left out, and one that a crash tore."""
        path = self.folder / METRICS
        content = read_bytes(path, LARGE) if path.is_file() else b""
        lines = [_line(line) for line in content.splitlines(keepends=True) if line.endswith(b"\n")]
        return [line for line in lines if line is not None]

    def evaluations(self) -> list[dict[str, float]]:
        """{"step": …, "top1": …} of each evaluation."""
        marked = [line for line in self.lines() if any(name.startswith("eval_") for name in line)]
        scores = [{name.removeprefix("eval_"): value for name, value in line.items()} for line in marked]
        return [line for line in scores if not any(isinstance(value, str) for value in line.values())]

    def readings(self) -> list[dict[str, float]]:
        """{"step": …, "patch_scale_1": …} of each evaluation: what the model says of itself."""
        marked = [line for line in self.lines() if any(name.startswith("read_") for name in line)]
        return [{name.removeprefix("read_"): value for name, value in line.items()} for line in marked]

    def baselines(self) -> dict[str, dict[str, float]]:
        """{method: {metric: score}} of what was judged beside the model, without a training."""
        marked = [line for line in self.lines() if "baseline" in line]
        return {
            str(line["baseline"]): {k: v for k, v in line.items() if k not in ("step", "baseline")} for line in marked
        }

    def scores(self) -> dict[str, float]:
        """Those of the last evaluation."""
        scores = self.evaluations()
        if not scores:
            raise UserError(f"{self.folder / METRICS}: no evaluation in it; let the run train on with --resume")
        return scores[-1]

    def failure(self) -> str:
        """Why its training ended early: it was not finite. "" where that did not happen."""
        return next((str(line["failed"]) for line in reversed(self.lines()) if "failed" in line), "")

    def checkpoint(self) -> Path:
        """The last one."""
        last = latest(self.folder / CHECKPOINTS)
        if last is None:
            raise UserError(f"{self.folder}: the run has no checkpoint yet; let it train on with --resume")
        return last


def steps_done(folder: Path) -> int:
    """How far the run in a folder has come, or the one that is to replace it; 0 where there is none."""
    folder = next((place for place in (staged(folder), folder) if (place / RUN).is_file()), folder)
    return max((line["step"] for line in Run.open(folder).lines()), default=0) if (folder / RUN).is_file() else 0


# -- writing ----------------------------------------------------------------------------------------------------------


def require_place(folder: Path, resume: bool, overwrite: bool) -> About | None:
    """Complain before anything is touched. Of a run that is to be resumed, what it was begun with."""
    if resume:
        if not (folder / RUN).is_file():
            raise UserError(f"{folder} holds no {RUN}: there is no run to resume; start it without --resume")
        return Run.open(folder).about
    if (folder / RUN).is_file() and not overwrite:
        raise UserError(f"{folder} exists already: go on with --resume, choose another --out, or pass --overwrite")
    require_new_folder(folder, overwrite, mark=RUN)
    if overwrite and folder.resolve() in (here := Path.cwd(), *here.parents):
        raise UserError(f"{folder} is where you are, or above it: go elsewhere to replace it")
    return None


def begin(folder: Path, about: About) -> Path:
    """A new run: run.json, and no metrics yet. Where another run is, it is written aside until it can `settle`."""
    new = make_staged(folder)
    _write_about(new, about)
    write_whole(new / METRICS, b"")
    return new if (folder / RUN).is_file() else settle(new, folder)


def write_ready(folder: Path, about: About, fill: Callable[[Path], None], overwrite: bool = False) -> Run:
    """A run that nothing trains: what `fill` writes into its folder is all it has. It is there whole, or not at all."""
    if not overwrite and folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{folder} exists already, and is not replaced; give another folder")
    with new_folder(folder, overwrite, mark=RUN) as new:
        _write_about(new, about)
        write_whole(new / METRICS, b"")
        fill(new)
    return Run.open(folder)


def go_on(folder: Path, about: About, step: int) -> Path:
    """A run that was stopped: the metrics up to this step. The lines of steps that will be taken again go."""
    folder = folder.resolve()
    forget_partial(folder)
    kept = [line for line in Run.open(folder).lines() if line["step"] <= step and "failed" not in line]
    _write_about(folder, about)
    write_whole(folder / METRICS, "".join(json.dumps(line) + "\n" for line in kept).encode())
    return folder


def _write_about(folder: Path, about: About) -> None:
    write_whole(folder / RUN, (json.dumps(asdict(about), indent=2) + "\n").encode())


def append(folder: Path, line: dict[str, Any]) -> None:
    """On the disk when this returns. A line that a crash tore before it is ended first."""
    path = folder / METRICS
    with writing(path), path.open("a+b") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - 1))
        torn = size and stream.read(1) != b"\n"
        stream.write(b"\n" * bool(torn) + json.dumps(line).encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def _line(text: bytes) -> dict[str, Any] | None:
    """A line of metrics; None where it is none."""
    try:
        line = parse_json(text, infinite=True)
    except Unreadable:
        return None
    if not isinstance(line, dict) or not _is_count(line.get("step")):
        return None
    return line if all(isinstance(value, (int, float, str)) for value in line.values()) else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def checkpoints(folder: Path) -> list[Path]:
    """Oldest first."""
    names = [path for path in folder.iterdir() if CHECKPOINT.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(names, key=lambda path: int(path.name.removeprefix("step-")))


def latest(folder: Path) -> Path | None:
    """The newest checkpoint below a folder; None where there is none yet."""
    return next(reversed(checkpoints(folder)), None)


def made_with(device: str = "cpu", processes: int = 1) -> dict[str, Any]:
    """When, by which command, on what machine, with which versions."""
    from importlib.metadata import version

    command = ["horosphere", *sys.argv[1:]] if Path(sys.argv[0]).stem in ("horosphere", "__main__") else sys.argv[:1]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(command),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "device": device,
        "processes": processes,
        "versions": {"horosphere": __version__, "torch": version("torch"), "python": platform.python_version()},
    }


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}"""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat
