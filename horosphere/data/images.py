"""Pictures and their classes in a fixed order, and what a training does to them.

Whatever is random in a batch is drawn on the CPU from (seed, step), for all rows of the global batch: which pictures, crops and mixtures a step
sees depends neither on the device nor on how many processes share the batch.
"""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from horosphere.errors import UserError
from horosphere.measure.hierarchy import ClassTree

if TYPE_CHECKING:
    from PIL.Image import Image

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".ppm")
COLOURS = ("1", "L", "P", "RGB", "CMYK", "YCbCr")  # modes of Pillow that are RGB without loss, or grey
VALID = ("val", "valid", "validation", "test")  # folders beside "train", and splits of datasets, that hold what is held out
HELD_OUT = 10  # where nothing is held out, every tenth picture of a class is
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as every pretrained network expects
# the argument that chooses a part: what trains, what is held out. Not CIFAR, whose files torchvision unpickles: hf:uoft-cs/cifar100 has them
TORCHVISION: dict[str, tuple[str, object, object]] = {
    **dict.fromkeys(("MNIST", "FashionMNIST"), ("train", True, False)),
    **dict.fromkeys(("SVHN", "STL10", "Food101", "Flowers102", "DTD"), ("split", "train", "test")),
    **dict.fromkeys(("OxfordIIITPet", "FGVCAircraft"), ("split", "trainval", "test")),
    "ImageNet": ("split", "train", "val"),
}
RESIDENT = 8 * 10**9  # bytes of pixels that may live on the accelerator whole

Later = Callable[[], Tensor]
Box = tuple[float, float, float, float]  # top, left, height, width in pixels; it may reach beyond the picture, where all is black
Crop = Callable[[int, int, Sequence[float]], Box]  # of a picture's height, width, and four numbers from 0 to 1


def on_device(t: Tensor, device: torch.device) -> Tensor:
    """Without waiting for the accelerator."""
    pinned = t.pin_memory() if device.type == "cuda" and t.device.type == "cpu" else t
    return pinned.to(device, non_blocking=True)


# -- pixels -----------------------------------------------------------------------------------------------------------


class Pictures(Protocol):
    """Pixels by number."""

    def __len__(self) -> int: ...

    def crops(self, numbers: np.ndarray, crop: Crop, draws: np.ndarray, size: int) -> Later:
        """A box of each picture, resized to size x size. Work may begin now; the call of what is returned waits for it.

        (B,), (B, 4) -> (B, 3, size, size) uint8
        """


class ArrayPictures:
    """Pictures of one size in memory, or on the accelerator.   (N, 1 or 3, H, W) uint8"""

    def __init__(self, pixels: Tensor):
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def to(self, device: torch.device) -> ArrayPictures:
        """On the device if they fit there."""
        return ArrayPictures(self.pixels.to(device)) if self.pixels.numel() <= RESIDENT else self

    def crops(self, numbers: np.ndarray, crop: Crop, draws: np.ndarray, size: int) -> Later:
        height, width = self.pixels.shape[-2:]
        boxes = torch.tensor([crop(height, width, u) for u in draws.tolist()])
        return lambda: resample(self.pixels[on_device(torch.from_numpy(numbers), self.pixels.device)], boxes, size).expand(-1, 3, -1, -1)


