"""Pictures with a class for every pixel, or with a mask for every object.

They come from folders of pictures beside folders of masks, or from COCO's files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from horosphere.data.builtin import BUILTIN
from horosphere.data.images import COLOURS, HELD_OUT, INSTEAD, VALID
from horosphere.data.run_lengths import mask_of_runs, numbers_of
from horosphere.errors import UserError, choices, one_line
from horosphere.foreign import EXTENSIONS, LARGE, Unreadable, open_picture, printable, read_json, read_text, shown

if TYPE_CHECKING:
    from PIL.Image import Image

SCENES = f"{BUILTIN}scenes"  # pictures that horosphere.data.scenes makes
IGNORED = -1  # class of the pixels that count for nothing
TRAIN = ("train", "training")
HELD = (*VALID, "testing")
PICTURES, MASKS = ("images", "PNGImages"), ("masks", "annotations", "labels", "PedMasks")  # names of folders
BESIDE, SUFFIX = "annot", "_mask"  # CamVid's trainannot beside train; Penn-Fudan's X_mask.png for X.png
NAMES = "classes.txt"  # one class a line, in the order of their numbers
# where the COCO file of a part lies in a folder
COCO = ("annotations/instances_{}*.json", "annotations/{}*.json", "{}.json", "{}/_annotations.coco.json")
CLASSES = 2**15 - 1  # of pixels, at most: their numbers are kept in 16 bits
AT_ONCE = 4 * 10**9  # pixels of all masks of a picture together, a byte each
FARTHEST = 4  # sides of its picture that a polygon may reach beyond it
OUTLINE = 10**6  # pixels along the polygons of an object: COCO's library takes a hundred bytes for each

T = TypeVar("T")
R = TypeVar("R")
Pairs = list[tuple[Path, Path]]  # pictures and their masks


@dataclass(frozen=True, eq=False)
class Instances:
    """N objects in a picture of H x W pixels.

    >>> mask = np.array([[[False, True, True], [False, True, False]]])
    >>> Instances(mask, labels=np.array([1]), crowd=np.array([False])).boxes
    array([[1., 0., 3., 2.]], dtype=float32)
    """

    masks: np.ndarray  # (N, H, W) bool, none empty
    labels: np.ndarray  # (N,) int64 from 1
    crowd: np.ndarray  # (N,) bool: a heap of objects, not to be found one by one

    @property
    def boxes(self) -> np.ndarray:
        """left, top, right, bottom; right and bottom are the first column and row beyond.   -> (N, 4) float32"""
        boxes = np.zeros((len(self.masks), 4), dtype=np.float32)
        for box, mask in zip(boxes, self.masks, strict=True):
            rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
            box[:] = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
        return boxes


class DenseSet(Generic[T]):
    """Pictures by number, each with its target; read when they are asked for."""

    def __init__(self, files: Sequence[Path | str], read: Callable[[int], tuple[np.ndarray, T]]):
        """files: what each picture is known by. read(number): a picture (H, W, 3) uint8, and its target."""
        self.files, self.read = list(files), read

    @classmethod
    def of_files(cls, files: Sequence[Path], target: Callable[[int, tuple[int, int]], T]) -> DenseSet[T]:
        """Pictures in files. target(number, (height, width)): the target of a picture."""

        def read(number: int) -> tuple[np.ndarray, T]:
            picture = _rgb(files[number])
            return picture, target(number, (picture.shape[0], picture.shape[1]))

        return cls(files, read)

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="pictures")

    def later(
        self, numbers: Sequence[int] | np.ndarray, work: Callable[[np.ndarray, T, int], R]
    ) -> Callable[[], list[R]]:
        """Begin work(image, target, place in `numbers`) for each picture, on as many threads as there are cores.

        The function returned waits for the results.
        """
        tasks = [
            self.threads.submit(lambda i, n: work(*self.read(n), i), place, int(number))
            for place, number in enumerate(numbers)
        ]
        return lambda: [task.result() for task in tasks]

    def subset(self, numbers: Sequence[int] | np.ndarray) -> DenseSet[T]:
        chosen = [int(number) for number in numbers]
        return DenseSet([self.files[number] for number in chosen], lambda i: self.read(chosen[i]))


@dataclass(frozen=True, eq=False)
class DenseData(Generic[T]):
    """Pictures to train on and pictures held out, of the same classes."""

    train: DenseSet[T]
    valid: DenseSet[T]
    classes: list[str]


# -- a class for every pixel ------------------------------------------------------------------------------------------


def open_semantic(
    source: str,
    valid: str | None = None,
    ignore: int | None = 255,
    classes: int | None = None,
    names: Sequence[str] | None = None,
) -> DenseData[np.ndarray]:
    """Pictures whose targets are (H, W) int16: the class of each pixel, IGNORED where the mask has the number `ignore`.

    source: a folder, in one of three layouts. CamVid's: train/, trainannot/, val/, valannot/. Or images/ and masks/
    (or annotations/, labels/), each with train/ and val/ or neither. Or train/ and val/, each with images/ and masks/.
    A mask has its picture's name, one channel, and a class's number at each pixel.
    valid: a folder of its own. None: the held-out part of the source, or every tenth picture.
    classes: how many. None: the lines of classes.txt, or one more than the highest number in any mask (reads them all).
    names: of the classes, where there is no classes.txt.
    Or source is "builtin:scenes": digits on photographs, with 0 for the background and a class for each digit.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part in ("train", "trainannot", "val", "valannot"):
    ...         Path(folder, part).mkdir()
    ...         Image.new("L", (6, 4), color=1).save(f"{folder}/{part}/a.png")
    ...     data = open_semantic(folder)
    ...     data.classes, data.train.read(0)[1].shape
    (['0', '1'], (4, 6))
    """
    if _scenes_asked(source, valid):
        from horosphere.data.scenes import scenes_semantic

        data = scenes_semantic()
        if classes not in (None, len(data.classes)):
            raise UserError(f"classes={classes}, but {source} has {len(data.classes)}; leave classes=… away")
        return data
    root = Path(source)
    parts = [_pairs(root)] + ([] if valid is None else [_pairs(Path(valid))])
    names = _names(root) or (None if names is None else list(names))
    if classes is not None and names is not None and len(names) != classes:
        raise UserError(f"classes={classes}, but {len(names)} have names; make them agree")
    every = [pair for part in parts for pairs in part if pairs for pair in pairs]
    count = classes or (len(names) if names else _count(every, ignore))
    if count > CLASSES:
        how = "number them anew, or set ignore=… to a number that means nothing"
        raise UserError(f"{source}: {count:,} classes, but classes go from 0 to {CLASSES - 1} at most; {how}")
    if count < 1:
        raise UserError(f"{source}: no mask has a pixel that counts (all are {ignore}); set another ignore=…")
    sets = [[None if pairs is None else _semantic_set(pairs, ignore, count) for pairs in part] for part in parts]
    return _data(source, sets, names or [str(i) for i in range(count)])


def _semantic_set(pairs: Pairs, ignore: int | None, count: int) -> DenseSet[np.ndarray]:
    def target(number: int, shape: tuple[int, int]) -> np.ndarray:
        file = pairs[number][1]
        mask = _mask(file, shape)
        counts = mask != ignore if ignore is not None else np.ones(shape, dtype=bool)
        _require_from_0(file, mask[counts])
        if mask.max(initial=0, where=counts) >= count:
            wrong = int(mask.max(where=counts, initial=0))
            raise UserError(
                f"{file}: a pixel of class {wrong}, but classes go from 0 to {count - 1}; "
                f"give more classes, or set ignore={wrong}"
            )
        return np.where(counts, mask, IGNORED).astype(np.int16)

    return DenseSet.of_files([picture for picture, _ in pairs], target)


def _count(pairs: Pairs, ignore: int | None) -> int:
    """One more than the highest number in any mask, 0 where nothing counts."""

    def highest(pair: tuple[Path, Path]) -> int:
        numbers = np.unique(_mask(pair[1]))
        counted = numbers if ignore is None else numbers[numbers != ignore]
        _require_from_0(pair[1], counted)
        return int(counted.max(initial=-1))

    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        return 1 + max(threads.map(highest, pairs), default=-1)


def _mask(file: Path, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """The numbers in a mask.   -> (H, W) int32"""
    picture = _decoded(file, "mask")
    mask = np.asarray(picture)
    if mask.ndim != 2:
        raise UserError(
            f"{file}: {mask.shape[2]} channels ({picture.mode}); a mask has one, with a number at each pixel"
        )
    if mask.dtype.kind == "f":
        raise UserError(f"{file}: a mask of {mask.dtype}; numbers of classes are whole, save it as 8 or 16 bits")
    if shape is not None and mask.shape != shape:
        raise UserError(
            f"{file}: a mask of {mask.shape[1]} x {mask.shape[0]} pixels for a picture of {shape[1]} x {shape[0]}; "
            "give them one size"
        )
    return mask.astype(np.int32)


def _require_from_0(file: Path, numbers: np.ndarray) -> None:
    if numbers.min(initial=0) < 0:
        raise UserError(f"{file}: a pixel of class {numbers.min()}; number the classes from 0")


# -- a mask for every object ------------------------------------------------------------------------------------------


def open_instances(source: str, valid: str | None = None) -> DenseData[Instances]:
    """Pictures whose targets are the objects in them. Pictures without objects belong to the set as well.

    source: a folder as for `open_semantic`, whose masks have 0 for the background and another number for each object,
    all of one class (Penn-Fudan). Or a COCO file (.json) with its pictures beside it. Or a folder with
    annotations/instances_train….json, annotations/instances_val….json and their pictures. Or "builtin:scenes": digits
    on photographs.
    valid: a source of its own. None: the held-out part of the source, or every tenth picture.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part in ("train", "trainannot", "val", "valannot"):
    ...         Path(folder, part).mkdir()
    ...         Image.new("L", (6, 4), color=1).save(f"{folder}/{part}/a.png")
    ...     open_instances(folder).train.read(0)[1].boxes  # one object fills the picture
    array([[0., 0., 6., 4.]], dtype=float32)
    """
    if _scenes_asked(source, valid):
        from horosphere.data.scenes import scenes_instances

        return scenes_instances()
    parts = [_coco_parts(Path(source)), *([] if valid is None else [_coco_parts(Path(valid))])]
    if len({part is None for part in parts}) > 1:
        raise UserError(f"{source} and {valid}: one has COCO files and the other has none; give both in one form")
    if parts[0] is None:
        pairs = [_pairs(Path(source)), *([] if valid is None else [_pairs(Path(valid))])]
        sets = [[None if part is None else _numbered_set(part) for part in both] for both in pairs]
        return _data(source, sets, (_names(Path(source)) or ["object"])[:1])
    read = [[None if file is None else _coco_set(file) for file in part or (None, None)] for part in parts]
    classes = [names for part in read for _, names in filter(None, part)]
    if any(names != classes[0] for names in classes):
        raise UserError(
            f"{valid or source}: the files for training and for evaluation have different categories; "
            "give both the same"
        )
    return _data(source, [[None if both is None else both[0] for both in part] for part in read], classes[0])


def _numbered_set(pairs: Pairs) -> DenseSet[Instances]:
    def target(number: int, shape: tuple[int, int]) -> Instances:
        mask = _mask(pairs[number][1], shape)
        numbers = np.setdiff1d(mask, [0])
        _require_from_0(pairs[number][1], numbers)
        _require_room(pairs[number][1], len(numbers), shape)
        return Instances(
            mask == numbers[:, None, None], np.ones(len(numbers), dtype=np.int64), np.zeros(len(numbers), dtype=bool)
        )

    return DenseSet.of_files([picture for picture, _ in pairs], target)


def _require_room(file: Path, objects: int, shape: tuple[int, int]) -> None:
    if objects * shape[0] * shape[1] > AT_ONCE:
        what = f"{objects:,} objects in {shape[1]} x {shape[0]} pixels"
        raise UserError(f"{file}: {what} are more masks than memory holds; make the picture smaller, or leave it out")


def _coco_parts(path: Path) -> tuple[Path | None, Path | None] | None:
    """The COCO files to train on and held out. None for a folder without a file to train on."""
    if path.is_file():
        if path.suffix != ".json":
            raise UserError(f"{path}: pictures with objects come from a folder or from a COCO file (.json)")
        return path, None
    train, held = (
        next((f for name in part for form in COCO for f in sorted(path.glob(form.format(name)))), None)
        for part in (TRAIN, HELD)
    )
    return None if train is None else (train, held)


def _coco_set(file: Path) -> tuple[DenseSet[Instances], list[str]]:
    """The pictures of a COCO file, and the names of its categories in the order of their numbers."""
    masks = coco_masks()
    try:
        coco = read_json(file, dict, LARGE)
        categories = sorted((_whole(c, "id"), printable(_name(c, "name"))) for c in coco["categories"])
        images = sorted(
            (_file_name(i), _whole(i, "id"), _whole(i, "height"), _whole(i, "width")) for i in coco["images"]
        )
        label = {number: 1 + i for i, (number, _) in enumerate(categories)}
        objects: dict[int, list[dict[str, Any]]] = {number: [] for _, number, *_ in images}
        if len(label) < len(categories) or len(objects) < len(images):
            raise LookupError("two categories, or two images, of one id")
        for note in coco["annotations"]:
            objects[_whole(note, "image_id")].append(note)
            if _whole(note, "category_id") not in label:
                raise LookupError(f"category {note['category_id']}, which it does not list")
            if note.get("iscrowd", 0) not in (0, 1):
                raise ValueError(f"iscrowd is {shown(note['iscrowd'])}, and should be 0 or 1")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise UserError(
            f"{file}: no COCO file ({kind}{one_line(error)}); it has images, annotations and categories"
        ) from error
    if not images:
        raise UserError(f"{file}: no images in it")
    if not categories:
        raise UserError(f"{file}: no categories in it; list those of its objects, with an id and a name each")
    folder = _coco_pictures(file, images[0][0])

    def target(number: int, shape: tuple[int, int]) -> Instances:
        name, image, *size = images[number]
        if tuple(size) != shape:
            raise UserError(
                f"{folder / name}: {shape[1]} x {shape[0]} pixels, but {file.name} says {size[1]} x {size[0]}; "
                "give them one size"
            )
        _require_room(file, len(objects[image]), shape)
        drawn = [_drawn(note, shape, masks, file) for note in objects[image]]
        # some polygons hold no pixel
        kept = [(mask, note) for mask, note in zip(drawn, objects[image], strict=True) if mask.any()]
        return Instances(
            np.stack([mask for mask, _ in kept]) if kept else np.zeros((0, *shape), dtype=bool),
            np.array([label[note["category_id"]] for _, note in kept], dtype=np.int64),
            np.array([bool(note.get("iscrowd", 0)) for _, note in kept], dtype=bool),
        )

    return DenseSet.of_files([folder / name for name, *_ in images], target), [name for _, name in categories]


def _whole(note: dict[str, Any], key: str) -> int:
    if not isinstance(number := note[key], int) or isinstance(number, bool):
        raise ValueError(f"{key} is {shown(number)}, and should be a whole number")
    return number


def _name(note: dict[str, Any], key: str) -> str:
    if not isinstance(name := note[key], str) or not name or "\0" in name:
        raise ValueError(f"{key} is {shown(name)}, and should be a name")
    return name


def _file_name(image: dict[str, Any]) -> str:
    """Below the folder of the pictures, and nowhere else."""
    path = PurePosixPath(_name(image, "file_name"))
    if path.is_absolute() or ".." in path.parts or max(map(len, path.parts)) > 250:
        raise ValueError(f"file_name is {shown(str(path))}, which leads elsewhere, or is too long")
    return str(path)


def _drawn(note: dict[str, Any], shape: tuple[int, int], masks: Any, file: Path) -> np.ndarray:
    """An annotation's polygons or run lengths as a mask; its box where it has neither.   -> (H, W) bool"""
    try:
        given = note.get("segmentation") or None
        if isinstance(given, dict):
            return mask_of_runs(given, shape)
        polygons = [_corners(note.get("bbox"))] if given is None else _polygons(given)
        _require_near(polygons, shape)
        return np.asarray(masks.decode(masks.merge(masks.frPyObjects([p.tolist() for p in polygons], *shape)))) > 0
    except (ValueError, LookupError, TypeError) as error:
        how = "mend or remove it"
        what = f"annotation {shown(note.get('id'))} has no mask that can be drawn"
        raise UserError(f"{file}: {what} ({one_line(error)}); {how}") from error


