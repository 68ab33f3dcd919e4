"""What a sweep found: its table read back, and how loss falls with width in each setting."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from horosphere.errors import UserError
from horosphere.superposition.fits import PowerLaw, power_law

Rows = Sequence[Mapping[str, Any]]
RESULTS = "results.csv"
SETTING = ("n", "law", "density", "gamma", "bias", "readout")  # runs that agree in these differ in width and seed only
TEXTS = ("law", "bias", "readout")
NEEDED = (*SETTING, "m", "seed", "loss", "phi_half")


def read_results(paths: Iterable[str | Path]) -> list[dict[str, Any]]:
    """The rows of one or more results.csv, or of folders that hold one."""
    rows: list[dict[str, Any]] = []
    for path in map(Path, paths):
        path = path / RESULTS if path.is_dir() else path
        try:
            with path.open(encoding="utf-8", newline="") as file:
                found = list(csv.DictReader(file))
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: cannot be read ({' '.join(str(error).split())}); give what `horosphere superposition sweep` wrote") from None
        if missing := [name for name in NEEDED if not found or name not in found[0]]:
            raise UserError(f"{path}: no column {', '.join(missing)}; give what `horosphere superposition sweep` wrote")
        rows += [{name: _value(path, name, text) for name, text in row.items()} for row in found]
    return rows


def _value(path: Path, name: str, text: str) -> Any:
    if name in TEXTS:
        return text
    try:
        number = float(text) if text else math.nan
    except ValueError:
        raise UserError(f'{path}: column {name} holds "{text}", which is no number') from None
    return int(number) if name in ("n", "m", "seed") else number


@dataclass(frozen=True, eq=False)
class Setting:
    """All widths and seeds of one setting."""

    n: int
    law: str
    density: float
    gamma: float
    bias: str
    readout: str
    widths: np.ndarray  # (W,)
    losses: np.ndarray  # (seeds, W)
    represented: np.ndarray  # (seeds, W), φ_1/2
    fit: PowerLaw

    @property
    def alpha(self) -> float:
        """The exponent of a power law of frequencies; NaN for other laws."""
        return law_exponent(self.law)


def law_exponent(law: str) -> float:
    name, _, number = law.partition(":")
    return float(number) if name == "power" else 0.0 if name == "uniform" else math.nan


def settings(rows: Rows, **wanted: Any) -> list[Setting]:
    """The rows gathered by setting, those with two widths or more that every one of their seeds has; a power law fitted to each.

    wanted: only settings with these values.
    """
    groups: dict[tuple[Any, ...], dict[tuple[int, int], Mapping[str, Any]]] = {}
    for row in rows:
        if all(_same(row[name], value) for name, value in wanted.items()):
            groups.setdefault(tuple(_key(row[name]) for name in SETTING), {})[row["seed"], row["m"]] = row
    found = []
    for key, runs in groups.items():
        seeds, widths = sorted({seed for seed, _ in runs}), sorted({m for _, m in runs})
        widths = [m for m in widths if all((seed, m) in runs for seed in seeds)]
        if len(widths) < 2:
            continue
        losses, represented = (np.array([[runs[seed, m][name] for m in widths] for seed in seeds], float) for name in ("loss", "phi_half"))
        if np.isfinite(losses).all() and (losses > 0).all():
            found.append(
                Setting(
                    **dict(zip(SETTING, key, strict=True)),
                    widths=np.array(widths),
                    losses=losses,
                    represented=represented,
                    fit=power_law(widths, losses),
                )
            )
    return found


def _key(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def _same(a: Any, b: Any) -> bool:
    return abs(a - b) < 5e-3 if isinstance(b, float) else a == b
