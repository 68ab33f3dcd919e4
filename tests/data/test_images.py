"""Pictures: every source in a fixed order, exact boxes, augmentation that depends only on its draws, mistakes named."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from horosphere.data.augment import (
    MEAN,
    Augmentation,
    Draws,
    augment,
    mix,
    normalise,
    rand_augment,
    random_box,
    shifted_box,
    whole_box,
)
from horosphere.data.classes import read_classes, write_classes
from horosphere.data.images import TORCHVISION, ArrayPictures, open_images, pictures_in, resample
from horosphere.data.order import shuffled
from horosphere.errors import UserError
from horosphere.settings import check
from tests.data.pictures import pixels, write_folder, write_npz

Image = pytest.importorskip("PIL.Image", reason="pictures need Pillow")

OFF = Augmentation(crop="none", flip=False, randaugment=0, mixup=0, cutmix=0, erase=0, smoothing=0)
BATCH = 32


def refusal(*arguments, **more):
    with pytest.raises(UserError) as error:
        open_images(*map(str, arguments), **more)
    assert "\n" not in str(error.value)
    return str(error.value)


def stills(part, size=8):
    """All pictures of a set as they are."""
    return part.pictures.crops(part.numbers, OFF.box, np.zeros((len(part), 4)), size)()


def batch(size=8, rows=BATCH, seed=0):
    images, labels = pixels(rows, size, seed=seed)
    return torch.from_numpy(images.transpose(0, 3, 1, 2).copy()), labels


# -- sources ----------------------------------------------------------------------------------------------------------


def test_an_npz_has_its_parts_names_and_tree(tmp_path):
    file = write_npz(
        tmp_path / "set.npz",
        fine_names=np.array(["a", "b", "c", "d"]),
        coarse_of_fine=np.array([0, 1, 1, 0], dtype=np.uint8),
    )
    data = open_images(file)
    assert (len(data.train), len(data.valid), data.classes) == (48, 16, ["a", "b", "c", "d"])
    assert data.tree.parents.tolist() == [4, 5, 5, 4, 6, 6, -1]
    assert data.tree.labels(data.classes)[4:] == ["a, d", "b, c", "all classes"]
    images, labels = pixels(16, seed=1)
    np.testing.assert_array_equal(stills(data.valid).permute(0, 2, 3, 1), images)
    np.testing.assert_array_equal(data.valid.labels, labels)


def test_groups_keep_their_names(tmp_path):
    called = {"coarse_of_fine": np.array([0, 1, 1, 0]), "coarse_names": np.array([b"warm", b"cold"])}
    tree = open_images(write_npz(tmp_path / "set.npz", **called)).tree
    write_classes(tmp_path, list("abcd"), tree)
    classes, again = read_classes(tmp_path)
    assert again.labels(classes) == tree.labels("abcd") == [*"abcd", "warm", "cold", "all classes"]
    write_folder(tmp_path / "set", ["dog/pug", "dog/spitz", "cat"], each=10)
    data = open_images(str(tmp_path / "set"))
    assert data.tree.labels(data.classes) == ["cat", "dog/pug", "dog/spitz", "dog", "all classes"]


def test_other_names_grey_pictures_and_columns_of_labels_will_do(tmp_path):
    images, labels = pixels(40)
    np.savez(tmp_path / "x.npz", x_train=images[..., 0], y_train=labels[:, None].astype(np.uint8))
    data = open_images(str(tmp_path / "x.npz"))
    assert (data.classes, data.tree) == (["0", "1", "2", "3"], None)
    assert stills(data.train).shape == (36, 3, 8, 8)
    assert (stills(data.train) == stills(data.train)[:, :1]).all()


def test_a_tenth_of_each_class_is_held_out_where_nothing_is(tmp_path):
    images, _ = pixels(35)
    labels = np.array([0] * 25 + [1] * 10)
    np.random.default_rng(0).shuffle(labels)
    np.savez(tmp_path / "x.npz", train_images=images, train_labels=labels)
    data = open_images(str(tmp_path / "x.npz"))
    assert np.bincount(data.valid.labels).tolist() == [2, 1]
    assert sorted([*data.train.numbers, *data.valid.numbers]) == list(range(35))
    np.testing.assert_array_equal(labels[data.train.numbers], data.train.labels)


def test_class_folders_are_read_in_the_order_of_their_names(tmp_path):
    write_folder(tmp_path / "train", ["cat", "dog", "ape"], each=3)
    write_folder(tmp_path / "val", ["dog", "cat", "ape"], each=1)
    data = open_images(str(tmp_path))
    assert (data.classes, data.tree) == (["ape", "cat", "dog"], None)
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert data.valid.labels.tolist() == [0, 1, 2]
    images, _ = pixels(3, seed=2)  # ape was written third
    np.testing.assert_array_equal(stills(data.train)[:3].permute(0, 2, 3, 1), images)


def test_groups_of_folders_are_a_tree(tmp_path):
    folder = write_folder(tmp_path, ["dog/terrier", "dog/poodle", "cat/wild/lynx", "cat/tabby"], each=10)
    data = open_images(folder)
    assert data.classes == ["cat/tabby", "cat/wild/lynx", "dog/poodle", "dog/terrier"]
    distances = data.tree.distances
    assert (distances[2, 3], distances[0, 1], distances[0, 2]) == (2, 3, 4)


def test_a_source_of_its_own_can_be_held_out(tmp_path):
    one, two = write_folder(tmp_path / "one", ["a", "b"]), write_folder(tmp_path / "two", ["b", "a"], each=1)
    data = open_images(one, two)
    assert (len(data.train), len(data.valid)) == (4, 2)
    assert "other classes than" in refusal(one, write_folder(tmp_path / "three", ["a", "c"]))
    assert "no class has 10 pictures" in refusal(one)


def test_pictures_in_memory_and_in_files_are_the_same(tmp_path):
    images, labels = pixels(8, size=12)
    np.savez(tmp_path / "x.npz", train_images=images, train_labels=labels, test_images=images, test_labels=labels)
    write_folder(tmp_path / "files", ["a"], each=8, size=12)
    kept, files = (
        open_images(str(tmp_path / "x.npz")).train,
        open_images(str(tmp_path / "files"), str(tmp_path / "files")).train,
    )
    assert torch.equal(stills(kept, 12), stills(files, 12))
    draws = np.random.default_rng(0).random((8, 4))
    assert torch.equal(*(part.pictures.crops(part.numbers, shifted_box, draws, 12)() for part in (kept, files)))
    random = [part.pictures.crops(part.numbers, random_box, draws, 12)().float() for part in (kept, files)]
    assert (random[0] - random[1]).mean((1, 2, 3)).abs().max() < 5  # another filter, the same place


def test_grey_and_palette_pictures_are_pictures(tmp_path):
    for i, mode in enumerate(("L", "P", "1", "CMYK")):
        (tmp_path / mode).mkdir()
        Image.fromarray(pixels(1)[0][0]).convert(mode).save(tmp_path / mode / f"{i}.tiff")
    assert stills(open_images(str(tmp_path), str(tmp_path)).train).shape == (4, 3, 8, 8)


def test_a_set_of_torchvision_is_read_from_its_folder(tmp_path):
    pytest.importorskip("torchvision", reason="a set of torchvision's")
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    images, labels = pixels(6)
    for part in ("train", "t10k"):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(
            np.array([0x803, 6, 8, 8], dtype=">i4").tobytes() + images[..., 0].tobytes()
        )
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(
            np.array([0x801, 6], dtype=">i4").tobytes() + labels.astype(np.uint8).tobytes()
        )
    data = open_images(f"torchvision:mnist:{tmp_path}")
    assert (len(data.train), len(data.valid), len(data.classes)) == (6, 6, 10)
    np.testing.assert_array_equal(stills(data.train)[:, 0], images[..., 0])


@pytest.mark.parametrize("name", TORCHVISION)
def test_nothing_is_downloaded_unasked(tmp_path, name):
    pytest.importorskip("torchvision", reason="sets of torchvision's")
    assert f"cannot be opened in {tmp_path}" in refusal(f"torchvision:{name}:{tmp_path}")
    assert not list(tmp_path.rglob("*.*"))


def test_a_dataset_of_hugging_face_is_read_by_its_columns(monkeypatch):
    datasets = pytest.importorskip("datasets", reason="datasets of Hugging Face")
    images, labels = pixels(6)
    features = datasets.Features({"img": datasets.Image(), "fine": datasets.ClassLabel(names=["a", "b", "c", "d"])})
    rows = datasets.Dataset.from_dict({"img": [Image.fromarray(i) for i in images], "fine": labels.tolist()}, features)
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config: datasets.DatasetDict(train=rows, test=rows))
    data = open_images("hf:someone/set")
    assert data.classes == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(data.valid.labels, labels)
    np.testing.assert_array_equal(stills(data.train).permute(0, 2, 3, 1), images)
    unlabelled = datasets.Dataset.from_dict({"img": rows["img"], "fine": [-1] * 6}, features)
    splits = datasets.DatasetDict(train=rows, test=unlabelled)
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config: splits)
    assert "give each a number from 0" in refusal("hf:someone/set")
    assert "no split dev; there are train, test" in refusal("hf:someone/set::dev")
    assert "no name of a dataset" in refusal("hf:")


def test_a_dataset_that_was_saved_to_disk(tmp_path):
    datasets = pytest.importorskip("datasets", reason="datasets of Hugging Face")
    images, labels = pixels(6)
    features = datasets.Features({"img": datasets.Image(), "fine": datasets.ClassLabel(names=["a", "b", "c", "d"])})
    rows = datasets.Dataset.from_dict({"img": [Image.fromarray(i) for i in images], "fine": labels.tolist()}, features)
    datasets.DatasetDict(train=rows, test=rows.select(range(2))).save_to_disk(tmp_path / "both")
    data = open_images(f"hf:{tmp_path / 'both'}")
    assert (len(data.train), len(data.valid)) == (6, 2)
    np.testing.assert_array_equal(stills(data.train).permute(0, 2, 3, 1), images)
    assert "no split dev; there are train, test" in refusal(f"hf:{tmp_path / 'both'}::dev")


def test_a_dataset_of_hugging_face_starts_no_program(monkeypatch, tmp_path):
    """Its library would hand PostScript to Ghostscript."""
    datasets = pytest.importorskip("datasets", reason="datasets of Hugging Face")

    def started(*words, **how):
        raise AssertionError("another program was started")

    monkeypatch.setattr("subprocess.Popen", started)
    Image.new("RGB", (8, 8)).save(tmp_path / "a.eps")
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=["a"])})
    pictures = [{"bytes": (tmp_path / "a.eps").read_bytes(), "path": None}] * 10
    rows = datasets.Dataset.from_dict({"img": pictures, "label": [0] * 10}, features)
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config: datasets.DatasetDict(train=rows))
    with pytest.raises(UserError, match="row 0: no readable picture"):
        stills(open_images("hf:someone/set").train)


# -- mistakes ---------------------------------------------------------------------------------------------------------


def broken(path, how):
    write_folder(path, ["a", "b"], each=10)
    file = path / "a" / "3.png"
    if how == "cut":
        file.write_bytes(file.read_bytes()[:60])
    elif how == "text":
        file.write_text("no picture")
    else:
        Image.fromarray(pixels(1)[0][0]).convert(how).save(file)
    return str(path), str(file)


@pytest.mark.parametrize(
    ("how", "remedy"),
    [
        ("cut", "put a readable one in its place"),
        ("text", "put a readable one in its place"),
        ("RGBA", "4 channels"),
        ("LA", "2 channels"),
    ],
)
def test_a_broken_picture_is_named_when_it_is_read(tmp_path, how, remedy):
    folder, file = broken(tmp_path, how)
    data = open_images(folder)
    with pytest.raises(UserError, match=re.escape(file)) as error:
        stills(data.train)
    assert remedy in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["EPS", "PDF", "GIF", "ICO"])
def test_what_is_no_picture_is_not_opened_whatever_its_name(tmp_path, kind, monkeypatch):
    Image = pytest.importorskip("PIL.Image")

    def started(*words, **how):
        raise AssertionError("another program was started")

    monkeypatch.setattr("subprocess.Popen", started)
    Image.new("RGB", (8, 8)).save(tmp_path / "a.bin", format=kind)
    (tmp_path / "a.bin").rename(tmp_path / "a.png")
    with pytest.raises(UserError, match=r"a\.png: no readable picture"):
        pictures_in([tmp_path / "a.png"]).digest(np.zeros(1, np.int64))


def test_a_link_to_a_folder_around_it_is_named(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    (tmp_path / "set" / "cats").mkdir(parents=True)
    (tmp_path / "set" / "cats" / "more").symlink_to(tmp_path / "set", target_is_directory=True)
    with pytest.raises(UserError, match="more: a link to a folder around it; remove it"):
        open_images(str(tmp_path / "set"))
    (tmp_path / "set" / "cats" / "more").unlink()
    (tmp_path / "elsewhere").mkdir()
    for number in range(10):
        Image.new("RGB", (4, 4)).save(tmp_path / "elsewhere" / f"{number}.png")
    (tmp_path / "set" / "cats").rmdir()
    (tmp_path / "set" / "cats").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert len(open_images(str(tmp_path / "set")).train) == 9  # other links are followed


def test_folders_that_are_no_classes_are_named(tmp_path):
    write_folder(tmp_path / "set", ["a", "b"])
    (tmp_path / "set" / "empty").mkdir()
    assert "empty: a class folder without pictures" in refusal(tmp_path / "set")
    (tmp_path / "nothing").mkdir()
    assert "no class folders" in refusal(tmp_path / "nothing")
    write_folder(tmp_path / "flat", ["."])
    assert "pictures without a class folder" in refusal(tmp_path / "flat")
    write_folder(tmp_path / "mixed", ["a", "a/b"])
    assert "beside folders" in refusal(tmp_path / "mixed")
    assert "no such file or folder" in refusal(tmp_path / "absent")
    (tmp_path / "x.csv").touch()
    assert "not from .csv" in refusal(tmp_path / "x.csv")
    assert "choose from MNIST" in refusal("torchvision:SIFAR")


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"train_images": np.zeros((48, 8, 8, 4), np.uint8)}, "4 channels"),
        ({"train_images": np.zeros((48, 8, 8, 3))}, "pictures are uint8"),
        ({"train_labels": np.zeros(7, np.int64)}, "labels of shape"),
        ({"train_labels": np.zeros(48)}, "type float64"),
        ({"train_labels": np.full(48, -1)}, "a number from 0"),
        ({"train_labels": np.zeros(48, bool)}, "type bool"),
        ({"train_labels": np.full(48, 2**63, np.uint64)}, "a number from 0"),
        ({"train_labels": np.zeros((2, 24), np.int64)}, "labels of shape"),
        ({"train_labels": np.r_[np.zeros(24, int), np.full(24, 100_000)]}, "but none has class 4"),
        ({"train_labels": np.full(48, 10**9)}, "without gaps, or give fine_names"),
        ({"fine_names": np.array(["a"])}, "a name for each"),
        ({"fine_names": np.array("a")}, "a name for each"),
        ({"fine_names": np.array([0.5, 1.5, 2.5, 3.5])}, "a name for each"),
        ({"coarse_of_fine": np.array([0.0, 0.5, 1.0, 1.5])}, "groups of classes"),
        ({"coarse_of_fine": np.array([0, 10**9, 1, 1])}, "groups of classes"),
        ({"coarse_of_fine": np.array([True, False, True, False])}, "groups of classes"),
        ({"coarse_of_fine": np.array([0])}, "the group of each"),
        ({"coarse_of_fine": np.array([0, 0, 1, 1]), "coarse_names": np.array(["a"])}, "1 names for 2 groups"),
        ({"test_labels": None}, "no test_labels"),
        ({"train_images": None}, "neither train_images nor x_train"),
    ],
)
def test_arrays_that_are_no_pictures_are_named(tmp_path, change, remedy):
    write_npz(tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz") as file:
        arrays = {**file, **change}
    np.savez(tmp_path / "x.npz", **{name: value for name, value in arrays.items() if value is not None})
    message = refusal(tmp_path / "x.npz")
    assert message.startswith(str(tmp_path / "x.npz"))
    assert remedy in message


def test_classes_without_pictures_need_names(tmp_path):
    names = np.array([f"class {i}" for i in range(9)])
    file = write_npz(tmp_path / "x.npz", train_labels=np.r_[np.zeros(24, int), np.full(24, 8)], fine_names=names)
    assert open_images(file).classes == names.tolist()
    names[0] = "r\x1b[31m"
    write_npz(file, fine_names=names)
    assert open_images(file).classes[0] == "r [31m"
    write_npz(file, fine_names=np.array([b"a", b"b", b"c", b"d"]))
    assert open_images(file).classes == ["a", "b", "c", "d"]


def test_arrays_that_claim_more_than_there_is_take_no_memory(tmp_path):
    import tracemalloc
    import zipfile

    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (10000000000000,), }\n"
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("train_images.npy", b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header)
    tracemalloc.start()
    assert "claims 10,000,000,000,000 bytes, and 0 are there" in refusal(tmp_path / "x.npz")
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()


def test_a_damaged_npz_is_named(tmp_path):
    file = tmp_path / "x.npz"
    write_npz(file)
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"text", b"", whole[:200] + bytes(400) + whole[600:]):
        file.write_bytes(damaged)
        assert "no readable .npz" in refusal(file)
    np.savez(file, train_images=np.array([{"an": "object"}], dtype=object), train_labels=np.zeros(1))
    assert "no readable .npz" in refusal(file)  # nothing is unpickled


# -- boxes ------------------------------------------------------------------------------------------------------------


def test_a_box_of_whole_pixels_keeps_them_and_black_lies_beyond():
    images, _ = batch(rows=3)
    boxes = torch.tensor([[0.0, 0, 8, 8], [-2, 1, 8, 8], [3, -1, 8, 8]])
    expected = [images[0], F.pad(images[1], (0, 1, 2, 0))[:, :8, 1:], F.pad(images[2], (1, 0, 0, 3))[:, 3:, :8]]
    assert torch.equal(resample(images, boxes, 8), torch.stack(expected))


def test_shrinking_averages_and_growing_is_bilinear():
    images, _ = batch(rows=2)
    whole = torch.tensor([[0.0, 0, 8, 8]]).expand(2, 4)
    for size in (4, 2):
        assert torch.equal(resample(images, whole, size), F.avg_pool2d(images.float(), 8 // size).round().byte())
    grown = F.interpolate(images.float(), size=(20, 20), mode="bilinear").round().byte()
    assert (resample(images, whole, 20).int() - grown.int()).abs().max() <= 1


@pytest.mark.parametrize(("height", "width"), [(30, 30), (17, 60), (60, 17)])
def test_boxes_lie_where_they_should(height, width):
    for draws in [*np.random.default_rng(0).random((200, 4)).tolist(), [0.0] * 4, [1 - 1e-9] * 4]:
        top, left, high, wide = random_box(height, width, draws)
        assert -1e-9 <= top <= top + high <= height + 1e-9
        assert -1e-9 <= left <= left + wide <= width + 1e-9
        assert high * wide <= height * width * (0.08 + 0.92 * draws[0]) + 1e-6
        side = min(height, width)
        still, moved = whole_box(1.0, height, width, draws), shifted_box(height, width, draws)
        assert moved[2:] == still[2:] == (side, side)
        assert all(
            abs(a - b) <= side // 8 and float(a - b).is_integer() for a, b in zip(moved[:2], still[:2], strict=True)
        )


def test_pictures_are_judged_by_their_middle_as_torchvision_has_it():
    """Resize(256), CenterCrop(224) where training sees parts; otherwise all of the shorter side."""
    assert Augmentation(crop="random").still_box(256, 512, []) == (16.0, 144.0, 224.0, 224.0)
    for crop in ("shift", "none"):
        assert Augmentation(crop=crop).still_box(256, 512, []) == (0.0, 128.0, 256.0, 256.0)
    assert Augmentation(crop="none").box(256, 512, []) == (0.0, 128.0, 256.0, 256.0)
    draws = [0.1, 0.2, 0.3, 0.4]
    assert Augmentation(crop="random").box(30, 40, draws) == random_box(30, 40, draws)
    assert Augmentation(crop="shift").box(30, 40, draws) == shifted_box(30, 40, draws)


def test_a_shifted_box_goes_every_way_alike():
    """To each of the 2·4 + 1 places of a side of 32, and to none beyond."""
    tops, lefts = zip(*(shifted_box(32, 32, [u, 1 - u])[:2] for u in np.linspace(0.05, 0.95, 9)), strict=True)
    assert list(tops) == sorted(lefts) == [-4, -3, -2, -1, 0, 1, 2, 3, 4]


def test_crops_of_photographs_are_8_to_100_per_cent():
    areas = (
        np.array([math.prod(random_box(100, 100, u)[2:]) for u in np.random.default_rng(0).random((2000, 4)).tolist()])
        / 1e4
    )
    assert 0.08 <= areas.min() < 0.1
    assert 0.9 < areas.max() <= 1


# -- order and draws --------------------------------------------------------------------------------------------------


def test_each_epoch_sees_every_picture_once_in_an_order_of_its_own():
    stream = shuffled(10, 0, 35, seed=3)
    assert [sorted(stream[i : i + 10]) for i in (0, 10, 20)] == [list(range(10))] * 3
    assert stream[:10].tolist() != stream[10:20].tolist()
    assert stream.tolist() == [*shuffled(10, 0, 7, 3), *shuffled(10, 7, 29, 3), *shuffled(10, 29, 35, 3)]
    assert stream.tolist() != shuffled(10, 0, 35, seed=4).tolist()


def test_draws_are_a_function_of_seed_and_step():
    how = Augmentation()
    a, again = Draws.of(1, 2, BATCH, how), Draws.of(1, 2, BATCH, how)
    for name in a.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(a, name), getattr(again, name))
        for other in (Draws.of(1, 3, BATCH, how), Draws.of(2, 2, BATCH, how)):
            assert not np.array_equal(getattr(a, name), getattr(other, name))


@pytest.mark.parametrize("size", [8, 15])
def test_what_happens_to_a_picture_does_not_depend_on_the_rows_beside_its_pair(size):
    pytest.importorskip("torchvision", reason="augmentation by torchvision")
    how = Augmentation()
    images, labels = batch(size)
    draws = Draws.of(0, 0, BATCH, how)
    whole = augment(images, labels, 4, draws, how)
    parts = [augment(images[i : i + 2], labels[i : i + 2], 4, draws[i : i + 2], how) for i in range(0, BATCH, 2)]
    for got, pieces in zip(whole, zip(*parts, strict=True), strict=True):
        torch.testing.assert_close(got, torch.cat(pieces), rtol=0, atol=1e-6)


# -- augmentation -----------------------------------------------------------------------------------------------------


def test_off_is_off():
    images, labels = batch()
    x, targets = augment(images, labels, 5, Draws.of(0, 0, BATCH, OFF), OFF)
    assert torch.equal(x, normalise(images))
    assert torch.equal(targets, F.one_hot(torch.from_numpy(labels), 5).float())
    black = normalise(torch.zeros(1, 3, 2, 2, dtype=torch.uint8))[0, :, 0, 0]
    torch.testing.assert_close(black, torch.tensor([-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225]))


def test_smoothing_gives_every_class_a_share():
    images, labels = batch()
    _, targets = augment(images, labels, 5, Draws.of(0, 0, BATCH, OFF), replace(OFF, smoothing=0.1))
    torch.testing.assert_close(targets, 0.9 * F.one_hot(torch.from_numpy(labels), 5) + 0.02)


def test_half_of_the_pictures_are_mirrored():
    images, labels = batch(rows=400)
    x, _ = augment(images, labels, 4, Draws.of(0, 0, 400, OFF), replace(OFF, flip=True))
    plain, mirrored = normalise(images), normalise(images.flip(-1))
    was = (x == mirrored).flatten(1).all(1)
    assert (was | (x == plain).flatten(1).all(1)).all()
    assert 150 < was.sum() < 250


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.8, 0.0), (0.0, 1.0), (0.8, 1.0)])
def test_targets_are_mixed_as_pixels_are(mixup, cutmix):
    how, rows = replace(OFF, mixup=mixup, cutmix=cutmix), 200
    bright = torch.arange(rows) % 2  # each pair has one black and one white picture, and these are the classes
    x, targets = mix(
        bright[:, None, None, None].expand(-1, 3, 12, 9).float(),
        F.one_hot(bright, 2).float(),
        Draws.of(0, 0, rows, how),
        how,
    )
    torch.testing.assert_close(x.mean((1, 2, 3)), targets[:, 1])
    torch.testing.assert_close(targets.sum(1), torch.ones(rows))
    torch.testing.assert_close(x[::2], 1 - x[1::2])
    sharp = ((x == 0) | (x == 1)).flatten(1).all(1).float().mean()
    assert sharp < 0.1 if not cutmix else sharp == 1 if not mixup else 0.3 < sharp < 0.7
    assert targets[:, 1].std() > 0.2


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.8, 0.0), (0.0, 1.0), (0.0, 0.0)])
def test_either_mixture_alone_mixes(mixup, cutmix):
    how = replace(OFF, mixup=mixup, cutmix=cutmix)
    images, labels = batch()
    x, targets = augment(images, labels, 4, Draws.of(0, 0, BATCH, how), how)
    mixed = bool(mixup or cutmix)
    assert how.mixes == mixed
    assert torch.equal(x, normalise(images)) != mixed
    assert ((targets == 0) | (targets == 1)).all() != mixed


def test_a_quarter_of_the_pictures_loses_a_rectangle():
    how, rows = replace(OFF, erase=0.25), 800
    images = torch.full((rows, 3, 20, 20), 255, dtype=torch.uint8)
    x, _ = augment(images, np.zeros(rows, np.int64), 2, Draws.of(0, 0, rows, how), how)
    gone = (x == 0).all(1)
    area = gone.flatten(1).float().mean(1)
    assert 0.2 < (area > 0).float().mean() < 0.3
    assert 0.25 < area.max() < 0.4
    for mask in gone[area > 0][:20]:
        assert mask.sum() == mask.any(0).sum() * mask.any(1).sum()


@pytest.mark.parametrize(("height", "width"), [(20, 20), (7, 31)])
def test_a_mirrored_draw_erases_the_mirrored_rectangle(height, width):
    """So no edge is preferred, and none is left out."""
    how, rows = replace(OFF, erase=1.0), 400
    draws = Draws.of(0, 0, rows, how)
    mirrored = replace(draws, erase=np.concatenate([draws.erase[:, :3], 1 - draws.erase[:, 3:]], 1))
    images = torch.full((rows, 3, height, width), 255, dtype=torch.uint8)
    gone, back = ((augment(images, np.zeros(rows, int), 2, d, how)[0] == 0).all(1) for d in (draws, mirrored))
    assert torch.equal(gone, back.flip(-1, -2))
    assert gone.any(0).all()
    area = (gone.flatten(1).sum(1) / (height * width)).numpy()
    whole = (gone.any(1).sum(1) < width) & (gone.any(2).sum(1) < height)  # those that no edge cuts
    wanted = 0.02 + 0.31 * draws.erase[:, 1]
    assert np.abs(area - wanted)[whole.numpy()].max() < (height + width) / 2 / (height * width)  # half a pixel a side
    ratio = gone.any(2).sum(1) / gone.any(1).sum(1)
    assert ratio.min() < 1 < ratio.max()


def test_randaugment_is_torchvisions_picture_by_picture():
    v2 = pytest.importorskip("torchvision.transforms.v2", reason="augmentation by torchvision")
    theirs = v2.RandAugment(
        magnitude=9,
        num_magnitude_bins=11,
        interpolation=v2.InterpolationMode.BILINEAR,
        fill=[round(255 * c) for c in MEAN],
    )
    space = list(theirs._AUGMENTATION_SPACE.items())
    images = torch.randint(
        0, 256, (4 * len(space), 3, 15, 20), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    draws = np.zeros((len(images), 2, 2))
    draws[:, :, 0] = (0.5 / len(space) + np.arange(len(images)) / len(space))[:, None] % 1
    draws[:, 1, 0] = np.roll(draws[:, 1, 0], 5)
    draws[:, :, 1] = np.random.default_rng(0).random((len(images), 2))
    expected = []
    for image, layers in zip(images, draws.tolist(), strict=True):
        for which, direction in layers:
            name, (magnitudes, signed) = space[int(which * len(space))]
            values = magnitudes(11, 15, 20)
            magnitude = 0.0 if values is None else float(values[9]) * (-1 if signed and direction < 0.5 else 1)
            image = theirs._apply_image_or_video_transform(image, name, magnitude, theirs.interpolation, theirs._fill)
        expected.append(image)
    got = rand_augment(images, draws, 9.0)
    assert got.dtype == torch.uint8
    assert (got.int() - torch.stack(expected).int()).abs().max() <= 1
    assert (got == torch.stack(expected)).float().mean() > 0.999


@pytest.mark.parametrize(
    ("name", "value"),
    [("erase", 1.5), ("smoothing", -0.1), ("mixup", -1.0), ("randaugment", 11.0), ("cutmix", math.nan)],
)
def test_strengths_out_of_range_are_refused(name, value):
    with pytest.raises(UserError, match=f"{name}="):
        check(replace(OFF, **{name: value}))


def test_pictures_move_to_a_device_only_where_they_fit(monkeypatch):
    images, _ = batch()
    assert ArrayPictures(images).to(torch.device("meta")).pixels.device.type == "meta"
    monkeypatch.setattr("horosphere.data.images.RESIDENT", 10)
    assert ArrayPictures(images).to(torch.device("meta")).pixels.device.type == "cpu"
