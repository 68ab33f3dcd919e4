"""What lets HCFormer cluster, and whether curvature pays once it does: trainings side by side on small pictures.

    python benchmarks/clusters.py settings --data cifar100-subset.npz --device cuda --jobs 10
    python benchmarks/clusters.py levels --data cifar100-subset.npz --device cuda --jobs 12 layer_scale=0.1

`settings` trains variants of hcformer-nano-32 with one seed, ResNet-18 and Swin-T beside them. `levels` trains each
geometry of the two levels with the settings given behind it, and ResNet-18 without them, with three seeds. One α is
not as sharp in one geometry as in the other: `--of "E + E" window_scale=10` sets it for one of them alone. The table
shows, stage by stage, α and how many centres a place spreads over (of the pictures held out), and the mean magnitude of
LayerScale of mixers and MLPs. Runs go to runs/clusters/. Those that are done are not done again, so the same command
goes on after it was stopped. `--minutes` ends it with the table of what is there.
"""

import argparse
from pathlib import Path
from statistics import fmean

from seeing import done, run  # the script beside this one

from horosphere import catalogue
from horosphere.measure.vision import by_stage
from horosphere.models.hcformer import HCFormerConfig
from horosphere.runs import Run
from horosphere.settings import settings_of
from horosphere.study.jobs import Job
from horosphere.tables import table_lines
from horosphere.tasks.pictures import Pictures
from horosphere.train.recipe import Recipe

RECIPE = ("hcformer-nano-32", "randaugment=0", "mixup=0.2", "cutmix=0", "eval_every=500", "save_every=100000")
OPEN, SHARP = ("layer_scale=0.1",), ("patch_scale=10", "window_scale=20")
VARIANTS = {
    "paper": (),
    "one centre": ("patch_centres=1,1,1,1", "window_centres=1,1,1,0"),  # means of windows and of the map: no clusters
    "open": OPEN,  # blocks are added from the beginning
    "sharp": SHARP,
    "open, wide": (*OPEN, "init=wide"),
    "open, sharp": (*OPEN, *SHARP),
    "open, very sharp": (*OPEN, "patch_scale=30", "window_scale=60"),
    "open, sharp, wide": (*OPEN, *SHARP, "init=wide"),
    "whole, sharp": ("layer_scale=1", *SHARP),
    "open, quick": (*OPEN, "scale_lr=100"),  # α goes where it will
    "open, sharp, quick": (*OPEN, *SHARP, "scale_lr=30"),
    "open, hard": (*OPEN, "assignment=hard"),
    "open, sharp, lr 3e-3": (*OPEN, *SHARP, "lr=3e-3"),
}
BESIDE = {"ResNet-18": ("model=resnet18",), "Swin-T": ("model=swin_t",)}
LEVELS = {entrant.name: entrant.changes for entrant in catalogue.comparisons()["levels"].entrants}
SCORES = [metric for metric in Pictures.metrics if metric.role != "detail"]
READ = {  # heads of what a model says of itself
    "patch_scale": "α patch",
    "window_scale": "α window",
    "patch_centres": "patch centres",
    "window_centres": "window c.",
    "mixer_scale": "LS mixer",
    "mlp_scale": "LS MLP",
}
STEPS, SEEDS = {"settings": 1500, "levels": 3500}, {"settings": 1, "levels": 3}


def trainings(args: argparse.Namespace) -> dict[str, list[str]]:
    """{name: settings} of each entrant. Other networks have no settings of HCFormer's."""
    own = {*settings_of(HCFormerConfig), "scale_lr"}
    common = [word for word in args.settings if word.partition("=")[0] not in own]
    if args.what == "levels":
        curved = {name: [*args.settings, *changes, *own_of(name, args)] for name, changes in LEVELS.items()}
        return {**curved, "ResNet-18": [*BESIDE["ResNet-18"], *common]}
    variants = {name: [*words, *args.settings] for name, words in VARIANTS.items()}
    return {**variants, **{name: [*words, *common] for name, words in BESIDE.items()}}


def own_of(name: str, args: argparse.Namespace) -> list[str]:
    return [word for entrant, word in args.of if entrant == name]


def folder(name: str, seed: int, args: argparse.Namespace) -> Path:
    return args.out / args.what / f"{name.replace(',', '').replace(' ', '-')}-{seed}"


def jobs_of(args: argparse.Namespace) -> dict[str, Job]:
    """The trainings that are not done yet, by name. All entrants have a seed before the next one begins."""
    jobs = {}
    for seed in range(args.seeds or SEEDS[args.what]):
        for name, settings in trainings(args).items():
            recipe, *words = RECIPE
            words += [f"data={args.data}", f"steps={STEPS[args.what]}", *settings, f"seed={seed}"]
            steps, told = Recipe.read(recipe, words).engine.steps, f"{name} {seed}"
            if not done(folder(name, seed, args)):
                words = ["train", recipe, *words, "--device", args.device]
                jobs[told] = Job(told, tuple(words), folder(name, seed, args), steps)
    return jobs


def row_of(name: str, args: argparse.Namespace) -> list[str]:
    """Means over the seeds that are done; of α, centres and LayerScale for each stage."""
    folders = [folder(name, seed, args) for seed in range(args.seeds or SEEDS[args.what])]
    runs = [Run.open(path) for path in folders if done(path)]
    if not runs:
        return [name, "0", *[""] * (len(SCORES) + 1 + len(READ))]
    scores = [metric.cell([run.scores()[metric.name] for run in runs]) for metric in SCORES]
    losses = [[line["loss"] for line in run.lines() if "loss" in line][-10:] for run in runs]
    last = [run.readings()[-1] for run in runs if run.readings()]
    readings = [by_stage({name: value for name, value in of.items() if name != "step"}) for of in last]
    cells = [stages([reading.get(what, {}) for reading in readings]) for what in READ]
    return [name, str(len(runs)), *scores, f"{fmean(map(fmean, losses)):.3f}", *cells]


def stages(readings: list[dict[int, float]]) -> str:
    """Means over runs, a number a stage that has one."""
    return " ".join(f"{fmean(of[stage] for of in readings):.2g}" for stage in (readings or [{}])[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=STEPS)
    parser.add_argument("settings", metavar="key=value", nargs="*", help="of all trainings")
    own = "of one geometry: E + E, H + H or H + E; may be given again"
    parser.add_argument("--of", nargs=2, metavar=("NAME", "key=value"), action="append", default=[], help=own)
    parser.add_argument("--data", required=True, help="a .npz of pictures (docs/vision.md)")
    parser.add_argument("--seeds", type=int, help="1 for settings, 3 for levels")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at once")
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("runs/clusters"))
    args = parser.parse_intermixed_args()
    run(jobs_of(args), args)
    heads = ["network", "seeds", *(metric.head for metric in SCORES), "loss", *READ.values()]
    print("\n".join(table_lines(heads, [row_of(name, args) for name in trainings(args)])))


if __name__ == "__main__":
    main()
