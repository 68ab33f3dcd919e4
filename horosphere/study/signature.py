"""Which product of geometries fits the distances of a graph best: candidates by successive halving (Gu et al. 2019).

All candidates are trained briefly, the best three of them four times as long at two learning rates, and the best two of
those twice as long again. Each training is a command of its own into a folder below `out`: a search that was stopped
goes on where it was.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from horosphere.errors import UserError
from horosphere.files import locked, new_folder, require_new_folder, write_whole
from horosphere.runs import RUN, Run
from horosphere.study.executors import Executor
from horosphere.study.jobs import Job, Trainer
from horosphere.tables import table_lines
from horosphere.train.recipe import Recipe

RECIPE, TABLE = "distances", "signatures.json"
STEPS = 4000  # of the last round, where nobody says how long
FAST = 3.0  # times the recipe's learning rate: curved factors begin more slowly than flat ones
NAMES = {"E": "euclidean", "H": "lorentz", "S": "sphere"}


class Round(NamedTuple):
    """A share 1/k of the steps, for some of the best signatures."""

    share: int
    best: int | None  # how many; none: all
    paces: tuple[float, ...]  # learning rates, in those of the recipe; none: the best that each signature has had


ROUNDS = (Round(8, None, (FAST,)), Round(2, 3, (FAST, 1.0)), Round(1, 2, ()))


def signatures(dim: int) -> list[str]:
    """Products of this dimension, each once, as settings name them: alone, in halves, in thirds, and in planes.

    >>> signatures(4)[:5]
    ['euclidean', 'lorentz', 'sphere', 'lorentz:2+lorentz:2', 'sphere:2+sphere:2']
    """
    planes = max(1, dim // 2)
    kinds = ["E", "H", "S", "HH", "SS", "HS", "HE", "ES", "HES", "H" * planes, "S" * planes, "HHESS"]
    names = dict.fromkeys(_spread(each, dim) for each in kinds if len(each) <= dim)
    line = NAMES["H"] if dim == 1 else f"{NAMES['H']}:1"  # a hyperbolic line is a flat one
    return [name for name in names if line not in name.split("+")]


def _spread(kinds: str, dim: int) -> str:
    """Factors of these kinds, as large as each other, the first ones by one larger."""
    if len(kinds) == 1:
        return NAMES[kinds]
    least, more = divmod(dim, len(kinds))
    return "+".join(f"{NAMES[kind]}:{least + (i < more)}" for i, kind in enumerate(kinds))


@dataclass(frozen=True)
class Candidate:
    """A signature, after the last round that it was in."""

    signature: str
    lr: float
    round: int  # from 1
    steps: int
    distortion: float  # average
    map: float | None  # None: all nodes are linked
    curvatures: tuple[float, ...]
    seconds: float
    folder: str


@dataclass(frozen=True)
class Search:
    """Candidates, the best first: those of later rounds before the others."""

    candidates: list[Candidate]

    @property
    def best(self) -> Candidate:
        return self.candidates[0]

    def lines(self) -> list[str]:
        """For a terminal."""
        heads = ["signature", "lr", "steps", "average distortion ↓", "mAP ↑", "time", "curvatures"]
        rows = [
            [
                one.signature,
                f"{one.lr:g}",
                f"{one.steps:,}",
                f"{one.distortion:.4f}",
                "" if one.map is None else f"{one.map:.3f}",
                f"{one.seconds:.1f} s",
                ", ".join(f"{c:.3g}" for c in one.curvatures),
            ]
            for one in self.candidates
        ]
        return table_lines(heads, rows, best=range(1))


def search(
    settings: Sequence[str], out: Path, executor: Executor, device: str, overwrite: bool = False, quiet: bool = False
) -> Search:
    """Search for the signature that distorts distances least, under settings of the recipe `distances`.

    The runs are kept below `out`-search, and the best of them becomes the run `out`.
    """
    require_new_folder(out, overwrite, RUN)
    recipe = _require(settings)
    said = {_name(setting) for setting in settings}
    steps = _steps(recipe) if said & {"steps", "epochs"} else STEPS
    place = out.with_name(f"{out.name}-search")
    rate = dict.fromkeys(signatures(recipe.task.configuration().dim), recipe.engine.lr)  # the best of each so far
    found: dict[str, Candidate] = {}
    with locked(place):
        if overwrite:
            _forget(place)
        for number, (share, count, paces) in enumerate(ROUNDS, 1):
            trainer = Trainer(executor, device, max(1, steps // share), overwrite=False, quiet=quiet)
            rates = [recipe.engine.lr * pace for pace in ((1.0,) if "lr" in said else paces)]
            left = [(name, lr) for name in [*rate][:count] for lr in rates or [rate[name]]]
            jobs = {of: _job(settings, *of, place, trainer) for of in left}
            failed = trainer(f"round {number} of {len(ROUNDS)}", list(jobs.values()))
            judged = [_judged(*of, number, job) for of, job in jobs.items() if job.folder not in failed]
            if not judged:
                raise UserError(f"every signature failed: {next(iter(failed.values()))}")
            judged.sort(key=lambda one: one.distortion)
            best = {one.signature: one for one in reversed(judged)}  # of each, the better of its rates
            found |= best
            rate = {one.signature: one.lr for one in judged if best[one.signature] is one}
    result = Search(sorted(found.values(), key=lambda one: (-one.round, one.distortion)))
    with new_folder(out, overwrite, RUN) as aside:
        shutil.copytree(result.best.folder, aside, dirs_exist_ok=True)
        write_whole(aside / TABLE, (json.dumps([asdict(one) for one in result.candidates], indent=2) + "\n").encode())
    return result


def _name(setting: str) -> str:
    return setting.partition("=")[0].strip()


def _require(settings: Sequence[str]) -> Recipe:
    """The recipe of all candidates."""
    if taken := [setting for setting in settings if _name(setting) == "geometry"]:
        raise UserError(f"{taken[0]} and --signature: both choose the geometry; leave one of them out")
    return Recipe.read(RECIPE, settings)


def _steps(recipe: Recipe) -> int:
    """As many as the settings ask for."""
    task = recipe.task
    data = task.open_data()
    return recipe.engine.for_data(task.rows(data), recipe.engine.batch or task.natural_batch(data)).steps


def _job(settings: Sequence[str], name: str, lr: float, place: Path, trainer: Trainer) -> Job:
    folder = place / f"{name.replace(':', '').replace('+', '-')}-{lr:g}-{trainer.steps}"
    kept = [setting for setting in settings if _name(setting) not in ("steps", "epochs", "lr")]
    own = [f"geometry={name}", f"lr={lr:g}", f"steps={trainer.steps}"]
    return trainer.job(["train", RECIPE, *kept, *own], folder)


def _judged(name: str, lr: float, number: int, job: Job) -> Candidate:
    run = Run.open(job.folder)
    scores, seconds = run.scores(), max(line.get("seconds", 0.0) for line in run.lines())
    curvatures = tuple(run.load().curvatures())
    distortion, precision = scores["distortion"], scores.get("map")
    return Candidate(name, lr, number, job.steps, distortion, precision, curvatures, seconds, str(job.folder))


def _forget(place: Path) -> None:
    """The runs of an earlier search."""
    for folder in place.iterdir():
        if (folder / RUN).is_file():
            shutil.rmtree(folder)
