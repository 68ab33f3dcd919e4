"""One network of pictures in several geometries, or with and without Hi-Mapper, at equal steps: does curvature pay?"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from horosphere.errors import UserError
from horosphere.files import write_whole
from horosphere.progress import progress
from horosphere.train.trainings import Entrant, Training, run_all, spread

RESULTS = "results.json"
SHOWN = {
    "top1": ("top-1 ↑", 4),
    "top5": ("top-5 ↑", 4),
    "coarse": ("coarse ↑", 4),
    "tree_error": ("tree error ↓", 3),
}  # metric: head, digits
LEVELS = {
    "E + E": ("euclidean", "euclidean"),
    "H + H": ("lorentz", "lorentz"),
    "H + E": ("lorentz", "euclidean"),
}  # window level, patch level
FLAT = ("E + E", "without Hi-Mapper")


def entrants(recipe: str, settings: Sequence[str] = ()) -> list[Entrant]:
    """What is compared: the geometries of HCFormer's two levels; or a network with Hi-Mapper, with its loss in flat space, and without it."""
    from horosphere.train.images import ImageRecipe

    if ImageRecipe.read(recipe, settings).tree is not None:
        kinds = {
            "Hi-Mapper": (),
            "Hi-Mapper, flat loss": ("tree.geometry=euclidean",),
            "without Hi-Mapper": ("tree=none",),
        }
        return [Entrant(name, recipe, changes) for name, changes in kinds.items()]
    return [Entrant(name, recipe, (f"window_geometry={w}", f"patch_geometry={p}")) for name, (w, p) in LEVELS.items()]


@dataclass(frozen=True)
class Row:
    """One entrant over the seeds."""

    name: str
    parameters: int
    metrics: dict[str, list[float]]  # of each seed, at the end
    images_per_second: float

    def mean(self, metric: str) -> float:
        return statistics.fmean(self.metrics[metric])


@dataclass(frozen=True)
class ImageComparison:
    """Rows from the highest top-1 to the lowest."""

    rows: list[Row]
    seeds: int

    def cells(self) -> tuple[list[str], list[list[str]]]:
        shown = {name: about for name, about in SHOWN.items() if name in self.rows[0].metrics}
        rows = []
        for row in self.rows:
            cells = [
                f"{row.mean(name):.{digits}f}"
                + (f" ± {spread(row.metrics[name]):.{digits}f}" if self.seeds > 1 else "")
                for name, (_, digits) in shown.items()
            ]
            rows.append([row.name, f"{row.parameters:,}", *cells, f"{row.images_per_second:,.0f}"])
        return ["network", "parameters", *(head for head, _ in shown.values()), "images/s"], rows

    def verdict(self) -> str:
        """What the table says, and no more than it says."""
        if self.seeds < 2:
            return f"1 seed: {self.rows[0].name} has the highest top-1, but one run says nothing about chance. Pass --seeds 3."
        flat, curved = (
            next(row for row in self.rows if (row.name in FLAT) is wanted) for wanted in (True, False)
        )  # the best of each
        first, second = sorted((flat, curved), key=self.rows.index)
        beyond = first.mean("top1") - second.mean("top1") > spread(first.metrics["top1"]) + spread(
            second.metrics["top1"]
        )
        if beyond:
            said = f"{first.name} beats {second.name} on top-1 beyond the spread of seeds."
        else:
            said = f"{first.name} and {second.name} are within the spread of seeds of each other on top-1."
        return f"{self.seeds} seeds. {said} Curvature {'pays' if beyond and first is curved else 'does not pay'} on these pictures."

    def save(self, folder: Path) -> None:
        about = {"seeds": self.seeds, "verdict": self.verdict(), "rows": [asdict(row) for row in self.rows]}
        write_whole(folder / RESULTS, (json.dumps(about, indent=2) + "\n").encode())


def compare_images(
    recipe: str,
    settings: Sequence[str],
    out: str | Path,
    seeds: int = 3,
    jobs: int = 1,
    device: str = "cpu",
    overwrite: bool = False,
    quiet: bool = False,
) -> ImageComparison:
    """Train every entrant with every seed, each in a process of its own and a folder below `out`, `jobs` at a time.

    A comparison that was stopped goes on where it was; runs that are done stay.
    """
    from horosphere.train.images import ImageRecipe

    out, compared = Path(out), entrants(recipe, settings)
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file: --out takes the name of a folder here")
    decided = {change.partition("=")[0] for entrant in compared for change in entrant.settings}
    for setting in settings:
        if setting.partition("=")[0].strip() in decided:
            raise UserError(
                f"{setting}: this is what the compared networks differ in; leave it out, or train one network with it"
            )
    engine = ImageRecipe.read(recipe, settings).engine
    trainings = [
        Training(
            entrant,
            [*settings, *entrant.settings, f"seed={seed}"],
            out / f"{_folder(entrant.name)}-{seed}",
            engine.steps,
        )
        for seed in range(engine.seed, engine.seed + seeds)
        for entrant in compared
    ]
    with progress("training", sum(t.steps for t in trainings), quiet) as update:
        run_all(trainings, jobs, device, overwrite, update)
    rows = [_row(entrant, [t for t in trainings if t.entrant == entrant]) for entrant in compared]
    found = ImageComparison(sorted(rows, key=lambda row: -row.mean("top1")), seeds)
    found.save(out)
    return found


def _folder(name: str) -> str:
    return "-".join(word for word in name.lower().replace("+", " ").replace(",", " ").split())


def _row(entrant: Entrant, trainings: Sequence[Training]) -> Row:
    about = json.loads((trainings[0].folder / "run.json").read_text(encoding="utf-8"))
    runs = [training.metrics() for training in trainings]
    last = [[line for line in run if "eval_top1" in line][-1] for run in runs]
    metrics = {name: [line[f"eval_{name}"] for line in last] for name in SHOWN if f"eval_{name}" in last[0]}
    pace = statistics.median(line["images_per_second"] for run in runs for line in run if "images_per_second" in line)
    return Row(entrant.name, about["recipe"]["parameters"], metrics, pace)
