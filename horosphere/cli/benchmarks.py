"""Benchmarks of `horosphere eval`, which take towers: hierarcaps, hyperlex, fewshot, base-to-novel, ovseg."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from horosphere import catalogue
from horosphere.cli.common import choose_device, choose_executor, settings_of, table
from horosphere.described import Setting, describe
from horosphere.errors import UserError
from horosphere.recipes import read_recipe

if TYPE_CHECKING:
    from horosphere.study.few_shot import FewShotStudy

SEGMENTS = "open-vocabulary"  # the recipe


def hierarcaps(args: argparse.Namespace) -> None:
    """Does an embedding know general from specific? The length of a caption alone is always beside it."""
    from horosphere.tasks.image_text import ImageText, judge

    _refuse_study(args)
    known = describe("horosphere.tasks.image_text:ImageText")
    given = _settings(args, {name: known[name] for name in ("hyperlex", "classes")})
    data, device = _data(args, "captions"), choose_device(args.device)
    scores = judge(args.towers, data, device=device, quiet=args.quiet, **dict(s.split("=", 1) for s in given))
    shown = [metric for metric in ImageText.metrics if metric.name in scores]
    table([], [["towers", args.towers], *([m.title, m.show(scores[m.name])] for m in shown)])
    if "order" in scores and scores["order"] <= scores["length_order"]:
        print("The length of a caption orders chains better than these towers do.")
    if _learned_from(args.towers, data):
        print(f"These towers learned from a part of this. `horosphere eval {args.towers}` judges them by the rest.")


def hyperlex(args: argparse.Namespace) -> None:
    from horosphere.tasks.image_text import judge_words

    _refuse_study(args)
    _settings(args, {})
    score = judge_words(args.towers, _data(args, "pairs of words"), choose_device(args.device), args.quiet)
    table([], [["towers", args.towers], ["HyperLex", f"{score:.3f}  (Spearman's correlation with what people say)"]])


def fewshot(args: argparse.Namespace) -> None:
    study, shots = _study(args), [_shots(word) for word in args.shots or ()]
    _print((study.by_shots(shots) if shots else study.by_shots()).lines(), args)


def base_to_novel(args: argparse.Namespace) -> None:
    shots = [_shots(word) for word in args.shots or ()]
    if len(shots) > 1:
        raise UserError(f"--shots {','.join(args.shots)}: base-to-novel takes one number")
    _print(_study(args).base_to_novel(*shots).lines(), args)


def ovseg(args: argparse.Namespace) -> None:
    """Pixels by name: what cosines of the towers say and, of a run of open_vocabulary, what it learned."""
    from horosphere.runs import RUN, Run
    from horosphere.tasks.open_vocabulary import COSINES, OpenVocabulary, judge_run, judge_towers
    from horosphere.train.recipe import Recipe

    _refuse_study(args)
    device, towers = choose_device(args.device), args.towers
    settings = _settings(args, catalogue.known_settings(read_recipe(SEGMENTS)))
    if (Path(towers) / RUN).is_file() and (run := Run.open(towers)).about.task == OpenVocabulary.kind:
        if settings:
            raise UserError(f"{settings[0]}: {towers} has settings of its own; leave it out")
        columns = judge_run(run, args.data, device, args.quiet)
    else:
        asked = [f"data={_data(args, 'pictures with masks')}", f"towers={towers}", *settings]
        columns = judge_towers(Recipe.read(SEGMENTS, asked), device, args.quiet)
    shown = [metric for metric in OpenVocabulary.metrics if metric.name in columns[COSINES]]
    table(["", *columns], [[m.title, *(m.show(scores[m.name]) for scores in columns.values())] for m in shown])


BENCHMARKS: dict[str, tuple[Callable[[argparse.Namespace], None], str]] = {
    "hierarcaps": (hierarcaps, "the order of captions from general to specific"),
    "hyperlex": (hyperlex, "graded entailment of words"),
    "fewshot": (fewshot, "classes from 1, 2, 4, 8, 16 pictures each, all methods"),
    "base-to-novel": (base_to_novel, "half of the classes learned, the other half named"),
    "ovseg": (ovseg, "pixels by name, on classes seen and unseen in training"),
}


def _study(args: argparse.Namespace) -> "FewShotStudy":
    from horosphere.study.few_shot import RECIPE, FewShotStudy

    out = Path(args.out or Path("runs") / args.what)
    known = catalogue.known_settings(read_recipe(RECIPE))
    data = _data(args, "pictures with classes")
    settings = [f"towers={args.towers}", f"data={data}", *_settings(args, known)]
    where = choose_executor(args)
    args.out = str(out)
    device, methods = choose_device(args.device), args.methods or ()
    return FewShotStudy(settings, args.seeds, out, where, device, args.overwrite, args.quiet, methods)


def _print(lines: list[str], args: argparse.Namespace) -> None:
    print(*lines, sep="\n")
    print(f"runs and tables: {args.out}/")


def _refuse_study(args: argparse.Namespace) -> None:
    """Options of studies, where nothing is trained."""
    for name in ("shots", "methods", "out", "overwrite", "jobs"):
        if getattr(args, name):
            raise UserError(f"--{name}: eval {args.what} trains nothing; leave it out")


def _data(args: argparse.Namespace, what: str) -> str:
    if not args.data:
        raise UserError(f"eval {args.what} needs {what}: name them with --data")
    return str(args.data)


def _settings(args: argparse.Namespace, known: Mapping[str, Setting]) -> list[str]:
    """key=value, where the benchmark has such a key."""
    said = settings_of(args, known)
    for name in (setting.partition("=")[0] for setting in said):
        if name not in known:
            takes = f"it takes {', '.join(f'{one}=…' for one in known)}" if known else "it takes none"
            raise UserError(f"{name}=…: eval {args.what} has no such setting; {takes}")
    return said


def _learned_from(towers: str, data: str) -> bool:
    from horosphere.runs import RUN, Run

    if not (Path(towers) / RUN).is_file():
        return False
    return Path(str(Run.open(towers).about.recipe["task"].get("data"))).resolve() == Path(data).resolve()


def _shots(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise UserError(f"--shots {word}: numbers of pictures a class, as in --shots 1,4,16")
    return int(word)
