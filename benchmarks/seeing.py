"""Detectors and segmenters with flat and curved heads, each at its best learning rate: trainings side by side.

    python benchmarks/seeing.py --data ../shared/data/images --device cuda --jobs 12
    python benchmarks/seeing.py --only tinyssd --seeds 1 --device cpu --jobs 1    # builtin:scenes needs no data

Rates on CamVid, on Penn-Fudan and of TinySSD were chosen on one seed (docs/results/seeing.md); those of fcn and
faster-rcnn on scenes are their recipes'. Runs go to runs/seeing/. Those that are done are not done again,
so the same command goes on after it was stopped. `--minutes` ends it with the table of what is there.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean, stdev

from horosphere.runs import Run
from horosphere.tables import table_lines

SIDE_BY_SIDE = ("eval_every=none", "save_every=100000", "compile=false")  # compiling many small trainings costs more
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


def jobs_of(names: list[str], args: argparse.Namespace) -> dict[Path, list[str]]:
    """The folder of each training, and what `horosphere train` is told."""
    jobs = {}
    for seed in range(args.seeds):
        for name in names:
            _, (recipe, *settings), rates = STUDIES[name]
            for geometry, lr in rates.items():
                words = [*(word.format(data=args.data) for word in settings), f"geometry={geometry}", f"lr={lr}"]
                folder = args.out / name / f"{geometry}-{seed}"
                jobs[folder] = [recipe, *words, f"seed={seed}", *SIDE_BY_SIDE]
    return jobs


def run(jobs: dict[Path, list[str]], args: argparse.Namespace) -> None:
    """So many at once, until all are done or the time is over."""
    end, waiting, running = time.monotonic() + 60 * args.minutes, [f for f in jobs if not done(f)], {}
    while (waiting or running) and time.monotonic() < end:
        while waiting and len(running) < args.jobs:
            folder = waiting.pop(0)
            folder.parent.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "horosphere", "train", *jobs[folder], "--out", str(folder), "--quiet"]
            with open(f"{folder}.log", "w") as log:
                running[folder] = subprocess.Popen(
                    [*command, "--overwrite", "--device", args.device], stdout=log, stderr=log
                )
        for folder in [folder for folder, process in running.items() if process.poll() is not None]:
            if running.pop(folder).returncode:
                print(f"failed: {folder}: {Path(f'{folder}.log').read_text()[-200:].strip()}")
        time.sleep(0.5)
    for process in running.values():
        process.kill()


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