def _corners(box: Any) -> np.ndarray:
    """left, top, width, height -> x, y of four corners"""
    numbers = numbers_of(box, "the numbers of a box").astype(np.float64)
    if len(numbers) != 4 or numbers[2:].min() < 0:
        raise ValueError("a box is left, top, width, height")
    left, top, width, height = numbers
    return np.array([left, top, left + width, top, left + width, top + height, left, top + height])


def _polygons(given: Any) -> list[np.ndarray]:
    if not isinstance(given, list):
        raise ValueError(f"{shown(given)} is no list of polygons")
    polygons = [numbers_of(polygon, "the corners of a polygon").astype(np.float64) for polygon in given]
    if any(len(polygon) < 6 or len(polygon) % 2 for polygon in polygons):
        raise ValueError("a polygon is x, y of three corners or more")
    return polygons


def _require_near(polygons: list[np.ndarray], shape: tuple[int, int]) -> None:
    """COCO's library goes along every outline, pixel by pixel, however far it leads."""
    corners = [polygon.reshape(-1, 2) for polygon in polygons]
    beyond = max(float(abs(xy).max()) for xy in corners) / max(shape)
    length = sum(float(abs(xy - np.roll(xy, 1, axis=0)).max(axis=1).sum()) for xy in corners)
    if beyond > 1 + FARTHEST or length > OUTLINE:
        raise ValueError(f"a polygon that leads far beyond its picture, or is longer than {OUTLINE:,} pixels")


