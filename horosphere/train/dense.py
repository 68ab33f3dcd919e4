"""Train Semantic FPN or Mask R-CNN from a recipe, score it as its field does, and load it again."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from horosphere.data.augment import MEAN, normalise, on_device, shuffled
from horosphere.data.dense import IGNORED, DenseData, Instances, coco_masks, open_instances, open_semantic
from horosphere.errors import UserError
from horosphere.extras import require
from horosphere.files import require_new_folder, write_whole
from horosphere.models.backbones import adapt, create_backbone
from horosphere.models.dense import SemanticFPN, mask_rcnn, segmentation_loss
from horosphere.models.hcformer import HCFormerConfig, hcformer_config
from horosphere.models.himapper import HiMapper
from horosphere.train import checkpoint
from horosphere.train.distributed import World, world
from horosphere.train.engine import RUN, EngineConfig, FitResult, last_checkpoint, read_run
from horosphere.train.images import (
    CLASSES,
    FROM_DATA,
    HCFORMER,
    WEIGHTS,
    export_weights,
    fit_pictures,
    for_cuda,
    laid_out,
    load_images,
    load_weights,
    units,
)
from horosphere.train.read_ahead import ReadAhead
from horosphere.train.recipe import read_recipe, recipe_names, sorted_settings

APART = {"engine", "config", *FROM_DATA}  # fields that are no settings
SEMANTIC, DETECTION = "semantic-fpn", "mask-rcnn"
EVAL_ROWS = 16  # pictures at once in an evaluation, those of one size together


# -- recipes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DenseRecipe:
    """Every choice of a run. In files and on the command line all of them stand in one flat list: these, EngineConfig's and HCFormerConfig's."""

    model: Literal["semantic-fpn", "mask-rcnn"]
    data: str  # see open_semantic and open_instances
    engine: EngineConfig
    backbone: str = "hcformer-nano"  # or "timm:…", "torchvision:…"
    valid: str | None = None  # a source of its own; None: what the data hold out, or every tenth picture
    size: int = 512  # pixels that a picture's shorter side is brought to; for semantic-fpn also the side of the crops it trains on
    scale: tuple[float, float] = (0.5, 2.0)  # in training that times a number between these
    flip: bool = True  # left and right
    ignore: int | None = 255  # of semantic-fpn: the number in masks that counts for nothing
    classes: int | None = None  # of semantic-fpn: how many; None: as the masks have them
    width: int = 256  # channels of the feature pyramid
    pretrained: bool = False  # fetch the backbone's published weights
    start: str | None = None  # a run that trained the same backbone to classify, whose weights this one begins with
    config: dict[str, Any] = field(default_factory=dict)  # changes of HCFormer's named configuration

    @staticmethod
    def read(name: str, settings: Sequence[str] = ()) -> DenseRecipe:
        """A recipe by name or .yaml file, under `key=value` settings."""
        own, engine, config = sorted_settings(
            (DenseRecipe, EngineConfig, HCFormerConfig), APART, read_recipe(name, settings), name
        )
        recipe = DenseRecipe(**own, engine=EngineConfig(**engine), config=config)
        recipe.check()
        return recipe

    def check(self) -> None:
        self.engine.check()
        for name in ("size", "width", "classes"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)}: it must be at least 1")
        if not 0 < self.scale[0] <= self.scale[1]:
            raise UserError(f"scale={self.scale[0]:g},{self.scale[1]:g}: two positive numbers, the smaller first")
        if self.detects and self.engine.compile is True:
            raise UserError(f"compile=true: the shapes in {DETECTION} depend on what it finds; use compile=false")
        if self.start is not None and self.pretrained:
            raise UserError(
                f"start={self.start} and pretrained=true: weights come from one of them; leave out the other"
            )
        if self.backbone.startswith(HCFORMER):
            hcformer_config(self.backbone, **self.config)
        elif self.config:
            key = min(self.config)
            raise UserError(f"{key}={self.config[key]}: a setting of {HCFORMER}; {self.backbone} has none of its own")

    @property
    def detects(self) -> bool:
        return self.model == DETECTION

    def pictures(self) -> DenseData[Any]:
        return (
            open_instances(self.data, self.valid)
            if self.detects
            else open_semantic(self.data, self.valid, self.ignore, self.classes)
        )


def is_dense_recipe(name: str, settings: Sequence[str] = ()) -> bool:
    """Whether a recipe, by name or .yaml file, trains a model of pixels or objects."""
    return read_recipe(name, settings).get("model") in (SEMANTIC, DETECTION)


def dense_recipe_names() -> list[str]:
    return [name for name in recipe_names() if is_dense_recipe(name)]


# -- models -----------------------------------------------------------------------------------------------------------


def dense_model(about: dict[str, Any], classes: int, pretrained: bool = False) -> nn.Module:
    """The network of a recipe (as run.json has it, with `image_size`: what position biases are learned on) for this many classes."""
    changes = {**about["config"], "image_size": about["image_size"]} if about["backbone"].startswith(HCFORMER) else {}
    backbone = create_backbone(about["backbone"], 1, pretrained, any_size=True, **changes)
    if about["model"] == DETECTION:
        return mask_rcnn(
            backbone, classes, about["width"], about["size"], cast(tuple[float, float], tuple(about["scale"]))
        )
    return SemanticFPN(backbone, classes, about["width"])


def _begin_with(model: nn.Module, run: str) -> None:
    """The weights of a classifier's backbone, Hi-Mapper's too."""
    trained = load_images(run).network
    given = (trained.backbone if isinstance(trained, HiMapper) else adapt(trained)[0]).state_dict()
    backbone: nn.Module = (model.pyramid if isinstance(model, SemanticFPN) else model.backbone).backbone  # type: ignore[union-attr, assignment]
    own = backbone.state_dict()
    fitting = sum(name in given and given[name].shape == value.shape for name, value in own.items())
    if fitting < len(own) or len(given) != len(own):
        raise UserError(
            f"start={run}: a run of another backbone ({fitting} of {len(own)} tensors fit); give one of the same model"
        )
    backbone.load_state_dict(given)


# -- the task ---------------------------------------------------------------------------------------------------------


class DenseTask:
    """Classes of pixels, or objects with their masks, for the engine."""

    unit_name, units_per_row = "images", 1

    def __init__(self, recipe: DenseRecipe, data: DenseData[Any], world: World, folder: Path):
        self.recipe, self.data, self.world, self.folder = recipe, data, world, folder
        self.begun = False
        self.read = ReadAhead(self._start, recipe.engine, world)

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """Pictures of the next rows are read meanwhile.

        semantic-fpn: images (B, 3, size, size) uint8, masks (B, size, size) int16. mask-rcnn: images (B, 3, H, W) uint8, filled up to one shape,
        sizes (B, 2), counts (B,), and of all T objects one after another boxes (T, 4), labels (T,), masks (T, H, W) uint8.
        """
        if (
            not self.begun and self.world.is_main
        ):  # the engine has opened the folder: from now on, who loads a checkpoint finds its classes
            write_whole(self.folder / CLASSES, json.dumps({"classes": self.data.classes}).encode())
        self.begun = True
        later = self.read(step, rows)
        return collate_instances(later()) if self.recipe.detects else collate_masks(later())

    def _start(self, step: int, rows: range) -> Callable[[], list[Any]]:
        recipe, first = self.recipe, step * self.recipe.engine.batch
        chosen = shuffled(len(self.data.train), first + rows.start, first + rows.stop, recipe.engine.seed)
        draws = np.random.default_rng((recipe.engine.seed, step, 2)).random((recipe.engine.batch, 4))[
            rows.start : rows.stop
        ]
        if recipe.detects:
            return self.data.train.later(
                chosen, lambda image, target, i: flipped(image, target, recipe.flip and draws[i, 3] < 0.5)
            )
        return self.data.train.later(
            chosen, lambda image, mask, i: cut(image, mask, recipe.size, recipe.scale, recipe.flip, draws[i])
        )

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        if not self.recipe.detects:
            return segmentation_loss(model(laid_out(normalise(batch["images"]))), batch["masks"].long(), IGNORED), {}
        losses: dict[str, Tensor] = model(*separated(batch))
        return torch.stack(list(losses.values())).sum(), {name: value.detach() for name, value in losses.items()}

    def graphable(self, batch: dict[str, Tensor]) -> bool:
        return not self.recipe.detects

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        if self.recipe.detects:
            return evaluate_instances(model, self.data, self.world.device)
        scores = evaluate_semantic(model, self.data, self.recipe.size, self.world)
        return {"miou": scores.miou, "accuracy": scores.accuracy}

    def sample(self, model: nn.Module) -> None:
        return None

    def units(self, model: nn.Module) -> list[nn.Module]:
        return units(model)


# -- batches ----------------------------------------------------------------------------------------------------------


def resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """(H, W, 3) uint8 -> (height, width, 3), bilinear, averaged where it shrinks"""
    from PIL import Image

    return (
        image
        if image.shape[:2] == (height, width)
        else np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
    )


def short_side(height: int, width: int, size: float) -> tuple[int, int]:
    """Height and width with the shorter one `size`."""
    factor = size / min(height, width)
    return max(1, round(height * factor)), max(1, round(width * factor))


def cut(
    image: np.ndarray, mask: np.ndarray, size: int, scale: tuple[float, float], flip: bool, draws: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A square of a resized picture and of its mask; beyond their edges the mean colour, and nothing that counts.

    draws (4,), from 0 to 1: scale (evenly in its logarithm), top, left, flip.   -> (size, size, 3) uint8, (size, size) int16
    """
    height, width = short_side(mask.shape[0], mask.shape[1], size * scale[0] * (scale[1] / scale[0]) ** float(draws[0]))
    y, x = ((np.arange(n) + 0.5) * old / n for n, old in ((height, mask.shape[0]), (width, mask.shape[1])))
    image, mask = (
        resized(image, height, width),
        mask[y.astype(int)[:, None], x.astype(int)],
    )  # nearest: numbers of classes have no mean
    top, left = (
        int(u * (max(0, side - size) + 1)) for u, side in zip(draws[1:3].tolist(), (height, width), strict=True)
    )
    image, mask = image[top : top + size, left : left + size], mask[top : top + size, left : left + size]
    square = np.empty((size, size, 3), dtype=np.uint8)
    square[:] = [round(255 * c) for c in MEAN]
    classes = np.full((size, size), IGNORED, dtype=np.int16)
    square[: image.shape[0], : image.shape[1]], classes[: mask.shape[0], : mask.shape[1]] = image, mask
    return (square[:, ::-1], classes[:, ::-1]) if flip and draws[3] < 0.5 else (square, classes)


