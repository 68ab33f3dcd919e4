"""A language model at several widths, on the hyperboloid and in flat space: its loss, and how crowded its head is."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from horosphere.errors import UserError
from horosphere.files import locked, write_whole
from horosphere.progress import progress
from horosphere.runs import Run
from horosphere.study.executors import Executor
from horosphere.study.jobs import Job, run_all
from horosphere.superposition.fits import Losses, WidthFit, fit_widths
from horosphere.superposition.heads import head, head_geometry
from horosphere.train.recipe import Recipe

GEOMETRIES = {"lorentz": "HELM-D", "euclidean": "Llama"}
INNER = 3  # width of the feed-forward layers, in widths of the model
DECIDED = ("model", "geometry", "hidden_size", "num_attention_heads", "intermediate_size")
TABLE = "widths.csv"


@dataclass(frozen=True)
class WidthRow:
    """The numbers of one training."""

    model: str
    geometry: str
    width: int
    seed: int
    parameters: int
    loss: float  # nats a token, on all of the validation text
    bits_per_byte: float
    overlap: float  # mean square overlap of the head's unit rows, without their mean
    times_isotropic: float  # the same, in units of what random rows have
    effective_dims: float


@dataclass(frozen=True, eq=False)
class WidthStudy:
    """Trainings of several widths, geometries and seeds.

    >>> rows = [WidthRow("Llama", "euclidean", 32, seed, 10**6, 3.0 + seed, 1.5, 0.1, 2.0, 9.0) for seed in (0, 1)]
    >>> WidthStudy(rows).mean("Llama", 32, "loss")[0]
    3.5
    """

    rows: list[WidthRow]

    def mean(self, model: str, width: int, name: str) -> tuple[float, float]:
        """Mean and standard deviation over seeds."""
        values = [float(getattr(row, name)) for row in self.rows if row.model == model and row.width == width]
        return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0

    @property
    def widths(self) -> list[int]:
        return sorted({row.width for row in self.rows})

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(row.model for row in self.rows))

    def fit(self) -> WidthFit | None:
        """L = A/m^α + B, with an offset B for each geometry; None with fewer than three widths."""
        if len(self.widths) < 3:
            return None
        columns = {
            name: np.array([getattr(row, name) for row in self.rows]) for name in ("model", "width", "seed", "loss")
        }
        names = np.array([f"{row.model} {row.width} {row.seed}" for row in self.rows])
        text = np.full(len(self.rows), "validation text")
        return fit_widths(Losses(columns["model"], text, columns["width"].astype(float), columns["loss"], names))

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Heads and rows of a table."""
        several = len({row.seed for row in self.rows}) > 1
        heads = ["width", *(f"{model} {what}" for what in ("nats/token", "m·overlap") for model in self.models)]
        rows = []
        for width in self.widths:
            cells = [str(width)]
            for name, digits in (("loss", 4), ("times_isotropic", 2)):
                for model in self.models:
                    mean, spread = self.mean(model, width, name)
                    cells.append(f"{mean:.{digits}f}" + (f" ± {spread:.{digits}f}" if several else ""))
            rows.append(cells)
        return heads, rows

    def save(self, folder: Path) -> None:
        text = io.StringIO()
        table = csv.DictWriter(text, list(WidthRow.__dataclass_fields__), lineterminator="\n")
        table.writeheader()
        table.writerows(asdict(row) for row in self.rows)
        write_whole(folder / TABLE, text.getvalue().encode())


@dataclass(frozen=True)
class WidthPlan:
    """What is trained: a dense recipe of HELM at these widths, in both geometries, with so many seeds."""

    recipe: str
    widths: tuple[int, ...]
    settings: tuple[str, ...] = ()
    seeds: int = 2

    def __post_init__(self) -> None:
        for setting in self.settings:
            if setting.partition("=")[0].strip() in DECIDED:
                raise UserError(f"{setting}: the study decides this; leave it out")


def study_widths(
    plan: WidthPlan, out: Path, executor: Executor, device: str = "cpu", overwrite: bool = False, quiet: bool = False
) -> WidthStudy:
    """Train the recipe at every width in both geometries, each by a command of its own into a folder below `out`.

    Depth, head width, text, tokens and learning rate are the same for all. What is done stays, and a study that was
    stopped goes on.
    """
    base = Recipe.read(plan.recipe, plan.settings)
    head_dim = base.task.configuration().head_dim
    if wrong := [width for width in plan.widths if width % head_dim]:
        how = "choose another, or set head_dim="
        raise UserError(f"width {wrong[0]}: it must be a multiple of head_dim = {head_dim}; {how}")
    base.task.quiet = quiet
    base.task.open_data()  # tokenised once, before several processes want it
    seeds = range(base.engine.seed, base.engine.seed + plan.seeds)
    widths = sorted(set(plan.widths), reverse=True)  # the longest first
    grid = {
        (name, width, seed): geometry for seed in seeds for width in widths for geometry, name in GEOMETRIES.items()
    }
    jobs = []
    for (name, width, seed), geometry in grid.items():
        sizes = (
            f"hidden_size={width}",
            f"num_attention_heads={width // head_dim}",
            f"intermediate_size={INNER * width}",
        )
        chosen = (*plan.settings, *sizes, f"geometry={geometry}", f"seed={seed}", "--device", executor.device(device))
        folder = out / f"{name.lower()}-{width}-{seed}"
        job = Job(folder.name, ("train", plan.recipe, *chosen), folder, base.engine.steps)
        jobs.append(job.anew() if overwrite else job)
    with locked(out), progress("training", sum(job.steps for job in jobs), quiet) as update:
        run_all(jobs, executor, update)
        study = WidthStudy(
            [_row(*key, geometry, job.folder) for (key, geometry), job in zip(grid.items(), jobs, strict=True)]
        )
        study.save(out)
    return study


def _row(model: str, width: int, seed: int, geometry: str, folder: Path) -> WidthRow:
    run, its_head = Run.open(folder), head(folder)
    last, g = run.scores(), head_geometry(its_head.weight, dims=its_head.dims)
    return WidthRow(
        model=model,
        geometry=geometry,
        width=width,
        seed=seed,
        parameters=run.about.count("parameters"),
        loss=last["loss"],
        bits_per_byte=last["bits_per_byte"],
        overlap=g.centred.mean_square,
        times_isotropic=g.centred.times_isotropic,
        effective_dims=g.effective_dims,
    )