def _coco_pictures(file: Path, first: str) -> Path:
    """The folder with the pictures of a COCO file, of which `first` is one: beside the file, or beside its folder."""
    part = file.stem.rpartition("_")[2]
    here, above = file.parent, file.parent.parent
    places = [here, here / "images", here / part, above / part, above / "images" / part, above / "images"]
    place = next((place for place in places if (place / first).is_file()), None)
    if place is None:
        raise UserError(
            f"{file}: {one_line(first)} is in none of {', '.join(str(p) for p in places)}; "
            "put the pictures into one of them"
        )
    return place


def coco_masks() -> Any:
    """COCO's functions of run-length masks, from whichever library is installed.

    >>> masks = coco_masks()
    >>> int(masks.area(masks.encode(np.asfortranarray(np.eye(3, dtype=np.uint8)))))
    3
    """
    try:
        from pycocotools import mask
    except ImportError:
        try:
            from faster_coco_eval.core import mask
        except ImportError:
            raise UserError(
                "COCO's masks and its average precision need a package: pip install pycocotools (or faster-coco-eval)"
            ) from None
    return mask


# -- folders ----------------------------------------------------------------------------------------------------------


def _pairs(root: Path) -> tuple[Pairs, Pairs | None]:
    """Pictures and masks to train on, and those held out where they are apart."""
    if not root.is_dir():
        raise UserError(f"{root}: no such folder; check the path")
    train, held = (next(filter(None, (_part(root, name) for name in names)), None) for names in (TRAIN, HELD))
    whole = train or _part(root, "")
    if whole is None:
        raise UserError(
            f"{root}: no pictures with masks; "
            "make it images/ and masks/, or train/ and trainannot/ with val/ and valannot/"
        )
    return _matched(*whole), None if held is None or train is None else _matched(*held)


