"""Language models in the report: how two runs learned, what they write, and what the instruments found inside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from horosphere.measure.language import TokenStudy
from horosphere.plots.language import (
    Curve,
    draw_attention_distance,
    draw_curvatures,
    draw_curves,
    draw_expert_load,
    draw_ricci,
    draw_token_radius,
)
from horosphere.plots.report import Report, require_page_place, save_page
from horosphere.train.engine import METRICS, RUN

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class LanguageRun:
    """A finished run as the report tells of it."""

    name: str
    parameters: int
    curve: Curve
    seconds: float  # of training
    sample: str  # what it writes

    @staticmethod
    def read(name: str, folder: str | Path, sample: str, twin_of: str | None = None) -> LanguageRun:
        """From the run.json and metrics.jsonl of a run."""
        about = json.loads((Path(folder) / RUN).read_text(encoding="utf-8"))
        lines = [json.loads(line) for line in (Path(folder) / METRICS).read_text(encoding="utf-8").splitlines()]
        evaluated = [line for line in lines if "eval_bits_per_byte" in line]
        a_step = about["training"]["batch"] * about["recipe"]["length"]
        curve = Curve(
            [line["step"] * a_step for line in evaluated], [line["eval_bits_per_byte"] for line in evaluated], twin_of
        )
        return LanguageRun(
            name, about["recipe"]["parameters"], curve, max(line.get("seconds", 0.0) for line in lines), sample
        )

    @property
    def bits_per_byte(self) -> float:
        return self.curve.bits_per_byte[-1]


@dataclass(frozen=True)
class Duel:
    """A model on the hyperboloid and its flat twin, one run each."""

    curved: LanguageRun
    flat: LanguageRun

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Heads and cells of the table a person reads, the better model first."""
        rows = sorted((self.curved, self.flat), key=lambda run: run.bits_per_byte)
        cells = [
            [r.name, f"{r.parameters:,}", f"{r.curve.tokens[-1]:,}", f"{r.bits_per_byte:.3f}", f"{r.seconds:.0f} s"]
            for r in rows
        ]
        return ["model", "parameters", "tokens read", "bits/byte ↓", "time"], cells

    def verdict(self) -> str:
        """Who predicts better, and how much one run of each can say."""
        curved, flat = self.curved, self.flat
        gap = flat.bits_per_byte - curved.bits_per_byte
        found = f"{curved.name} beats its flat twin {flat.name} by {gap:.3f} bits per byte."
        if f"{abs(gap):.3f}" == "0.000":
            found = f"{curved.name} and its flat twin {flat.name} are level."
        elif gap < 0:
            found = f"{curved.name} loses to its flat twin {flat.name} by {-gap:.3f} bits per byte: curvature does not pay in this run."
        return f"{found} One run of each says nothing about chance."


def add_language(report: Report, text: str, duel: Duel, study: TokenStudy) -> None:
    """A curved and a flat model that learned the same text, and what the curved one became."""
    runs = (duel.curved, duel.flat)
    report.section("Does curvature pay in a language model?")
    report.text(
        f"{duel.curved.name} lives on the hyperboloid; {duel.flat.name} is its flat twin, the same code on another manifold. Both read the same "
        f"tokens of {text} in the same order. Bits per byte say how well a model predicts text it has never seen: lower is better, and 8 is "
        "knowing nothing."
    )
    heads, cells = duel.cells()
    report.table(
        heads,
        cells,
        highlight=0,
        caption="At the end, on all of the held-out text. Both trained at the same time on the same machine.",
    )
    report.text(duel.verdict())
    report.figure(
        draw_curves({run.name: run.curve for run in runs}), "Learning curves; dashed: the flat twin.", "learning curves"
    )
    for run in runs:
        report.text(f"{run.name} writes: {' '.join(run.sample.split())}")
    report.section(f"Inside {study.name}")
    for _, figure, caption in pictures(study):
        report.figure(figure, caption)


def pictures(study: TokenStudy) -> Iterator[tuple[str, Figure, str]]:
    """(name, picture, caption) of all there is to see in a model."""
    stats, correlation = study.stats[study.name], study.radius[study.name].correlation
    near = "nearer the origin" if correlation < 0 else "farther out, not nearer"
    yield (
        "token-radius",
        draw_token_radius(study.radius, study.labels),
        f"Distance of tokens from the origin. In {study.name} frequent ones lie {near} (rank correlation {correlation:+.2f}). In a hierarchy "
        "the generic is near the origin and the specific far out; where all start alike and frequent tokens have moved most, it is the opposite.",
    )
    if stats.curvatures:
        yield (
            "expert-curvatures",
            draw_curvatures(stats.curvatures),
            "Curvature of each expert: hollow where training began, full where it ended; diamonds are shared experts.",
        )
    if stats.expert_load is not None:
        yield (
            "expert-load",
            draw_expert_load(stats.expert_load, stats.expert_layers),
            f"How tokens of held-out text spread over experts; 1 is the fair share. Dead experts: {int(stats.expert_load.dead.sum())}.",
        )
    yield (
        "attention-distance",
        draw_attention_distance({name: s.attention_distance for name, s in study.stats.items()}, stats.length),
        f"How many tokens back heads look, in rows of {stats.length}.",
    )
    yield (
        "ricci",
        draw_ricci(study.ricci, study.noise),
        "Curvature of the graph of nearest tokens. Noise in many flat dimensions is negative too: only the difference from it says something, "
        f"here {study.ricci.mean - study.noise.mean:+.3f}.",
    )


# -- `horosphere measure tokens` -------------------------------------------------------------------------------------


def save_study(study: TokenStudy, out: str | Path, overwrite: bool = False) -> None:
    """A page where the name ends in .html; else a folder of the page and its pictures."""
    require_page_place(out, overwrite)
    report = Report(
        f"Inside {study.name}",
        f"{len(study.labels):,} tokens, {len(study.stats[study.name].attention_distance)} layers",
    )
    report.table(["instrument", "found"], study.rows())
    drawn = list(pictures(study))
    for _, figure, caption in drawn:
        report.figure(figure, caption)
    save_page(report, {name: figure for name, figure, _ in drawn}, out, overwrite)
