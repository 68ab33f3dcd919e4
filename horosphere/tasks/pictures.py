"""Classification of pictures: augmented batches, averaged weights, top-1, and mistakes on the tree of classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere import catalogue
from horosphere.data import Graph
from horosphere.data.augment import Augmentation, Crop, Draws, augment, in_channels, normalise, on_device, whole_box
from horosphere.data.classes import ClassTree, read_classes, write_classes
from horosphere.data.images import THUMBNAIL, ImageData, ImageSet, Later, open_images, read_picture
from horosphere.data.order import Part, evenly, half
from horosphere.data.read_ahead import ReadAhead
from horosphere.errors import UserError
from horosphere.evaluate.classification import judge_pictures
from horosphere.evaluate.metric import Metric
from horosphere.files import digest
from horosphere.geometry import Euclidean, Lorentz, Manifold
from horosphere.measure.hierarchy import class_distances, with_parents
from horosphere.measure.vision import lit, node_names, shares_seen
from horosphere.models.backbones import blocks_of, classifier, for_cuda, head_of, laid_out
from horosphere.models.config import InAnyGeometry
from horosphere.models.heads import put_head
from horosphere.models.himapper import HiMapper, HiMapperConfig
from horosphere.models.weights import begin_with, require_one_source
from horosphere.optim.groups import named, with_rate
from horosphere.runs import Run
from horosphere.settings import FLAT, Decay, Positive, Size
from horosphere.train.answers import Answers, best_of
from horosphere.train.averages import Averaged
from horosphere.train.config import EngineConfig
from horosphere.train.distributed import World, gather
from horosphere.train.task import CompareOptions, Task
from horosphere.train.vectors import Vectors

STRANGER = "of the way to a stranger"
TREES = 16  # pictures whose trees of parts are points
READ = 32  # pictures of which a network reads how it clusters
MIDDLE = partial(whole_box, 1.0)  # the largest square in the middle of a picture
UNTRAINED = 1000  # classes of a network that was never trained; nobody reads its answer


@dataclass(frozen=True, eq=False)
class TrainedPictures:
    """A classifier on the CPU and in eval mode, and what it was trained for."""

    network: nn.Module  # of `normalise`d pictures
    classes: list[str]
    tree: ClassTree | None
    size: int
    augmentation: Augmentation  # its still_box is what the network sees of a picture
    channels: int = 3

    @torch.no_grad()
    def answer(self, inputs: list[str], k: int = 5) -> Answers:
        """The likeliest classes of pictures in files."""
        parts = []
        for file in inputs:
            (seen,) = read_picture(file, self.augmentation.still_box, self.size)
            parts.append(self.network(normalise(in_channels(seen[None], self.channels))).float().softmax(-1))
        return Answers("class", "probability", inputs, best_of(torch.cat(parts), self.classes, k))


@dataclass(kw_only=True)
class Pictures(Task[ImageData]):
    """The network is one of the catalogue; with a `tree` Hi-Mapper is around it."""

    kind = "pictures"
    unit = "images"
    counts_work = True
    then = "horosphere predict {run} PICTURE.jpg"
    asks = "files of pictures"
    best = 5
    one_shape = True
    metrics = (
        Metric("top1", "top-1", 4, "high", "judged"),
        Metric("top5", "top-5", 4, "high"),
        Metric("coarse", "coarse top-1", 4, "high"),
        Metric("tree_error", "tree error", 3, "low"),
        Metric("parent", "to the parent", 2, "low", "detail", STRANGER),
        Metric("sibling", "to a sibling", 2, "low", "detail", STRANGER),
    )

    valid: str | None = None  # a source of its own; none: what the data hold out, or a tenth of each class
    download: bool = False  # fetch a set of torchvision's that is not there
    size: Size = 224  # pixels a side
    channels: Literal[1, 3] = 3  # 1: pictures become grey; most networks take 3
    pretrained: bool = False  # fetch the published weights of a timm:… or torchvision:… network
    head: InAnyGeometry | None = None  # a classifier in another geometry on a flat network, as head.geometry=lorentz
    head_lr: Positive = 1.0  # learning rate of the classifier, in lr's: more where all else is trained already
    scale_lr: Positive = 1.0  # learning rate of the scales of similarities (α of HCFormer), in lr's
    tree: HiMapperConfig | None = None  # Hi-Mapper around the network, its settings as tree.levels=3
    ema: Decay | None = 0.9999  # of the average of the weights, which is evaluated and kept; none: no average
    augmentation: Annotated[Augmentation, FLAT] = field(default_factory=Augmentation)

    # -- data and model ---------------------------------------------------------------------------------------------

    def check(self, engine: EngineConfig) -> None:
        for name, rows in (("batch", engine.batch), ("micro_batch", engine.micro_batch)):
            if self.augmentation.mixes and rows is not None and rows % 2:
                how = "make it even, or set mixup=0 cutmix=0"
                raise UserError(f"{name}={rows}: mixup and cutmix take pictures in pairs; {how}")
        require_one_source(self.start, self.pretrained)
        if self.head is not None and self.tree is not None:
            raise UserError(
                f"head.geometry={self.head.geometry} and tree: Hi-Mapper has a head of its own; leave one out"
            )
        if self.pretrained and ":" not in self.model:
            example = "as in model=timm:resnet50 or model=torchvision:resnet50"
            raise UserError(f"pretrained=true: say whose weights, {example}, not model={self.model}")

    def open_data(self) -> ImageData:
        return open_images(self.data, self.valid, self.download).to(self.world.device)

    def parted(self, data: ImageData, part: Part) -> ImageData:
        rows = half(np.arange(len(data.valid)), part)
        held = replace(data.valid, numbers=data.valid.numbers[rows], labels=data.valid.labels[rows])
        return replace(data, valid=held)

    def rows(self, data: ImageData) -> int:
        return len(data.train)

    def facts(self, data: ImageData) -> dict[str, Any]:
        sizes = {"train": len(data.train), "valid": len(data.valid)}
        parts = (data.train, data.valid)
        contents = [(part.pictures.identity(), part.numbers.tobytes(), part.labels.tobytes()) for part in parts]
        same = digest(*data.classes, *(content for part in contents for content in part))
        return {"pictures": sizes, "classes": len(data.classes), "digest": same}

    def build(self, data: ImageData) -> Averaged:
        if self.augmentation.mixes and self.engine.batch // self.world.size % 2:
            how = "mixup and cutmix take pictures in pairs; use a multiple of 2 for each"
            raise UserError(f"batch={self.engine.batch} for {self.world.size} processes: {how}")
        network = self.network_for(len(data.classes), self.pretrained, self.start)
        return Averaged(for_cuda(network, self.world.device, self.world.size), self.ema)

    def network_for(self, classes: int, pretrained: bool = False, start: str | None = None) -> nn.Module:
        """The network with new weights, published ones, or those of the run `start`.

        (B, channels, size, size) -> (B, classes)

        Of a run with other classes, or another head, all is taken but the classifier.
        """
        network = classifier(self.model, classes, self.size, self.config, pretrained, self.channels)
        head = head_of(network) if self.head is None else put_head(network, self.head.manifold())
        if start is not None:
            given = Run.open(start, self.kind).load().network.state_dict()
            begin_with(network, given, start, missing=len(head.state_dict()))
        return network if self.tree is None else HiMapper(network, classes, self.tree)

    def ready(self, data: ImageData) -> None:
        self.pictures = data
        order = self.engine.rows_of(self.world.rank, self.world.size)
        self.read = ReadAhead(self._start, order, self.engine.steps)

    def begin(self, folder: Path) -> None:
        write_classes(folder, self.pictures.classes, self.pictures.tree)

    # -- the training -----------------------------------------------------------------------------------------------

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """images (B, channels, size, size), targets (B, K): the shares of the classes.

        Made on the device; pictures of the next rows are read meanwhile.
        """
        later, labels, draws = self.read(step, rows)
        images = on_device(later(), self.world.device)
        x, targets = augment(images, labels, len(self.pictures.classes), draws, self.augmentation, self.channels)
        return {"images": laid_out(x), "targets": targets}

    def _start(self, step: int, rows: range) -> tuple[Later, np.ndarray, Draws]:
        train, how, engine = self.pictures.train, self.augmentation, self.engine
        chosen = self.drawn(step, rows, len(train))
        draws = Draws.of(engine.seed, step, engine.batch, how)[rows.start : rows.stop]
        later = train.pictures.crops(train.numbers[chosen], how.box, draws.crop, self.size)
        return later, train.labels[chosen], draws

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        answer = model(batch["images"])
        logits, tree = answer if isinstance(answer, tuple) else (answer, None)
        loss = F.cross_entropy(logits.float(), batch["targets"])
        if tree is None:
            return loss, {}
        return loss + tree.total, {"contrast": tree.contrast.detach(), "kl": tree.kl.detach()}

    def graphable(self, batch: dict[str, Tensor]) -> bool:
        return True

    def blocks(self, model: nn.Module) -> list[nn.Module]:
        averaged = cast(Averaged, model)
        networks = [averaged.network] if averaged.average is None else [averaged.network, averaged.average]
        return [block for network in networks for block in blocks_of(network)]

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        network, groups = cast(Averaged, model).network, super().groups(model)
        if self.head_lr != 1:
            head = {id(p) for p in head_of(network).parameters()}
            groups = with_rate(groups, lambda p: id(p) in head, self.head_lr)
        if self.scale_lr != 1:
            scales = named(network, "scales")
            if not scales:
                raise UserError(f"scale_lr={self.scale_lr:g}: {self.model} has no scales of similarities; leave it out")
            groups = with_rate(groups, lambda p: id(p) in scales, self.scale_lr)
        return groups

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        return evaluate_pictures(model, self.pictures, self.size, self.augmentation, self.world, self.channels)

    def readings(self, model: nn.Module) -> dict[str, float]:
        """Those of the network, perhaps within a Hi-Mapper, on some pictures held out."""
        network = model.answering if isinstance(model, Averaged) else model
        offers = (getattr(module, "readings", None) for module in network.modules())
        read = next((method for method in offers if callable(method)), None)
        if read is None:
            return {}
        gather(model)
        held = self.pictures.valid
        chosen = evenly(held.numbers, READ)
        pixels = held.pictures.crops(chosen, self.augmentation.still_box, np.zeros((len(chosen), 4)), self.size)()
        images = normalise(in_channels(on_device(pixels, self.world.device), self.channels))
        return cast(dict[str, float], read(laid_out(images)))

    # -- the network of a run ---------------------------------------------------------------------------------------

    def rebuild(self, run: Run) -> Averaged:
        return Averaged(self.network_for(run.about.count("classes")), self.ema)

    def answering(self, model: nn.Module) -> nn.Module:
        return cast(Averaged, model).answering

    def trained(self, network: nn.Module, run: Run) -> TrainedPictures:
        classes, tree = read_classes(run.folder)
        return TrainedPictures(network, classes, tree, self.size, self.augmentation, self.channels)

    @classmethod
    def vectors(cls, run: Run) -> Vectors:
        """The classes; of a Hi-Mapper the trees of parts of some pictures held out, one of a class."""
        trained: TrainedPictures = cls.load(run)
        trained.network.requires_grad_(False)
        task = cast(Pictures, cls.of(run))
        if isinstance(trained.network, HiMapper):
            return _parts(trained, trained.network, task.open_data())
        weights, manifold = _class_weights(trained.network, len(trained.classes))
        found = class_points(manifold.lift(weights), manifold, trained.classes, trained.tree)
        there = Path(task.data).exists()  # nothing is fetched from elsewhere to be shown
        return replace(found, thumbnail=class_pictures(task.open_data, trained.classes) if there else None)

    def untrained(self) -> TrainedPictures:
        """The network with new weights, the same ones every time."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            network = self.network_for(UNTRAINED)
        return TrainedPictures(network.eval(), [], None, self.size, Augmentation(crop=self.augmentation.crop))

    # -- for people and studies -------------------------------------------------------------------------------------

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        around, pictures = ", in Hi-Mapper" * (self.tree is not None), facts["pictures"]
        sizes = f"{pictures['train']:,} to learn, {pictures['valid']:,} to judge, {facts['classes']} classes"
        return [["model", f"{self.model}, {facts['parameters']:,} parameters{around}"], ["pictures", sizes]]

    def comparison(self, options: CompareOptions) -> catalogue.Comparison:
        around = self.tree is not None and not options.geometries
        return catalogue.comparisons()["himapper"] if around else super().comparison(options)


