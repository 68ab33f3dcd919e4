"""Captions and pictures around the root, and the walk of a picture from general to specific, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

import numpy as np

from horosphere.measure.captions import CaptionMap
from horosphere.plots.report import Report
from horosphere.plots.style import BRANCHES, INK, LINE, MUTED, new_panels, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from horosphere.runs import Run

SHOWN = 4  # pictures whose walks are drawn
STEPS = 7  # captions of a walk that are drawn
THUMBNAIL = 224  # pixels a side


def adaptation_report(run: Run) -> Report:
    """The page of an adaptation: scores, the map of captions, walks, each before and after."""
    from horosphere.tasks.image_text import before_and_after

    facts = run.about.facts["captions"]
    pictures = np.linspace(0, facts["valid"] - 1, SHOWN).astype(int).tolist()
    task, before, after = before_and_after(run, pictures)
    first, last = run.evaluations()[0], run.evaluations()[-1]
    gained = last["order"] - first["order"]
    report = Report(
        f"{task.configuration().method} on {Path(task.towers).name}: what changed",
        f"The order of captions, τ_d, went from {first['order']:.3f} to {last['order']:.3f}; "
        f"the length of a caption alone gives {last['length_order']:.3f}.",
    )
    rows = [
        [m.title, f"{first[m.name]:.{m.digits}f}", f"{last[m.name]:.{m.digits}f}"]
        for m in task.metrics
        if m.name in first and m.name in last
    ]
    report.table(["", "before", "after"], rows, caption="On captions and pictures that were not learned from.")
    report.section("Captions around the root")
    moved = "moved outward with their level" if gained > 0 else "did not sort themselves by level"
    report.text(
        "The distance from the middle is the distance from the root, the embedding of an empty text. "
        f"General captions should lie inside, specific ones outside. In this run captions {moved}."
    )
    report.figure(draw_maps({"before": before, "after": after}), "A dot is a caption; a cross is a picture.", "map")
    if after.walks:
        report.section("From general to specific")
        report.text("Each picture walks outward through the captions. At every radius it takes the best one within.")
        files = {number: task.opened.judged.pictures[number] for number in after.walks}
        report.figure(draw_walks(files, {"before": before, "after": after}), "", "walks of pictures")
    report.made_with(run.about.made_with)
    return report


def draw_maps(maps: dict[str, CaptionMap]) -> Figure:
    """Side by side, each with its own scale: radius in units of the farthest caption."""
    with style():
        figure, panels = new_panels(4.6, len(maps))
        for axes, (name, seen) in zip(panels, maps.items(), strict=True):
            _map(axes, seen, name)
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
        axes.scatter(r * np.cos(turned), r * np.sin(turned), s=8, color=BRANCHES[level], alpha=0.75, lw=0, label=label)
    axes.scatter([0], [0], s=24, color=INK, marker="+", lw=1.2)
    axes.set_title(name, fontsize=10, color=INK)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, -0.16), ncols=3, frameon=False, fontsize=7.5)


def draw_walks(files: dict[int, Path], maps: dict[str, CaptionMap]) -> Figure:
    """A row a picture: the picture, then its walk by each of the maps."""
    from matplotlib.figure import Figure

    from horosphere.data.images import read_picture
    from horosphere.models.towers.features import MIDDLE

    with style():
        figure = Figure(figsize=(9.2, 1.75 * len(files)), layout="constrained")
        grid = figure.subplots(len(files), 1 + len(maps), squeeze=False, width_ratios=[1.1, *[3] * len(maps)])
        for row, (number, file) in zip(grid, files.items(), strict=True):
            row[0].imshow(read_picture(file, MIDDLE, THUMBNAIL)[0].permute(1, 2, 0).numpy(), aspect="equal")
            for axes, (name, seen) in zip(row[1:], maps.items(), strict=True):
                axes.text(0.0, 1.0, name, va="top", color=MUTED, fontsize=7.5)
                _walk(axes, seen.walks[number])
        for axes in grid.ravel():
            axes.set_axis_off()
        return figure


def _walk(axes: Axes, walk: Sequence[str]) -> None:
    """Of a long walk its beginning and its end."""
    lines = list(walk) if len(walk) <= STEPS else [*walk[: STEPS - 3], "…", *walk[-2:]]
    for step, text in enumerate(lines):
        shown = shorten(text, 62, placeholder="…")
        axes.text(0.012 * step, 0.84 - 0.13 * step, shown, va="top", color=INK, fontsize=7.5)
