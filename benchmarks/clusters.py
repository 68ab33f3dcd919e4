"""What lets HCFormer cluster, and whether curvature pays once it does: trainings side by side on small pictures.

    python benchmarks/clusters.py settings --data cifar100-subset.npz --device cuda --jobs 5 --minutes 9
    python benchmarks/clusters.py levels --data cifar100-subset.npz --device cuda --jobs 4 --minutes 9 layer_scale=0.1
    python benchmarks/clusters.py picture --only "as in the paper" --only "open, sharp"

`settings` trains variants of hcformer-nano-32 with one seed, ResNet-18 and Swin-T beside them. `levels` trains each
geometry of the two levels with wide matrices, an α with which clusters pass equally much in each, and the settings
given behind it; ResNet-18 without them; three seeds. `--of "E + E" window_scale=10` sets it for one geometry alone.
The table shows, stage by stage, α, how many centres a place spreads over, and how much of what tells places apart is
passed on (docs/vision.md). `picture` draws α, centres and the loss over the steps.

All that is worth keeping is one small file, clusters.json in the folder --out: of each training its words, and over
the steps its loss, scores and readings. It is written whenever a training ends, and `--minutes` ends them all. A
training whose words stand there with all their steps is done. So the same command goes on after it was stopped, and
on another machine too, where the file was brought. The runs themselves lie in --runs and are not needed again.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from seeing import done, run  # the script beside this one

from horosphere import catalogue
from horosphere.errors import UserError
from horosphere.files import write_whole
from horosphere.measure.vision import by_stage
from horosphere.models.hcformer import HCFormerConfig
from horosphere.plots.vision import draw_learning
from horosphere.runs import METRICS, Run
from horosphere.settings import settings_of
from horosphere.study.jobs import Job
from horosphere.tables import table_lines
from horosphere.tasks.pictures import Pictures
from horosphere.train.recipe import Recipe

RECIPE = ("hcformer-nano-32", "randaugment=0", "mixup=0.2", "cutmix=0", "save_every=100000")
OPEN, WHOLE = ("layer_scale=0.1", "init=wide"), ("layer_scale=1", "init=wide")  # how much of a block is added at first
SHARP, SHARPER = ("patch_scale=10", "window_scale=20"), ("patch_scale=30", "window_scale=60")
# means of windows and of the map in place of clusters
MEANS = ("patch_centres=1,1,1,1", "window_centres=1,1,1,0")
# windows of one patch, none of them clustered: patches hear of one another through the strided convolutions alone
ALONE = ("windows=32,16,8,4", "patch_centres=1,1,1,1", "window_centres=0,0,0,0")
VARIANTS = {  # the most telling first
    "as in the paper": (),
    "open": OPEN,
    "open, sharp": (*OPEN, *SHARP),
    "open, means": (*OPEN, *MEANS),
    "open, alone": (*OPEN, *ALONE),
    "whole, sharp": (*WHOLE, *SHARP),
    "whole, means": (*WHOLE, *MEANS),
    "whole, alone": (*WHOLE, *ALONE),
    "open, quick": (*OPEN, "scale_lr=100"),  # α goes where it will
    "open, hard": (*OPEN, "assignment=hard"),
    "open, narrow": (OPEN[0],),
    "whole, quick": (*WHOLE, "scale_lr=100"),
    "whole, sharper": (*WHOLE, *SHARPER),
    "open, sharp, lr 3e-3": (*OPEN, *SHARP, "lr=3e-3"),
}
BESIDE = {"ResNet-18": ("model=resnet18",), "Swin-T": ("model=swin_t",)}
LEVELS = {entrant.name: entrant.changes for entrant in catalogue.comparisons()["levels"].entrants}
# new networks with wide matrices then pass equally much in each geometry: a distance needs half the α of a cosine
ALIKE = {
    "E + E": ("patch_scale=10", "window_scale=50"),
    "H + H": ("patch_scale=6", "window_scale=20"),
    "H + E": ("patch_scale=10", "window_scale=20"),
}
SCORES = [metric for metric in Pictures.metrics if metric.role != "detail"]
READ = {  # heads of what a model says of itself
    "patch_scale": "α patch",
    "window_scale": "α window",
    "patch_centres": "patch centres",
    "window_centres": "window c.",
    "patch_passed": "patch passed",
    "window_passed": "window p.",
}
STEPS, SEEDS, EVALUATIONS = {"settings": 1500, "levels": 3500}, {"settings": 1, "levels": 3}, 10
RESULTS, PICTURE = "clusters.json", "clusters-learning.png"

Record = dict[str, Any]


@dataclass(frozen=True)
class Training:
    """An entrant with a seed. Its words decide everything but the machine."""

    name: str
    seed: int
    words: tuple[str, ...]

    @property
    def key(self) -> str:
        """By which another machine knows it: the data by the name of their file."""
        return " ".join(f"data={Path(word).name}" if word.startswith("data=") else word for word in self.words)

    def folder(self, args: argparse.Namespace) -> Path:
        return args.runs / args.what / f"{self.name.replace(',', '').replace(' ', '-')}-{self.seed}"

    def job(self, args: argparse.Namespace) -> Job:
        steps = Recipe.read(self.words[0], list(self.words[1:])).engine.steps
        told, words = f"{self.name} {self.seed}", ("train", *self.words, "--device", args.device)
        return Job(told, words, self.folder(args), steps)


def trainings(args: argparse.Namespace) -> list[Training]:
    """All entrants have a seed before the next one begins."""
    steps = int(dict(word.partition("=")[::2] for word in args.settings).get("steps", STEPS[args.what]))
    common = [*RECIPE[1:], f"data={args.data}", f"steps={steps}", f"eval_every={-(-steps // EVALUATIONS)}"]
    seeds = range(args.seeds or SEEDS[args.what])
    return [
        Training(name, seed, (RECIPE[0], *common, *words, f"seed={seed}"))
        for seed in seeds
        for name, words in entrants(args).items()
        if not args.only or name in args.only
    ]


def entrants(args: argparse.Namespace) -> dict[str, list[str]]:
    """{name: settings}. Other networks have no settings of HCFormer's."""
    own = {*settings_of(HCFormerConfig), "scale_lr"}
    common = [word for word in args.settings if word.partition("=")[0] not in own]
    if args.what == "levels":
        alike = {name: (*WHOLE[1:], *changes, *ALIKE[name]) for name, changes in LEVELS.items()}
        curved = {name: [*words, *args.settings, *own_of(name, args)] for name, words in alike.items()}
        return {**curved, "ResNet-18": [*BESIDE["ResNet-18"], *common]}
    variants = {name: [*args.settings, *words] for name, words in VARIANTS.items()}
    return {**variants, **{name: [*words, *common] for name, words in BESIDE.items()}}


