"""Captions and their pictures: three formats, chains, and mistakes that are named with their line."""

import json

import pytest

from horosphere.data.captions import read_captions
from horosphere.errors import UserError

CHAINS = [("animal", "dog", "dog on a mat"), ("animal", "cat", "a cat, asleep"), ("thing", "car", "red car")]
PICTURES = ["a.jpg", "b.jpg", "a.jpg"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    for name in set(PICTURES):
        (tmp_path / "images" / name).touch()
    return tmp_path


def write(folder, kind, chains=CHAINS, pictures=PICTURES, column="image"):
    rows = [(" => ".join(chain), picture) for chain, picture in zip(chains, pictures, strict=True)]
    file = folder / f"set{kind}"
    if kind == ".jsonl":
        file.write_text("".join(json.dumps({"captions": text, column: name}) + "\n" for text, name in rows))
    else:
        comma = "," if kind == ".csv" else "\t"
        lines = [comma.join(('"' + text + '"', name)) for text, name in rows]
        file.write_text("\n".join([f"captions{comma}{column}", *lines]) + "\n")
    return file


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".jsonl"])
@pytest.mark.parametrize("whole", [True, False])
def test_formats_agree_and_pictures_come_once(folder, kind, whole):
    file = write(folder, kind)
    data = read_captions(folder if whole else file)
    assert data.chains == CHAINS
    assert [path.name for path in data.pictures] == ["a.jpg", "b.jpg"]
    assert data.of.tolist() == [0, 1, 0]
    assert (len(data), data.levels) == (3, 3)


def test_the_end_of_an_address_names_a_picture_and_nothing_leads_elsewhere(folder):
    address = "http://somewhere.example/x/a.jpg"
    data = read_captions(write(folder, ".csv", pictures=[address, "../../b.jpg", address], column="image_url"))
    assert {path.parent for path in data.pictures} == {folder / "images"}
    for wrong in ("http://[x/1.png", "x" * 300 + ".png", "/etc/hostname", "x:a.jpg", "a.jpg#1"):
        with pytest.raises(UserError, match="there is no picture"):
            read_captions(write(folder, ".csv", pictures=[wrong, "b.jpg", "b.jpg"]))


def test_two_names_do_not_become_one_picture(folder):
    with pytest.raises(UserError, match=r"y/a\.jpg and x/a\.jpg are the same file"):
        read_captions(write(folder, ".csv", pictures=["x/a.jpg", "y/a.jpg", "b.jpg"]))
    (folder / "images" / "x").mkdir()
    (folder / "images" / "x" / "a.jpg").touch()
    data = read_captions(write(folder, ".csv", pictures=["x/a.jpg", "a.jpg", "b.jpg"]))
    assert len(data.pictures) == 3


def test_a_list_is_a_chain_and_other_values_are_named(folder):
    rows = [{"captions": ["animal", "dog"], "image": "a.jpg"}, {"captions": "animal => cat", "image": "b.jpg"}]
    (folder / "set.jsonl").write_text("\ufeff" + "\n".join(map(json.dumps, rows)))
    assert read_captions(folder / "set.jsonl").chains == [("animal", "dog"), ("animal", "cat")]
    for wrong in ("null", "7", '["a", 1]', '"\\ud800"', "[" * 200_000):
        (folder / "set.jsonl").write_text(f'{{"captions": {wrong}, "image": "a.jpg"}}\n')
        with pytest.raises(UserError) as error:
            read_captions(folder / "set.jsonl")
        assert "\n" not in str(error.value)


def test_plain_captions_are_chains_of_one(folder):
    assert read_captions(write(folder, ".csv", chains=[("a dog",), ("a cat",), ("a car",)])).levels == 1


@pytest.mark.parametrize(
    ("chains", "pictures", "said"),
    [
        ([CHAINS[0], ("animal", "cat"), CHAINS[2]], PICTURES, "set.csv, line 3: 2 captions; the first row has 3"),
        ([CHAINS[0], ("animal", "", "cat"), CHAINS[2]], PICTURES, "set.csv, line 3: a caption is empty"),
        (CHAINS, ["a.jpg", "z.jpg", "a.jpg"], "set.csv, line 3: there is no picture z.jpg in"),
        (CHAINS, ["a.jpg", "", "a.jpg"], "set.csv, line 3: none of the columns image, file"),
        ([], [], "no captions in it"),
    ],
)
def test_mistakes_are_named_with_their_line(folder, chains, pictures, said):
    with pytest.raises(UserError) as error:
        read_captions(write(folder, ".csv", chains, pictures))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_read(folder):
    for name, content, said in (
        ("x.txt", b"", "captions are read from .csv, .tsv, .jsonl"),
        ("x.jsonl", b"{", "a damaged file"),
        ("x.jsonl", b"3\n", "line 1 is no object"),
        ("x.csv", b"captions,image\n\xff\xfe,a.jpg\n", "a damaged file"),
        ("none.csv", None, "no such file"),
    ):
        if content is not None:
            (folder / name).write_bytes(content)
        with pytest.raises(UserError, match=said):
            read_captions(folder / name)
    (folder / "y.csv").touch()
    with pytest.raises(UserError, match="files of captions"):
        read_captions(folder)


def test_a_caption_of_two_chains_is_one_node_at_its_level(folder):
    chains = [("animal", "dog", "a dog"), ("animal", "dog", "dog"), ("thing", "animal", "toy")]
    tree = read_captions(write(folder, ".tsv", chains, ["a.jpg", "b.jpg", "a.jpg"])).tree()
    texts = [text for chain in chains for text in chain]
    assert [texts[i] for i in tree.first] == [text for _, text in tree.captions]
    assert tree.captions == [
        (0, "animal"),
        (1, "dog"),
        (2, "a dog"),
        (2, "dog"),
        (0, "thing"),
        (1, "animal"),  # below another level it is another
        (2, "toy"),
    ]
    links = [[1, 0], [2, 1], [3, 1], [5, 4], [6, 5]]
    assert tree.edges.tolist() == [*links, [7, 2], [7, 6], [8, 3]]  # a picture lies below all that is said of it
