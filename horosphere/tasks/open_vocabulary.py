"""A class for every pixel, by its name: names that were learned from and names that were not, on any towers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from horosphere import catalogue
from horosphere.data.classes import read_classes
from horosphere.data.dense import IGNORED, DenseData, open_semantic
from horosphere.errors import UserError, choices
from horosphere.evaluate.metric import Metric
from horosphere.evaluate.pixels import count_answers, semantic_scores
from horosphere.geometry import Euclidean
from horosphere.models.adapters import Adaptation
from horosphere.models.cost_aggregation import OpenVocabularySegmenter, open_vocabulary_loss
from horosphere.models.prompts import filled
from horosphere.models.towers import weights_digest
from horosphere.models.weights import begin_with
from horosphere.optim import param_groups
from horosphere.runs import Run
from horosphere.settings import FLAT, Count, Positive
from horosphere.tasks.image_text import open_towers
from horosphere.tasks.masks import Masks
from horosphere.train.config import EngineConfig
from horosphere.train.distributed import World
from horosphere.train.recipe import Recipe
from horosphere.train.training import reopened
from horosphere.train.vectors import Vectors

COSINES = "cosines alone"  # what the towers say without a head
EVERY = 3  # of so many classes one is not learned from, where nobody says which
LEARNED = 4  # of so many rows and columns of pixels one is learned from: neighbours say the same


@dataclass(frozen=True, eq=False)
class TrainedSegmenter:
    """A network on the CPU and in eval mode, and what it was trained for."""

    network: OpenVocabularySegmenter
    classes: list[str]
    unseen: list[str]  # those of them that were not learned from
    template: str
    size: int  # pixels of the shorter side of what it learned from

    @torch.no_grad()
    def segment(self, pixels: Tensor, names: Sequence[str]) -> Tensor:
        """Which of any names is at each pixel.   (N, 3, H, W) uint8 -> (N, H, W)"""
        return self.network(pixels, filled(self.template, names)).argmax(1)


@dataclass(kw_only=True)
class OpenVocabulary(Masks):
    """Pixels of unseen classes count for nothing in training, and their names are not in its vocabulary."""

    kind = "open_vocabulary"
    metrics = (
        Metric("seen_miou", "seen mIoU", 4, "high", "judged"),
        Metric("unseen_miou", "unseen mIoU", 4, "high", "judged"),
        Metric("miou", "mIoU", 4, "high"),
        Metric("accuracy", "pixels right", 4, "high"),
    )

    towers: str = "two"  # a run of image_text, or another pair of towers that has vectors of places
    template: str = "a photo of a {}."  # what the text tower reads of a class
    ignore: int | None = 255  # the number in masks that counts for nothing
    names: tuple[str, ...] | None = None  # of the classes, in the order of their numbers, where there is no classes.txt
    unseen: tuple[str, ...] | None = None  # names of the classes not to learn from; none: every third
    least_names: Count | None = 2  # a step has so many of the names at least, others are left out by chance; none: all
    tower_rate: Positive = 0.05  # learning rate of what is adapted in towers, as a share of the head's
    adaptation: Annotated[Adaptation, FLAT] = field(default_factory=Adaptation)

    # -- data and model ---------------------------------------------------------------------------------------------

    def check(self, engine: EngineConfig) -> None:
        super().check(engine)
        if self.size % LEARNED:
            raise UserError(f"size={self.size}: it should be a multiple of {LEARNED}")
        catalogue.model(self.model, self.kind)
        filled(self.template, [])

    def open_data(self) -> DenseData[Any]:
        data = open_semantic(self.data, self.valid, self.ignore, names=self.names)
        if self.names is None and data.classes == [str(number) for number in range(len(data.classes))]:
            how = "give names=sky,road,…, or write them into classes.txt"
            raise UserError(f"{self.data}: its classes have numbers, but no names; {how}")
        if twice := next((name for name in data.classes if data.classes.count(name) > 1), None):
            raise UserError(f"{self.data}: two classes are called {twice}; give each a name of its own")
        self.unseen_of(data.classes)
        return data

    def unseen_of(self, classes: Sequence[str]) -> list[str]:
        """Those that are not learned from, in their order."""
        if self.unseen is None:
            return list(classes[EVERY - 1 :: EVERY])
        for name in self.unseen:
            if name not in classes:
                raise UserError(f"unseen={name}: there is no such class; {choices(name, classes)}")
        if len(set(self.unseen)) == len(classes):
            raise UserError("unseen: these are all classes, so there is nothing to learn from; leave some out")
        return [name for name in classes if name in self.unseen]

    def facts(self, data: DenseData[Any]) -> dict[str, Any]:
        return {**super().facts(data), "towers": weights_digest(open_towers(self.towers))}

    def build(self, data: DenseData[Any]) -> nn.Module:
        model = self.segmenter()
        if self.start is not None:
            begin_with(model, Run.open(self.start, self.kind).load().network.state_dict(), self.start)
        return model

    def segmenter(self) -> OpenVocabularySegmenter:
        return OpenVocabularySegmenter(open_towers(self.towers), self.adaptation, self.configuration())

    def ready(self, data: DenseData[Any]) -> None:
        super().ready(data)
        self.not_seen = self.unseen_of(data.classes)
        self.seen = [name for name in data.classes if name not in self.not_seen]
        numbers = [self.seen.index(name) if name in self.seen else IGNORED for name in data.classes]
        self.learned_as = torch.tensor([*numbers, IGNORED], dtype=torch.int16)  # IGNORED, -1, is the last place

    # -- the training -----------------------------------------------------------------------------------------------

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """Masks have the numbers of seen classes among themselves, at the pixels that are learned from.

        names (B, K): the numbers of the K names that the step has, the same in all rows.
        """
        made = super().batch(step, rows)
        centres = made["masks"][:, LEARNED // 2 :: LEARNED, LEARNED // 2 :: LEARNED]
        names = torch.from_numpy(self.names_of(step)).repeat(len(rows), 1)
        return {**made, "masks": self.learned_as[centres.long()], "names": names}

    def names_of(self, step: int) -> np.ndarray:
        """Which of the seen names a step has. A head that never knows who is there must read what is there."""
        count = len(self.seen)
        if self.least_names is None or self.least_names >= count:
            return np.arange(count)
        random = np.random.default_rng((self.engine.seed, step, 4))
        return np.sort(random.permutation(count)[: random.integers(self.least_names, count + 1)])

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        names = batch["names"][0]
        logits = model(batch["images"], filled(self.template, [self.seen[n] for n in names.tolist()]), every=LEARNED)
        among = torch.full((len(self.seen) + 1,), IGNORED, device=names.device)  # IGNORED, -1, is the last place
        among[names] = torch.arange(len(names), device=names.device)
        return open_vocabulary_loss(logits, among[batch["masks"].long()], IGNORED), {}

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """The head at the learning rate, what is adapted in the towers at `tower_rate` of it."""
        model, decay = cast(OpenVocabularySegmenter, model), self.engine.weight_decay
        return [*param_groups(model.head, decay), *param_groups(model.towers, decay, lr_scale=self.tower_rate)]

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        return self.scores(model)

    def scores(self, answer: Callable[[Tensor, list[str]], Tensor]) -> dict[str, float]:
        """Of answers to pictures and the names of all classes; `model.cosines` is what the towers alone say."""
        texts = filled(self.template, self.pictures.classes)
        counts = count_answers(lambda images: answer(images, texts), self.pictures, self.size, self.world)
        scores = semantic_scores(counts, self.pictures.classes)
        means = {"seen_miou": scores.mean_over(self.seen), "unseen_miou": scores.mean_over(self.not_seen)}
        return {
            **{name: value for name, value in means.items() if value is not None},
            "miou": scores.miou,
            "accuracy": scores.accuracy,
        }

    # -- the network of a run ---------------------------------------------------------------------------------------

    def rebuild(self, run: Run) -> nn.Module:
        return self.segmenter()

    def trained(self, network: nn.Module, run: Run) -> TrainedSegmenter:
        classes, _ = read_classes(run.folder)
        segmenter = cast(OpenVocabularySegmenter, network)
        return TrainedSegmenter(segmenter, classes, self.unseen_of(classes), self.template, self.size)

    @classmethod
    @torch.no_grad()
    def vectors(cls, run: Run) -> Vectors:
        """The names of the classes. On a sphere they are points of the flat space around it."""
        trained: TrainedSegmenter = cls.load(run)
        network = trained.network.requires_grad_(False)
        space, texts = network.towers.space, filled(trained.template, trained.classes)
        seen = {"kind": ["unseen" if name in trained.unseen else "seen" for name in trained.classes]}
        manifold = space.manifold or Euclidean()
        return Vectors(trained.classes, space.text(network.vectors(texts)), manifold, columns=seen)

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        how = "frozen" if self.adaptation.method == "none" else self.adaptation.method
        return [["model", f"{self.model} on {self.towers} ({how}), {facts['parameters']:,} parameters learned"]]


@torch.no_grad()
def judge_towers(recipe: Recipe, device: str = "cpu", quiet: bool = True) -> dict[str, dict[str, float]]:
    """What the towers of a recipe say by themselves: each pixel has the name that is nearest to its place."""
    task = cast(OpenVocabulary, recipe.task)
    task.world, task.quiet = World(device=torch.device(device)), quiet
    data = task.open_data()
    task.engine = recipe.engine.for_data(task.rows(data), recipe.engine.batch)
    task.ready(data)
    return {COSINES: task.scores(task.segmenter().to(device).eval().cosines)}


@torch.no_grad()
def judge_run(run: Run, valid: str | None, device: str = "cpu", quiet: bool = True) -> dict[str, dict[str, float]]:
    """What a run learned, beside what its towers said before."""
    opened, network = reopened(run, World(device=torch.device(device)), valid, quiet)
    task, segmenter = cast(OpenVocabulary, opened), cast(OpenVocabularySegmenter, network)
    trained = task.scores(segmenter)
    with segmenter.adapter.disabled():
        return {"trained": trained, COSINES: task.scores(segmenter.cosines)}