class LazyPictures:
    """Pictures that are read and decoded when they are asked for, by as many threads as there are cores."""

    def __init__(self, count: int, read: Callable[[int], Image], name: Callable[[int], str]):
        try:
            import PIL  # noqa: F401
        except ImportError:
            raise UserError("pictures that are files need the package Pillow: pip install pillow") from None
        self.count, self.read, self.name = count, read, name

    def __len__(self) -> int:
        return self.count

    @cached_property
    def threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="pictures")

    def crops(self, numbers: np.ndarray, crop: Crop, draws: np.ndarray, size: int) -> Later:
        work = [self.threads.submit(self._crop, number, crop, u, size) for number, u in zip(numbers.tolist(), draws.tolist(), strict=True)]
        return lambda: torch.from_numpy(np.stack([part.result() for part in work])).permute(0, 3, 1, 2)

    def _crop(self, number: int, crop: Crop, draws: Sequence[float], size: int) -> np.ndarray:
        from PIL import Image

        try:
            picture = self.read(number)
            if picture.mode not in COLOURS or picture.has_transparency_data:
                kind = f"{picture.mode}{', transparent' * picture.has_transparency_data}"
                raise UserError(f"{self.name(number)}: {len(picture.getbands())} channels ({kind}) instead of RGB or grey; save it as RGB")
            picture = picture.convert("RGB")
        except UserError:
            raise
        except Exception as error:  # what decoders raise for a broken file is anyone's guess
            raise UserError(f"{self.name(number)}: no readable picture ({_line(error)}); repair or remove it") from error
        top, left, height, width = crop(picture.height, picture.width, draws)
        top, left, bottom, right = round(top), round(left), round(top + height), round(left + width)
        part = picture.crop((left, top, max(right, left + 1), max(bottom, top + 1)))
        return np.asarray(part.resize((size, size), Image.Resampling.BICUBIC))


def resample(pixels: Tensor, boxes: Tensor, size: int) -> Tensor:
    """A box of each picture at size x size, bilinear; where it shrinks, several samples a pixel are averaged.   (B, C, H, W), (B, 4) -> uint8

    Sample j of n along a side lies at start + length·(j + 1/2)/n. A box of whole pixels at its own size keeps them exactly.
    """
    height, width = pixels.shape[-2:]
    if (size, size) == (height, width) and (boxes == torch.tensor([0.0, 0.0, height, width])).all():
        return pixels
    finer = max(1, math.ceil(float(boxes[:, 2:].max()) / size - 1e-6))
    at = (torch.arange(size * finer) + 0.5) / (size * finer)
    places = [2 * (boxes[:, i, None] + boxes[:, i + 2, None] * at) / side - 1 for i, side in ((0, height), (1, width))]  # from -1 to 1
    y, x = (on_device(place.float(), pixels.device) for place in places)
    grid = torch.stack([x[:, None, :].expand(-1, y.shape[1], -1), y[:, :, None].expand(-1, -1, x.shape[1])], -1)
    inside = (y.abs() <= 1)[:, None, :, None] & (x.abs() <= 1)[:, None, None, :]  # beyond, all is black; up to there no edge may darken
    found = F.grid_sample(pixels.float(), grid, padding_mode="border", align_corners=False) * inside
    return F.avg_pool2d(found, finer).round().clamp(0, 255).to(torch.uint8)


# -- boxes ------------------------------------------------------------------------------------------------------------


def whole_box(share: float, height: int, width: int, draws: Sequence[float]) -> Box:
    """The square in the middle whose side is a share of the shorter side."""
    side = share * min(height, width)
    return (height - side) / 2, (width - side) / 2, side, side


def shifted_box(height: int, width: int, draws: Sequence[float]) -> Box:
    """The largest square, moved by at most an eighth of its side each way in whole pixels: pad and crop."""
    top, left, side, _ = whole_box(1.0, height, width, draws)
    room = side // 8
    return top - room + int(draws[0] * (2 * room + 1)), left - room + int(draws[1] * (2 * room + 1)), side, side


def random_box(height: int, width: int, draws: Sequence[float]) -> Box:
    """8 to 100 % of the area, from 3:4 to 4:3, no side longer than the picture's: the crop of Inception, without its retries."""
    area = height * width * (0.08 + 0.92 * draws[0])
    ratio = math.exp((2 * draws[1] - 1) * math.log(4 / 3))
    high, wide = min(height, math.sqrt(area / ratio)), min(width, math.sqrt(area * ratio))
    return (height - high) * draws[2], (width - wide) * draws[3], high, wide


