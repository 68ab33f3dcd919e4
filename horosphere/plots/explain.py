"""One picture through one model: its clusters, its tree of parts, its answer, as pictures and a report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from horosphere.measure.vision import Explanation, tree_numbers
from horosphere.plots.report import Report, save_page
from horosphere.plots.vision import draw_clusters, draw_coarse_to_fine, draw_nodes, draw_tree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from horosphere.models.himapper import Hierarchy


def save_explanation(
    explanation: Explanation, title: str, subtitle: str, out: Path, overwrite: bool = False
) -> list[Path]:
    """A page where the name ends in .html, else a folder of the page and its pictures; returns what was written."""
    report = Report(title, subtitle)
    drawn = {name: (figure, caption) for name, figure, caption in pictures(explanation)}
    _add(report, explanation, drawn)
    return save_page(report, {name: figure for name, (figure, _) in drawn.items()}, out, overwrite)


def pictures(explanation: Explanation) -> Iterator[tuple[str, Figure, str]]:
    """(name, picture, caption) of all there is to see."""
    if explanation.clusters:
        caption = "Every stage, the shares of its heads averaged. Lines part windows."
        yield "clusters", draw_coarse_to_fine(explanation.clusters, explanation.picture, explanation.size), caption
        for stage in dict.fromkeys(level.stage for level in explanation.clusters):
            own = [level for level in explanation.clusters if level.stage == stage]
            caption = (
                f"The last block of stage {stage}, head by head. "
                "On the left the centres; each is at the middle of what it is the mean of."
            )
            yield f"clusters-stage-{stage}", draw_clusters(own, explanation.picture, explanation.size), caption
    if explanation.tree is not None:
        caption = "Where each node looks. The top level is below the picture; leaves are at the bottom, two a parent."
        yield "tree", draw_tree(explanation.tree, explanation.picture), caption
        caption = (
            "The nodes of the tree. Distances from the middle are exact for the curvature it is drawn with. "
            "Leaves have no names."
        )
        yield "tree-disk", draw_nodes(explanation.tree), caption


def _add(report: Report, explanation: Explanation, drawn: dict[str, tuple[Figure, str]]) -> None:
    if explanation.answers:
        report.section("The answer")
        report.table(["class", "probability"], explanation.rows(), highlight=[0])
    if explanation.clusters:
        report.section("Clusters, coarse to fine")
        report.text(
            "HCFormer mixes what it clusters. Windows gather around centres spread over the whole picture, and the "
            "patches of a window around centres of that window. Every centre has a colour. A place is coloured by its "
            "shares of the centres: grey belongs to none in particular."
        )
        report.text(
            "Soft shares of many centres all look grey. Where that is so, they are raised to a power before they are "
            "blended, at most to the eighth; each picture says which. The number above a head says over how many "
            "centres a place spreads. It is about the shares as they are. A head that spreads over nearly all of them "
            "clusters nothing: it stays grey."
        )
        for name in drawn:
            if name.startswith("clusters"):
                report.figure(*drawn[name])
    if explanation.tree is not None:
        report.section("The tree of parts")
        report.text(
            "Hi-Mapper asks the picture for parts: leaves for small ones, their parents for what they make up. In a "
            "tree that has been learned a node is nearer to its parent than to the others of its level."
        )
        heads = [
            "level",
            "nodes",
            "share of the picture seen",
            "to the origin",
            "to its parent",
            "to others of its level",
        ]
        report.table(
            heads,
            tree_rows(explanation.tree),
            caption="Means over the nodes of a level; distances in the geometry of the tree.",
        )
        for name in ("tree", "tree-disk"):
            report.figure(*drawn[name])


def tree_rows(tree: Hierarchy) -> list[list[str]]:
    """Cells of the table of levels, the top first."""
    levels = tree_numbers(tree)
    names = ["top", *(str(number + 1) for number in range(1, len(levels) - 1)), "leaves"]

    def cell(value: float | None) -> str:
        return "—" if value is None else f"{value:.2f}"

    return [
        [
            name,
            str(level.nodes),
            f"{100 * level.seen:.1f} %",
            *map(cell, (level.to_origin, level.to_parent, level.to_others)),
        ]
        for name, level in zip(names, levels, strict=True)
    ]