# -- scores -----------------------------------------------------------------------------------------------------------


def evaluate_pictures(
    model: nn.Module, data: ImageData, size: int, augmentation: Augmentation, world: World, channels: int = 3
) -> dict[str, float]:
    """The scores of `judge_pictures`, and on a tree of classes parent and sibling: how far the mean answer to a class
    lies from theirs, in units of strangers."""
    scores, answers = judge_pictures(model, data, size, augmentation, world, channels)
    if data.tree is None or not len(answers):
        return scores
    return {**scores, **class_distances(answers[:, :-1] / answers[:, -1:], data.tree).in_strangers()}


# -- points -----------------------------------------------------------------------------------------------------------


def _class_weights(network: nn.Module, classes: int) -> tuple[Tensor, Manifold]:
    """What the classifier weighs features by, a row a class, and the geometry it reads them in.   -> (K, d) float64

    A row is the direction from the origin in which the logit of its class grows fastest, and as long as it is steep.
    """
    head = head_of(network)
    weight = getattr(head, "weight", None)
    if not isinstance(weight, Tensor) or len(weight) != classes:
        raise UserError(f"{type(network).__name__}: its classifier has no row of weights for each class, so no points")
    return weight.flatten(1).double(), cast(Manifold, getattr(head, "manifold", Euclidean()))


