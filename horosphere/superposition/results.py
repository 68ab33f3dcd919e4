"""The table of a sweep, read back, and how loss falls with width in each setting."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from horosphere.errors import UserError, one_line
from horosphere.foreign import Unreadable, read_table
from horosphere.superposition.fits import PowerLaw, power_law
from horosphere.superposition.frequencies import plain_law
from horosphere.superposition.toy import BIASES, READOUTS

Rows = Sequence[Mapping[str, Any]]
RESULTS = "results.csv"
SETTING = ("n", "law", "density", "gamma", "bias", "readout")  # runs of a setting differ in width and seed only
COUNTS = {"n": 1, "m": 1, "seed": 0}  # columns of whole numbers, and the least that makes sense
MOST = 2**53  # of a count: what a float tells apart
CHOICES = {"bias": BIASES, "readout": READOUTS}
MADE_BY = "give what `horosphere superposition sweep` wrote"
NEEDED = (*SETTING, "m", "seed", "loss", "phi_half")


def read_results(paths: Iterable[str | Path]) -> list[dict[str, Any]]:
    """The rows of one or more results.csv, or of folders that hold one."""
    rows: list[dict[str, Any]] = []
    for path in map(Path, paths):
        path = path / RESULTS if path.is_dir() else path
        try:
            lines = read_table(path)
        except Unreadable as error:
            raise UserError(f"{path}: cannot be read ({error}); {MADE_BY}") from None
        names = lines[0][1] if lines else []
        if missing := [name for name in NEEDED if name not in names]:
            raise UserError(f"{path}: no column {', '.join(missing)}; {MADE_BY}")
        if len(lines) == 1:
            raise UserError(f"{path}: a header and no runs; {MADE_BY}")
        for line, cells in lines[1:]:
            try:
                if len(cells) != len(names):
                    raise UserError(f"{len(cells)} cells for {len(names)} columns")
                rows.append({name: _value(name, text) for name, text in zip(names, cells, strict=True)})
            except UserError as error:
                what = one_line(error, 300)
                raise UserError(f"{path} line {line}: {what}; remove the line, or sweep again") from None
    return rows


def _value(name: str, text: str) -> Any:
    """A cell as the sweep meant it. Only cells that tell runs apart must be filled: a run that diverged has no loss."""
    if name in NEEDED and not text:
        raise UserError(f"column {name} is empty")
    if name == "law":
        plain_law(text)
        return text
    if name in CHOICES:
        if text not in CHOICES[name]:
            raise UserError(f'column {name} holds "{text}", which is none of {", ".join(CHOICES[name])}')
        return text
    try:
        number = float(text) if text else math.nan
    except ValueError:
        raise UserError(f'column {name} holds "{text}", which is no number') from None
    if name in COUNTS:
        if not (math.isfinite(number) and COUNTS[name] <= number == int(number) < MOST):
            raise UserError(f'column {name} holds "{text}", which is no whole number from {COUNTS[name]} on')
        return int(number)
    if name in SETTING and not math.isfinite(number):
        raise UserError(f'column {name} holds "{text}", which is no finite number')
    return number


@dataclass(frozen=True, eq=False)
class Setting:
    """All widths and seeds of one setting, as `settings` gathers them."""

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


def setting_rows(fitted: Sequence[Setting]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of a table: how loss falls with width in each setting."""
    rows = []
    for s in fitted:
        kind = f"{s.law}, E = {s.density:g}, γ = {s.gamma:.3g}"
        kind += ", b = 0" * (s.bias == "zero") + f", {s.readout}" * (s.readout != "dot")
        between = "" if math.isnan(s.fit.low) else f"{s.fit.low:.2f} … {s.fit.high:.2f}"
        seeds, widths = s.losses.shape
        widest = [f"{s.losses[:, -1].mean():.4f}", f"{s.represented[:, -1].mean():.2f}"]
        rows.append([kind, f"{s.fit.exponent:.2f}", between, *widest, f"{widths} x {seeds}"])
    return ["setting", "α_m", "95 %", "widest: loss", "φ½", "widths x seeds"], rows


def law_exponent(law: str) -> float:
    """The exponent of a power law of frequencies; NaN for other laws.

    >>> law_exponent("power:1.5"), law_exponent("uniform"), law_exponent("linear")
    (1.5, 0.0, nan)
    """
    name, _, number = law.partition(":")
    return float(number) if name == "power" else 0.0 if name == "uniform" else math.nan


def settings(rows: Rows, **wanted: Any) -> list[Setting]:
    """The rows gathered by setting, each with a fitted power law. A setting needs two widths that all its seeds have.

    wanted: only settings with these values.

    >>> same = {"n": 1000, "law": "power:1", "density": 1.0, "gamma": 0.0, "bias": "normal", "readout": "dot"}
    >>> rows = [{**same, "m": m, "seed": 0, "loss": 2 / m, "phi_half": 0.1} for m in (10, 20, 40)]
    >>> [round(setting.fit.exponent, 3) for setting in settings(rows, gamma=0.0)]
    [1.0]
    """
    groups: dict[tuple[Any, ...], dict[tuple[int, int], Mapping[str, Any]]] = {}
    for row in rows:
        if all(_same(row[name], value) for name, value in wanted.items()):
            groups.setdefault(tuple(_key(row[name]) for name in SETTING), {})[row["seed"], row["m"]] = row
    gathered = []
    for key, runs in groups.items():
        seeds, widths = sorted({seed for seed, _ in runs}), sorted({m for _, m in runs})
        widths = [m for m in widths if all((seed, m) in runs for seed in seeds)]
        if len(widths) < 2:
            continue
        losses, represented = (
            np.array([[runs[seed, m][name] for m in widths] for seed in seeds], float) for name in ("loss", "phi_half")
        )
        if np.isfinite(losses).all() and (losses > 0).all():
            gathered.append(
                Setting(
                    **dict(zip(SETTING, key, strict=True)),
                    widths=np.array(widths),
                    losses=losses,
                    represented=represented,
                    fit=power_law(widths, losses),
                )
            )
    return gathered


def _key(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def _same(a: Any, b: Any) -> bool:
    return abs(a - b) < 5e-3 if isinstance(b, float) else a == b
