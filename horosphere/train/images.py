"""Train a classifier of pictures from a recipe, average its weights, and load it again."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from horosphere.data.augment import Augmentation, Draws, augment, normalise, on_device, shuffled
from horosphere.data.classes import ClassTree
from horosphere.data.images import ImageData, Later, open_images
from horosphere.errors import UserError
from horosphere.evaluate.classification import hierarchy_scores
from horosphere.extras import require
from horosphere.files import require_new_folder, write_whole
from horosphere.measure.hierarchy import class_distances
from horosphere.models.backbones import create_backbone
from horosphere.models.hcformer import HCFormer, HCFormerConfig, hcformer_config
from horosphere.models.himapper import HiMapper, HiMapperConfig, TreeLoss
from horosphere.optim import RiemannianAdam, param_groups
from horosphere.train import checkpoint
from horosphere.train.distributed import World, local, world
from horosphere.train.engine import RUN, EngineConfig, FitResult, Task, fit, last_checkpoint, read_run
from horosphere.train.read_ahead import ReadAhead
from horosphere.train.recipe import read_recipe, recipe_names, sorted_settings

TORCHVISION = ("resnet18", "resnet50", "swin_t", "convnext_tiny")  # twins and opponents, by torchvision's names
HCFORMER = "hcformer"  # names of models that begin so are models/hcformer.py's
LIBRARIES = ("timm:", "torchvision:")  # names that begin so are theirs, as they are
UNITS = (
    "Block",
    "BasicBlock",
    "Bottleneck",
    "SwinTransformerBlock",
    "CNBlock",
    "Mapper",
)  # HCFormer's, torchvision's, Hi-Mapper's
PLACED = 2000  # classes whose places are compared at most: all pairs of them are in memory
SMALL = 64  # pixels: torchvision's networks get a stem of stride 1 for pictures up to this size
FROM_DATA = {"num_classes", "in_channels", "image_size"}  # of HCFormerConfig: no settings
EVAL_ROWS = 256  # pictures at once in an evaluation
VARIANTS = 256  # of one kind of block that are compiled, at most: stages and rates of dropping out make them differ; torch would stop at 8
APART = {"engine", "augmentation", "config", *FROM_DATA}  # fields that are no settings
WEIGHTS, CLASSES = "model.safetensors", "classes.json"


# -- recipes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImageRecipe:
    """Every choice of a run. In files and on the command line all of them stand in one flat list: these, Augmentation's, EngineConfig's and,
    for HCFormer, its configuration's."""

    model: str  # of models/hcformer.py, one of TORCHVISION, or timm:NAME, torchvision:NAME
    data: str  # see open_images
    engine: EngineConfig
    augmentation: Augmentation = field(default_factory=Augmentation)
    valid: str | None = None  # a source of its own; None: what the data hold out, or a tenth of each class
    download: bool = False  # fetch a set of torchvision's that is not there
    size: int = 224  # pixels a side
    start: str | None = None  # a run of the same network, whose weights this one begins with
    pretrained: bool = False  # fetch the published weights of a timm:… or torchvision:… network
    tree: HiMapperConfig | None = None  # Hi-Mapper around the network, its settings as tree.levels=3
    ema: float | None = (
        0.9999  # decay of the average of the weights, which is what is evaluated and kept; none: no average
    )
    config: dict[str, Any] = field(default_factory=dict)  # changes of the model's named configuration

    @staticmethod
    def read(name: str, settings: Sequence[str] = ()) -> ImageRecipe:
        """A recipe by name or .yaml file, under `key=value` settings."""
        parts = (ImageRecipe, Augmentation, EngineConfig, HCFormerConfig)
        own, augmentation, engine, model = sorted_settings(parts, APART, read_recipe(name, settings), name)
        recipe = ImageRecipe(
            **own, augmentation=Augmentation(**augmentation), engine=EngineConfig(**engine), config=model
        )
        recipe.check()
        return recipe

    def check(self) -> None:
        self.engine.check()
        self.augmentation.check()
        if self.size < 1:
            raise UserError(f"size={self.size}: it must be at least 1")
        if self.ema is not None and not 0 <= self.ema < 1:
            raise UserError(f"ema={self.ema:g}: a decay goes from 0 to just below 1; ema=none keeps no average")
        for name, rows in (("batch", self.engine.batch), ("micro_batch", self.engine.micro_batch)):
            if self.augmentation.mixes and rows is not None and rows % 2:
                raise UserError(
                    f"{name}={rows}: mixup and cutmix take pictures in pairs; make it even, or set mixup=0 cutmix=0"
                )
        if self.start is not None and self.pretrained:
            raise UserError(
                f"start={self.start} and pretrained=true: weights come from one of them; leave out the other"
            )
        if self.pretrained and not self.model.startswith(LIBRARIES):
            raise UserError(
                f"pretrained=true: say whose weights, as in model=timm:resnet50 or model=torchvision:resnet50, not model={self.model}"
            )
        model_config(self.model, self.config)

    def images(self) -> ImageData:
        return open_images(self.data, self.valid, self.download)