# -- sets -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ImageSet:
    pictures: Pictures
    numbers: np.ndarray  # (N,) of the pictures that belong to this set
    labels: np.ndarray  # (N,) int64

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class ImageData:
    train: ImageSet
    valid: ImageSet
    classes: list[str]
    tree: ClassTree | None

    def to(self, device: torch.device) -> ImageData:
        """With pictures that are in memory moved to the device where they fit."""
        moved: dict[int, Pictures] = {}
        for part in (self.train, self.valid):
            if id(part.pictures) not in moved:
                moved[id(part.pictures)] = part.pictures.to(device) if isinstance(part.pictures, ArrayPictures) else part.pictures
        train, valid = (ImageSet(moved[id(part.pictures)], part.numbers, part.labels) for part in (self.train, self.valid))
        return ImageData(train, valid, self.classes, self.tree)


def open_images(source: str, valid: str | None = None, download: bool = False) -> ImageData:
    """Pictures to train on and pictures held out.

    "torchvision:NAME[:FOLDER]": a set of torchvision, by default in ~/.cache/torchvision. "hf:NAME[:CONFIG[:SPLIT]]": a Hugging Face dataset.
    A .npz of arrays train_images (N, H, W[, 3]) uint8, train_labels (N,), test_images, test_labels (or x_train, y_train, x_test, y_test), perhaps
    fine_names (K,) and coarse_of_fine (K,). Else a folder of class folders, which may lie in groups (dog/terrier/…: groups make a tree), perhaps
    below train/ and val/. valid: a source of its own; otherwise what the source holds out, or every tenth picture of each class.
    """
    found = _open(source, download)
    held = found.valid
    if valid is not None:
        other = _open(valid, download)
        if other.classes != found.classes:
            missing = sorted(set(found.classes) ^ set(other.classes))
            raise UserError(f"{valid}: other classes than {source} ({', '.join(missing[:3]) or 'another order'}); give it the same ones")
        held = other.train if other.valid is None else other.valid
    train, held = (found.train, held) if held is not None else _hold_out(found.train, source)
    for part, what in ((train, "to train on"), (held, "held out")):
        if not len(part):
            raise UserError(f"{source}: no pictures {what}; give some, or another source with valid=…")
    return ImageData(train, held, found.classes, found.tree)


@dataclass
class _Found:
    train: ImageSet
    valid: ImageSet | None
    classes: list[str]
    tree: ClassTree | None = None


def _open(source: str, download: bool) -> _Found:
    if source.startswith("hf:"):
        return _hugging_face(source)
    if source.startswith("torchvision:"):
        return _torchvision(source, download)
    path = Path(source)
    if not path.exists():
        raise UserError(f'{source}: no such file or folder. Check the path; other sources are "torchvision:STL10" and "hf:uoft-cs/cifar100".')
    if path.is_dir():
        return _folders(path)
    if path.suffix != ".npz":
        raise UserError(f"{source}: pictures come from a folder of class folders or from a .npz, not from {path.suffix or 'such a file'}")
    return _arrays(path)


def _hold_out(found: ImageSet, source: str) -> tuple[ImageSet, ImageSet]:
    """Every HELD_OUT-th picture of each class, counted from 1, apart from the rest."""
    order = np.argsort(found.labels, kind="stable")
    labels = found.labels[order]
    place = np.arange(len(order)) - np.searchsorted(labels, labels)
    held = np.empty(len(order), dtype=bool)
    held[order] = (place + 1) % HELD_OUT == 0
    if not held.any():
        raise UserError(f"{source}: no class has {HELD_OUT} pictures, so none can be held out; name a source for that with valid=…")
    train, valid = (ImageSet(found.pictures, found.numbers[mask], found.labels[mask]) for mask in (~held, held))
    return train, valid


# -- folders ----------------------------------------------------------------------------------------------------------


