"""Texts and pictures in one space: two towers are trained on captions, or a CLIP is adapted.

Two models:
    two-towers   frozen encoders, new projections into a space of any geometry (CLIP, MERU, EuCLIP)
    clip         towers that are there already, of which a part learns (HyperCLIP, LoRA, OFT, the text projection)

Three objectives:
    contrast     each text finds its picture, each picture its text; in curved and flat space cones of entailment too
    radial       general captions come before specific ones on the way from the root (Radial Embeddings)
    cones        the same by entailment cones, which came before
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.catalogue import Comparison, Entrant
from horosphere.data.captions import Captions, read_captions
from horosphere.data.graph import Graph
from horosphere.data.images import LazyPictures, Pictures, pictures_in, thumbnail
from horosphere.errors import UserError
from horosphere.evaluate.hierarcaps import hierarchy_retrieval, length_order, order_of
from horosphere.evaluate.metric import Metric
from horosphere.evaluate.retrieval import recall_at
from horosphere.files import digest, files_digest
from horosphere.geometry import Euclidean, Manifold, half_aperture
from horosphere.measure.captions import CaptionMap, caption_map, walks
from horosphere.measure.towers import Graded, Named, vectors_of
from horosphere.models.adapters import Adaptation, Adapter, Learner, adapt
from horosphere.models.hyperclip import radius_loss
from horosphere.models.prompts import filled
from horosphere.models.radial import cone_loss, kept, radial_loss
from horosphere.models.towers import Texts, Towers, Views, load_towers, text_features, two_towers, weights_digest
from horosphere.models.weights import begin_with
from horosphere.runs import RUN, Run
from horosphere.settings import Amount, Natural, Positive
from horosphere.train.config import EngineConfig
from horosphere.train.distributed import World
from horosphere.train.task import CompareOptions, Task
from horosphere.train.training import reopened
from horosphere.train.vectors import Vectors

HELD_OUT = 5  # where nothing is held out, every fifth picture is, with its captions
CANDIDATES = 8  # captions that are looked at to find one that is not true of a picture
SHOWN = 4  # pictures whose walks people are shown
GIVEN = "clip"  # the model that adapts towers
UNTRAINED = "two"  # towers whose projections are new


def open_towers(name: str) -> Towers:
    """Trained towers: those of a run of this task, its adapter merged, or of `models.towers.load_towers`."""
    if (Path(name) / RUN).is_file():
        return cast(Towers, Run.open(name, ImageText.kind).load())
    if name == UNTRAINED:
        how = "train them with `horosphere train two-towers`, and give towers=runs/two-towers"
        raise UserError(f"towers={name}: projections that were never trained; {how}")
    if name.startswith("open_clip:") and name.count(":") < 2:
        raise UserError(f"towers={name}: weights that were never trained; name some, {name}:WEIGHTS")
    return load_towers(name)


class Adapted(Learner):
    """Towers of which a part learns. Its state is that part."""

    def __init__(self, towers: Towers, adapter: Adapter | None):
        super().__init__()
        self.towers, self.adapter = towers, adapter

    def train(self, mode: bool = True) -> Adapted:
        """Towers that are adapted answer as they do in use: without dropout, with statistics they have."""
        super().train(mode)
        if self.adapter is not None:
            self.towers.eval()
        return self

    def forward(self, texts: dict[str, Tensor], pictures: dict[str, Tensor] | None) -> tuple[Tensor, Tensor | None]:
        """Vectors of texts and of pictures, as `Texts` and `Views` give them."""
        return self.towers.read(texts), None if pictures is None else self.towers.look(pictures)


@dataclass(frozen=True, eq=False)
class Captioned:
    """Chains of captions to learn from, and chains of other pictures to be judged by."""

    captions: Captions
    learned: np.ndarray  # numbers of chains
    judged: Captions
    held: np.ndarray | None  # where the judged ones are among the captions: numbers of chains
    towers: Towers  # as they are before the training


@dataclass(frozen=True, eq=False)
class Placed:
    """Where towers put N chains of L captions and M pictures."""

    vectors: Tensor  # (N·L, width), as long as they are
    points: Tensor  # (N, L, width)
    root: Tensor  # (width,)
    radii: Tensor  # (N, L)
    images: Tensor | None  # (M, width); None where the towers see none
    alike: Tensor | None  # (N, L, M)


@dataclass(frozen=True)
class ImageTextOptions(CompareOptions):
    radii: tuple[Positive, ...] = ()  # of an adaptation: compare these targets for 2|z| instead of methods


@dataclass(frozen=True, eq=False)
class Mapped:
    """Where the entrants of a study put captions and pictures."""

    maps: dict[str, CaptionMap]
    pictures: list[Path]  # those that are judged


@dataclass(kw_only=True)
class ImageText(Task[Captioned]):
    """Captions are chains from general to specific, "dog => poodle on a lawn"; one caption is a chain too."""

    kind = "image_text"
    unit = "captions"
    options = ImageTextOptions
    alone = "captions are compared with all others of their batch, so one process trains on them"
    metrics = (
        Metric("r5", "R@5", 3, "high", "judged"),
        Metric("order", "τ_d", 3, "high", "judged"),
        Metric("length_order", "by length", 3, "high"),
        Metric("hyperlex", "HyperLex", 3, "high"),
        Metric("zero_shot", "zero-shot", 3, "high"),
        Metric("r1", "R@1", 3, "high", "detail"),
        Metric("precision", "precision", 3, "high", "detail"),
        Metric("recall", "recall", 3, "high", "detail"),
        Metric("tree_error", "tree error", 3, "low", "detail"),
        Metric("ancestor", "shared ancestor", 3, "low", "detail", "its mean height, of mistakes"),
        Metric("radius", "radius 2|z|", 2, "high", "detail"),
        Metric("radius_spread", "spread of radii", 2, "low", "detail"),
    )

    towers: str = "two"  # of model=clip: a run of two-towers, a folder, hf:NAME, open_clip:NAME:WEIGHTS, text:minilm
    # contrast: captions find their pictures; radial: general before specific; cones: the same by entailment cones
    objective: Literal["contrast", "radial", "cones"] = "contrast"
    valid: str | None = None  # captions of their own to judge by; none: those of every fifth picture
    from_level: Natural = 1  # contrast learns from captions of this level on, 0 being the most general
    kept: Amount = 10.0  # weight of staying near the vectors there were before, in radial and cones
    radius: Positive | None = None  # a target for 2|z|, the hyperbolic radius of texts; none: radii are free
    hyperlex: str | None = None  # a file of HyperLex: graded entailment of words is measured too
    classes: str | None = None  # pictures with classes: they are named without training (zero-shot)
    template: str = "a photo of a {}."  # what the name of a class becomes

    # -- data and model ---------------------------------------------------------------------------------------------

    def check(self, engine: EngineConfig) -> None:
        if self.adapts and self.configuration().method == "none":
            raise UserError("method=none: nothing would learn; choose projection, hyperclip, lora, oft or full")
        if not self.adapts and self.objective != "contrast":
            raise UserError(f"objective={self.objective} adapts towers that are there; use model=clip towers=RUN")
        if self.adapts and self.objective != "contrast" and self.configuration().sides != "text":
            sides, how = self.configuration().sides, f"objective={self.objective} learns from texts; use sides=text"
            raise UserError(f"sides={sides}: {how}")
        if self.valid is not None and Path(self.valid).resolve() == Path(self.data).resolve():
            raise UserError(f"valid={self.valid}: these are learned from; leave it out to hold out every fifth picture")
        filled(self.template, [])

    @property
    def adapts(self) -> bool:
        return self.model == GIVEN

    @property
    def then(self) -> str:  # type: ignore[override]
        return "" if self.adapts else "horosphere adapt clip --method radial towers={run} data=CAPTIONS"

    @property
    def measures_before(self) -> bool:  # type: ignore[override]
        return self.adapts

    def open_data(self) -> Captioned:
        captions = read_captions(self.data)
        towers = open_towers(self.towers) if self.adapts else two_towers(self.configuration())
        if self.objective != "contrast" and captions.levels < 2:
            raise UserError(
                f"{self.data}: one caption a row; objective={self.objective} needs chains: general => specific"
            )
        if self.valid is not None:
            judged = read_captions(self.valid)
            if judged.levels != captions.levels:
                raise UserError(f"{self.valid}: {judged.levels} captions a row; {self.data} has {captions.levels}")
            return Captioned(captions, np.arange(len(captions)), judged, None, towers)
        apart = captions.of % HELD_OUT == HELD_OUT - 1
        if not apart.any():
            raise UserError(f"{self.data}: fewer than {HELD_OUT} pictures, so none can be held out; give valid=…")
        held = np.flatnonzero(apart)
        return Captioned(captions, np.flatnonzero(~apart), captions.part(held), held, towers)

    def rows(self, data: Captioned) -> int:
        return len(data.learned)

    def facts(self, data: Captioned) -> dict[str, Any]:
        return {
            "captions": {"train": len(data.learned), "valid": len(data.judged)},
            "levels": data.captions.levels,
            "digest": digest(*data.captions.texts, *data.judged.texts),
            "pictures": files_digest([*data.captions.pictures, *data.judged.pictures]),
            # new projections are no fact of the data
            "towers": weights_digest(data.towers if self.adapts else _encoders(data.towers)),
        }

    def build(self, data: Captioned | None = None) -> Adapted:
        config = self.configuration()
        if data is not None and self.engine.micro_batch not in (None, self.engine.batch):
            raise UserError("micro_batch: a caption is compared with all others of the batch; leave it out")
        if self.adapts:
            towers = open_towers(self.towers)
            self._require_fitting(towers)
            model = Adapted(towers, adapt(towers, cast(Adaptation, config)))
        else:
            model = Adapted(two_towers(config), None)
        if self.start is not None:
            run = Run.open(self.start, self.kind)
            begin_with(model, ImageText.of(run).network_of(run).state_dict(), self.start)
        return model

    def rebuild(self, run: Run) -> Adapted:
        return self.build()

    def ready(self, data: Captioned) -> None:
        """What frozen encoders say is computed once, before the training; encoders that learn read and look."""
        self.opened = data
        towers = data.towers.to(self.world.device).eval()
        how = self.configuration() if self.adapts else Adaptation()
        inside = how.method not in ("none", "projection")
        reads = ("text" in how.towers and inside) or (how.method == "projection" and not towers.projects)
        looks = "image" in how.towers and inside

        def texts(words: Sequence[str]) -> Texts:
            return Texts(towers, words, reads, self.quiet)

        def views(pictures: Pictures) -> Views:
            return Views(towers, pictures, looks, self.quiet)

        self.root, self.train_texts = texts([""]), texts(data.captions.texts)
        self.before = None if self.objective == "contrast" else self._before(towers, data.captions.texts)
        self.train_views = views(pictures_in(data.captions.pictures)) if towers.sees else None
        if data.held is None:
            self.judged_texts = texts(data.judged.texts)
            self.judged_views = views(pictures_in(data.judged.pictures)) if towers.sees else None
        else:
            captions = (data.held[:, None] * data.captions.levels + np.arange(data.captions.levels)).ravel()
            self.judged_texts = self.train_texts.part(captions)
            pictures = np.unique(data.captions.of[data.held])
            self.judged_views = None if self.train_views is None else self.train_views.part(pictures)
        self.graded = None if self.hyperlex is None else Graded.read(self.hyperlex, texts)
        if self.classes is not None and not towers.sees:
            raise UserError(f"classes={self.classes}: {self.towers} has no image tower; leave it out")
        self.named = None if self.classes is None else Named.open(self.classes, self.template, texts, views)

    def _require_fitting(self, towers: Towers) -> None:
        if self.objective == "contrast" and not towers.sees:
            raise UserError(f"towers={self.towers}: they have no image tower; use objective=radial, or other towers")
        if self.objective != "contrast" and towers.space.manifold is not None:
            kind = towers.space.config.geometry
            raise UserError(
                f"objective={self.objective} is for towers on the sphere; those of {self.towers} are {kind}"
            )

    def _before(self, towers: Towers, texts: list[str]) -> Tensor:
        """Unit vectors of captions before the training.   -> (N·L, width)"""
        features = text_features(towers, texts, self.quiet).to(self.world.device)
        with torch.no_grad():
            return F.normalize(towers.text_vector(features), dim=-1)

    # -- the training -----------------------------------------------------------------------------------------------

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """text.… and image.…: what the towers read and see.

        contrast: a caption and its picture a row. Else the captions of a chain, and as many that are not true:
        text.… (B, 2, L, …), before (B, 2, L, width).
        """
        data, levels = self.opened, self.opened.captions.levels
        chosen = data.learned[self.drawn(step, rows, len(data.learned))]
        draws = np.random.default_rng((self.engine.seed, step, 3))
        if self.objective == "contrast":
            first = min(self.from_level, levels - 1)
            level = draws.integers(first, levels, self.engine.batch)[rows.start : rows.stop]
            assert self.train_views is not None
            return {
                **_prefixed("text", self.train_texts.at(chosen * levels + level)),
                **_prefixed("image", self.train_views.at(data.captions.of[chosen])),
            }
        others = draws.integers(0, len(data.learned), (self.engine.batch, CANDIDATES))[rows.start : rows.stop]
        false = self._not_true(chosen, data.learned[others])
        numbers = np.stack([chosen, false], 1)[:, :, None] * levels + np.arange(levels)
        assert self.before is not None
        return {**_prefixed("text", self.train_texts.at(numbers)), "before": self.before[torch.from_numpy(numbers)]}

    def _not_true(self, chosen: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        """The first candidate whose most general caption is another one.   (B,), (B, C) -> (B,)"""
        chains = self.opened.captions.chains
        rows = zip(chosen.tolist(), candidates.tolist(), strict=True)
        return np.array([next((c for c in row if chains[c][0] != chains[n][0]), row[-1]) for n, row in rows])

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        texts = dict(_named("text", batch))
        towers = cast(Adapted, model).towers
        if self.objective == "contrast":
            text, image = model(texts, dict(_named("image", batch)))
            a, b = towers.space.text(text), towers.space.image(image)
            parts = {"contrast": towers.contrast(a, b), "entailment": towers.space.entailment(a, b)}
            loss = parts["contrast"] + towers.space.config.entailment * parts["entailment"]
        else:
            # the root is a text like the others, and learns with them
            text, _ = model(texts, None)
            root, _ = model(self.root.at(np.zeros(1, np.int64)), None)
            true, false = F.normalize(text, dim=-1).unbind(1)
            order = radial_loss if self.objective == "radial" else cone_loss
            parts = {"order": order(true, false, F.normalize(root[0], dim=-1)), "kept": kept(text, batch["before"])}
            loss = parts["order"] + self.kept * parts["kept"]
        if self.radius is not None:
            parts["radius"] = radius_loss(text, self.radius)
            loss = loss + parts["radius"]
        return loss, {name: value.detach() for name, value in parts.items()}

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        return self.judge_towers(cast(Adapted, model).towers)

    @torch.no_grad()
    def judge_towers(self, towers: Towers) -> dict[str, float]:
        judged, placed = self.opened.judged, self._placed(towers)
        lengths = 2 * placed.vectors.norm(dim=-1)
        if not placed.radii.isfinite().all():
            raise UserError("the towers give vectors that are not finite; lower lr, or give other towers")
        scores: dict[str, float] = {}
        if judged.levels > 1:
            scores |= {"order": order_of(placed.radii), "length_order": length_order(judged.chains)}
        scores |= {"radius": float(lengths.mean()), "radius_spread": float(lengths.std())}
        if placed.alike is not None:
            match = torch.from_numpy(judged.of).to(placed.alike.device)
            scores["r1"], scores["r5"] = recall_at(placed.alike[:, -1], match, 1, 5)
            if judged.levels > 1:
                found = hierarchy_retrieval(placed.alike, placed.radii, judged.of.tolist(), judged.chains)
                scores |= {"precision": found.precision, "recall": found.recall}
        if self.graded is not None:
            scores["hyperlex"] = self.graded.score(towers, placed.root)
        if self.named is not None:
            scores |= self.named.score(towers)
        return scores

    def _placed(self, towers: Towers) -> Placed:
        """Where towers put the captions and pictures that are judged."""
        space, chains = towers.space, len(self.opened.judged)
        vectors = vectors_of(towers.read, self.judged_texts)
        root = space.text(vectors_of(towers.read, self.root))[0]
        points = space.text(vectors).unflatten(0, (chains, -1))
        radii, images, alike = space.radius(points, root), None, None
        if self.judged_views is not None:
            images = space.image(vectors_of(towers.look, self.judged_views))
            alike = space.alike(points.flatten(0, 1), images).unflatten(0, points.shape[:2])
        return Placed(vectors, points, root, radii, images, alike)

    @torch.no_grad()
    def map(self, towers: Towers, pictures: Sequence[int] = ()) -> CaptionMap:
        """Captions and pictures around the root, and the walks of these pictures."""
        placed, judged = self._placed(towers), self.opened.judged
        far = None if placed.images is None else towers.space.radius(placed.images, placed.root)
        mapped = caption_map(placed.points, placed.radii, placed.images, far, placed.root)
        if placed.alike is None:
            return mapped
        return replace(mapped, walks=walks(placed.alike, placed.radii, judged, pictures))

    # -- after the training -----------------------------------------------------------------------------------------

    def trained(self, network: nn.Module, run: Run) -> Towers:
        """Towers as others use them: in eval mode, the adapter merged."""
        adapted = cast(Adapted, network)
        towers = adapted.towers if adapted.adapter is None else adapted.adapter.merge()
        towers.settle()
        return towers.requires_grad_(False).eval()

    @classmethod
    @torch.no_grad()
    def vectors(cls, run: Run) -> Vectors:
        """Captions and pictures that are judged. On a sphere they are unit vectors of the flat space around it."""
        opened, network = reopened(run, World(), quiet=False)
        task, towers = cast(ImageText, opened), cast(Adapted, network.requires_grad_(False)).towers
        judged, space = task.opened.judged, towers.space
        tree = judged.tree()
        said = space.text(vectors_of(towers.read, task.judged_texts.part(tree.first)))
        seen = said[:0] if task.judged_views is None else space.image(vectors_of(towers.look, task.judged_views))
        points, pictures = torch.cat([said, seen]), judged.pictures[: len(seen)]
        levels, texts = zip(*tree.captions, strict=True)
        told = {n: chain[-1] for n, chain in zip(judged.of.tolist(), judged.chains, strict=True)}
        columns: dict[str, list[Any]] = {
            "kind": ["caption"] * len(said) + ["picture"] * len(seen),
            "level": [level + 1 for level in levels] + [judged.levels + 1] * len(seen),
            "text": [*texts, *(told[n] for n in range(len(seen)))],
        }
        labels = [*texts, *(file.name for file in pictures)]
        there = (tree.edges < len(points)).all(1)  # towers without eyes have no pictures
        cones = space.manifold is not None and task.objective == "contrast" and space.config.entailment > 0
        return Vectors(
            labels,
            points,
            space.manifold or Euclidean(),
            Graph(labels, tree.edges[there]),
            columns,
            partial(_thumbnail, pictures_in(pictures), len(said)),
            half_aperture(points, cast(Manifold, space.manifold)) if cones else None,
        )

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        config, captions = self.configuration(), facts["captions"]
        what = f"{config.method} on {self.towers}" if self.adapts else f"{self.model}, {config.geometry}"
        sizes = f"{captions['train']:,} rows to learn, {captions['valid']:,} to judge, {facts['levels']} captions each"
        return [["model", f"{what}, {facts['parameters']:,} parameters learn"], ["captions", sizes]]

    def comparison(self, options: CompareOptions) -> Comparison:
        radii = cast(ImageTextOptions, options).radii
        if not radii:
            return super().comparison(options)
        if not self.adapts:
            raise UserError("radii: they are targets of an adaptation, as in `compare adapt-hyperclip --radii 10,20`")
        targets = [Entrant(f"{radius:g}", changes=(f"radius={radius:g}",)) for radius in radii]
        return Comparison("radii", "radius", (*targets, Entrant("free", changes=("radius=none",))))

    @classmethod
    def examine(cls, runs: Mapping[str, Run]) -> Mapped:
        """The maps of the runs, and of an adaptation what was before."""
        maps: dict[str, CaptionMap] = {}
        for name, run in runs.items():
            opened, network = reopened(run, World())
            task, model = cast(ImageText, opened), cast(Adapted, network)
            shown = shown_pictures(len(task.opened.judged.pictures))
            if model.adapter is not None and not maps:
                with model.adapter.disabled():
                    maps["before"] = task.map(model.towers, shown)
            maps[name] = task.map(model.towers, shown)
        return Mapped(maps, task.opened.judged.pictures)

    def summary(self, run: Run) -> list[list[str]]:
        """Of an adaptation what was before, and what is after: what is gained, and what is forgotten."""
        rows, scores = super().summary(run), run.evaluations()
        if not self.adapts or scores[0]["step"] != 0:
            return rows
        before = {m.title: f"{m.show(scores[0][m.name])} -> " for m in self.metrics if m.name in scores[0]}
        return [[title, before.get(title, "") + value] for title, value in rows]


def judge(
    towers: str,
    data: str,
    hyperlex: str | None = None,
    classes: str | None = None,
    device: str = "cpu",
    quiet: bool = True,
) -> dict[str, float]:
    """The scores of towers by name, or of a run's, on all captions of a source. Nothing is trained."""
    what = {"hyperlex": hyperlex, "classes": classes}
    task = ImageText(model=GIVEN, data=data, valid=data, towers=towers, **what)  # type: ignore[arg-type]
    task.world, task.quiet = World(device=torch.device(device)), quiet
    task.ready(task.open_data())
    return task.judge_towers(task.opened.towers)


def judge_words(towers: str, data: str, device: str = "cpu", quiet: bool = True) -> float:
    """Graded entailment of words alone."""
    with torch.no_grad():
        loaded = open_towers(towers).to(device).eval()
        graded = Graded.read(data, lambda words: Texts(loaded, words, quiet=quiet))
        return graded.score(loaded, loaded.space.text(loaded.encode([""]))[0])


def shown_pictures(count: int) -> list[int]:
    """A few of so many, evenly apart."""
    return sorted(set(np.linspace(0, count - 1, SHOWN).astype(int).tolist()))


def _thumbnail(pictures: LazyPictures, before: int, point: int) -> np.ndarray | None:
    """Of a point that is a picture: they come after so many others."""
    return None if point < before else thumbnail(pictures.picture(point - before))


def _encoders(towers: Towers) -> nn.Module:
    return nn.ModuleList([towers.encoder("text"), towers.encoder("image")])


def _prefixed(side: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{side}.{name}": t for name, t in tensors.items()}


def _named(side: str, batch: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    return ((name.partition(".")[2], t) for name, t in batch.items() if name.startswith(f"{side}."))