def class_points(points: Tensor, manifold: Manifold, classes: list[str], tree: ClassTree | None) -> Vectors:
    """Classes (K, d), and on a tree their groups, which lie at the midpoint of what is below them."""
    if tree is None:
        return Vectors(classes, points, manifold)
    labels, above = tree.labels(classes), tree.parents.tolist()
    edges = np.array([(node, parent) for node, parent in enumerate(above) if parent >= 0])
    columns = {
        "kind": ["class"] * len(classes) + ["group"] * (len(labels) - len(classes)),
        "group": [labels[parent] if parent >= 0 else "" for parent in above],
    }
    return Vectors(labels, with_parents(points, tree, manifold), manifold, Graph(labels, edges), columns)


def class_pictures(open_data: Callable[[], ImageData], classes: list[str]) -> Callable[[int], np.ndarray | None]:
    """A small picture of each class, the first held out; None of what is no class. Data are opened when it is asked."""

    @cache
    def opened() -> tuple[ImageSet, dict[int, int]]:
        data = open_data()
        known, first = np.unique(data.valid.labels, return_index=True)
        same = data.classes == classes  # of other data the numbers would mean other classes
        return data.valid, dict(zip(known.tolist(), first.tolist(), strict=True)) if same else {}

    def show(point: int) -> np.ndarray | None:
        held, first = opened()
        return small_pictures(held, np.array([first[point]]))[0] if point in first else None

    return show


