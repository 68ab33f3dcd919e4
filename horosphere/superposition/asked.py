"""Which runs of the toy model a sweep is asked for: a published grid, a part of it, or values of one's own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from horosphere.errors import UserError
from horosphere.superposition.frequencies import plain_law
from horosphere.superposition.sampling import streams
from horosphere.superposition.toy import WIDTHS, Schedule, Toy, grid

LISTS = ("laws", "widths", "densities", "gammas", "bias", "readouts")


@dataclass(frozen=True)
class Asked:
    """Options of a sweep as text, None where they are left out."""

    grid: str | None = None
    n: int | None = None
    laws: list[str] | None = None
    widths: list[str] | None = None
    densities: list[str] | None = None
    gammas: list[str] | None = None
    bias: list[str] | None = None
    readouts: list[str] | None = None
    lr: float | None = None
    steps: int | None = None
    batch: int | None = None
    seeds: int = 3

    def runs(self) -> tuple[list[Toy], Schedule]:
        """All runs, and the schedule they share.

        >>> runs, schedule = Asked(n=60, widths=["4", "8"], gammas=["0.5"], seeds=2, steps=100).runs()
        >>> [(toy.seed, toy.m) for toy in runs], schedule.warmup
        ([(0, 4), (0, 8), (1, 4), (1, 8)], 10)
        """
        for name in LISTS:
            if getattr(self, name) == []:
                raise UserError(f"--{name}: nothing is named; give values separated by commas, or leave it out")
        runs, schedule = self._of_grid() if self.grid else self._of_ones_own()
        steps, batch = self.steps or schedule.steps, self.batch or schedule.batch
        return runs, replace(schedule, steps=steps, batch=batch, warmup=min(schedule.warmup, steps // 10))

    def _spelled(self) -> dict[str, str]:
        """{plain law: as it was written}; of two spellings the first."""
        spelled: dict[str, str] = {}
        for law in self.laws or []:
            spelled.setdefault(plain_law(law), law)
        return spelled

    def _of_grid(self) -> tuple[list[Toy], Schedule]:
        if decided := [name for name in ("n", "lr") if getattr(self, name) is not None]:
            raise UserError(f"--{decided[0]}: grid {self.grid} has its own; leave it out, or leave out --grid")
        runs, schedule = grid(str(self.grid), self.seeds)
        wanted: dict[str, tuple[str, list[Any]]] = {
            "laws": ("law", list(self._spelled())),
            "widths": ("m", whole_numbers("--widths", self.widths)),
            "densities": ("density", _numbers("--densities", self.densities)),
            "gammas": ("gamma", _numbers("--gammas", self.gammas)),
        }
        for option, (name, values) in wanted.items():
            has = list(dict.fromkeys(getattr(run, name) for run in runs))
            if strange := [value for value in values if not any(_same(value, known) for known in has)]:
                there = f"grid {self.grid} has {', '.join(map(_short, has))}; choose from these"
                raise UserError(f"--{option} {_short(strange[0])}: {there}")
            runs = [run for run in runs if not values or any(_same(value, getattr(run, name)) for value in values)]
        forms = [(bias, readout) for readout in self.readouts or ["dot"] for bias in self.bias or ["normal"]]
        return [replace(run, bias=bias, readout=readout) for bias, readout in forms for run in runs], schedule

    def _of_ones_own(self) -> tuple[list[Toy], Schedule]:
        lr = 1e-2 if self.lr is None else self.lr
        runs = [
            Toy(self.n or 1000, m, law, density, gamma, bias, readout, seed, lr)
            for readout in self.readouts or ["dot"]
            for bias in self.bias or ["normal"]
            for seed in range(self.seeds)
            for law in list(self._spelled().values()) or ["power:1"]
            for density in _numbers("--densities", self.densities) or [1.0]
            for gamma in _numbers("--gammas", self.gammas) or [-5 / 9, 1 / 3]
            for m in whole_numbers("--widths", self.widths) or WIDTHS
        ]
        return runs, Schedule()


def part_of(runs: list[Toy], number: int, count: int) -> list[int]:
    """The runs, as indices, of part `number` (from 1) of `count`: runs that share their batches stay together.

    >>> runs = [Toy(n=60, m=m, law="power:1", seed=seed) for seed in (0, 1, 2) for m in (4, 8)]
    >>> part_of(runs, 1, 2), part_of(runs, 2, 2)
    ([0, 1, 4, 5], [2, 3])
    """
    return sorted(index for members in list(streams(runs).values())[number - 1 :: count] for index in members)


def part_number(text: str) -> tuple[int, int]:
    """ "2/8" -> 2, 8"""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise UserError(f"--part {text}: write K/N, for example 2/8: the second of eight parts")
    return int(number), int(count)


def whole_numbers(option: str, texts: list[str] | None) -> list[int]:
    """Widths as numbers, each once."""
    if wrong := [text for text in texts or [] if not text.isdecimal() or int(text) < 1]:
        raise UserError(f'{option}: "{wrong[0]}" is no width; give whole numbers separated by commas')
    return list(dict.fromkeys(int(text) for text in texts or []))


def _numbers(option: str, texts: list[str] | None) -> list[float]:
    try:
        return list(dict.fromkeys(float(text) for text in texts or []))
    except ValueError:
        raise UserError(f"{option} {','.join(texts or [])}: numbers separated by commas") from None


def _same(a: Any, b: Any) -> bool:
    """Numbers to the digits that are printed"""
    return abs(a - b) < 5e-3 if isinstance(b, float) else bool(a == b)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
