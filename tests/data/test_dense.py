"""Masks: every layout pairs each picture with its own, void pixels never count, what does not fit is named."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from horosphere.data import dense
from horosphere.data.dense import IGNORED, Instances, open_instances, open_semantic
from horosphere.errors import UserError
from tests.data.shapes import drawn, save, write_coco, write_instances, write_semantic

pytest.importorskip("PIL.Image", reason="pictures need Pillow")
SHARED = Path(__file__).parents[3] / "shared" / "data" / "images"


def refusal(work):
    with pytest.raises(UserError) as error:
        work()
    assert str(error.value).isprintable()
    return str(error.value)


def everything(part):
    return [part.read(i) for i in range(len(part))]


# -- a class for every pixel ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layout", ["{p}annot", "images/{p} masks/{p}", "{p}/images {p}/labels", "images/{p} annotations/{p}"]
)
def test_every_layout_holds_the_same(tmp_path, layout):
    expected = open_semantic(write_semantic(tmp_path / "camvid", 3, 2), ignore=9)
    for part in ("train", "val"):
        pictures, masks = (layout if " " in layout else f"{{p}} {layout}").format(p=part).split()
        for old, new in ((part, pictures), (f"{part}annot", masks)):
            shutil.copytree(tmp_path / "camvid" / old, tmp_path / "other" / new)
    opened = open_semantic(str(tmp_path / "other"), ignore=9)
    assert opened.classes == expected.classes == ["0", "1", "2"]
    for mine, theirs in ((opened.train, expected.train), (opened.valid, expected.valid)):
        for a, b in zip(everything(mine), everything(theirs), strict=True):
            np.testing.assert_array_equal(a[0], b[0])
            np.testing.assert_array_equal(a[1], b[1])


def test_a_mask_is_what_was_written_and_void_is_ignored(tmp_path):
    image, mask = open_semantic(write_semantic(tmp_path, 2, 1), ignore=9).train.read(1)
    expected, shapes = drawn(1)
    np.testing.assert_array_equal(image, expected)
    assert (mask[0] == IGNORED).all()
    np.testing.assert_array_equal(mask[1:], sum(m * kind for m, kind in shapes)[1:])


def test_an_ignored_number_may_be_a_low_one(tmp_path):
    data = open_semantic(write_semantic(tmp_path, 2, 1, void=0), ignore=0)
    assert len(data.classes) == 3
    assert set(np.unique(data.train.read(0)[1])) <= {IGNORED, 1, 2}


def test_names_and_numbers_of_classes(tmp_path):
    root = write_semantic(tmp_path, 2, 1)
    assert len(open_semantic(root, ignore=None).classes) == 10
    assert len(open_semantic(root, ignore=9, classes=5).classes) == 5
    (tmp_path / "classes.txt").write_text("ground\nsquare\ncircle\n")
    assert open_semantic(root, ignore=9).classes == ["ground", "square", "circle"]
    assert "classes=5" in refusal(lambda: open_semantic(root, ignore=9, classes=5))
    assert "a pixel of class 9, but classes go from 0 to 2; give more classes, or set ignore=9" in refusal(
        lambda: open_semantic(root).train.read(0)
    )


def test_every_tenth_is_held_out_where_nothing_is_and_a_source_of_its_own_counts_first(tmp_path):
    alone = write_instances(tmp_path / "alone", 20)
    data = open_semantic(alone)
    assert [f.stem for f in data.valid.files] == ["09", "19"]
    np.testing.assert_array_equal(data.valid.read(1)[0], drawn(19)[0])
    assert not set(data.train.files) & set(data.valid.files)
    assert len(open_semantic(alone, valid=write_semantic(tmp_path / "own", 2, 3), ignore=9).valid) == 3
    assert "none can be held out" in refusal(lambda: open_semantic(write_instances(tmp_path / "few", 5)))


@pytest.mark.parametrize("open_set", [lambda root: open_semantic(root, ignore=9, classes=3), open_instances])
def test_what_is_wrong_with_a_file_is_named(tmp_path, open_set):
    root = write_semantic(tmp_path, 4, 1)
    (tmp_path / "train" / "00.png").write_bytes((tmp_path / "train" / "00.png").read_bytes()[:60])
    (tmp_path / "trainannot" / "01.png").write_bytes(b"nothing")
    save(np.zeros((5, 7), dtype=np.uint8), tmp_path / "trainannot" / "02.png")
    save(np.zeros((32, 40, 3), dtype=np.uint8), tmp_path / "trainannot" / "03.png")
    read = open_set(root).train.read
    assert "00.png: no readable picture" in refusal(lambda: read(0))
    assert "01.png: no readable mask" in refusal(lambda: read(1))
    assert "02.png: a mask of 7 x 5 pixels for a picture of 40 x 32" in refusal(lambda: read(2))
    assert "03.png: 3 channels (RGB)" in refusal(lambda: read(3))
    (tmp_path / "trainannot" / "02.png").unlink()
    assert "02.png: no mask 02.png" in refusal(lambda: open_set(root))


def test_folders_that_hold_nothing_are_named(tmp_path):
    assert "no such folder" in refusal(lambda: open_semantic(str(tmp_path / "none")))
    assert "make it images/ and masks/" in refusal(lambda: open_semantic(str(tmp_path)))
    (tmp_path / "images").mkdir()
    (tmp_path / "masks").mkdir()
    assert "no pictures" in refusal(lambda: open_semantic(str(tmp_path)))


def test_transparent_pictures_are_refused(tmp_path):
    root = write_semantic(tmp_path, 2, 1)
    save(np.zeros((32, 40, 4), dtype=np.uint8), tmp_path / "train" / "00.png")
    assert "4 channels (RGBA, transparent)" in refusal(lambda: open_semantic(root, ignore=9).train.read(0))


def test_work_is_handed_back_in_order(tmp_path):
    part = open_semantic(write_semantic(tmp_path, 6, 1), ignore=9).train
    results = part.later([4, 1, 1], lambda image, mask, place: (image, place))()
    assert [place for _, place in results] == [0, 1, 2]
    np.testing.assert_array_equal(results[0][0], part.read(4)[0])


# -- a mask for every object ------------------------------------------------------------------------------------------


def test_numbered_objects_are_apart_with_tight_boxes(tmp_path):
    data = open_instances(write_instances(tmp_path))
    assert data.classes == ["object"]
    objects, expected = data.train.read(1)[1], drawn(1)[1]
    np.testing.assert_array_equal(objects.masks, [m for m, _ in expected])
    for mask, (left, top, right, bottom) in zip(objects.masks, objects.boxes.astype(int), strict=True):
        assert mask[top:bottom, left:right].sum() == mask.sum()
        assert all(line.any() for line in (mask[top], mask[bottom - 1], mask[:, left], mask[:, right - 1]))


def test_a_picture_without_objects_belongs_to_the_set(tmp_path):
    objects = open_instances(write_instances(tmp_path)).train.read(3)[1]
    assert (objects.masks.shape, objects.labels.shape, objects.boxes.shape) == ((0, 32, 40), (0,), (0, 4))


def test_the_original_names_of_penn_fudan_will_do(tmp_path):
    write_instances(tmp_path / "a", 10)
    shutil.copytree(tmp_path / "a" / "images", tmp_path / "b" / "PNGImages")
    (tmp_path / "b" / "PedMasks").mkdir()
    for file in (tmp_path / "a" / "masks").iterdir():
        shutil.copy(file, tmp_path / "b" / "PedMasks" / f"{file.stem}_mask.png")
    assert len(open_instances(str(tmp_path / "b")).train) == 9


def test_coco_has_its_polygons_runs_crowds_and_categories(tmp_path):
    pytest.importorskip("pycocotools")
    data = open_instances(write_coco(tmp_path))
    assert (len(data.train), len(data.valid), data.classes) == (4, 2, ["three", "seven"])
    objects = data.train.read(0)[1]
    assert objects.labels.tolist() == [2, 1, 1]  # in the order of their numbers
    assert objects.crowd.tolist() == [False, False, True]
    assert objects.boxes.tolist() == [[2, 3, 8, 9], [0, 0, 2, 20], [28, 0, 30, 20]]
    assert objects.masks[1].sum() == 40
    single = open_instances(
        str(tmp_path / "annotations" / "instances_train.json"), str(tmp_path / "annotations" / "instances_val.json")
    )
    assert (len(single.train), len(single.valid)) == (4, 2)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"categories": [{"id": 7, "name": "seven"}]}, "category 3, which it does not list"),
        ({"annotations": [{"id": 1, "image_id": 99, "category_id": 7}]}, "no COCO file"),
        ({"images": []}, "no COCO file"),
        ({"categories": [], "annotations": []}, "no categories in it"),
        (
            {"images": [{"id": i, "file_name": f"{i}.jpg", "height": 20, "width": 30} for i in range(4)]},
            "0.jpg is in none of",
        ),
    ],
)
def test_coco_files_that_do_not_fit_are_named(tmp_path, changes, complaint):
    pytest.importorskip("pycocotools")
    assert complaint in refusal(lambda: open_instances(write_coco(tmp_path, **changes)))


def test_coco_pictures_of_another_size_and_masks_that_are_none(tmp_path):
    pytest.importorskip("pycocotools")
    root = write_coco(tmp_path)
    save(np.zeros((8, 9, 3), dtype=np.uint8), tmp_path / "train" / "0.png")
    assert "9 x 8 pixels, but instances_train.json says 30 x 20" in refusal(lambda: open_instances(root).train.read(0))
    file = tmp_path / "annotations" / "instances_train.json"
    content = json.loads(file.read_text())
    content["annotations"][3]["segmentation"] = [[1, 2]]
    file.write_text(json.dumps(content))
    assert "annotation 10 has no mask that can be drawn" in refusal(lambda: open_instances(root).train.read(1))
    file.write_text("{")
    assert "no COCO file" in refusal(lambda: open_instances(root))
    assert "one has COCO files and the other has none" in refusal(
        lambda: open_instances(root, write_instances(tmp_path / "own"))
    )


NESTED = [[[[[[1]]]]]]


@pytest.mark.parametrize(
    "change",
    [
        {"segmentation": {"size": [10**6, 10**6], "counts": [10**12]}},
        {"segmentation": {"size": [20, 30], "counts": "ooooooooooooooooooooooooooooo"}},
        {"segmentation": {"size": [20, 30], "counts": [-600, 1200]}},
        {"segmentation": {"size": [30, 20], "counts": [600]}},
        {"segmentation": {}, "bbox": [0, 0, 1e30, 1e30]},
        {"segmentation": None, "bbox": [0, 0, -5, 5]},
        {"segmentation": None, "bbox": [0, 0, 5]},
        {"segmentation": None, "bbox": "0055"},
        {"segmentation": None, "bbox": None},
        {"segmentation": [[1e30, 0, 5, 0, 5, 5]]},
        {"segmentation": [[10**400, 0, 5, 0, 5, 5]]},
        {"segmentation": [[-5000, 0, 5, 0, 5, 5]]},
        {"segmentation": [[1, 2, 3, 4]]},  # four numbers: COCO's library would take them for a box
        {"segmentation": [[1, 2, 3, 4, 5, 6, 7]]},
        {"segmentation": [[0, 0, 5, 0, 5, "5"]]},
        {"segmentation": [[0, 0, 5, 0, 5, None]]},
        {"segmentation": [[]]},
        {"segmentation": [3, 4, 5, 6, 7, 8]},
        {"segmentation": NESTED},
        {"segmentation": "everything"},
        {"segmentation": 3},
        {"segmentation": [[0, 0, 100, 19] * 20_000]},  # an outline of millions of pixels
        {"iscrowd": "no"},
    ],
    ids=repr,
)
def test_coco_annotations_that_would_crash_its_library_are_named(tmp_path, change):
    pytest.importorskip("pycocotools")
    root = write_coco(tmp_path)
    file = tmp_path / "annotations" / "instances_train.json"
    content = json.loads(file.read_text())
    content["annotations"][0].update(change)
    file.write_text(json.dumps(content))
    told = refusal(lambda: open_instances(root).train.read(0))
    assert "instances_train.json" in told
    assert len(told) < 500


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("images", {"height": "20"}),
        ("images", {"height": 20.5}),
        ("images", {"height": 1e999}),
        ("images", {"height": True}),
        ("images", {"id": 1}),  # twice
        ("images", {"id": None}),
        ("images", {"file_name": "../train/0.png"}),
        ("images", {"file_name": "/etc/passwd"}),
        ("images", {"file_name": "nul\0"}),
        ("images", {"file_name": 3}),
        ("images", {"file_name": "9" * 5000}),
        ("categories", {"id": 3}),  # twice
        ("categories", {"id": 1e999}),
        ("categories", {"name": ["a"]}),
        ("annotations", {"category_id": [7]}),
        ("annotations", {"category_id": 7.5}),
        ("annotations", {"image_id": {"a": 1}}),
    ],
)
def test_coco_numbers_and_names_of_another_kind_are_named(tmp_path, part, change):
    pytest.importorskip("pycocotools")
    root = write_coco(tmp_path)
    file = tmp_path / "annotations" / "instances_train.json"
    content = json.loads(file.read_text())
    content[part][0].update(change)
    file.write_text(json.dumps(content))
    assert "instances_train.json: no COCO file" in refusal(lambda: open_instances(root))


def test_more_masks_than_memory_holds_are_named(tmp_path, monkeypatch):
    pytest.importorskip("pycocotools")
    monkeypatch.setattr(dense, "AT_ONCE", 1700)
    root = write_coco(tmp_path / "coco")
    assert "3 objects in 30 x 20 pixels" in refusal(lambda: open_instances(root).train.read(0))
    assert "2 objects in 40 x 32 pixels" in refusal(
        lambda: open_instances(write_instances(tmp_path / "own")).train.read(0)
    )


def write_mask(root, array):
    from PIL import Image

    for name in ("images", "masks"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for number in range(10):
        Image.new("RGB", array.shape[::-1]).save(root / "images" / f"{number}.tif")
        Image.fromarray(array).save(root / "masks" / f"{number}.tif")
    return str(root)


@pytest.mark.parametrize(
    ("number", "kind", "complaint"),
    [
        (1.5, np.float32, "float32"),
        (2.0, np.float32, "float32"),
        (np.nan, np.float32, "float32"),
        (-3, np.int32, "a pixel of class -3"),
        (40_000, np.uint16, "classes go from 0 to 32766 at most"),
        (10**9, np.int32, "classes go from 0 to 32766 at most"),
    ],
)
def test_masks_that_hold_no_numbers_of_classes_are_named(tmp_path, number, kind, complaint):
    array = np.zeros((4, 6), dtype=kind)
    array[1, 2] = number
    root = write_mask(tmp_path, array)
    assert complaint in refusal(lambda: open_semantic(root).train.read(0))
    if complaint != "classes go from 0 to 32766 at most":
        assert complaint in refusal(lambda: open_instances(root).train.read(0))


def test_high_numbers_may_be_ignored_and_are_not_wrapped(tmp_path):
    array = np.zeros((4, 6), dtype=np.uint16)
    array[1, 2], array[0, 0] = 65535, 300
    root = write_mask(tmp_path, array)
    data = open_semantic(root, ignore=65535)
    assert (len(data.classes), data.train.read(0)[1].tolist()[1][2], data.train.read(0)[1].max()) == (301, IGNORED, 300)
    assert "40,000 classes" in refusal(lambda: open_semantic(root, ignore=65535, classes=40_000))


def test_names_of_classes_are_text(tmp_path):
    root = write_semantic(tmp_path, 2, 1)
    (tmp_path / "classes.txt").write_bytes(b"sky\n\xff\n")
    assert "classes.txt" in refusal(lambda: open_semantic(root, ignore=9))
    (tmp_path / "classes.txt").write_text("sky\x1b[2J\nb\nc\n")
    assert open_semantic(root, ignore=9).classes == ["sky [2J", "b", "c"]


def test_boxes_of_one_pixel_have_an_area():
    mask = np.zeros((1, 4, 4), dtype=bool)
    mask[0, 2, 3] = True
    assert Instances(mask, np.ones(1, dtype=np.int64), np.zeros(1, dtype=bool)).boxes.tolist() == [[3, 2, 4, 3]]


@pytest.mark.skipif(not (SHARED / "camvid").is_dir(), reason="needs CamVid in ../shared/data")
def test_camvid():
    data = open_semantic(str(SHARED / "camvid"), ignore=11)
    assert (len(data.train), len(data.valid), len(data.classes)) == (367, 101, 11)
    assert data.train.read(0)[1].shape == (180, 240)


@pytest.mark.skipif(not (SHARED / "pennfudan").is_dir(), reason="needs Penn-Fudan in ../shared/data")
def test_penn_fudan():
    data = open_instances(str(SHARED / "pennfudan"))
    assert (len(data.train), len(data.valid)) == (153, 17)
    assert sum(len(objects.labels) for part in (data.train, data.valid) for _, objects in everything(part)) == 423
