"""Classes from a few pictures each: what frozen towers know already, and what is learned beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from horosphere import catalogue
from horosphere.data.classes import ClassTree, read_classes, write_classes
from horosphere.data.images import ImageSet, open_images
from horosphere.errors import UserError
from horosphere.evaluate.classification import hierarchy_scores
from horosphere.evaluate.metric import Metric
from horosphere.files import digest
from horosphere.geometry import Euclidean, Manifold
from horosphere.models.few_shot import (
    FewShotLearner,
    LinearProbe,
    TextLearner,
    alike,
    class_vectors,
    few_shot_learner,
)
from horosphere.models.lathadapter import placed
from horosphere.models.prompts import filled
from horosphere.models.towers import Towers, frozen, image_features, weights_digest
from horosphere.models.weights import begin_with
from horosphere.runs import Run
from horosphere.settings import Size
from horosphere.tasks.image_text import open_towers
from horosphere.tasks.pictures import class_pictures, class_points
from horosphere.train.config import EngineConfig
from horosphere.train.task import CompareOptions, Task
from horosphere.train.vectors import Vectors as LabelledVectors

PROBE = "linear-probe"  # has no texts, so new classes are nothing to it
EVAL_ROWS = 4096  # pictures at once
ZERO = "zero_shot_"  # begins the names of the towers' own scores


@dataclass(frozen=True, eq=False)
class Vectors:
    """Pictures as the towers see them, and their classes."""

    images: Tensor  # (N, width)
    labels: np.ndarray  # (N,)


@dataclass(frozen=True, eq=False)
class FewShotData:
    towers: Towers
    classes: list[str]
    tree: ClassTree | None
    pool: Vectors  # what shots are drawn from
    held: Vectors
    texts: Tensor  # (C, width) of the classes' names in the template
    pixels: str  # what the pictures are known by


@dataclass(frozen=True, eq=False)
class TrainedFewShot:
    """A learner in eval mode, and what it was trained for."""

    network: FewShotLearner  # of vectors of pictures
    classes: list[str]
    tree: ClassTree | None

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Tensor:
        """Shares of the classes.   (N, 3, size, size) uint8, of the towers' size -> (N, C)"""
        return self.network(self.network.towers.image(pixels)).softmax(-1)


