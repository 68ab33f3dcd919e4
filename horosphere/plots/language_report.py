"""Language models in a page: what the instruments found inside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from horosphere.measure.language import TokenStudy
from horosphere.plots.language import (
    draw_attention_distance,
    draw_curvatures,
    draw_expert_load,
    draw_ricci,
    draw_token_radius,
)
from horosphere.plots.report import Report, require_page_place, save_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from horosphere.study.table import Results


def add_language(report: Report, results: Results, seen: TokenStudy) -> None:
    """In a study's page: what the curved model became, its twin beside it."""
    report.section(f"Inside {seen.name}")
    report.text(
        "Bits per byte say how well a model predicts text it has never seen: lower is better, and 8 is knowing "
        "nothing. A flat twin is the same code on another manifold; both read the same tokens in the same order."
    )
    for _, figure, caption in pictures(seen):
        report.figure(figure, caption)


def pictures(study: TokenStudy) -> Iterator[tuple[str, Figure, str]]:
    """(name, picture, caption) of all there is to see in a model."""
    stats, correlation = study.stats[study.name], study.radius[study.name].correlation
    near = "nearer the origin" if correlation < 0 else "farther out, not nearer"
    yield (
        "token-radius",
        draw_token_radius(study.radius, study.labels),
        f"Distance of tokens from the origin. In {study.name} frequent ones lie {near} (rank correlation "
        f"{correlation:+.2f}). In a hierarchy the generic is near the origin and the specific far out. Where all start "
        "alike and frequent tokens have moved most, it is the opposite.",
    )
    if stats.curvatures:
        yield (
            "expert-curvatures",
            draw_curvatures(stats.curvatures),
            "Curvature of each expert: hollow where training began, full where it ended; diamonds are shared experts.",
        )
    if stats.expert_load is not None:
        dead = int(stats.expert_load.dead.sum())
        yield (
            "expert-load",
            draw_expert_load(stats.expert_load, stats.expert_layers),
            f"How tokens of held-out text spread over experts; 1 is the fair share. Dead experts: {dead}.",
        )
    yield (
        "attention-distance",
        draw_attention_distance({name: s.attention_distance for name, s in study.stats.items()}, stats.length),
        f"How many tokens back heads look, in rows of {stats.length}.",
    )
    yield (
        "ricci",
        draw_ricci(study.ricci, study.noise),
        "Curvature of the graph of nearest tokens. Flat noise of as many points and dimensions is not zero either: "
        f"only the difference from it says something, here {study.ricci.mean - study.noise.mean:+.3f}.",
    )


def save_study(study: TokenStudy, out: str | Path, overwrite: bool = False) -> None:
    """A page where the name ends in .html; else a folder of the page and its pictures."""
    require_page_place(out, overwrite)
    layers = len(study.stats[study.name].attention_distance)
    report = Report(f"Inside {study.name}", f"{len(study.labels):,} tokens, {layers} layers")
    report.table(["instrument", "finding"], study.rows())
    drawn = list(pictures(study))
    for _, figure, caption in drawn:
        report.figure(figure, caption)
    save_page(report, {name: figure for name, figure, _ in drawn}, out, overwrite)
