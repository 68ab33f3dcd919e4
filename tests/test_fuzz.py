"""Every reader of files made by others, on bytes, damage and nonsense: a result, or a UserError of one line.

HOROSPHERE_FUZZ=5000 asks for as many examples of each.
"""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horosphere.data import Graph, read_graph
from horosphere.data.captions import read_captions
from horosphere.data.classes import read_classes
from horosphere.data.dense import open_instances, open_semantic
from horosphere.data.graph import read_edges, read_labels, write_edges
from horosphere.data.hyperlex import read_hyperlex
from horosphere.data.images import open_images, read_picture
from horosphere.data.read import EXTENSIONS
from horosphere.data.tables import Schema, open_table
from horosphere.data.text import documents
from horosphere.data.tokenizer import load_tokenizer
from horosphere.data.tokens import TokenFile
from horosphere.errors import UserError
from horosphere.evaluate.choice import read_task
from horosphere.models.weights import load_weights
from horosphere.recipes import read_recipe
from horosphere.superposition.fits import read_losses
from horosphere.superposition.frequencies import frequencies
from horosphere.superposition.results import read_results
from tests.data.pictures import write_npz
from tests.data.shapes import write_coco, write_semantic

for package in ("transformers", "PIL", "networkx"):
    pytest.importorskip(package)
EXAMPLES = int(os.environ.get("HOROSPHERE_FUZZ", 0))


@dataclass
class Reader:
    """A folder with a sound file, and what reads it."""

    file: str
    make: Callable[[Path], Any]
    read: Callable[[Path], Any]
    examples: int = 20