def _part(root: Path, name: str) -> tuple[Path, Path] | None:
    """The folders of a part's pictures and masks. An empty name asks for those of all pictures."""
    places = [(root / name, root / f"{name}{BESIDE}")] if name else []
    for pictures in PICTURES:
        for masks in MASKS:
            places += [(root / pictures / name, root / masks / name), (root / name / pictures, root / name / masks)]
    return next((pair for pair in places if pair[0].is_dir() and pair[1].is_dir()), None)


def _matched(pictures: Path, masks: Path) -> Pairs:
    """Each picture in a folder with its mask in the other, in the order of their names."""

    def files(folder: Path) -> dict[str, Path]:
        shown = sorted(f for f in folder.iterdir() if f.suffix.lower() in EXTENSIONS and not f.name.startswith("."))
        return {f.stem: f for f in shown}

    of_pictures, of_masks = files(pictures), {stem.removesuffix(SUFFIX): f for stem, f in files(masks).items()}
    if not of_pictures:
        raise UserError(f"{pictures}: no pictures ({' '.join(EXTENSIONS)}); put some there")
    alone = [f for stem, f in of_pictures.items() if stem not in of_masks]
    if alone:
        raise UserError(
            f"{alone[0]}: no mask {alone[0].stem}.png in {masks} "
            f"({len(alone):,} of {len(of_pictures):,} pictures have none); add the masks, or remove the pictures"
        )
    return [(f, of_masks[stem]) for stem, f in of_pictures.items()]