def is_image_recipe(name: str, settings: Sequence[str] = ()) -> bool:
    """Whether a recipe, by name or .yaml file, trains a model of pictures."""
    model = read_recipe(name, settings).get("model")
    return isinstance(model, str) and (model.startswith((HCFORMER, *LIBRARIES)) or model in TORCHVISION)


def image_recipe_names() -> list[str]:
    return [name for name in recipe_names() if is_image_recipe(name)]


# -- models -----------------------------------------------------------------------------------------------------------


def model_config(name: str, changes: dict[str, Any]) -> Any:
    """The configuration of an HCFormer under changes; None for a network of torchvision or timm, which has none."""
    if name.startswith(HCFORMER):
        return hcformer_config(name, **changes)
    if name not in TORCHVISION and not name.startswith(LIBRARIES):
        near = difflib.get_close_matches(name, TORCHVISION, cutoff=0.8)
        choice = (
            f"choose {HCFORMER}-nano, …, {', '.join(TORCHVISION)}, or say whose it is: timm:{name}, torchvision:{name}"
        )
        raise UserError(f"model={name}: " + (f"did you mean {near[0]}? Or " if near else "") + choice)
    if changes:
        raise UserError(f"{min(changes)}={changes[min(changes)]}: a setting of {HCFORMER}; {name} has none of its own")
    return None


def image_model(
    name: str,
    classes: int,
    size: int,
    changes: dict[str, Any],
    tree: HiMapperConfig | None = None,
    start: str | None = None,
    pretrained: bool = False,
) -> nn.Module:
    """A network for pictures of size x size, Hi-Mapper around it where there is a tree: (B, 3, size, size) -> (B, classes)

    Its weights are new, the published ones, or those of the run `start`, whose classifier is kept where the classes are as many.
    """
    network = _network(name, classes, size, changes, pretrained)
    if start is not None:
        _begin_with(network, start)
    return network if tree is None else HiMapper(network, classes, tree)


def _begin_with(network: nn.Module, run: str) -> None:
    given, own = load_images(run).network.state_dict(), network.state_dict()
    fitting = {name: value for name, value in given.items() if name in own and own[name].shape == value.shape}
    if len(fitting) < len(own) - 2:  # a classifier of other classes: its weight and its bias
        raise UserError(
            f"start={run}: a run of another network ({len(fitting)} of {len(own)} tensors fit); give one of the same model and size"
        )
    network.load_state_dict(fitting, strict=False)


