"""Captions and pictures around the root, and the walk of a picture from general to specific, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from textwrap import shorten
from typing import TYPE_CHECKING

import numpy as np

from horosphere.evaluate.metric import spread
from horosphere.measure.captions import CaptionMap
from horosphere.plots.report import Report
from horosphere.plots.style import ACCENT, BRANCHES, INK, LINE, MUTED, QUIET, WIDTH, new_panels, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from horosphere.runs import Run
    from horosphere.study.table import Results, Row
    from horosphere.tasks.image_text import Mapped

STEPS = 7  # captions of a walk that are drawn
THUMBNAIL = 224  # pixels a side


def adaptation_report(run: Run) -> Report:
    """The page of an adaptation: scores, the map of captions, walks, each before and after."""
    from horosphere.tasks.image_text import ImageText

    first, last = run.evaluations()[0], run.evaluations()[-1]
    how = run.about.recipe
    said = f"Each text should find its picture; R@5 went from {first.get('r5', 0):.3f} to {last.get('r5', 0):.3f}."
    if "order" in last:
        said = (
            f"The order of captions, τ_d, went from {first['order']:.3f} to {last['order']:.3f}. "
            f"The length of a caption alone gives {last['length_order']:.3f}."
        )
    title = f"{how['task']['objective']}, {how['model']['method']} on {Path(how['task']['towers']).name}"
    report = Report(f"{title}: what changed", said)
    rows = [
        [m.title, f"{first[m.name]:.{m.digits}f}", f"{last[m.name]:.{m.digits}f}"]
        for m in ImageText.metrics
        if m.name in first and m.name in last
    ]
    report.table(["", "before", "after"], rows, caption="On captions and pictures that were not learned from.")
    seen = ImageText.examine({"after": run})
    _add_maps(report, seen)
    report.made_with(run.about.made_with)
    return report


def add_image_text(report: Report, results: Results, seen: Mapped) -> None:
    """In the page of a study."""
    if results.column == "radius":
        report.section("Score against radius")
        report.text("2|z| is the hyperbolic radius of a text, of its vector before it is normalised.")
        report.figure(draw_radius_sweep(results), "Means over seeds; bars are their spread.", "score against radius")
    _add_maps(report, seen)


def _add_maps(report: Report, seen: Mapped) -> None:
    report.section("Captions around the root")
    report.text(
        "The distance from the middle is the distance from the root: on a sphere the embedding of an empty text, else "
        "the origin. General captions should lie inside, specific ones outside."
    )
    report.figure(draw_maps(seen.maps), "A dot is a caption; a cross is a picture.", "captions around the root")
    if any(mapped.walks for mapped in seen.maps.values()):
        report.section("From general to specific")
        report.text("Each picture walks outward through the captions. At every radius it takes the best one within.")
        report.figure(draw_walks(seen.pictures, seen.maps), "", "walks of pictures")


def draw_radius_sweep(results: Results) -> Figure:
    """The judged scores of a study of radii, over the mean radius that was reached."""
    with style():
        figure, panels = new_panels(3.2, len(results.judged))
        for axes, metric in zip(panels, results.judged, strict=True):
            rows = sorted(results.rows, key=lambda row: fmean(row.scores["radius"]))
            targets = [row for row in rows if _is_target(row)]
            x = [fmean(row.scores["radius"]) for row in targets]
            y, bars = zip(*((fmean(v), spread(v)) for v in (row.scores[metric.name] for row in targets)), strict=True)
            axes.errorbar(x, y, yerr=bars, color=ACCENT, marker="o", ms=4, lw=1.4, capsize=2, label="with a target")
            for row, mark in zip((row for row in rows if not _is_target(row)), "sD", strict=True):
                at, value = fmean(row.scores["radius"]), fmean(row.scores[metric.name])
                axes.plot([at], [value], mark, color=QUIET, ms=6, label=row.name)
            axes.set_xlabel("mean radius 2|z| of texts")
            axes.set_ylabel(metric.head)
        panels[0].legend(frameon=False, fontsize=8)
        return figure


def _is_target(row: Row) -> bool:
    """Not what was before, and not the entrant without a target."""
    return row.name not in ("free", "before")


def draw_maps(maps: dict[str, CaptionMap]) -> Figure:
    """Side by side, each with its own scale: radius in units of the farthest caption."""
    with style():
        figure, panels = new_panels(WIDTH / len(maps) + 0.5, len(maps))
        for axes, (name, seen) in zip(panels, maps.items(), strict=True):
            _map(axes, seen, name)
        marks, labels = panels[0].get_legend_handles_labels()
        how = {"ncols": min(6, len(labels)), "frameon": False, "fontsize": 8, "markerscale": 2.0}
        figure.legend(marks, labels, loc="outside lower center", **how)
        return figure


def _map(axes: Axes, seen: CaptionMap, name: str) -> None:
    far = float(seen.radii.max()) or 1.0
    turn = np.linspace(0, 2 * np.pi, 200)
    for share in (0.25, 0.5, 0.75, 1.0):
        axes.plot(share * np.cos(turn), share * np.sin(turn), color=LINE, lw=0.8, zorder=0)
    if len(seen.picture_radii):
        r = np.minimum(seen.picture_radii / far, 1.25)
        x, y = r * np.cos(seen.picture_angles), r * np.sin(seen.picture_angles)
        axes.scatter(x, y, s=10, marker="x", lw=0.6, color=MUTED, alpha=0.8, label="pictures")
    levels = seen.radii.shape[1]
    for level in range(levels):
        r, turned = seen.radii[:, level] / far, seen.angles[:, level]
        names = {0: "most general", levels - 1: "most specific"}
        label = names.get(level, f"level {level + 1}")
        colour = BRANCHES[level % len(BRANCHES)]
        axes.scatter(r * np.cos(turned), r * np.sin(turned), s=9, color=colour, alpha=0.75, lw=0, label=label)
    axes.scatter([0], [0], s=24, color=INK, marker="+", lw=1.2)
    axes.set_title(name, fontsize=10, color=INK)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])


def draw_walks(pictures: Sequence[Path], maps: dict[str, CaptionMap]) -> Figure:
    """A row a picture: the picture, then its walk by each of the maps."""
    from matplotlib.figure import Figure

    from horosphere.data.images import read_picture
    from horosphere.models.towers.features import MIDDLE

    numbers = next(iter(maps.values())).walks
    with style():
        figure = Figure(figsize=(WIDTH, 1.75 * len(numbers)), layout="constrained")
        grid = figure.subplots(len(numbers), 1 + len(maps), squeeze=False, width_ratios=[1.1, *[3] * len(maps)])
        for row, number in zip(grid, numbers, strict=True):
            thumbnail = read_picture(pictures[number], MIDDLE, THUMBNAIL)[0].permute(1, 2, 0).numpy()
            row[0].imshow(thumbnail, aspect="equal")
            for axes, (name, seen) in zip(row[1:], maps.items(), strict=True):
                axes.text(0.0, 1.0, name, va="top", color=MUTED, fontsize=7.5)
                _walk(axes, seen.walks[number], 124 // len(maps))
        for axes in grid.ravel():
            axes.set_axis_off()
        return figure


def _walk(axes: Axes, walk: Sequence[str], width: int) -> None:
    """Of a long walk its beginning and its end; so many characters a line."""
    lines = list(walk) if len(walk) <= STEPS else [*walk[: STEPS - 3], "…", *walk[-2:]]
    for step, text in enumerate(lines):
        axes.text(0.012 * step, 0.84 - 0.13 * step, shorten(text, width, placeholder="…"), va="top", fontsize=7.5)
