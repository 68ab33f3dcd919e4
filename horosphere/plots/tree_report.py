"""The report of a comparison on a tree or graph: the table, what it says, and pictures of where the nodes went."""

from horosphere.data import Graph
from horosphere.plots.comparison import draw_comparison
from horosphere.plots.disk import draw_disk
from horosphere.plots.report import Report
from horosphere.train.compare import BETTER, Comparison


def tree_report(name: str, graph: Graph, comparison: Comparison) -> Report:
    config = comparison.config
    report = Report(
        f"Does curvature pay on {name}?",
        f"{len(graph):,} nodes in {len(comparison.rows)} geometries, {config.dim} dimensions each",
    )
    delta = comparison.delta
    facts = {
        "nodes": f"{len(graph):,}",
        "edges": f"{len(graph.edges):,}",
        "relations learned": f"{comparison.relations:,}",
    }
    if graph.directed:
        facts["depth"] = f"{graph.depth().max()}"
    report.facts({**facts, "2δ/diameter": f"{delta.relative:.2f}"})
    report.text(
        f"2δ/diameter is Gromov's test for tree-likeness: 0 is a tree, 1 the least tree-like. It is {delta.relative:.2f} here"
        + (
            ", computed over all quadruples of nodes"
            if delta.exact
            else f", the largest of {delta.quadruples:,} sampled quadruples"
        )
        + ("." if delta.share == 1 else f" of the largest connected part, which has {delta.share:.0%} of the nodes.")
    )
    report.section("The comparison")
    heads, cells = comparison.cells()
    budget = f"{config.epochs} epochs, {config.batch_for(len(graph))} nodes a step, {config.negatives} negatives, learning rate {config.lr:g}; "
    over = f"Mean ± standard deviation over {comparison.seeds} seeds." if comparison.seeds > 1 else "One seed."
    report.table(heads, cells, highlight=0, caption=f"{over} Each geometry had {budget}time is of one seed.")
    report.text(comparison.verdict())
    metrics = {m: [r.metrics[m] for r in comparison.rows] for m in BETTER}
    report.figure(
        draw_comparison([r.geometry for r in comparison.rows], metrics, BETTER),
        "Every dot is one seed.",
        "metrics by geometry",
    )
    report.section("Where the nodes went")
    related = "neighbours" if not graph.directed else "parents" if config.on == "edges" else "ancestors"
    rim = (
        " In hyperbolic space there is room for all leaves at the rim; their ancestors lie towards the centre."
        if graph.directed
        else ""
    )
    report.text(
        f"A node is related to its {related}. Rank counts from 1 the unrelated nodes that lie closer to it than a relation does; "
        f"mean rank 1 and mAP 1 are perfect.{rim}"
    )
    depth = graph.depth() if graph.directed else None
    for row in filter(None, (comparison.best, comparison.rival)):
        figure = draw_disk(
            row.example.points,
            row.example.manifold,
            graph.edges,
            graph.labels,
            depth=depth,
            title=row.geometry.capitalize(),
        )
        report.figure(figure, f"{name} in {row.geometry} space, {config.dim} dimensions.", f"{row.geometry} embedding")
    return report