def _network(name: str, classes: int, size: int, changes: dict[str, Any], pretrained: bool) -> nn.Module:
    """TORCHVISION's for pictures up to SMALL pixels begin with a 3x3 convolution of stride 1 (and ResNets without pooling), as is usual there."""
    config = model_config(name, changes)
    if config is not None:
        return HCFormer(dataclasses.replace(config, num_classes=classes, image_size=size))
    if name.startswith(LIBRARIES):
        theirs = create_backbone(name, classes, pretrained, any_size=True)
        _try(theirs, name, size)
        return theirs
    require("torchvision")
    from torchvision import models  # type: ignore[import-untyped, import-not-found, unused-ignore]

    network: Any = models.get_model(name, weights=None, num_classes=classes)
    if size <= SMALL:
        stem = network.conv1 if name.startswith("resnet") else network.features[0][0]
        new = nn.Conv2d(3, stem.out_channels, 3, padding=1, bias=stem.bias is not None)
        if name.startswith("resnet"):
            network.conv1, network.maxpool = new, nn.Identity()
        else:
            network.features[0][0] = new
    return cast(nn.Module, network)


@torch.no_grad()
def _try(network: nn.Module, name: str, size: int) -> None:
    """Not every network takes pictures of every size."""
    try:
        network.eval()(torch.zeros(1, 3, size, size))
    except (RuntimeError, AssertionError, ValueError) as error:
        raise UserError(
            f"{name} does not take size={size} ({' '.join(str(error).split())[:120]}): set the size it was made for"
        ) from error
    network.train()


class ImageClassifier(nn.Module):
    """A network and, with a decay, the moving average of its weights: in training the network answers, in eval mode the average."""

    def __init__(self, network: nn.Module, decay: float | None):
        super().__init__()
        self.network, self.decay = network, decay
        self.average = None if decay is None else deepcopy(network).requires_grad_(False)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.steps: Tensor
        self.taken: int | None = (
            None  # as `steps`, on the host: the accelerator is asked once, after a checkpoint was read
        )

    @property
    def answering(self) -> nn.Module:
        return self.network if self.average is None or self.training else self.average

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, TreeLoss]:
        """Logits (B, K); of Hi-Mapper in training its losses too."""
        answer: Tensor | tuple[Tensor, TreeLoss] = self.answering(x)
        return answer

    def gradient_checkpointing_enable(self) -> None:
        if not hasattr(self.network, "set_grad_checkpointing"):
            raise UserError(
                f"checkpointing=true: {type(self.network).__name__} cannot recompute its activations; use checkpointing=false"
            )
        self.network.set_grad_checkpointing()  # type: ignore[operator]

    @torch.no_grad()
    def after_step(self) -> None:
        """average += (1 - d)(weights - average), d = min(decay, (1 + n)/(10 + n)) in step n: a short run forgets its beginning too."""
        if self.average is None or self.decay is None:
            return
        self.taken = int(self.steps) + 1 if self.taken is None else self.taken + 1
        self.steps += 1
        mine, theirs = ([local(t) for t in (*m.parameters(), *m.buffers())] for m in (self.average, self.network))
        real = [t.is_floating_point() for t in mine]
        blend = get_ema_multi_avg_fn(min(self.decay, (1 + self.taken) / (10 + self.taken)))
        blend(
            [t for t, r in zip(mine, real, strict=True) if r],
            [t for t, r in zip(theirs, real, strict=True) if r],
            self.taken,
        )
        for a, b, r in zip(mine, theirs, real, strict=True):
            if not r:
                a.copy_(b)


# -- the task ---------------------------------------------------------------------------------------------------------