def _folders(path: Path) -> _Found:
    valid = next((path / name for name in VALID if (path / name).is_dir()), None) if (path / "train").is_dir() else None
    if valid is None:
        train, classes = _class_folders(path / "train" if (path / "train").is_dir() else path)
        return _Found(train, None, classes, _tree_of(classes))
    (train, classes), (held, others) = _class_folders(path / "train"), _class_folders(valid)
    if classes != others:
        raise UserError(f"{valid}: other classes than in train ({', '.join(sorted(set(classes) ^ set(others))[:3])}); give both the same folders")
    return _Found(train, held, classes, _tree_of(classes))


def _class_folders(root: Path) -> tuple[ImageSet, list[str]]:
    """Every folder without folders is a class, called by its path below the root; its pictures in the order of their names."""
    files: list[Path] = []
    labels: list[int] = []
    classes: list[str] = []
    for folder, inside, names in sorted((Path(folder), inside, names) for folder, inside, names in os.walk(root, followlinks=True)):
        name = folder.relative_to(root).as_posix()
        shown = [part for part in inside if not part.startswith(".")]
        if any(part.startswith(".") for part in folder.relative_to(root).parts):
            continue
        pictures = sorted(n for n in names if n.lower().endswith(EXTENSIONS) and not n.startswith("."))
        if shown and pictures:
            raise UserError(f"{folder}: pictures ({pictures[0]}) beside folders ({min(shown)}); put them into a folder of their class")
        if not shown and not pictures:
            where = f"{folder}: a class folder without pictures" if folder != root else f"{root}: no class folders"
            raise UserError(f"{where} ({' '.join(EXTENSIONS)}); put some there, or remove it")
        if pictures and folder == root:
            raise UserError(f"{root}: pictures without a class folder around them; put each into a folder named after its class")
        if pictures:
            files += [folder / n for n in pictures]
            labels += [len(classes)] * len(pictures)
            classes.append(name)
    return ImageSet(LazyPictures(len(files), partial(_read, files), lambda i: str(files[i])), np.arange(len(files)), np.array(labels)), classes


def _read(files: list[Path], number: int) -> Image:
    from PIL import Image

    picture = Image.open(files[number])
    picture.load()
    return picture


def _tree_of(classes: Sequence[str]) -> ClassTree | None:
    """Of classes called group/…/class; None where no class has a group."""
    inner = sorted({"/".join(parts[:i]) for name in classes for parts in [name.split("/")] for i in range(1, len(parts))})
    if not inner:
        return None
    at = {name: i for i, name in enumerate([*classes, *inner, ""])}
    return ClassTree(np.array([*(at[name.rpartition("/")[0]] for name in (*classes, *inner)), -1]), len(classes))


# -- arrays -----------------------------------------------------------------------------------------------------------


def _arrays(path: Path) -> _Found:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path}: no readable .npz ({_line(error)}); make or download it again") from error
    parts = {}
    for part, names in (("train", ("train_images", "x_train")), ("test", ("test_images", "x_test"))):
        found = next((name for name in names if name in arrays), None)
        if found is None:
            continue
        labels = f"{part}_labels" if found.startswith(part) else f"y_{part}"
        if labels not in arrays:
            raise UserError(f"{path}: there is {found} but no {labels}; there are {', '.join(arrays)}")
        parts[part] = _array_set(arrays[found], arrays[labels], f"{path}, {found}")
    if "train" not in parts:
        raise UserError(f"{path}: neither train_images nor x_train; there are {', '.join(arrays) or 'no arrays'}")
    count = 1 + max(int(part.labels.max(initial=-1)) for part in parts.values())
    names = arrays.get("fine_names", np.arange(count))
    if names.shape != (len(names),) or len(names) < count:
        raise UserError(f"{path}: {len(names)} fine_names for classes 0 to {count - 1}; give a name for each")
    groups = arrays.get("coarse_of_fine")
    if groups is not None and groups.shape != names.shape:
        raise UserError(f"{path}: coarse_of_fine has shape {groups.shape} for {len(names)} classes; give the group of each")
    return _Found(parts["train"], parts.get("test"), [str(name) for name in names], None if groups is None else ClassTree.of_groups(groups))


