"""Detectors and segmenters with flat and curved heads, each at its best learning rate: trainings side by side.

    python benchmarks/seeing.py --data ../shared/data/images --device cuda --jobs 12
    python benchmarks/seeing.py --only tinyssd --seeds 1 --device cpu --jobs 1    # builtin:scenes needs no data

Rates on CamVid, on Penn-Fudan and of TinySSD were chosen on one seed (docs/results/seeing.md); those of fcn and
faster-rcnn on scenes are their recipes'. Runs go to runs/seeing/. Those that are done are not done again,
so the same command goes on after it was stopped. `--minutes` ends it with the table of what is there.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev

from side_by_side import work  # the script beside this one

from horosphere.runs import Run
from horosphere.study.executors import Outcome
from horosphere.study.jobs import Job
from horosphere.tables import table_lines
from horosphere.train.recipe import Recipe

SIDE_BY_SIDE = ("eval_every=none", "compile=false")  # compiling many small trainings costs more
PENNFUDAN = ("data={data}/pennfudan", "flip=true")
# name: the score, settings of both heads, the learning rates of each head
STUDIES = {
    "tinyssd": ("box_ap", ("tinyssd",), {"euclidean": "3e-3", "lorentz": "3e-3"}),
    "fcn": ("miou", ("fcn",), {"euclidean": "3e-3", "lorentz": "3e-3"}),
    "faster-rcnn": ("box_ap", ("faster-rcnn",), {"euclidean": "1e-3", "lorentz": "1e-3"}),
    "fcn-camvid": (
        "miou",
        ("fcn", "data={data}/camvid", "ignore=11", "size=192", "scale=0.5,2", "flip=true", "steps=2000"),
        {"euclidean": "1e-3", "lorentz": "5e-4"},
    ),
    "tinyssd-pennfudan": (
        "box_ap",
        ("tinyssd", *PENNFUDAN, "size=256", "steps=2000"),
        {"euclidean": "3e-3", "lorentz": "3e-3"},
    ),
    "faster-rcnn-pennfudan": (
        "box_ap",
        (
            *("faster-rcnn", *PENNFUDAN, "backbone=torchvision:resnet18", "width=256", "regions=512"),
            *("size=320", "scale=0.75,1.25", "steps=700", "precision=bf16"),
        ),
        {"euclidean": "5e-4", "lorentz": "5e-4"},
    ),
}


def done(folder: Path) -> bool:
    return (folder / "model.safetensors").is_file()


def jobs_of(names: list[str], args: argparse.Namespace) -> dict[str, Job]:
    """The trainings that are not done yet, by name."""
    jobs = {}
    for seed in range(args.seeds):
        for name in names:
            _, (recipe, *settings), rates = STUDIES[name]
            for geometry, lr in rates.items():
                words = [*(word.format(data=args.data) for word in settings), f"geometry={geometry}", f"lr={lr}"]
                words += [f"seed={seed}", *SIDE_BY_SIDE]
                steps = Recipe.read(recipe, words).engine.steps or 0
                folder, told = args.out / name / f"{geometry}-{seed}", f"{name} {geometry} {seed}"
                if not done(folder):
                    jobs[told] = Job(told, ("train", recipe, *words, "--device", args.device), folder, steps)
    return jobs


def run(jobs: dict[str, Job], args: argparse.Namespace, each_time: Callable[[], None] = lambda: None) -> None:
    """So many at once, until all are done or the time is over. each_time: called when one has ended."""

    def wanted() -> dict[str, list[str]]:
        return {name: ["-m", "horosphere", *job.command] for name, job in jobs.items() if not done(job.folder)}

    def ended(name: str, outcome: Outcome) -> None:
        print(f"{name}: {outcome.said if outcome.code else 'done'}", flush=True)
        each_time()

    work(wanted, args.jobs, args.minutes, ended)


def rows_of(names: list[str], args: argparse.Namespace) -> list[list[str]]:
    rows = []
    for name in names:
        metric, _, rates = STUDIES[name]
        for geometry in rates:
            folders = [f for f in sorted(args.out.glob(f"{name}/{geometry}-?")) if done(f)]
            scores = [Run.open(folder).scores()[metric] for folder in folders]
            told = f"{fmean(scores):.4f}" if scores else ""
            spread = f" ± {stdev(scores):.4f}" if len(scores) > 1 else ""
            rows.append([name, metric, geometry, rates[geometry], told + spread, str(len(scores))])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=STUDIES, action="append", help="one of the studies; may be given again")
    parser.add_argument("--data", type=Path, help="the folder that holds camvid/ and pennfudan/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="trainings at once")
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("runs/seeing"))
    args = parser.parse_args()
    names = args.only or [name for name in STUDIES if args.data or "{data}" not in " ".join(STUDIES[name][1])]
    run(jobs_of(names, args), args)
    print("\n".join(table_lines(["study", "score", "head", "lr", "mean", "seeds"], rows_of(names, args))))


if __name__ == "__main__":
    main()
