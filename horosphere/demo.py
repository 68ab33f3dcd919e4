"""`make demo`: a real tree in four geometries, and a page that shows what came out."""

from pathlib import Path

from horosphere.cli import print_comparison, require_pictures
from horosphere.data.builtin import trove_classifiers
from horosphere.files import require_new_file
from horosphere.plots.tree_report import tree_report
from horosphere.train.compare import compare
from horosphere.train.config import EmbedConfig
from horosphere.train.progress import progress


def demo(out: str | Path, overwrite: bool, quiet: bool) -> None:
    require_new_file(out, overwrite)
    require_pictures()
    graph = trove_classifiers()
    config = EmbedConfig(dim=5, epochs=150)
    print(f"PyPI's package classifiers: a tree of {len(graph)} nodes. Four geometries, 5 dimensions, 3 seeds each; about two minutes on two cores.")
    with progress("comparing", config.epochs * 12, quiet) as update:
        comparison = compare(graph, config, progress=update)
    tree_report("PyPI's classifiers", graph, comparison).save(out)
    print_comparison(comparison)
    print(f"report: {out}")