def _array_set(images: np.ndarray, labels: np.ndarray, where: str) -> ImageSet:
    """Images (N, H, W), (N, H, W, 1) or (N, H, W, 3) uint8, labels (N,) or (N, 1)."""
    images = images[..., None] if images.ndim == 3 else images
    if images.ndim != 4 or images.dtype != np.uint8:
        raise UserError(f"{where}: {images.dtype} of shape {images.shape}; pictures are uint8 of shape (N, height, width, 3)")
    if images.shape[-1] not in (1, 3):
        raise UserError(f"{where}: {images.shape[-1]} channels, shape {images.shape}; pictures have 3, in the last place, or 1")
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.shape != images.shape[:1] or not np.issubdtype(labels.dtype, np.integer) or labels.min(initial=0) < 0:
        raise UserError(f"{where}: labels of shape {labels.shape} and type {labels.dtype} for {len(images)} pictures; give each a number from 0")
    pixels = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
    return ImageSet(ArrayPictures(pixels), np.arange(len(labels)), labels.astype(np.int64))


# -- sets by name -----------------------------------------------------------------------------------------------------


def require_torchvision() -> None:
    try:
        import torchvision  # type: ignore[import-untyped, import-not-found, unused-ignore]  # noqa: F401
    except ImportError:
        raise UserError("pictures need the package torchvision: pip install torchvision") from None


def _torchvision(source: str, download: bool) -> _Found:
    name, folder = [*source.split(":", 2)[1:], ""][:2]
    known = {other.lower(): other for other in TORCHVISION}
    if name.lower() not in known:
        raise UserError(f"{source}: no set {name or '(none)'}; choose from {', '.join(TORCHVISION)}, also as torchvision:NAME:FOLDER")
    require_torchvision()
    from torchvision import datasets  # type: ignore[import-untyped, import-not-found, unused-ignore]

    name, root = known[name.lower()], Path(folder or "~/.cache/torchvision").expanduser()
    key, *values = TORCHVISION[name]
    fetch = {} if name == "ImageNet" else {"download": download}  # which nobody may pass on
    try:
        train, valid = (getattr(datasets, name)(str(root), **{key: value}, **fetch) for value in values)
    except Exception as error:  # each set complains in its own way about files that are not there
        how = "put its files there" if not fetch else "pass download=true to fetch it, or name its folder"
        raise UserError(f"{source}: cannot be opened in {root} ({_line(error)}); {how}") from error
    sets = [_torchvision_set(part, source) for part in (train, valid)]
    classes = getattr(train, "classes", range(1 + int(sets[0].labels.max())))
    return _Found(sets[0], sets[1], [str(c[0] if isinstance(c, tuple) else c) for c in classes])


def _torchvision_set(rows: Any, where: str) -> ImageSet:
    labels = np.asarray(next(getattr(rows, name) for name in ("targets", "labels", "_labels") if hasattr(rows, name))).astype(np.int64)
    pixels = np.asarray(rows.data) if hasattr(rows, "data") else None
    if pixels is None:
        return ImageSet(LazyPictures(len(labels), lambda i: rows[i][0], lambda i: f"{where}, picture {i}"), np.arange(len(labels)), labels)
    return _array_set(pixels.transpose(0, 2, 3, 1) if pixels.ndim == 4 and pixels.shape[1] == 3 else pixels, labels, where)


