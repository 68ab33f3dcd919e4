"""A language model at several widths, on the hyperboloid and in flat space: its loss, and how crowded its head is."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from horosphere.errors import UserError
from horosphere.files import write_whole
from horosphere.progress import progress
from horosphere.superposition.fits import Losses, WidthFit, fit_widths
from horosphere.superposition.heads import head, head_geometry
from horosphere.train.trainings import Entrant, Training, run_all

GEOMETRIES = {"lorentz": "HELM-D", "euclidean": "Llama"}
INNER = 3  # width of the feed-forward layers, in widths of the model
DECIDED = ("model", "geometry", "hidden_size", "num_attention_heads", "intermediate_size")
TABLE, PICTURE = "widths.csv", "widths.png"


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
        from horosphere.plots.superposition_heads import draw_width_study

        text = io.StringIO()
        table = csv.DictWriter(text, list(WidthRow.__dataclass_fields__), lineterminator="\n")
        table.writeheader()
        table.writerows(asdict(row) for row in self.rows)
        write_whole(folder / TABLE, text.getvalue().encode())
        draw_width_study(self, folder / PICTURE)


def study_widths(
    widths: Sequence[int],
    settings: Sequence[str],
    out: str | Path,
    recipe: str = "helm-d-tiny",
    seeds: int = 2,
    jobs: int = 1,
    device: str = "cpu",
    overwrite: bool = False,
    quiet: bool = False,
) -> WidthStudy:
    """Train the recipe at every width in both geometries, each in its own process below `out`, and look at the heads.

    Depth, head width, text, tokens and learning rate are the same for all. A study that was stopped goes on where it
    was.
    """
    from horosphere.models.helm import helm_config
    from horosphere.train.language import LanguageRecipe

    for setting in settings:
        if setting.partition("=")[0].strip() in DECIDED:
            raise UserError(f"{setting}: the study decides this; leave it out")
    base = LanguageRecipe.read(recipe, settings)
    head_dim = helm_config(base.model, **base.config).head_dim
    if wrong := [width for width in widths if width % head_dim]:
        raise UserError(
            f"width {wrong[0]}: it must be a multiple of head_dim = {head_dim}; choose another, or set head_dim="
        )
    base.corpus(quiet)  # tokenised once, before several processes want it
    out, trainings = Path(out), []
    for seed in range(base.engine.seed, base.engine.seed + seeds):
        for width in sorted(set(widths), reverse=True):  # the longest first
            sizes = [
                f"hidden_size={width}",
                f"num_attention_heads={width // head_dim}",
                f"intermediate_size={INNER * width}",
                f"seed={seed}",
            ]
            for geometry, name in GEOMETRIES.items():
                chosen = [*settings, *sizes, f"geometry={geometry}"]
                entrant, folder = Entrant(f"{name} {width}", recipe), out / f"{name.lower()}-{width}-{seed}"
                trainings.append(Training(entrant, chosen, folder, base.engine.steps))
    with progress("training", sum(t.steps for t in trainings), quiet) as update:
        run_all(trainings, jobs, device, overwrite, update)
    study = WidthStudy([_row(training, _width_of(training)) for training in trainings])
    study.save(out)
    return study


def _width_of(training: Training) -> int:
    return next(int(setting.partition("=")[2]) for setting in training.settings if setting.startswith("hidden_size="))


def _row(training: Training, width: int) -> WidthRow:
    about = json.loads((training.folder / "run.json").read_text(encoding="utf-8"))
    last = [line for line in training.metrics() if "eval_bits_per_byte" in line][-1]
    trained = head(training.folder)
    geometry = head_geometry(trained.weight, dims=trained.dims)
    return WidthRow(
        model=training.entrant.name.partition(" ")[0],
        geometry=next(
            setting.partition("=")[2] for setting in reversed(training.settings) if setting.startswith("geometry=")
        ),
        width=width,
        seed=about["training"]["seed"],
        parameters=about["recipe"]["parameters"],
        loss=last["eval_loss"],
        bits_per_byte=last["eval_bits_per_byte"],
        overlap=geometry.centred.mean_square,
        times_isotropic=geometry.centred.times_isotropic,
        effective_dims=geometry.effective_dims,
    )