class ImageTask:
    """Classification of pictures, for the engine."""

    unit_name, units_per_row = "images", 1

    def __init__(self, recipe: ImageRecipe, data: ImageData, world: World, folder: Path):
        self.recipe, self.data, self.world, self.folder = recipe, data, world, folder
        self.read = ReadAhead(self._start, recipe.engine, world)
        self.begun = False

    def batch(self, step: int, rows: range) -> dict[str, Tensor]:
        """images (B, 3, size, size), targets (B, K): the shares of the classes. Made on the device; pictures of the next rows are read meanwhile."""
        if (
            not self.begun and self.world.is_main
        ):  # the engine has opened the folder: from now on, who loads a checkpoint finds its classes
            write_whole(self.folder / CLASSES, _classes(self.data))
        self.begun = True
        later, labels, draws = self.read(step, rows)
        images = on_device(later(), self.world.device)
        x, targets = augment(images, labels, len(self.data.classes), draws, self.recipe.augmentation)
        return {"images": laid_out(x), "targets": targets}

    def _start(self, step: int, rows: range) -> tuple[Later, np.ndarray, Draws]:
        recipe, train = self.recipe, self.data.train
        first, seed = step * recipe.engine.batch, recipe.engine.seed
        chosen = shuffled(len(train), first + rows.start, first + rows.stop, seed)
        draws = Draws.of(seed, step, recipe.engine.batch, recipe.augmentation)[rows.start : rows.stop]
        return (
            train.pictures.crops(train.numbers[chosen], recipe.augmentation.box, draws.crop, recipe.size),
            train.labels[chosen],
            draws,
        )

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        answer = model(batch["images"])
        logits, tree = answer if isinstance(answer, tuple) else (answer, None)
        loss = F.cross_entropy(logits.float(), batch["targets"])
        if tree is None:
            return loss, {}
        return loss + tree.total, {"contrast": tree.contrast.detach(), "kl": tree.kl.detach()}

    def graphable(self, batch: dict[str, Tensor]) -> bool:
        return True

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return evaluate_images(model, self.data, self.recipe.size, self.recipe.augmentation, self.world)

    def sample(self, model: nn.Module) -> None:
        return None

    def units(self, model: nn.Module) -> list[nn.Module]:
        return units(model)


def units(network: nn.Module) -> list[nn.Module]:
    """What is compiled and sharded one by one."""
    return [module for module in network.modules() if type(module).__name__ in UNITS]


def laid_out(x: Tensor) -> Tensor:
    """As convolutions like it: channels last on CUDA."""
    return x.contiguous(memory_format=torch.channels_last if x.is_cuda else torch.contiguous_format)