@dataclass(kw_only=True)
class FewShot(Task[FewShotData]):
    """Vectors of pictures are computed once and kept. So a training takes seconds, unless words are learned (coop)."""

    kind = "few_shot"
    unit = "images"
    alone = "few pictures are learned from in seconds, by one process"
    metrics = (
        Metric("accuracy", "accuracy", 4, "high", "judged"),
        Metric(f"{ZERO}accuracy", "zero-shot", 4, "high"),
        Metric("harmonic", "harmonic mean", 4, "high", "judged"),
        Metric(f"{ZERO}harmonic", "zero-shot", 4, "high"),
        Metric("base", "base", 4, "high"),
        Metric(f"{ZERO}base", "zero-shot base", 4, "high", "detail"),
        Metric("novel", "novel", 4, "high"),
        Metric(f"{ZERO}novel", "zero-shot novel", 4, "high", "detail"),
        Metric("tree_error", "tree error", 3, "low"),
        Metric(f"{ZERO}tree_error", "zero-shot tree error", 3, "low", "detail"),
        Metric("ancestor", "shared ancestor", 3, "low", "shown", "its mean height, of mistakes"),
        Metric(f"{ZERO}ancestor", "zero-shot shared ancestor", 3, "low", "detail"),
    )

    towers: str = "two"  # a run of the task image_text, the folder of a CLIP, hf:NAME, open_clip:NAME:WEIGHTS
    template: str = "a photo of a {}."  # the text of a class: its name stands for {}
    shots: Size = 16  # pictures of a class to learn from
    protocol: Literal["all", "base-to-novel"] = "all"  # base-to-novel: the first half of the classes is learned
    valid: str | None = None  # a source of its own; none: what the data hold out, or a tenth of each class
    pool: Size = 48  # pictures of a class that shots are drawn from, another draw for each seed
    held: Size = 30  # pictures of a class to judge by, at most

    # -- data and model ---------------------------------------------------------------------------------------------

    def check(self, engine: EngineConfig) -> None:
        filled(self.template, [])
        if self.model == PROBE and self.protocol == "base-to-novel":
            raise UserError(f"model={PROBE} has no answer for new classes; use protocol=all, or another model")
        if self.pool < self.shots:
            raise UserError(f"pool={self.pool}: shots={self.shots} are drawn from it; make it larger")

    def open_data(self) -> FewShotData:
        images = open_images(self.data, self.valid)
        least = 4 if self.protocol == "base-to-novel" else 2
        if len(images.classes) < least:
            have = f"{self.data}: {len(images.classes)} class{'es' * (len(images.classes) > 1)}"
            raise UserError(f"{have}, but {least} are the least for protocol={self.protocol}; give more")
        counts = np.bincount(images.train.labels, minlength=len(images.classes))
        if counts.min() < self.shots:
            name, count = images.classes[counts.argmin()], counts.min()
            how = f"use shots={count}" if count else "give some, or leave the class out"
            raise UserError(f"{self.data}: {count} pictures of {name}, but shots={self.shots}; {how}")
        towers = frozen(open_towers(self.towers)).to(self.world.device)
        if not towers.sees:
            raise UserError(f"towers={self.towers}: they have no image tower; give a CLIP, or a run of image_text")
        pool, held = (
            self._vectors(towers, part, most) for part, most in ((images.train, self.pool), (images.valid, self.held))
        )
        texts = class_vectors(towers, images.classes, self.template)
        drawn = ((images.train, self.pool), (images.valid, self.held))
        pixels = digest(*(s.pictures.digest(s.numbers[first_of_each(s.labels, most)]) for s, most in drawn))
        data = FewShotData(towers, images.classes, images.tree, pool, held, texts, pixels)
        for part in self.parts(data):
            if not within(held.labels, part).any():
                raise UserError(
                    f"{self.data}: no pictures held out of the classes from {data.classes[part][0]}; give some"
                )
        return data

    def _vectors(self, towers: Towers, images: ImageSet, most: int) -> Vectors:
        first = first_of_each(images.labels, most)
        features = image_features(towers, images.pictures, images.numbers[first], self.quiet)
        with torch.no_grad():
            vectors = towers.image_vector(features.to(self.world.device))
        return Vectors(vectors, images.labels[first])

    def rows(self, data: FewShotData) -> int:
        return self.shots * len(range(len(data.classes))[self.learned(data)])

    def learned(self, data: FewShotData) -> slice:
        """The classes to learn."""
        return self.parts(data)[0]

    def parts(self, data: FewShotData) -> list[slice]:
        """Classes among which an answer is chosen: all of them, or the base classes, then the novel ones."""
        count = len(data.classes)
        half = -(-count // 2)
        return [slice(0, count)] if self.protocol == "all" else [slice(0, half), slice(half, count)]

    def facts(self, data: FewShotData) -> dict[str, Any]:
        return {
            "pictures": {"learn": self.rows(data), "judge": len(data.held.labels)},
            "classes": len(data.classes),
            "digest": digest(*data.classes, data.pool.labels.tobytes(), data.held.labels.tobytes(), data.pixels),
            "towers": weights_digest(data.towers),
        }

    def build(self, data: FewShotData) -> nn.Module:
        model = self.learner(data.towers, data.classes)
        if self.start is not None:
            begin_with(model, Run.open(self.start, self.kind).load().network.state_dict(), self.start)
        return model

    def learner(self, towers: Towers, classes: list[str]) -> FewShotLearner:
        return few_shot_learner(self.model, towers, classes, self.template, self.configuration())

    def ready(self, data: FewShotData) -> None:
        self.opened = data
        part = self.learned(data)
        drawn = draw_shots(data.pool.labels, self.shots, self.engine.seed)[part]
        self.images = data.pool.images[torch.from_numpy(drawn.ravel()).to(data.pool.images.device)]
        self.labels = torch.from_numpy(data.pool.labels[drawn.ravel()])

    def begin(self, folder: Path) -> None:
        write_classes(folder, self.opened.classes, self.opened.tree)

    # -- the training -----------------------------------------------------------------------------------------------

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """images (B, width), labels (B,)"""
        chosen = torch.from_numpy(self.drawn(step, rows, len(self.labels)))
        return {"images": self.images[chosen.to(self.images.device)], "labels": self.labels[chosen]}

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        total, parts = cast(FewShotLearner, model).loss(batch["images"], batch["labels"], self.learned(self.opened))
        return total, {name: part.detach() for name, part in parts.items()}

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Classes feel attributes through β alone, so steps of attributes are 1/β as long."""
        groups = super().groups(model)
        adapter = model.adapter if isinstance(model, TextLearner) else None
        if adapter is None or not adapter.config.beta:
            return groups
        for group in groups:
            group["params"] = [p for p in group["params"] if p is not adapter.attributes]
        scaled = {"weight_decay": self.engine.weight_decay, "lr_scale": 1 / adapter.config.beta}
        return [*(group for group in groups if group["params"]), {"params": [adapter.attributes], **scaled}]

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        """Scores of the model, and of the towers without it."""
        data = self.opened
        zero = self.scores(lambda images, which: alike(data.towers, images, data.texts[which]))
        return {**self.scores(model), **{ZERO + name: score for name, score in zero.items()}}

    def scores(self, answer: Callable[[Tensor, slice], Tensor]) -> dict[str, float]:
        """Of logits of pictures, for some of the classes."""
        data, parts = self.opened, self.parts(self.opened)
        truth, predicted = data.held.labels, np.empty_like(data.held.labels)
        for part in parts:
            rows = np.flatnonzero(within(truth, part))
            for some in np.array_split(rows, -(-len(rows) // EVAL_ROWS)):
                best = answer(data.held.images[torch.from_numpy(some).to(self.world.device)], part).argmax(1)
                predicted[some] = part.start + best.cpu().numpy()
        right = [(predicted == truth)[within(truth, part)] for part in parts]
        scores = {"accuracy": float(right[0].mean())}
        if len(parts) > 1:
            base, novel = (float(part.mean()) for part in right)
            scores = {"base": base, "novel": novel, "harmonic": 2 * base * novel / max(base + novel, 1e-12)}
        if data.tree is not None:
            on_tree = hierarchy_scores(predicted, truth, data.tree)
            scores |= {"tree_error": on_tree.tree_error, "ancestor": on_tree.ancestor}
        return scores

    # -- the learner of a run ---------------------------------------------------------------------------------------

    def rebuild(self, run: Run) -> nn.Module:
        classes, _ = read_classes(run.folder)
        return self.learner(open_towers(self.towers), classes)

    def trained(self, network: nn.Module, run: Run) -> TrainedFewShot:
        return TrainedFewShot(cast(FewShotLearner, network), *read_classes(run.folder))

    @classmethod
    @torch.no_grad()
    def vectors(cls, run: Run) -> LabelledVectors:
        """The classes as pictures are compared with them. On a sphere they are points of the flat space around it."""
        trained: TrainedFewShot = cls.load(run)
        task = cast(FewShot, cls.of(run))
        points, manifold = class_places(trained.network.requires_grad_(False))
        found = class_points(points, manifold or Euclidean(), trained.classes, trained.tree)
        if not Path(task.data).exists():
            return found
        return replace(found, thumbnail=class_pictures(partial(open_images, task.data, task.valid), trained.classes))

    # -- for people and studies -------------------------------------------------------------------------------------

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        sizes = f"{self.shots} of a class to learn, {facts['pictures']['judge']:,} to judge, {facts['classes']} classes"
        return [
            ["model", f"{self.model} on {self.towers}, {facts['parameters']:,} parameters"],
            ["pictures", sizes + ", half of them novel" * (self.protocol == "base-to-novel")],
        ]

    def comparison(self, options: CompareOptions) -> catalogue.Comparison:
        """All learners; new classes have no place in a linear probe."""
        if options.geometries:
            return super().comparison(options)
        every = catalogue.comparisons()["few-shot"]
        if self.protocol == "all":
            return every
        able = tuple(entrant for entrant in every.entrants if f"model={PROBE}" not in entrant.changes)
        return catalogue.Comparison(every.name, every.column, able)


def class_places(network: FewShotLearner) -> tuple[Tensor, Manifold | None]:
    """Where a learner has its classes: None for the sphere of its towers.   -> (C, width)"""
    if isinstance(network, LinearProbe):
        return network.weight, Euclidean()
    texts, space = cast(TextLearner, network).classes(), network.towers.space
    if (adapter := cast(TextLearner, network).adapter) is not None:
        return placed(adapter.refined(texts), adapter.space), adapter.space
    return space.text(texts), space.manifold


def within(labels: np.ndarray, part: slice) -> np.ndarray:
    """Which of the labels lie in a part of the classes.   (N,) -> (N,) bool"""
    return (labels >= part.start) & (labels < part.stop)


def first_of_each(labels: np.ndarray, most: int) -> np.ndarray:
    """Places of the first pictures of each class, in their order.   (N,) -> (M,)"""
    order = np.argsort(labels, kind="stable")
    place = np.arange(len(order)) - np.searchsorted(labels[order], labels[order])
    return np.sort(order[place < most])


def draw_shots(labels: np.ndarray, shots: int, seed: int) -> np.ndarray:
    """Places of so many pictures of each class. Fewer shots are the first of more.   (N,) -> (C, shots)"""
    places = [np.flatnonzero(labels == k) for k in range(labels.max() + 1)]
    drawn = [np.random.default_rng((seed, k)).permutation(mine)[:shots] for k, mine in enumerate(places)]
    return np.stack(drawn)
