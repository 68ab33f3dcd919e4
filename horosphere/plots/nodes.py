"""Embeddings of nodes in a study's page: how tree-like the graph is, and where its nodes went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horosphere.plots.points import draw_points
from horosphere.plots.report import Report

if TYPE_CHECKING:
    from horosphere.study.table import Results
    from horosphere.tasks.nodes import Charted


def add_nodes(report: Report, results: Results, seen: Charted) -> None:
    graph, delta = seen.graph, seen.delta
    task = next(iter(seen.points.values())).task
    report.section("The data")
    facts = {"nodes": f"{len(graph):,}", "edges": f"{len(graph.edges):,}"}
    if graph.directed:
        facts["depth"] = f"{graph.depth().max()}"
    report.facts({**facts, "2δ/diameter": f"{delta.relative:.2f}"})
    sampled = f"the largest of {delta.quadruples:,} sampled quadruples of nodes"
    how = "computed over all quadruples of nodes" if delta.exact else sampled
    how += f", among {delta.sampled:,} nodes drawn at random" if delta.sampled is not None else ""
    part = f" of the largest connected part, which has {delta.share:.0%} of the nodes" if delta.share < 1 else ""
    report.text(
        "2δ/diameter is Gromov's test for tree-likeness: 0 is a tree, 1 the least tree-like. "
        f"It is {delta.relative:.2f} here, {how}{part}."
    )
    report.section("Where the nodes went")
    related = "neighbours" if not graph.directed else "parents" if task.on == "edges" else "ancestors"
    report.text(
        f"A node is related to its {related}. Rank counts from 1 the unrelated nodes that lie closer to it than a "
        f"relation does; mean rank 1 and mAP 1 are perfect."
    )
    depth = graph.depth() if graph.directed else None
    for name, embedded in seen.points.items():
        figure = draw_points(
            embedded.points, embedded.manifold, graph.edges, graph.labels, depth=depth, title=name.capitalize()
        )
        report.figure(figure, f"{name.capitalize()} space, {embedded.config.dim} dimensions.", f"{name} embedding")
