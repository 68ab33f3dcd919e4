"""One picture through one model: its clusters, its tree of parts, its answer, as pictures and a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from horosphere.data.augment import Augmentation, normalise
from horosphere.data.images import LazyPictures
from horosphere.errors import UserError
from horosphere.measure.vision import ClusterMap, cluster_levels, tree_numbers
from horosphere.models.hcformer import HCFormer
from horosphere.models.himapper import Hierarchy, HiMapper
from horosphere.plots.report import Report, require_page_place, save_page
from horosphere.plots.vision import draw_clusters, draw_coarse_to_fine, draw_nodes, draw_tree
from horosphere.train.images import ImageRecipe, TrainedImages, image_model, image_recipe_names, load_images

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

SHOWN = 448  # pixels a side of the picture that maps are drawn over, at least: a network may see far fewer
ANSWERS = 5
CLASSES = 1000  # of a network that was never trained; nobody reads its answer


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a model makes of a picture."""

    picture: np.ndarray  # (H, W, 3) uint8: the part that the network sees, perhaps finer
    size: int  # pixels that it sees, from top to bottom
    answers: list[tuple[str, float]]  # likeliest classes and their probabilities; empty for random weights
    clusters: list[ClusterMap]  # coarse to fine; empty without an HCFormer
    tree: Hierarchy | None  # of the one picture; None without a Hi-Mapper

    def rows(self) -> list[list[str]]:
        """The answer as a table: class, probability."""
        return [[name, f"{100 * share:.1f} %"] for name, share in self.answers]


def explain(
    model: str | Path, image: str | Path, out: str | Path, *, random_weights: bool = False, overwrite: bool = False
) -> tuple[Explanation, list[Path]]:
    """Look at an image through a run of `horosphere train` and write what is seen; returns it, and the files written.

    out: a page where the name ends in .html, else a folder of the page and its pictures. random_weights: model is a recipe's name instead of a
    run, and its weights are new (always the same ones).
    """
    require_page_place(out, overwrite)
    trained = _untrained(str(model)) if random_weights else _run(model)
    found = look(trained.network, *read_picture(image, trained), [] if random_weights else trained.classes)
    weights = ", random weights" if random_weights else ""
    report = Report(Path(image).name, f"as {Path(model).name}{weights} sees it")
    return found, _save(report, found, Path(out), overwrite)


# -- looking ----------------------------------------------------------------------------------------------------------


def look(network: nn.Module, x: Tensor, picture: np.ndarray, classes: Sequence[str] = ()) -> Explanation:
    """Clusters of an HCFormer, the tree of a Hi-Mapper, or both.   x (3, h, w) normalised, picture (H, W, 3) uint8 of the same part"""
    clustering = next(
        (module for module in network.modules() if isinstance(module, HCFormer)), None
    )  # perhaps within a Hi-Mapper
    if clustering is None and not isinstance(network, HiMapper):
        raise UserError(
            f"{type(network).__name__} has neither clusters nor a tree to show: explain takes runs of HCFormer and Hi-Mapper"
        )
    network.eval()
    answers: list[tuple[str, float]] = []
    with torch.no_grad():
        if classes:
            likeliest = network(x[None])[0].float().softmax(0).topk(min(ANSWERS, len(classes)))
            answers = [
                (classes[i], share)
                for share, i in zip(likeliest.values.tolist(), likeliest.indices.tolist(), strict=True)
            ]
        clusters = [] if clustering is None else cluster_levels(clustering, x)
        tree = network.hierarchy(x[None]) if isinstance(network, HiMapper) else None
    return Explanation(picture, x.shape[-2], answers, clusters, tree)


def read_picture(path: str | Path, trained: TrainedImages) -> tuple[Tensor, np.ndarray]:
    """The middle of a picture, as a run's evaluation sees it: for the network, and to draw over.   -> (3, size, size), (H, W, 3) uint8"""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such picture; check the path")
    one, box = LazyPictures(1, partial(_open, path), lambda _: str(path)), trained.augmentation.still_box
    sizes = trained.size, max(SHOWN, trained.size)
    seen, shown = (one.crops(np.zeros(1, np.int64), box, np.zeros((1, 4)), size)() for size in sizes)
    return normalise(seen)[0], shown[0].permute(1, 2, 0).numpy()


