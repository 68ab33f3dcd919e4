"""Style transfer as a training: the data are two pictures, and what is learned is a third one."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from horosphere import catalogue
from horosphere.data.photographs import read_photograph
from horosphere.errors import UserError
from horosphere.evaluate.metric import Metric
from horosphere.extras import require
from horosphere.files import digest, files_digest, write_whole
from horosphere.models.himapper import HiMapper
from horosphere.models.style import VGG19, BackboneTrunk, Losses, Picture, StyleLoss, make_trunk, standardised
from horosphere.models.weights import WEIGHTS, begin_with
from horosphere.runs import Run
from horosphere.settings import Size
from horosphere.train.config import EngineConfig
from horosphere.train.task import Task

PICTURE = "picture.png"
LEAST = 32  # pixels a side: backbones halve it up to five times


@dataclass(frozen=True, eq=False)
class TwoPictures:
    """What to show, and how.   (H, W, 3) uint8 each, of any sizes"""

    content: np.ndarray
    style: np.ndarray


@dataclass(frozen=True, eq=False)
class TrainedStyle:
    """What was learned."""

    network: Picture

    @property
    def picture(self) -> np.ndarray:
        """(H, W, 3) uint8"""
        return self.network.pixels().numpy()


@dataclass(kw_only=True)
class Style(Task[TwoPictures]):
    """A step has one row, the picture. The network that looks at it is frozen, and no part of the model."""

    kind = "style"
    unit = "pictures"
    alone = "one picture is learned, in one process"
    metrics = (
        Metric("loss", "loss", 4, "low", "judged"),
        Metric("content", "of content", 4, "low", "shown", "before its weight"),
        Metric("style", "of style", 8, "low", "shown", "before its weight"),
        Metric("variation", "of variation", 4, "low", "shown", "before its weight"),
    )

    data: str  # the content: a picture's file, or builtin:chelsea and others of scikit-image's photographs
    style: str  # the style: likewise
    size: Size = 256  # pixels of the longer side; smaller pictures stay as they are
    backbone: str | None = None  # what looks: timm:…, torchvision:…, a run of the task pictures; none: VGG-19
    pretrained: bool = False  # fetch the published weights of what looks; without them the picture means little

    # -- data and model ---------------------------------------------------------------------------------------------

    def check(self, engine: EngineConfig) -> None:
        require("pillow")
        if engine.batch > 1 or engine.micro_batch not in (None, 1):
            raise UserError("batch and micro_batch: one picture is learned, which is one row; leave them out")
        if self.pretrained and self._run_that_looks():
            raise UserError(f"pretrained=true: {self.backbone} has weights of its own; leave one of them out")

    def _run_that_looks(self) -> bool:
        """Whether `backbone` is a run, and not the name of a network."""
        return self.backbone is not None and ":" not in self.backbone and self.backbone not in catalogue.models()

    def open_data(self) -> TwoPictures:
        pictures = [read_photograph(source, self.size) for source in (self.data, self.style)]
        for source, picture in zip((self.data, self.style), pictures, strict=True):
            height, width = picture.shape[:2]
            if min(height, width) < LEAST:
                what = f"{width} x {height} pixels at size={self.size} are too few"
                raise UserError(f"{source}: {what}; each side needs {LEAST}")
        return TwoPictures(*pictures)

    def rows(self, data: TwoPictures) -> int:
        return 1

    def natural_batch(self, data: TwoPictures) -> int:
        return 1

    def facts(self, data: TwoPictures) -> dict[str, Any]:
        height, width = data.content.shape[:2]
        shapes = f"{data.content.shape} {data.style.shape}"
        looks = files_digest([self._looking_run().folder / WEIGHTS]) if self._run_that_looks() else ""
        same = digest(shapes, data.content.tobytes(), data.style.tobytes(), looks)
        return {"height": height, "width": width, "digest": same}

    def _looking_run(self) -> Run:
        run = Run.open(cast(str, self.backbone), "pictures")
        if not (run.folder / WEIGHTS).is_file():
            raise UserError(f"backbone={self.backbone}: a run that is not trained to its end; go on with --resume")
        return run

    def build(self, data: TwoPictures) -> Picture:
        content = _pictures(data.content)
        begin = torch.rand_like(content) if self.configuration().begin == "noise" else content
        model = Picture(begin)
        if self.start is not None:
            begin_with(model, Run.open(self.start, self.kind).load().network.state_dict(), self.start)
        return model

    def ready(self, data: TwoPictures) -> None:
        super().ready(data)
        content, style = (standardised(_pictures(p)).to(self.world.device) for p in (data.content, data.style))
        self.goal = StyleLoss(self._trunk().to(self.world.device), content, style, self.configuration())

    def _trunk(self) -> Any:
        """What looks. A random one is the same for the same seed."""
        if self._run_that_looks():
            network = self._looking_run().load().network
            return BackboneTrunk(network.backbone if isinstance(network, HiMapper) else network)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.engine.seed)
            return make_trunk(self.backbone or VGG19, self.pretrained)

    # -- the training -----------------------------------------------------------------------------------------------

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """picture (1,): its number. There is one, and it is the model."""
        return {"picture": torch.arange(rows.start, rows.stop)}

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        parts: Losses = self.goal.parts(model())
        return self.goal.total(parts), {name: part.detach() for name, part in parts._asdict().items()}

    def evaluate(self, model: nn.Module, last: bool) -> dict[str, float]:
        return self._scores(model())

    @torch.no_grad()
    def _scores(self, x: Tensor) -> dict[str, float]:
        parts = self.goal.parts(x)
        numbers = {name: part.item() for name, part in parts._asdict().items()}
        return {"loss": self.goal.total(parts).item(), **numbers}

    def baselines(self) -> dict[str, dict[str, float]]:
        content = standardised(_pictures(self.opened.content)).to(self.world.device)
        return {"the content as it is": self._scores(content)}

    # -- a finished run ---------------------------------------------------------------------------------------------

    def rebuild(self, run: Run) -> Picture:
        return Picture(torch.zeros(1, 3, run.about.count("height"), run.about.count("width")))

    def export(self, folder: Path, network: nn.Module) -> None:
        from PIL import Image

        file = io.BytesIO()
        Image.fromarray(cast(Picture, network).pixels().numpy()).save(file, format="PNG")
        write_whole(folder / PICTURE, file.getvalue())
        super().export(folder, network)

    def trained(self, network: nn.Module, run: Run) -> TrainedStyle:
        return TrainedStyle(cast(Picture, network))

    # -- for people -------------------------------------------------------------------------------------------------

    def about(self, facts: dict[str, Any]) -> list[list[str]]:
        weights = "trained" if self._run_that_looks() else "published" if self.pretrained else "random"
        picture = f"{facts['width']} x {facts['height']} pixels, in {PICTURE}"
        return [["network", f"{self.backbone or VGG19}, {weights} weights"], ["picture", picture]]


def _pictures(pixels: np.ndarray) -> Tensor:
    """(H, W, 3) uint8 -> (1, 3, H, W) in [0, 1]"""
    return torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255
