"""Small pictures of squares and circles.

Circles have no blue: from their outline alone, a few pixels wide, no network learns them in seconds.
"""

import json

import numpy as np

SQUARE, CIRCLE = 1, 2


def drawn(seed, height=32, width=40, count=2):
    """Bright shapes on a dark ground, one in each half.   -> (H, W, 3) uint8, [(mask, SQUARE or CIRCLE)]"""
    random = np.random.default_rng(seed)
    image = random.integers(0, 60, (height, width, 3))
    y, x = np.mgrid[:height, :width]
    shapes = []
    for number in range(count):
        radius = int(random.integers(5, 8))
        room = width // 2
        cy, cx = random.integers(radius, height - radius), number * room + random.integers(radius, room - radius)
        kind = int(random.integers(1, 3))
        square, circle = np.maximum(abs(y - cy), abs(x - cx)) < radius, (y - cy) ** 2 + (x - cx) ** 2 < radius**2
        mask = square if kind == SQUARE else circle
        image[mask] = random.integers(120, 256, 3) * np.array([1, 1, kind == SQUARE])
        shapes.append((mask, kind))
    return image.astype(np.uint8), shapes


def save(array, path):
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)


def write_semantic(root, train=16, val=6, void=9, **shape):
    """As CamVid lies in its folders: 0 is the ground, 1 a square, 2 a circle, `void` the first row."""
    for part, count, first in (("train", train, 0), ("val", val, 1000)):
        for number in range(count):
            image, shapes = drawn(first + number, **shape)
            mask = sum((m * kind for m, kind in shapes), np.zeros(image.shape[:2], dtype=np.uint8)).astype(np.uint8)
            mask[0] = void
            save(image, root / part / f"{number:02}.png")
            save(mask, root / f"{part}annot" / f"{number:02}.png")
    return str(root)


def write_instances(root, count=20, empty=(3,), **shape):
    """As Penn-Fudan: objects are numbered; pictures `empty` have none."""
    for number in range(count):
        image, shapes = drawn(number, **shape, count=0 if number in empty else 2)
        mask = np.zeros(image.shape[:2], dtype=np.uint8)
        for i, (m, _) in enumerate(shapes):
            mask[m] = i + 1
        save(image, root / "images" / f"{number:02}.png")
        save(mask, root / "masks" / f"{number:02}.png")
    return str(root)


def write_coco(root, train=4, val=2, **changes):
    """COCO's folders: a polygon, run lengths and a crowd in each picture; categories numbered 7 and 3."""
    for part, count in (("train", train), ("val", val)):
        notes = []
        for number in range(count):
            save(drawn(number, 20, 30, 0)[0], root / part / f"{number}.png")
            square = {"segmentation": [[2, 3, 8, 3, 8, 9, 2, 9]], "bbox": [2, 3, 6, 6], "category_id": 7}
            runs = {"segmentation": {"size": [20, 30], "counts": [0, 40, 560]}, "bbox": [0, 0, 2, 20], "category_id": 3}
            crowd = {
                "segmentation": {"size": [20, 30], "counts": [560, 40]},
                "bbox": [28, 0, 2, 20],
                "category_id": 3,
                "iscrowd": 1,
            }
            notes += [
                {"id": 10 * number + i, "image_id": number, **note} for i, note in enumerate((square, runs, crowd))
            ]
        images = [{"id": number, "file_name": f"{number}.png", "height": 20, "width": 30} for number in range(count)]
        content = {
            "images": images,
            "annotations": notes,
            "categories": [{"id": 7, "name": "seven"}, {"id": 3, "name": "three"}],
            **changes,
        }
        (root / "annotations").mkdir(exist_ok=True)
        (root / "annotations" / f"instances_{part}.json").write_text(json.dumps(content))
    return str(root)