def _scenes_asked(source: str, valid: str | None) -> bool:
    """Whether the pictures are those of horosphere.data.scenes, which hold out a part of their own."""
    named = [name for name in (source, valid) if name is not None and name.startswith(BUILTIN)]
    for name in named:
        if name != SCENES:
            raise UserError(f"{name}: no such pictures come with a package; {choices(name, [SCENES])}")
    if named and valid is not None:
        raise UserError(f"valid={valid}: {SCENES} goes with no other source, and holds out its own; leave valid=… away")
    return bool(named)


def _names(root: Path) -> list[str] | None:
    """The names of the classes in classes.txt, None where there is no such file."""
    file = root / NAMES
    if not file.is_file():
        return None
    try:
        names = [printable(line) for line in read_text(file).splitlines() if line.strip()]
    except Unreadable as error:
        raise UserError(f"{file}: no names of classes ({error}); write one a line, in UTF-8") from error
    if not names:
        raise UserError(f"{file}: no names in it; write one class a line, or remove it")
    return names


def _data(source: str, sets: list[list[DenseSet[T] | None]], classes: list[str]) -> DenseData[T]:
    """The data of a source's two parts and, where there is another source for evaluation, of its two parts."""
    (train, held), *others = sets
    assert train is not None
    if others:
        held = others[0][0] if others[0][1] is None else others[0][1]
    if held is None:
        order = np.arange(len(train))
        apart = (order + 1) % HELD_OUT == 0
        if not apart.any():
            raise UserError(
                f"{source}: fewer than {HELD_OUT} pictures, so none can be held out; "
                "name a source for that with valid=…"
            )
        train, held = train.subset(order[~apart]), train.subset(order[apart])
    return DenseData(train, held, classes)


def _rgb(file: Path) -> np.ndarray:
    """-> (H, W, 3) uint8"""
    picture = _decoded(file, "picture")
    if picture.mode not in COLOURS or picture.has_transparency_data:
        kind = f"{picture.mode}{', transparent' * picture.has_transparency_data}"
        raise UserError(f"{file}: {len(picture.getbands())} channels ({kind}) instead of RGB or grey; save it as RGB")
    return np.asarray(picture.convert("RGB"))


def _decoded(file: Path, what: str) -> Image:
    try:
        return open_picture(file)
    except Unreadable as error:
        raise UserError(f"{file}: no readable {what} ({one_line(error)}); {INSTEAD}") from error