def small_pictures(images: ImageSet, chosen: np.ndarray, crop: Crop = MIDDLE, size: int = THUMBNAIL) -> np.ndarray:
    """(n,) -> (n, size, size, 3) uint8, at most as large as a thumbnail"""
    size = min(size, THUMBNAIL)
    return (
        images.pictures.crops(images.numbers[chosen], crop, np.zeros((len(chosen), 4)), size)()
        .numpy()
        .transpose(0, 2, 3, 1)
    )


def _parts(trained: TrainedPictures, network: HiMapper, data: ImageData) -> Vectors:
    """Hi-Mapper's trees of some pictures, of classes evenly apart. A node is shown as what it sees."""
    held, own, parents = data.valid, network.mapper.manifold, network.mapper.parents.numpy()
    known, first = np.unique(held.labels, return_index=True)
    chosen, called = evenly(first, TREES), [data.classes[label] for label in evenly(known, TREES)]
    box, size = trained.augmentation.still_box, trained.size
    seen = held.pictures.crops(held.numbers[chosen], box, np.zeros((len(chosen), 4)), size)()
    trees = network.hierarchy(normalise(in_channels(seen, trained.channels)))
    shown, names = small_pictures(held, chosen, box, size), node_names(trees.parents)
    labels = [f"{name} of {picture}" for picture in called for name in names]
    starts = len(names) * np.arange(len(chosen))[:, None]
    edges = np.stack([(starts + np.flatnonzero(parents >= 0)).ravel(), (starts + parents[parents >= 0]).ravel()], 1)
    depth = int(trees.levels.max()) + 1
    columns: dict[str, list[Any]] = {
        "picture": [picture for picture in called for _ in names],
        "branch": [name.rstrip("0123456789") for name in names] * len(chosen),
        "level": [depth - level for level in trees.levels.tolist()] * len(chosen),
        "share seen": shares_seen(trees.attention.double()).flatten().tolist(),
    }

    def show(point: int) -> np.ndarray:
        picture, node = divmod(point, len(names))
        return lit(trees.attention[picture, node], shown[picture])

    manifold = Lorentz(float(own.c)) if isinstance(own, Lorentz) else own  # it is not learned any more
    return Vectors(labels, trees.points.flatten(0, 1), manifold, Graph(labels, edges), columns, show)