def flipped(image: np.ndarray, found: Instances, really: bool) -> tuple[np.ndarray, Instances]:
    """A picture and the objects to learn from it, which heaps are not, left and right exchanged or as they are."""
    masks, labels = found.masks[~found.crowd], found.labels[~found.crowd]
    if really:
        image, masks = image[:, ::-1], masks[:, :, ::-1]
    return image, Instances(masks, labels, np.zeros(len(labels), dtype=bool))


def collate_masks(rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, Tensor]:
    images, masks = (torch.from_numpy(np.stack(part)) for part in zip(*rows, strict=True))
    return {"images": images.permute(0, 3, 1, 2), "masks": masks}


def collate_instances(rows: Sequence[tuple[np.ndarray, Instances]]) -> dict[str, Tensor]:
    height, width = (max(image.shape[axis] for image, _ in rows) for axis in (0, 1))
    counts = [len(found.labels) for _, found in rows]
    images = np.zeros((len(rows), height, width, 3), dtype=np.uint8)
    masks = np.zeros((sum(counts), height, width), dtype=np.uint8)
    for number, (image, found) in enumerate(rows):
        (high, wide), first = image.shape[:2], sum(counts[:number])
        images[number, :high, :wide] = image
        masks[first : first + counts[number], :high, :wide] = found.masks
    return {
        "images": torch.from_numpy(images).permute(0, 3, 1, 2),
        "sizes": torch.tensor([image.shape[:2] for image, _ in rows]),
        "counts": torch.tensor(counts),
        "boxes": torch.from_numpy(np.concatenate([found.boxes for _, found in rows])),
        "labels": torch.from_numpy(np.concatenate([found.labels for _, found in rows])),
        "masks": torch.from_numpy(masks),
    }