def _hugging_face(source: str) -> _Found:
    try:
        from datasets import ClassLabel, Image, load_dataset
    except ImportError:
        raise UserError(f"{source} needs the package datasets: pip install 'horosphere[language]'") from None
    name, config, split, *more = [*source.split(":")[1:], "", ""]
    if not name or any(more):
        raise UserError(f"{source}: no name of a dataset. Write hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT.")
    try:
        found = load_dataset(name, config or None)
    except Exception as error:  # the library raises whatever it runs into: names, connections, files
        raise UserError(f"{source}: cannot be read ({_line(error)}). Check the name and the connection.") from error
    split = split or "train"
    if split not in found:
        raise UserError(f"{source}: no split {split}; there are {', '.join(found)}")
    features = found[split].features
    images = [key for key, kind in features.items() if isinstance(kind, Image)]
    labels = [key for key, kind in features.items() if isinstance(kind, ClassLabel)]
    if not images or not labels:
        raise UserError(f"{source}: a dataset of pictures has a column of images and one of class labels; this has {', '.join(features)}")
    label = "label" if "label" in labels else labels[0]

    def part(rows: Any) -> ImageSet:
        return ImageSet(
            LazyPictures(len(rows), lambda i: rows[i][images[0]], lambda i: f"{source}, row {i}"), np.arange(len(rows)), np.asarray(rows[label])
        )

    held = next((key for key in VALID if key in found and key != split), None)
    return _Found(part(found[split]), None if held is None else part(found[held]), list(features[label].names))


# -- what a training does to pictures ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Augmentation:
    """As in the papers of each; 0 and false are off."""

    crop: Literal["random", "shift", "none"] = "random"  # random: 8 to 100 % of the area, for photographs; shift: by an eighth, for small pictures
    flip: bool = True  # left and right
    randaugment: float = 9.0  # strength of two operations in tenths, as its paper and timm count (torchvision: in thirtieths)
    mixup: float = 0.8  # α of Beta(α, α); where cutmix is on as well, each takes half of the pairs
    cutmix: float = 1.0
    erase: float = 0.25  # share of the pictures with a rectangle erased
    smoothing: float = 0.1  # share of a label spread over all classes

    def check(self) -> None:
        for name, most in (("randaugment", 10.0), ("mixup", math.inf), ("cutmix", math.inf), ("erase", 1.0), ("smoothing", 1.0)):
            if not 0 <= getattr(self, name) <= most:
                raise UserError(f"{name}={getattr(self, name):g}: it goes from 0 to {most:g}")

    @property
    def mixes(self) -> bool:
        return self.mixup > 0 or self.cutmix > 0

    @property
    def box(self) -> Crop:
        boxes: dict[str, Crop] = {"random": random_box, "shift": shifted_box, "none": partial(whole_box, 1.0)}
        return boxes[self.crop]

    @property
    def still_box(self) -> Crop:
        """Where nothing is random: the middle, a little less than all of it where training sees parts."""
        return partial(whole_box, 0.875 if self.crop == "random" else 1.0)