def own_of(name: str, args: argparse.Namespace) -> list[str]:
    return [word for entrant, word in args.of if entrant == name]


# -- what is kept -----------------------------------------------------------------------------------------------------


class Results:
    """What was measured, by the words of each training: one file, whole at any time."""

    def __init__(self, path: Path):
        self.path = path
        kept = json.loads(path.read_text()) if path.is_file() else []
        self.records: dict[str, Record] = {record["key"]: record for record in kept}

    def done(self, training: Training) -> bool:
        return self.records.get(training.key, {}).get("done", False)

    def take(self, trainings: Sequence[Training], args: argparse.Namespace) -> None:
        """What their runs say by now, where they have begun."""
        for each in trainings:
            if (each.folder(args) / METRICS).is_file() and not self.done(each):
                self.records[each.key] = record_of(each, each.folder(args))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(record) for record in self.records.values())
        write_whole(self.path, f"[\n{lines}\n]\n".encode())


def record_of(training: Training, folder: Path) -> Record:
    run = Run.open(folder)
    losses = [line for line in run.lines() if "loss" in line]
    return {
        "name": training.name,
        "seed": training.seed,
        "key": training.key,
        "done": done(folder),
        "seconds": losses[-1]["seconds"] if losses else 0,
        "made_with": {what: run.about.made_with[what] for what in ("date", "device", "versions")},
        "loss": [[line["step"], round(line["loss"], 4)] for line in losses],
        "scores": rounded(run.evaluations()),
        "readings": rounded(run.readings()),
    }


