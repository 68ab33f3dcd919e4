"""What tasks on pictures with masks share: crops of one size, read ahead; networks on a backbone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import Tensor, nn

from horosphere import catalogue
from horosphere.data.classes import write_classes
from horosphere.data.dense import DenseData
from horosphere.data.dense_batches import collate_masks, cut
from horosphere.data.order import Part, half
from horosphere.data.read_ahead import ReadAhead
from horosphere.errors import UserError
from horosphere.extras import require
from horosphere.files import digest
from horosphere.models.backbones import HCFORMER, adapt, create_backbone, for_cuda
from horosphere.models.himapper import HiMapper
from horosphere.models.pyramid import Pyramid
from horosphere.models.weights import begin_with, require_one_source
from horosphere.optim.groups import with_rate
from horosphere.runs import Run
from horosphere.settings import Positive, Size
from horosphere.train.config import EngineConfig
from horosphere.train.task import Task


@dataclass(kw_only=True)
class Masks(Task[DenseData[Any]]):
    """A batch has squares of resized pictures, and of their masks."""

    unit = "images"
    one_shape = True

    valid: str | None = None  # a source of its own; none: what the data hold out, or every tenth picture
    size: Size = 512  # pixels of the shorter side; of classes of pixels also the side of the crops to train on
    scale: tuple[Positive, Positive] = (0.5, 2.0)  # in training that times a number between these
    flip: bool = True  # left and right

    def check(self, engine: EngineConfig) -> None:
        if self.scale[0] > self.scale[1]:
            raise UserError(f"scale={self.scale[0]:g},{self.scale[1]:g}: two positive numbers, the smaller first")

    def parted(self, data: DenseData[Any], part: Part) -> DenseData[Any]:
        return replace(data, valid=data.valid.subset(half(np.arange(len(data.valid)), part)))

    def rows(self, data: DenseData[Any]) -> int:
        return len(data.train)

    def facts(self, data: DenseData[Any]) -> dict[str, Any]:
        return {
            "pictures": {"train": len(data.train), "valid": len(data.valid)},
            "classes": len(data.classes),
            "digest": digest(*data.classes, *(str(file) for part in (data.train, data.valid) for file in part.files)),
        }

    def ready(self, data: DenseData[Any]) -> None:
        self.pictures = data
        order = self.engine.rows_of(self.world.rank, self.world.size)
        self.read = ReadAhead(self.started, order, self.engine.steps)

    def begin(self, folder: Path) -> None:
        write_classes(folder, self.pictures.classes)

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """images (B, 3, s, s) uint8, masks (B, s, s) int16. Pictures of the next rows are read meanwhile."""
        return collate_masks(self.read(step, rows)())

    def started(self, step: int, rows: range) -> Callable[[], list[Any]]:
        """Begin to read the pictures of these rows; the function returned waits for them."""
        chosen, draws = self.drawn(step, rows, len(self.pictures.train)), self.chances(step, rows)
        return self.pictures.train.later(
            chosen, lambda image, mask, i: cut(image, mask, self.size, self.scale, self.flip, draws[i])
        )

    def chances(self, step: int, rows: range) -> np.ndarray:
        """What chance decides in these rows: scale, top, left, flip.   -> (len(rows), 4), from 0 to 1"""
        random = np.random.default_rng((self.engine.seed, step, 2))
        return random.random((self.engine.batch, 4))[rows.start : rows.stop]


@dataclass(kw_only=True)
class OnBackbone(Masks):
    """A network around a backbone, which is any network of the task `pictures`.

    Settings of the network are those of its head; where the head has none, those of the backbone.
    """

    backbone: str = "hcformer-nano"  # or "resnet18", "timm:…", "torchvision:…"
    width: Size = 256  # channels of the feature pyramid
    pretrained: bool = False  # fetch the backbone's published weights
    head_lr: Positive = 1.0  # learning rate of all but the backbone, in lr's

    @classmethod
    def configured(cls, given: Mapping[str, Any]) -> Any:
        name = given.get("model")
        has_own = isinstance(name, str) and catalogue.model(name, cls.kind).settings
        return name if has_own else given.get("backbone", cls.backbone)

    @classmethod
    def network(cls, name: str) -> catalogue.Model:
        entry = catalogue.models().get(name)
        return entry if entry and entry.task == cls.kind else catalogue.model(name, "pictures", "backbone")

    # -- the network ------------------------------------------------------------------------------------------------

    def check(self, engine: EngineConfig) -> None:
        catalogue.model(self.model, self.kind)
        require("torchvision")
        super().check(engine)
        catalogue.model(self.backbone, "pictures", "backbone")
        require_one_source(self.start, self.pretrained)

    def facts(self, data: DenseData[Any]) -> dict[str, Any]:
        return {**super().facts(data), "image_size": self.image_size()}

    def image_size(self) -> int:
        """What position biases of the backbone are learned on."""
        return self.size if self.start is None else int(Run.open(self.start, "pictures").load().size)

    def build(self, data: DenseData[Any]) -> nn.Module:
        model = self.network_for(len(data.classes), self.image_size(), self.pretrained)
        if self.start is not None:
            trained = Run.open(self.start, "pictures").load().network
            given = (trained.backbone if isinstance(trained, HiMapper) else adapt(trained)[0]).state_dict()
            begin_with(backbone_of(model), given, self.start)
        return for_cuda(model, self.world.device, self.world.size)

    def network_for(self, classes: int, image_size: int, pretrained: bool = False) -> nn.Module:
        raise NotImplementedError

    def made_backbone(self, image_size: int, pretrained: bool) -> nn.Module:
        changes = {"image_size": image_size} if self.backbone.startswith(HCFORMER) else {}
        entry = catalogue.model(self.model, self.kind)
        return create_backbone(
            self.backbone, 1, pretrained, any_size=True, **({} if entry.settings else self.config), **changes
        )

    def groups(self, model: nn.Module) -> list[dict[str, Any]]:
        body = {id(p) for p in backbone_of(model).parameters()}
        return with_rate(super().groups(model), lambda p: id(p) not in body, self.head_lr)

    # -- the network of a run ---------------------------------------------------------------------------------------

    def rebuild(self, run: Run) -> nn.Module:
        return self.network_for(run.about.count("classes"), run.about.count("image_size"))

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        return [["model", f"{self.model} on {self.backbone}, {facts['parameters']:,} parameters"]]


def backbone_of(model: nn.Module) -> nn.Module:
    """What is trained on pictures before: below a pyramid, where there is one."""
    trunk = getattr(model, "pyramid", None) or cast(Any, model).backbone
    return cast(nn.Module, trunk.backbone if isinstance(trunk, Pyramid) else trunk)