def _open(path: Path, _: int) -> Image:
    from PIL import Image

    with Image.open(path) as picture:
        picture.load()
        return picture


def _run(model: str | Path) -> TrainedImages:
    if not Path(model).exists() and str(model) in image_recipe_names():
        raise UserError(
            f"{model}: a recipe, not a run; train it first and name its folder, or pass --random-weights to see it untrained"
        )
    return load_images(model)


def _untrained(name: str) -> TrainedImages:
    """The model of a recipe with new weights, the same ones every time."""
    if name not in (known := image_recipe_names()):
        raise UserError(f"{name}: no recipe of a model of pictures; random weights are for {', '.join(known)}")
    recipe = ImageRecipe.read(name, ["data=none"])  # which it has no use for
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = image_model(recipe.model, CLASSES, recipe.size, recipe.config, recipe.tree)
    return TrainedImages(network.eval(), [], None, recipe.size, Augmentation(crop=recipe.augmentation.crop))


# -- telling ----------------------------------------------------------------------------------------------------------


def add_explanation(report: Report, found: Explanation) -> None:
    """Its sections of a report."""
    _add(report, found, {name: (figure, caption) for name, figure, caption in pictures(found)})


def pictures(found: Explanation) -> Iterator[tuple[str, Figure, str]]:
    """(name, picture, caption) of all there is to see."""
    if found.clusters:
        caption = "Every stage, the shares of its heads averaged. Lines part windows."
        yield "clusters", draw_coarse_to_fine(found.clusters, found.picture, found.size), caption
        for stage in dict.fromkeys(level.stage for level in found.clusters):
            own = [level for level in found.clusters if level.stage == stage]
            caption = f"Stage {stage}, its last block, head by head; on the left the centres at the middles of what they are means of."
            yield f"clusters-stage-{stage}", draw_clusters(own, found.picture, found.size), caption
    if found.tree is not None:
        caption = "Where each node looks. Below the picture the top level; leaves at the bottom, two for each node above them."
        yield "tree", draw_tree(found.tree, found.picture), caption
        caption = "The nodes of the tree; distances from the middle are exact for the curvature it is drawn with. Leaves have no names."
        yield "tree-disk", draw_nodes(found.tree), caption


def _add(report: Report, found: Explanation, drawn: dict[str, tuple[Figure, str]]) -> None:
    if found.answers:
        report.section("The answer")
        report.table(["class", "probability"], found.rows(), highlight=0)
    if found.clusters:
        report.section("Clusters, coarse to fine")
        report.text(
            "HCFormer mixes what it clusters. Windows gather around centres spread over the whole picture; the patches of a window around centres "
            "of that window. Every centre has a colour, and a place is coloured by its shares of the centres: grey belongs to none in particular."
        )
        report.text(
            "Soft shares of many centres all look grey, so where that is needed they are raised to a power before they are blended; each picture "
            "says which. The number above a head is about the shares as they are: over how many centres a place spreads."
        )
        for name in drawn:
            if name.startswith("clusters"):
                report.figure(*drawn[name])
    if found.tree is not None:
        report.section("The tree of parts")
        report.text(
            "Hi-Mapper asks the picture for parts: leaves for small ones, their parents for what they make up. In a tree that has been learned a "
            "node is nearer to its parent than to the others of its level."
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
            tree_rows(found.tree),
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


def _save(report: Report, found: Explanation, out: Path, overwrite: bool) -> list[Path]:
    drawn = {name: (figure, caption) for name, figure, caption in pictures(found)}
    _add(report, found, drawn)
    return save_page(report, {name: figure for name, (figure, _) in drawn.items()}, out, overwrite)