def rounded(lines: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    return [{name: float(f"{value:.5g}") for name, value in line.items()} for line in lines]


# -- what is shown ----------------------------------------------------------------------------------------------------


def row_of(name: str, records: Sequence[Record]) -> list[str]:
    """Means over the seeds that are done. Where none is, what the first has come to, and its step."""
    whole = [record for record in records if record["done"]]
    shown = whole or [record for record in records if record["scores"]][:1]
    if not shown:
        return [name, "0", *[""] * (len(SCORES) + 1 + len(READ))]
    told = str(len(whole)) if whole else f"at step {shown[0]['scores'][-1]['step']:.0f}"
    scores = [metric.cell([record["scores"][-1][metric.name] for record in shown]) for metric in SCORES]
    losses = [fmean(loss for _, loss in record["loss"][-3:]) for record in shown]
    last = [record["readings"][-1] for record in shown if record["readings"]]
    readings = [by_stage({what: value for what, value in of.items() if what != "step"}) for of in last]
    cells = [stages([reading.get(what, {}) for reading in readings]) for what in READ]
    return [name, told, *scores, f"{fmean(losses):.3f}", *cells]


def stages(readings: Sequence[dict[int, float]]) -> str:
    """Means over runs, a number a stage that has one."""
    return " ".join(f"{fmean(of[stage] for of in readings):.2g}" for stage in (readings or [{}])[0])


def differences(named: dict[str, list[Record]]) -> list[str]:
    """Of the first score, to the first geometry: means and standard deviations over the seeds that both have."""
    of = {name: {r["seed"]: r["scores"][-1][SCORES[0].name] for r in rs if r["done"]} for name, rs in named.items()}
    base, *others = [name for name in LEVELS if name in of] or [""]
    lines = []
    for name in others:
        mine, theirs = of[name], of[base]
        pairs = [mine[seed] - theirs[seed] for seed in mine.keys() & theirs.keys()]
        spread = f" ± {stdev(pairs):.4f}" if len(pairs) > 1 else ""
        if pairs:
            lines.append(f"{name} less {base}: {SCORES[0].title} {fmean(pairs):+.4f}{spread}, {len(pairs)} seeds")
    return lines


def show(args: argparse.Namespace, results: Results) -> None:
    named: dict[str, list[Record]] = {}
    for training in trainings(args):
        named.setdefault(training.name, []).extend(filter(None, [results.records.get(training.key)]))
    heads = ["network", "seeds", *(metric.head for metric in SCORES), "loss", *READ.values()]
    print("\n".join(table_lines(heads, [row_of(*of) for of in named.items()])))
    if args.what == "levels":
        print("\n".join(differences(named)))


def draw(args: argparse.Namespace, results: Results) -> None:
    """One seed of each entrant that clusters."""
    records = [r for r in results.records.values() if r["readings"] and (not args.only or r["name"] in args.only)]
    if not records:
        raise UserError(f"{results.path}: no training of HCFormer in it{' by these names' * bool(args.only)}")
    first = {record["name"]: record for record in reversed(records)}
    chosen = [name for name in args.only or dict.fromkeys(record["name"] for record in records) if name in first]
    draw_learning({name: (first[name]["loss"], first[name]["readings"]) for name in chosen}, path=args.out / PICTURE)
    print(args.out / PICTURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*STEPS, "picture"])
    parser.add_argument("settings", metavar="key=value", nargs="*", help="of all trainings")
    own = "of one geometry: E + E, H + H or H + E; may be given again"
    parser.add_argument("--of", nargs=2, metavar=("NAME", "key=value"), action="append", default=[], help=own)
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="may be given again")
    parser.add_argument("--data", help="a .npz of pictures (docs/vision.md)")
    parser.add_argument("--seeds", type=int, help="1 for settings, 3 for levels")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at once")
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("runs"), help=f"the folder of {RESULTS}, and of the picture")
    parser.add_argument("--known", type=Path, help=f"an earlier {RESULTS}, to go on from")
    parser.add_argument("--runs", type=Path, default=Path("runs/clusters"))
    args = parser.parse_intermixed_args()
    results = Results(args.out / RESULTS)
    if args.known:
        results.records = {**Results(args.known).records, **results.records}
    if args.what == "picture":
        return draw(args, results)
    if args.data is None:
        parser.error("--data is missing")
    missing = [training for training in trainings(args) if not results.done(training)]

    def keep() -> None:
        ended = [each for each in missing if done(each.folder(args)) and not results.done(each)]
        if ended:
            results.take(ended, args)

    results.take([], args)
    run({job.name: job for job in (each.job(args) for each in missing)}, args, keep)
    results.take(missing, args)  # of those that were stopped, how far they have come
    show(args, results)


if __name__ == "__main__":
    main()