@torch.no_grad()
def evaluate_images(
    model: nn.Module, data: ImageData, size: int, augmentation: Augmentation, world: World
) -> dict[str, float]:
    """How well a model in eval mode knows the pictures held out: loss, top1, top5, and on a tree of classes coarse, tree_error, parent, sibling.

    The last two: how far the mean answer to a class lies from its parent's and from its siblings', where strangers are 1 apart.
    The work is shared by all processes. All take as many batches of one shape; what fills up the last ones counts for nothing.
    """
    held = data.valid
    rows = min(EVAL_ROWS, -(-len(held) // world.size))
    places = np.arange(-(-len(held) // (rows * world.size)) * rows * world.size).reshape(-1, world.size, rows)[
        :, world.rank
    ]
    still = np.zeros((rows, 4))
    start = [
        lambda p=p: held.pictures.crops(held.numbers[p % len(held)], augmentation.still_box, still, size)
        for p in places
    ]
    sums, predicted = torch.zeros(3, dtype=torch.float64, device=world.device), []
    count = len(data.classes) if data.tree is not None and len(data.classes) <= PLACED else 0
    answers = torch.zeros(count, count + 1, dtype=torch.float64, device=world.device)  # to each class, and how many
    later = start[0]()
    for number, place in enumerate(places):
        images = on_device(later(), world.device)
        later = start[number + 1]() if number + 1 < len(start) else later
        truth = on_device(torch.from_numpy(held.labels[place % len(held)]), world.device)
        counted = on_device(torch.from_numpy(place < len(held)), world.device)
        with torch.compiler.set_stance(
            "force_eager"
        ):  # to compile every block once more takes longer than to do without
            logits = model(laid_out(normalise(images))).float()
        best = logits.topk(min(5, logits.shape[1])).indices
        right = best == truth[:, None]
        scores = torch.stack(
            [F.cross_entropy(logits, truth, reduction="none"), right[:, 0].float(), right.any(1).float()]
        )
        sums += (scores * counted).double().sum(1)
        predicted.append(best[:, 0])
        if count:
            answers += (F.one_hot(truth, count) * counted[:, None]).double().T @ F.pad(
                logits, (0, 1), value=1.0
            ).double()
    loss, top1, top5 = (world.sum(sums) / len(held)).tolist()
    found = {"loss": loss, "top1": top1, "top5": top5}
    if data.tree is not None:
        real = places.ravel() < len(held)
        mine = np.zeros(3)
        if real.any():
            scores_here = hierarchy_scores(
                torch.cat(predicted).cpu()[real], held.labels[places.ravel()[real]], data.tree
            )
            mine = np.array([scores_here.coarse, scores_here.tree_error, 1.0]) * real.sum()
        coarse, error, judged = world.sum(torch.from_numpy(mine)).tolist()
        found |= {"coarse": coarse / judged, "tree_error": error / judged}
    if data.tree is not None and count:
        answers = world.sum(answers).cpu()
        apart = class_distances(answers[:, :-1] / answers[:, -1:], data.tree)
        distances = {"parent": apart.parent / apart.stranger, "sibling": apart.sibling / apart.stranger}
        found |= {
            name: value for name, value in distances.items() if math.isfinite(value)
        }  # not where a class has no pictures, or no siblings
    return found


# -- a run ------------------------------------------------------------------------------------------------------------


def train_images(
    recipe: ImageRecipe,
    out: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    device: str = "auto",
) -> FitResult:
    """Train into the folder `out`, alone or as one process of torchrun's; at the end its model.safetensors has the weights to use."""
    recipe.check()
    out = Path(out)
    with world(device) as here:
        if not resume:
            here.from_main(lambda: require_new_folder(out, overwrite, mark=RUN))
        if recipe.augmentation.mixes and recipe.engine.batch // here.size % 2:
            raise UserError(
                f"batch={recipe.engine.batch} for {here.size} processes: mixup and cutmix take pictures in pairs; use a multiple of 2 for each"
            )
        if here.size > 1:  # a download must not happen twice
            here.from_main(lambda: len(recipe.images().train))
            here.from_main(
                lambda: recipe.pretrained and not resume and bool(create_backbone(recipe.model, 1, pretrained=True))
            )
        data = recipe.images().to(here.device)
        torch.manual_seed(recipe.engine.seed)
        begin = (None, False) if resume else (recipe.start, recipe.pretrained)
        network = image_model(recipe.model, len(data.classes), recipe.size, recipe.config, recipe.tree, *begin)
        if here.device.type == "cuda":
            network = for_cuda(network, here)
        model = ImageClassifier(network, recipe.ema)
        config = model_config(recipe.model, recipe.config)
        about = {
            **{key: value for key, value in asdict(recipe).items() if key not in ("engine", "config", "download")},
            "parameters": sum(p.numel() for p in network.parameters()),
            "pictures": {"train": len(data.train), "valid": len(data.valid)},
            "classes": len(data.classes),
            "config": {}
            if config is None
            else {key: value for key, value in asdict(config).items() if key not in FROM_DATA},
        }
        task = ImageTask(recipe, data, here, out)
        result = fit_pictures(
            model, task, recipe.engine, out, here, resume=resume, overwrite=overwrite, about=about, quiet=quiet
        )
        del model, task
        here.from_main(lambda: export_weights(out, lambda: _from_checkpoint(result.checkpoint, _about(out))))
        return result


def fit_pictures(model: nn.Module, task: Task, engine: EngineConfig, out: Path, world: World, **how: Any) -> FitResult:
    """`fit`, with the optimizer of networks for pictures."""
    with compiled_by_shape(engine, world):
        return fit(model, task, engine, out, world, **how, make_optimizer=partial(image_optimizer, engine))


def compiled_by_shape(engine: EngineConfig, world: World) -> AbstractContextManager[None]:
    """Every block is compiled for its own shape. By itself torch compiles the second one it meets for all shapes, and gives up at the eighth."""
    if not engine.compiled(world.device):
        return nullcontext()
    from torch._dynamo import config  # takes a second to import

    patch: AbstractContextManager[None] = config.patch(automatic_dynamic_shapes=False, recompile_limit=VARIANTS)
    return patch


def for_cuda(network: nn.Module, world: World) -> nn.Module:
    """Convolutions with channels last (sharding takes contiguous weights only); with several processes BatchNorm over all of them."""
    if world.size > 1:
        return nn.SyncBatchNorm.convert_sync_batchnorm(network)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def image_optimizer(config: EngineConfig, model: nn.Module) -> torch.optim.Optimizer:
    """AdamW. Beside what `param_groups` leaves alone it does not decay vectors that have axes of length 1 (LayerScale) and tables of biases."""
    spared = {
        id(p) for name, p in model.named_parameters() if name.endswith("bias_table") or sum(n > 1 for n in p.shape) < 2
    }
    groups: list[dict[str, Any]] = []
    for group in param_groups(model, config.weight_decay):
        alone = [p for p in group["params"] if id(p) in spared and "manifold" not in group]
        decayed = [p for p in group["params"] if not (id(p) in spared and "manifold" not in group)]
        groups += [{**group, "params": decayed}] * bool(decayed) + [
            {**group, "params": alone, "weight_decay": 0.0}
        ] * bool(alone)
    return RiemannianAdam(groups, lr=config.lr, betas=config.betas, decoupled_weight_decay=True)


@dataclass(frozen=True, eq=False)
class TrainedImages:
    """A classifier of a run, on the CPU and in eval mode, and what it was trained for."""

    network: nn.Module  # of `normalise`d pictures
    classes: list[str]
    tree: ClassTree | None
    size: int
    augmentation: Augmentation  # its still_box is what the network sees of a picture


def load_images(run: str | Path) -> TrainedImages:
    """The classifier of a run. Of a run under way, or stopped, the last checkpoint's."""
    folder = Path(run)
    about = _about(folder)
    classes, tree = _read_classes(folder / CLASSES)
    if (folder / WEIGHTS).is_file():
        network = _empty(about)
        load_weights(network, folder / WEIGHTS)
    else:
        network = _from_checkpoint(last_checkpoint(folder), about)
    return TrainedImages(network.eval(), classes, tree, about["size"], Augmentation(**about["augmentation"]))


def _about(folder: Path) -> dict[str, Any]:
    return read_run(folder, "a model of pictures", {"model", "size", "ema", "classes", "augmentation"})


def _empty(about: dict[str, Any]) -> nn.Module:
    tree = about.get("tree")
    return image_model(
        about["model"],
        about["classes"],
        about["size"],
        about["config"],
        None if tree is None else HiMapperConfig(**tree),
    )


def _from_checkpoint(path: Path, about: dict[str, Any]) -> nn.Module:
    model = ImageClassifier(_empty(about), about["ema"]).eval()
    checkpoint.restore(path, model, World())
    return model.answering


def export_weights(folder: Path, trained: Callable[[], nn.Module]) -> None:
    """The weights to use, beside the checkpoints; a run that had ended keeps its own."""
    from safetensors.torch import save

    if not (folder / WEIGHTS).is_file():
        state = trained().state_dict()
        write_whole(folder / WEIGHTS, save({name: t.contiguous() for name, t in state.items()}))


def load_weights(network: nn.Module, file: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        network.load_state_dict(load_file(file))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise UserError(
            f"{file}: damaged or foreign weights ({' '.join(str(error).split())[:160]}); delete it to use the last checkpoint"
        ) from error


def _classes(data: ImageData) -> bytes:
    tree = None if data.tree is None else data.tree.parents.tolist()
    return json.dumps({"classes": data.classes, "parents": tree}).encode()


def _read_classes(file: Path) -> tuple[list[str], ClassTree | None]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        classes, parents = [str(name) for name in found["classes"]], found["parents"]
        return classes, None if parents is None else ClassTree(np.array(parents), len(classes))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{file}: a damaged file ({' '.join(str(error).split())}); train the model again") from error
