"""Every task so small that a run takes a second: recipes, settings, and data for them."""

from pathlib import Path

import numpy as np
from PIL import Image

from horosphere.train.engine import Place
from horosphere.train.recipe import Recipe
from horosphere.train.training import train
from tests.data.pictures import write_npz
from tests.data.shapes import write_instances, write_semantic
from tests.models.tiny_clip import write_clip

TEXTS = [
    f"Chapter {i}. The cat's hat cost {i * 137} euros; the dog's, größer, {'much ' * (i % 5)}more 猫."
    for i in range(120)
]
SHORT = ("steps=4", "lr=1e-2", "log_every=1", "eval_every=2", "save_every=2")
LANGUAGE = (
    *("vocab=300", "length=16", "batch=4", "sample_every=none", *SHORT),
    *("hidden_size=32", "num_hidden_layers=2", "num_attention_heads=2", "head_dim=16", "intermediate_size=48"),
    *("moe_intermediate_size=16", "q_lora_rank=16", "kv_lora_rank=16"),
    *("qk_nope_head_dim=8", "qk_rope_head_dim=8", "v_head_dim=8"),
)
MASKED = (
    *("vocab=300", "length=16", "batch=8", *SHORT),
    *("width=16", "heads=2", "layers=1", "inner=24", "dropout=0"),
)
CHARACTERS = (
    *("valid=none", "length=16", "batch=4", "sample_every=none", *SHORT),
    *("hidden_size=8", "embedding_size=4", "geometry=lorentz"),
)
HCFORMER = (
    *("blocks=1,1,1,1", "dims=8,8,8,8", "heads=1,1,1,1", "head_width=8", "mlp_ratios=1,1,1,1", "windows=2,2,1,1"),
    *("patch_centres=4,1,1,1", "window_centres=1,1,1,0", "layer_scale=0.5", "drop_path=0.2"),
)
PICTURES = ("size=8", "batch=8", "ema=0.9", "randaugment=0", *SHORT, *HCFORMER)
DENSE = ("size=32", "batch=4", "width=8", *SHORT, *HCFORMER)
OPEN = (
    *("names=ground,square,circle", "ignore=9", "template={}", "size=32", "batch=4", *SHORT),
    *("channels=8", "heads=2", "window=3", "guide=4", "text_guide=4"),
    *("method=hyperclip", "sides=both", "block=8"),
)
NODES = ("dim=3", "batch=16", "negatives=20", *SHORT, "lr=0.1")
FEW_SHOT = ("shots=4", "pool=8", "batch=8", "template=a photo of {}", "attributes=4", *SHORT)
TABLES = ("batch=8", "hidden=5", *SHORT)
MACHINE = ("batch=8", "hidden=5", "chain=2", *SHORT)
IMAGE_TEXT = ("batch=4", *SHORT)
RATINGS = ("batch=8", "dim=3", *SHORT)
WORDS = ("batch=8", "dim=4", "window=2", "least=2", *SHORT)
PAIRS = ("batch=8", "width=6", "dropout=0", "sample_every=2", *SHORT)
LABELLED = ("batch=8", "least=1", "width=6", "filters=4", "dropout=0", *SHORT)
STYLE = ("size=40", "backbone=torchvision:mobilenet_v3_small", *SHORT)
TRACKS = ("batch=8", "template=20", "search=36", "width=4", "reach=3", *SHORT)
COLOURS, SHAPES = ["red", "green", "blue", "yellow"], ["ground", "square", "circle"]
TREE = "".join(f"n{i}\tn{(i - 1) // 2}\n" for i in range(1, 31))

# kind of run: recipe, settings
TINY = {
    "language": ("helm-mice-tiny", LANGUAGE),
    "characters": ("gru-lm", CHARACTERS),
    "sequential": ("lstm-lm", (*CHARACTERS, "partition=sequential")),
    "pictures": ("hcformer-nano-32", PICTURES),
    "semantic": ("semantic-fpn", (*DENSE, "ignore=9")),
    "instances": ("mask-rcnn", DENSE),
    "boxes": ("tinyssd", ("size=64", "batch=4", "geometry=lorentz", *SHORT)),
    "open_vocabulary": ("open-vocabulary", OPEN),
    "nodes": ("embedding", NODES),
    "few_shot": ("few-shot", FEW_SHOT),
    "image_text": ("adapt-radial", IMAGE_TEXT),
    "masked": ("bert-tiny", MASKED),
    "tables": ("mlp", TABLES),
    "machines": ("gaussian-rbm", MACHINE),
    "ratings": ("mf", RATINGS),
    "ranking": ("bpr", RATINGS),
    "words": ("skip-gram", (*WORDS, "shared=3")),
    "counts": ("glove", WORDS),
    "pairs": ("seq2seq-attention", (*PAIRS, "hidden=8")),
    "transformed": ("seq2seq", (*PAIRS, "model=transformer", "heads=1", "inner=8", "layers=1")),
    "texts": ("textcnn", LABELLED),
    "style": ("style", STYLE),
    "tracks": ("siamfc", TRACKS),
}
ON_TOWERS = {"open_vocabulary", "few_shot", "image_text"}  # a CLIP lies beside the data
KINDS = tuple(TINY)


def write_text(path, texts=TEXTS):
    Path(path).write_text("\f".join(texts), encoding="utf-8")
    return str(path)


def write_tree(path):
    Path(path).write_text(TREE)
    return str(path)