def put(name, content):
    return lambda folder: (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def graphs():
    import networkx as nx

    edges = nx.DiGraph([("dog", "pet"), ("cat", "pet"), ("tabby", "cat")])
    tables = {".tsv": "dog\tpet\ncat\tpet\n", ".csv": 'child,parent\ndog,pet\n"a, b",pet\n', ".txt": "a b\nc b\n"}
    tables |= {".edges": "0 1\n1 2\n", ".edgelist": "a b {}\nc b {}\n", ".adjlist": "a b c\nd\n"}
    tables |= {".json": '{"name": "pet", "children": [{"name": "dog"}, {"name": "cat", "children": ["tabby"]}]}'}
    for kind in EXTENSIONS:
        name = f"t{kind}"
        make = put(name, tables[kind]) if kind in tables else None
        made = make or (lambda folder, kind=kind: getattr(nx, f"write_{kind[1:]}")(edges, folder / f"t{kind}"))
        yield f"graph{kind}", Reader(name, made, lambda folder, name=name: read_graph(folder / name, directed=False))
    for kind in (".tsv", ".json"):
        name = f"t{kind}.gz"
        made = put(name, gzip.compress(tables[kind].encode(), mtime=0))
        yield f"graph{kind}.gz", Reader(name, made, lambda folder, name=name: read_graph(folder / name))


def texts():
    rows = '{"text": "once upon"}\n{"text": "a time", "id": 3}\n'
    for name, content in (
        ("t.txt", "once\fupon a time\n"),
        ("t.jsonl", rows),
        ("t.jsonl.gz", gzip.compress(rows.encode(), mtime=0)),
    ):
        yield (
            f"text {name}",
            Reader(name, put(name, content), lambda folder, name=name: list(documents(str(folder / name)))),
        )
    question = {"query": "The _ slept well.", "choices": ["cat", "car"], "gold": 0, "subject": "pets"}
    for task in ("copa", "winogrande", "mmlu"):
        made = put("t.jsonl", json.dumps(question) + "\n" + json.dumps(question))
        yield f"choice {task}", Reader("t.jsonl", made, lambda folder, task=task: read_task(task, folder / "t.jsonl"))
    pair = json.dumps({"good": "Cats sleep.", "bad": "Cats sleeps.", "phenomenon": "agreement"})
    yield "blimp", Reader("t.jsonl", put("t.jsonl", pair), lambda folder: read_task("blimp", folder / "t.jsonl"))
    words = "WORD1 WORD2 POS TYPE AVG_SCORE\npoodle dog N hyp-1 5.9\ndog poodle N r-hyp-1 1.2\n"
    yield "hyperlex", Reader("hyperlex-all.txt", put("hyperlex-all.txt", words), read_hyperlex)
    for kind, content in (
        (".csv", 'captions,image\n"pet => dog",a.jpg\npet => cat,b.jpg\n'),
        (".tsv", "captions\timage_url\npet => dog\thttp://x.org/a.jpg\npet => cat\tb.jpg\n"),
        (".jsonl", '{"captions": ["pet", "dog"], "image": "a.jpg"}\n{"caption": "pet => cat", "file": "b.jpg"}\n'),
    ):

        def made(folder, kind=kind, content=content):
            put(f"t{kind}", content)(folder)
            for name in ("a.jpg", "b.jpg"):
                (folder / name).touch()

        yield f"captions {kind}", Reader(f"t{kind}", made, lambda folder, kind=kind: read_captions(folder / f"t{kind}"))


def tables():
    row = "100,power:1.5,1,0.5,normal,dot,{},0,0.25,0.5\n"
    head = "n,law,density,gamma,bias,readout,m,seed,loss,phi_half\n"
    content = head + row.format(10) + row.format(20)
    yield "results.csv", Reader("results.csv", put("results.csv", content), lambda folder: read_results([folder]))
    losses = "family,dataset,m,loss,model,N\nopt,c4,64,3.1,a,1e6\nopt,c4,128,2.9,b,2e6\n"
    yield (
        "losses.csv",
        Reader("losses.csv", put("losses.csv", losses), lambda folder: read_losses(folder / "losses.csv")),
    )
    counts = "token,count\na,5\nb,3\nc,1\n"
    read = lambda folder: frequencies(f"counts:{folder / 'c.csv'}", 2, 1.0)  # noqa: E731
    yield "counts", Reader("c.csv", put("c.csv", counts), read)
    flowers = {"f.csv": 'a,b,"kind"\n1.5,2,x\n-3e1,4,y\n0,1,x\n', "f.tsv": "1\t2\t3\n4\t5\t6\n7\t8\t3\n"}
    for name, content in flowers.items():
        read = lambda folder, name=name: open_table(str(folder / name)).labels  # noqa: E731
        yield f"numbers {name}", Reader(name, put(name, content), read)
    about = {"columns": ["a", "b"], "target": "kind", "classes": ["x", "y"], "rows": 3}
    schema = json.dumps({**about, "scaling": [[0.5, 1], [1, 2]], "answers": [[0], [1]]})
    yield "table.json", Reader("table.json", put("table.json", schema), Schema.read)
    recipe = "task: nodes\nbase: embedding\ndim: 3\nmodel: embedding\nengine: {lr: 1e-3}\nlist: [1, 2]\n"
    yield (
        "recipe",
        Reader("r.yaml", put("r.yaml", recipe), lambda folder: read_recipe(str(folder / "r.yaml"), ["dim=4"])),
    )


def pictures():
    from PIL import Image

    whole = lambda height, width, draws: (0, 0, height, width)  # noqa: E731
    for kind in ("png", "jpg", "webp", "bmp", "tif", "ppm"):
        name = f"a.{kind}"
        made = lambda folder, name=name: Image.linear_gradient("L").resize((9, 7)).save(folder / name)  # noqa: E731
        yield name, Reader(name, made, lambda folder, name=name: read_picture(folder / name, whole, 4))
    yield (
        "npz",
        Reader("x.npz", lambda folder: write_npz(folder / "x.npz", 20, 4, 2), lambda f: open_images(f"{f}/x.npz")),
    )

    def masks(folder):
        data = open_semantic(str(folder), ignore=9)
        return data.train.read(0), data.valid.read(0)

    shape = {"height": 16, "width": 32}
    yield "mask", Reader("trainannot/00.png", lambda folder: write_semantic(folder, 1, 1, **shape), masks)

    def named(folder):
        write_semantic(folder, 1, 1, **shape)
        (folder / "classes.txt").write_text("sky\ntree\nroad\n")

    yield "classes.txt", Reader("classes.txt", named, masks)
    if find_spec("pycocotools") is None:
        return

    def objects(folder):
        data = open_instances(str(folder))
        return data.train.read(0), data.valid.read(0)

    yield "coco", Reader("annotations/instances_train.json", lambda f: write_coco(f, 1, 1), objects, 60)


def models():
    import torch
    from safetensors.torch import save_file
    from torch import nn

    from horosphere.models.adapters import Adaptation, adapt, load_adapter
    from horosphere.models.node_embedding import NodeEmbedding, NodeEmbeddingConfig, read_points, write_points
    from horosphere.models.pretrained import read_language_model
    from horosphere.models.towers import load_towers
    from horosphere.superposition.heads import head
    from tests.models.test_pretrained import encoder, sharded, tiny
    from tests.models.tiny_clip import huggingface_clip, write_clip

    names = {"labels.json": ('["a", "b"]', read_labels)}
    names["classes.json"] = '{"classes": ["a", "b"], "parents": [2, 2, -1]}', read_classes
    for name, (content, read) in names.items():
        yield name, Reader(name, put(name, content), read)

    def tokens(folder):
        np.arange(4, dtype=np.uint16).tofile(folder / "tokens.bin")
        about = {"tokens": 4, "bos": 0, "vocab_size": 4, "text_bytes": 9, "documents": 2}
        (folder / "tokens.json").write_text(json.dumps(about))

    for name in ("tokens.json", "tokens.bin"):
        yield name, Reader(name, tokens, TokenFile.open)

    def tokenizer(folder):
        from horosphere.data.tokenizer import train_tokenizer

        train_tokenizer(["the cat and the dog"] * 9, 260).save_pretrained(folder)

    for name in ("tokenizer.json", "tokenizer_config.json"):
        yield name, Reader(name, tokenizer, load_tokenizer, 30)

    def helm(folder):
        tiny().save_pretrained(folder)

    def parts(folder):
        helm(folder)
        sharded(folder)

    for name in ("config.json", "generation_config.json", "model.safetensors"):
        yield f"helm {name}", Reader(name, helm, read_language_model)
        if name != "generation_config.json":
            yield f"head {name}", Reader(name, helm, head)
    yield "helm index", Reader("model.safetensors.index.json", parts, read_language_model)
    yield "head index", Reader("model.safetensors.index.json", parts, head)

    def clip(folder):
        write_clip(folder, ["cat", "dog"])
        about = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
        (folder / "preprocessor_config.json").write_text(json.dumps(about))

    for name in ("config.json", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"):
        yield f"clip {name}", Reader(name, clip, lambda folder: load_towers(str(folder)), 10)

    def text(folder):
        clip(folder)
        encoder(folder)

    for name in ("config.json", "model.safetensors"):
        yield f"text encoder {name}", Reader(name, text, lambda folder: load_towers(f"text:{folder}"), 10)

    def adapter(folder):
        folder.rmdir()
        adapt(huggingface_clip(), Adaptation("hyperclip", block=8)).save(folder)

    for name in ("adapter.json", "adapter.safetensors"):
        yield name, Reader(name, adapter, lambda folder: load_adapter(huggingface_clip(), folder), 10)

    def points():
        return NodeEmbedding(3, NodeEmbeddingConfig(dim=2, learn_curvature=True))

    made = lambda folder: write_points(points().points, points().manifold, folder / "points.safetensors")  # noqa: E731
    yield (
        "points",
        Reader("points.safetensors", made, lambda folder: read_points(points(), folder / "points.safetensors")),
    )
    edges = lambda folder: write_edges(folder, Graph(["a", "b"], np.array([(1, 0)])))  # noqa: E731
    yield "edges", Reader("edges.safetensors", edges, lambda folder: read_edges(folder, ["a", "b"], True))
    weights = lambda folder: save_file({"weight": torch.ones(1, 2), "bias": torch.ones(1)}, folder / "w.safetensors")  # noqa: E731
    yield (
        "weights",
        Reader("w.safetensors", weights, lambda folder: load_weights(nn.Linear(2, 1), folder / "w.safetensors")),
    )


def readers():
    return {name: reader for part in (graphs, texts, tables, pictures, models) for name, reader in part()}


READERS = readers()


# -- damage -----------------------------------------------------------------------------------------------------------

ODD = [None, True, -1, 0, 3, 1.5, 1e308, -1e-320, 2**31, 2**62, 2**63, 10**30, float("nan"), float("inf")]
ODD += [
    "",
    "a",
    "\x1b[2J",
    "a\nb",
    "\ud800",
    "\u202e",
    "../a",
    "/dev/zero",
    "9" * 5000,
    [],
    {},
    [[]],
    [[[[0]]]],
    {"a": {}},
    [1, "a"],
]
ODD += [[1] * 300, {"a": 1, "b": [2]}, list("abc")]
TOKENS = [
    b"\x00",
    b"\xff",
    b"\x1b[2J",
    b"\n",
    b"\r",
    b'"',
    b",",
    b"\t",
    b"{",
    b"[",
    b"]" * 9,
    b"[" * 600,
    b"NaN",
    b"1e999",
]
TOKENS += [
    b"-1",
    b"9" * 30,
    b"9" * 5000,
    b"\xef\xbb\xbf",
    b"\xf0\x9f",
    b"\\ud800",
    b"&a",
    b"*a",
    b": ",
    b"!!python/name:os",
    b"<!ENTITY a 'b'>",
]


def damaged(data, content):
    """Bytes flipped, cut, put in, repeated."""
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(at, min(len(content), at + 40)))
        how = data.draw(st.sampled_from(["flip", "cut", "insert", "repeat", "drop"]))
        if how == "flip" and at < len(content):
            content = content[:at] + bytes([content[at] ^ data.draw(st.integers(1, 255))]) + content[at + 1 :]
        elif how == "cut":
            content = content[:at]
        elif how == "insert":
            content = content[:at] + data.draw(st.sampled_from(TOKENS) | st.binary(max_size=9)) + content[at:]
        elif how == "repeat":
            content = content[:end] + content[at:end] * data.draw(st.integers(1, 50)) + content[end:]
        else:
            content = content[:at] + content[end:]
    return content


def altered(data, value):
    """A value of JSON, somewhere in which another stands."""
    if isinstance(value, (dict, list)) and value and data.draw(st.integers(0, 4)):
        keys = sorted(value) if isinstance(value, dict) else range(len(value))
        key = data.draw(st.sampled_from(keys))
        changed = dict(value) if isinstance(value, dict) else list(value)
        how = data.draw(st.sampled_from(["into"] * 4 + ["drop", "add"]))
        if how == "drop":
            del changed[key]
        elif how == "add" and isinstance(changed, dict):
            changed[data.draw(st.sampled_from(["a", "\x1b[2J", "num_beams", "auto_map", "\ud800"]))] = data.draw(
                st.sampled_from(ODD)
            )
        else:
            changed[key] = altered(data, value[key])
        return changed
    return data.draw(st.sampled_from(ODD))


def nonsense(data, content):
    """In the form of the file, with another meaning; damage where the form is not known."""
    try:
        lines = content.decode().splitlines() if content[:1] == b"{" and b"}\n{" in content else [content.decode()]
        return "\n".join(json.dumps(altered(data, json.loads(line))) for line in lines).encode()
    except ValueError:
        return damaged(data, content)


# -- the test ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A folder with sound files for each reader, made once."""
    made = {}

    def folder(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("sound")
            READERS[name].make(made[name])
            READERS[name].read(made[name])  # it is
        return made[name]

    return folder


def everything(folder):
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", READERS)
def test_whatever_a_file_holds(name, sound, tmp_path):
    reader = READERS[name]
    whole = (sound(name) / reader.file).read_bytes()
    folder = shutil.copytree(sound(name), tmp_path / "in")

    @settings(
        max_examples=EXAMPLES or reader.examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def check(data):
        how = data.draw(st.sampled_from([damaged, nonsense, lambda data, _: data.draw(st.binary(max_size=60))]))
        (folder / reader.file).write_bytes(how(data, whole))
        before = everything(tmp_path)
        try:
            reader.read(folder)
        except UserError as error:
            told = str(error).replace(str(tmp_path), "")
            assert told.isprintable(), told
            assert len(told) < 1000
        assert everything(tmp_path) == before

    check()