def separated(batch: dict[str, Tensor]) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """A batch of `collate_instances` as torchvision takes it: pictures (3, H, W) from 0 to 1, and their targets."""
    sizes, counts = batch["sizes"].tolist(), batch["counts"].tolist()
    images = [image[:, :high, :wide].float() / 255 for image, (high, wide) in zip(batch["images"], sizes, strict=True)]
    parts = [batch[name].split(counts) for name in ("boxes", "labels", "masks")]
    targets = [
        {"boxes": boxes, "labels": labels, "masks": masks[:, :high, :wide]}
        for boxes, labels, masks, (high, wide) in zip(*parts, sizes, strict=True)
    ]
    return images, targets


# -- scores -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SemanticScores:
    miou: float  # mean over the classes that occur, in truth or prediction
    accuracy: float  # share of the pixels that count
    by_class: dict[str, float]  # IoU


@torch.no_grad()
def evaluate_semantic(model: nn.Module, data: DenseData[np.ndarray], size: int, world: World) -> SemanticScores:
    """Whole pictures with their shorter side at `size`, compared with their masks at the masks' own size. Shared by all processes.

    With several processes each takes one picture at a time and all as many: what fills up the last round counts for nothing.
    """
    require("torchmetrics")
    from torchmetrics.classification import MulticlassJaccardIndex  # type: ignore[import-untyped, import-not-found, unused-ignore]

    held = data.valid
    metric = MulticlassJaccardIndex(
        max(2, len(data.classes)), average="none", ignore_index=IGNORED, sync_on_compute=False
    ).to(world.device)
    rows = EVAL_ROWS if world.size == 1 else 1
    mine = np.arange(-(-len(held) // world.size) * world.size)[world.rank :: world.size]
    chunks = [mine[i : i + rows] for i in range(0, len(mine), rows)]

    def start(chunk: np.ndarray) -> Callable[[], list[tuple[np.ndarray, np.ndarray]]]:
        return held.later(
            chunk % len(held),
            lambda image, mask, _: (resized(image, *short_side(mask.shape[0], mask.shape[1], size)), mask),
        )

    later = start(chunks[0])
    for number, chunk in enumerate(chunks):
        pictures = later()
        later = start(chunks[number + 1]) if number + 1 < len(chunks) else later
        groups: dict[tuple[int, ...], list[int]] = {}
        for place, (image, mask) in enumerate(pictures):
            groups.setdefault((*image.shape, *mask.shape), []).append(place)
        for places in groups.values():
            images = on_device(torch.from_numpy(np.stack([pictures[p][0] for p in places])), world.device).permute(
                0, 3, 1, 2
            )
            with torch.compiler.set_stance("force_eager"):  # each size of pictures would be compiled anew
                logits = model(laid_out(normalise(images))).float()
            for answer, place in zip(logits, places, strict=True):
                if chunk[place] < len(held):
                    truth = on_device(torch.from_numpy(pictures[place][1]).long(), world.device)
                    metric.update(
                        F.interpolate(answer[None], truth.shape, mode="bilinear", align_corners=False).argmax(1),
                        truth[None],
                    )
    counts = world.sum(metric.confmat).double()
    metric.confmat = counts.long()
    occurs = (counts.sum(0) + counts.sum(1) > 0).tolist()
    found = metric.compute().tolist() if counts.any() else [0.0] * len(occurs)
    by_class = {name: iou for name, iou, there in zip(data.classes, found, occurs, strict=False) if there}
    return SemanticScores(
        sum(by_class.values()) / max(1, len(by_class)),
        float(counts.diagonal().sum() / counts.sum().clamp(min=1)),
        by_class,
    )


@torch.no_grad()
def evaluate_instances(model: nn.Module, data: DenseData[Instances], device: torch.device) -> dict[str, float]:
    """COCO's average precision of boxes and of masks: over IoU 0.50 to 0.95, and at 0.50 and 0.75; -1 where there is nothing to find.

    Every process goes through all pictures: a sharded model needs them all in every forward, and masks are not sent around.
    """
    require("torchmetrics")
    from torchmetrics.detection import MeanAveragePrecision  # type: ignore[import-untyped, import-not-found, unused-ignore]

    backend = coco_masks().__name__.partition(".")[0]
    metric = MeanAveragePrecision(iou_type=("bbox", "segm"), backend=backend, sync_on_compute=False)
    held = data.valid
    chunks = [range(i, min(i + EVAL_ROWS, len(held))) for i in range(0, len(held), EVAL_ROWS)]
    later = held.later(chunks[0], lambda image, found, _: (image, found))
    for number in range(len(chunks)):
        pictures = later()
        later = (
            held.later(chunks[number + 1], lambda image, found, _: (image, found))
            if number + 1 < len(chunks)
            else later
        )
        for image, found in pictures:
            x = on_device(torch.from_numpy(image.copy()), device).permute(2, 0, 1).float() / 255
            answer = {name: value.float() if name != "labels" else value for name, value in model([x])[0].items()}
            answer["masks"] = answer["masks"][:, 0] > 0.5
            truth = {
                "boxes": torch.from_numpy(found.boxes),
                "labels": torch.from_numpy(found.labels),
                "masks": torch.from_numpy(found.masks),
                "iscrowd": torch.from_numpy(found.crowd).long(),
            }
            metric.update([{name: value.cpu() for name, value in answer.items()}], [truth])
    scores = metric.compute()
    names = {"box": "bbox", "mask": "segm"}
    return {
        f"{mine}_ap{at}": float(scores[f"{theirs}_map{end}"])
        for mine, theirs in names.items()
        for at, end in (("", ""), ("50", "_50"), ("75", "_75"))
    }


# -- a run ------------------------------------------------------------------------------------------------------------


def train_dense(
    recipe: DenseRecipe,
    out: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    device: str = "auto",
) -> FitResult:
    """Train into the folder `out`, alone or as one process of torchrun's; at the end its model.safetensors has the weights to use."""
    recipe.check()
    require("torchvision")
    require("torchmetrics")
    if recipe.detects:
        coco_masks()  # the evaluation needs it: better to know now
        recipe = dataclasses.replace(recipe, engine=dataclasses.replace(recipe.engine, compile=False))
    out = Path(out)
    with world(device) as here:
        if not resume:
            here.from_main(lambda: require_new_folder(out, overwrite, mark=RUN))
        data = recipe.pictures()
        about = {
            **{key: value for key, value in asdict(recipe).items() if key != "engine"},
            "image_size": recipe.size if recipe.start is None else load_images(recipe.start).size,
            "pictures": {"train": len(data.train), "valid": len(data.valid)},
            "class_count": len(data.classes),
        }
        torch.manual_seed(recipe.engine.seed)
        model = dense_model(about, len(data.classes), recipe.pretrained)
        if recipe.start is not None:
            _begin_with(model, recipe.start)
        about["parameters"] = sum(p.numel() for p in model.parameters())
        if here.device.type == "cuda":
            model = for_cuda(model, here)
        task = DenseTask(recipe, data, here, out)
        result = fit_pictures(
            model, task, recipe.engine, out, here, resume=resume, overwrite=overwrite, about=about, quiet=quiet
        )
        del model, task
        here.from_main(lambda: export_weights(out, lambda: _from_checkpoint(result.checkpoint, _about(out))))
        return result


@dataclass(frozen=True, eq=False)
class TrainedDense:
    """A network of a run, on the CPU and in eval mode, and what it was trained for."""

    network: nn.Module  # SemanticFPN, of `normalise`d pictures; or torchvision's MaskRCNN, of pictures from 0 to 1
    classes: list[str]  # of mask-rcnn the labels 1, 2, …
    size: int
    detects: bool


def load_dense(run: str | Path) -> TrainedDense:
    """The network of a run. Of a run under way, or stopped, the last checkpoint's."""
    folder = Path(run)
    about = _about(folder)
    try:
        classes = [str(name) for name in json.loads((folder / CLASSES).read_text(encoding="utf-8"))["classes"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(
            f"{folder / CLASSES}: a damaged file ({' '.join(str(error).split())}); train the model again"
        ) from error
    if (folder / WEIGHTS).is_file():
        network = dense_model(about, about["class_count"])
        load_weights(network, folder / WEIGHTS)
    else:
        network = _from_checkpoint(last_checkpoint(folder), about)
    return TrainedDense(network.eval(), classes, about["size"], about["model"] == DETECTION)


def _about(folder: Path) -> dict[str, Any]:
    return read_run(folder, "a model of pixels or objects", {"model", "backbone", "image_size", "class_count"})


def _from_checkpoint(path: Path, about: dict[str, Any]) -> nn.Module:
    model = dense_model(about, about["class_count"])
    checkpoint.restore(path, model, World())
    return model