def write_data(kind, folder):
    """Data for a kind of run, in a folder that is there."""
    folder = Path(folder)
    if kind in ("language", "characters", "sequential", "masked", "words", "counts"):
        return write_text(folder / "cats.txt")
    if kind == "pictures":
        return write_npz(folder / "colours.npz", coarse_of_fine=np.array([0, 0, 1, 1]))
    if kind in ON_TOWERS:
        write_clip(folder / "clip", ["a", "photo", "of", "big", "thing", "on", "grey", *COLOURS, *SHAPES])
    if kind in ("semantic", "open_vocabulary"):
        return write_semantic(folder / "semantic")
    if kind in ("instances", "boxes"):
        return write_instances(folder / "instances", empty=(0, 1, 2, 3, 9))
    if kind == "few_shot":
        return write_npz(folder / "named.npz", coarse_of_fine=np.array([0, 0, 1, 1]), fine_names=np.array(COLOURS))
    if kind == "image_text":
        return write_captions(folder / "captions")
    if kind in ("tables", "machines"):
        return write_numbers(folder / "flowers.csv")
    if kind in ("ratings", "ranking"):
        return write_ratings(folder / "ratings.csv")
    if kind in ("pairs", "transformed"):
        return write_pairs(folder / "pairs.tsv")
    if kind == "texts":
        return write_labelled(folder / "texts.tsv")
    if kind == "style":
        write_noise(folder / "style.png", seed=1)
        return write_noise(folder / "content.png")
    if kind == "tracks":
        return write_sequences(folder / "sequences")
    return write_tree(folder / "tree.tsv")


def write_pairs(path, count=60):
    """Numbers in words, and the same in figures."""
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    numbers = [(7 * n) ** 2 for n in range(count)]
    rows = [(" ".join(words[int(digit)] for digit in str(n)), " ".join(str(n))) for n in numbers]
    Path(path).write_text("".join(f"{a}\t{b}\n" for a, b in rows))
    return str(path)


def write_labelled(path, count=60):
    """What was seen, and where it lives."""
    homes = {"sea": ["whale", "shark", "crab"], "land": ["dog", "cat", "猫"], "air": ["crow", "owl"]}
    rows = [
        (home, f"{n} times {seen[n % len(seen)]}{'s were seen' * (n % 2)}")
        for n in range(count)
        for home, seen in homes.items()
    ]
    Path(path).write_text("".join(f"{label}\t{text}\n" for label, text in rows), encoding="utf-8")
    return str(path)


def write_noise(path, seed=0, width=40, height=32):
    """A picture of coarse noise."""
    coarse = np.random.default_rng(seed).integers(0, 256, (8, 10, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize((width, height)).save(path)
    return str(path)


def write_sequences(folder, count=4, frames=6, separator=","):
    """A red square that moves to the right over noise, in the layout of OTB: boxes are counted from 1."""
    for number in range(count):
        place = Path(folder) / f"s{number}"
        (place / "img").mkdir(parents=True)
        noise = np.random.default_rng(number).integers(0, 200, (48, 64, 3), dtype=np.uint8)
        lines = []
        for frame in range(frames):
            left, top = 6 + 2 * frame + number, 8 + number
            shown = noise.copy()
            shown[top : top + 20, left : left + 20] = (250, 40, 40)
            Image.fromarray(shown).save(place / "img" / f"{frame + 1:04d}.png")
            lines.append(separator.join(map(str, (left + 1, top + 1, 20, 20))))
        (place / "groundtruth_rect.txt").write_text("\n".join(lines) + "\n")
    return str(folder)


def write_numbers(path, rows=60):
    """Three kinds that differ by two of four columns."""
    draws = np.random.default_rng(0)
    kinds = draws.integers(0, 3, rows)
    x = draws.normal(size=(rows, 4)) + 2 * np.eye(4)[kinds]
    lines = [",".join([*(f"{value:.4f}" for value in row), "abc"[kind]]) for row, kind in zip(x, kinds, strict=True)]
    Path(path).write_text("\n".join(["height,width,age,weight,kind", *lines]) + "\n")
    return str(path)


def write_ratings(path, users=9, items=12):
    """Every user has rated two items of three: those of its own kind high."""
    rated = [(u, i) for u in range(users) for i in range(items) if (u + i) % 3]
    rows = [f"user {u},item {i},{5 if u % 2 == i % 2 else 2},{(7 * u + 5 * i) % 31}" for u, i in rated]
    Path(path).write_text("\n".join(rows) + "\n")
    return str(path)


def write_captions(folder, count=20, levels=3):
    """Squares of a colour, and chains of captions from general to specific."""
    (Path(folder) / "images").mkdir(parents=True)
    rows = ["captions,image"]
    for number in range(count):
        colour = COLOURS[number % 4]
        picture = Image.new("RGB", (40, 32), "grey")
        picture.paste(colour, (number % 7, 4, 20 + number % 11, 28))
        picture.save(Path(folder) / "images" / f"{number}.png")
        chain = (f"{colour} thing", f"big {colour} thing", f"a big {colour} thing on grey {number}")[-levels:]
        rows.append(f"{' => '.join(chain)},{number}.png")
    (Path(folder) / "captions.csv").write_text("\n".join(rows) + "\n")
    return str(folder)


def tiny(kind, data, *more, name=None):
    recipe, settings = TINY[kind]
    if kind in ON_TOWERS:
        settings = (f"towers={Path(data).parent / 'clip'}", *settings)
    if kind == "style":
        settings = (f"style={Path(data).parent / 'style.png'}", *settings)
    return Recipe.read(name or recipe, [f"data={data}", *settings, *more])


def run_tiny(recipe, folder, **how):
    return train(recipe, Place(Path(folder), **{"quiet": True, **how}), "cpu")