@dataclass(frozen=True, eq=False)
class Draws:
    """What is random in a batch of B rows, as numbers from 0 to 1, and for mixup as shares; rows 2i and 2i + 1 are a pair."""

    crop: np.ndarray  # (B, 4)
    flip: np.ndarray  # (B,)
    operations: np.ndarray  # (B, 2, 2): which, and in which direction
    erase: np.ndarray  # (B, 5): whether, and where
    mix: np.ndarray  # (B, 3): which kind, and where; the same in a pair
    share: np.ndarray  # (B, 2): of the row itself in mixup and in cutmix; the same in a pair

    @staticmethod
    def of(seed: int, step: int, rows: int, augmentation: Augmentation) -> Draws:
        random = np.random.default_rng((seed, step, 1))
        pairs = -(-rows // 2)
        crop, flip, operations, erase = (random.random((rows, *shape)) for shape in ((4,), (), (2, 2), (5,)))
        shares = np.stack([random.beta(a, a, pairs) if a > 0 else np.ones(pairs) for a in (augmentation.mixup, augmentation.cutmix)], 1)
        mix, share = (values.repeat(2, 0)[:rows] for values in (random.random((pairs, 3)), shares))
        return Draws(crop, flip, operations, erase, mix, share)

    def __getitem__(self, rows: slice) -> Draws:
        return Draws(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def shuffled(count: int, first: int, last: int, seed: int) -> np.ndarray:
    """Numbers first … last - 1 of an endless stream that goes through 0 … count - 1 in a new order each time.   -> (last - first,)"""
    found = []
    while first < last:
        epoch, place = divmod(first, count)
        found.append(_order(count, epoch, seed)[place : place + last - first])
        first += len(found[-1])
    return np.concatenate(found)


@lru_cache(2)  # a batch lies in two epochs at most, unless it is larger than one
def _order(count: int, epoch: int, seed: int) -> np.ndarray:
    return np.random.default_rng((seed, epoch)).permutation(count)


def augment(images: Tensor, labels: np.ndarray, classes: int, draws: Draws, how: Augmentation) -> tuple[Tensor, Tensor]:
    """Pictures as a training sees them, and the shares of the classes in each.   (B, 3, H, W) uint8, (B,) -> (B, 3, H, W) float32, (B, K)"""
    device = images.device
    if how.flip:
        images = torch.where(on_device(torch.from_numpy(draws.flip < 0.5), device)[:, None, None, None], images.flip(-1), images)
    if how.randaugment:
        images = rand_augment(images, draws.operations, how.randaugment)
    x = normalise(images)
    if how.erase:
        x = x.masked_fill(_rectangles(_erased(draws.erase, how.erase, *x.shape[-2:]), x), 0.0)  # 0 is the mean colour
    targets = torch.full((len(labels), classes), how.smoothing / classes, device=device)
    targets.scatter_add_(1, on_device(torch.from_numpy(labels)[:, None], device), targets.new_full((len(labels), 1), 1 - how.smoothing))
    return mix(x, targets, draws, how) if how.mixes else (x, targets)


def normalise(images: Tensor) -> Tensor:
    """(x/255 - mean)/std by channel.   (B, 3, H, W) uint8 -> float32"""
    mean, std = (on_device(torch.tensor(values), images.device).view(3, 1, 1) for values in (MEAN, STD))
    return (images.float() / 255 - mean) / std


def mix(x: Tensor, targets: Tensor, draws: Draws, how: Augmentation) -> tuple[Tensor, Tensor]:
    """w x + (1 - w) x', rows in pairs: w is a constant for mixup, 0 in a rectangle and 1 around it for cutmix.   (B, 3, H, W), (B, K)"""
    height, width = x.shape[-2:]
    cut = draws.mix[:, 0] < (0.5 if how.mixup and how.cutmix else float(how.cutmix > 0))
    side = np.sqrt(1 - draws.share[:, 1])
    centre = draws.mix[:, 1:] * (height, width)
    edges = [(c + sign * side * s / 2).round().clip(0, s) for sign in (-1, 1) for c, s in ((centre[:, 0], height), (centre[:, 1], width))]
    boxes = np.stack(edges, 1) * cut[:, None]
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / (height * width)
    share = np.where(cut, 1 - area, draws.share[:, 0])
    inside = _rectangles(boxes, x)
    w = on_device(torch.from_numpy(np.where(cut, 1.0, share)).float(), x.device)[:, None, None, None] * ~inside
    s = on_device(torch.from_numpy(share).float(), x.device)[:, None]
    return w * x + (1 - w) * _partner(x), s * targets + (1 - s) * _partner(targets)


def _partner(t: Tensor) -> Tensor:
    return t.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)


def _erased(draws: np.ndarray, chance: float, height: int, width: int) -> np.ndarray:
    """2 to 33 % of the area, from 3:10 to 10:3, as top, left, bottom, right; empty where nothing is erased.   (B, 5) -> (B, 4)"""
    area = height * width * (0.02 + 0.31 * draws[:, 1])
    ratio = np.exp((2 * draws[:, 2] - 1) * math.log(10 / 3))
    high, wide = np.minimum(height, np.sqrt(area * ratio)).round(), np.minimum(width, np.sqrt(area / ratio)).round()
    top, left = np.floor((height - high + 1) * draws[:, 3]), np.floor((width - wide + 1) * draws[:, 4])
    return np.stack([top, left, top + high, left + wide], 1) * (draws[:, :1] < chance)


def _rectangles(boxes: np.ndarray, x: Tensor) -> Tensor:
    """Which pixels lie in the boxes (top, left, bottom, right).   (B, 4), (B, C, H, W) -> (B, 1, H, W) bool"""
    top, left, bottom, right = on_device(torch.from_numpy(boxes).float(), x.device).T[:, :, None, None, None]
    y, z = (torch.arange(n, device=x.device) for n in x.shape[-2:])
    return ((y >= top) & (y < bottom)).transpose(-1, -2) & ((z >= left) & (z < right))


def rand_augment(images: Tensor, draws: np.ndarray, strength: float) -> Tensor:
    """Two of RandAugment's operations on each picture, by torchvision, at `strength` tenths of their ranges.   (B, 3, H, W) uint8, (B, 2, 2)

    Pictures that share an operation go through it together: they are sorted by it, and back.
    """
    operations = _operations(strength / 10, *images.shape[-2:])
    for layer in range(draws.shape[1]):
        kind = (draws[:, layer, 0] * len(operations)).astype(np.int64) * 2 + (draws[:, layer, 1] < 0.5)
        order = np.argsort(kind, kind="stable")
        there, back = (on_device(torch.from_numpy(index), images.device) for index in (order, np.argsort(order)))
        kinds, counts = np.unique(kind, return_counts=True)
        parts = images[there].split(counts.tolist())
        images = torch.cat([operations[k // 2](part, 1 - 2 * int(k % 2)) for k, part in zip(kinds.tolist(), parts, strict=True)])[back]
    return images


def _operations(m: float, height: int, width: int) -> list[Callable[[Tensor, int], Tensor]]:
    """RandAugment's operations at a share m of their ranges; the second argument is a sign."""
    require_torchvision()
    from torchvision.transforms.v2 import InterpolationMode  # type: ignore[import-untyped, import-not-found, unused-ignore]
    from torchvision.transforms.v2 import functional as T

    look: dict[str, Any] = {"interpolation": InterpolationMode.BILINEAR, "fill": [round(255 * c) for c in MEAN]}

    def moved(x: Tensor, shift: tuple[float, float] = (0, 0), lean: tuple[float, float] = (0, 0), **more: Any) -> Tensor:
        angles = [math.degrees(math.atan(a)) for a in lean]
        return T.affine(x, angle=0.0, translate=[int(s) for s in shift], scale=1.0, shear=angles, **look, **more)

    far = 150 / 331 * m
    return [
        lambda x, sign: x,
        lambda x, sign: moved(x, lean=(sign * 0.3 * m, 0), center=[0, 0]),
        lambda x, sign: moved(x, lean=(0, sign * 0.3 * m), center=[0, 0]),
        lambda x, sign: moved(x, shift=(sign * far * width, 0)),
        lambda x, sign: moved(x, shift=(0, sign * far * height)),
        lambda x, sign: T.rotate(x, sign * 30.0 * m, **look),
        lambda x, sign: T.adjust_brightness(x, 1 + sign * 0.9 * m),
        lambda x, sign: T.adjust_saturation(x, 1 + sign * 0.9 * m),
        lambda x, sign: T.adjust_contrast(x, 1 + sign * 0.9 * m),
        lambda x, sign: T.adjust_sharpness(x, 1 + sign * 0.9 * m),
        lambda x, sign: T.posterize(x, 8 - round(4 * m)),
        lambda x, sign: T.solarize(x, 255 * (1 - m)),
        lambda x, sign: T.autocontrast(x),
        lambda x, sign: T.equalize(x),
    ]


# -- small things -----------------------------------------------------------------------------------------------------


def _line(text: object) -> str:
    return " ".join(str(text).split())[:120]
