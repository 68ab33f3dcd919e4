"""The classics beside what is known of them: reference, ours flat, ours curved over seeds, verdict.

    python benchmarks/classics.py                                  # all rows, 3 seeds, on this machine
    python benchmarks/classics.py --only lenet mf --jobs 2         # some of them
    python benchmarks/classics.py --keep docs/results/classics.json    # numbers for docs/classics.md

Each row is `horosphere compare NAME --geometries lorentz,euclidean`, in a folder of its own: a run that was stopped
goes on where it was. References come from elsewhere and are named. The table has no number of ours that this run did
not measure.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from horosphere import catalogue
from horosphere.files import write_whole
from horosphere.study.table import RESULTS
from horosphere.tables import table_lines


@dataclass(frozen=True)
class Reference:
    model: str
    metric: str
    value: str
    source: str


REFERENCES = (
    Reference("lenet", "top1", "0.956", "Xavier's weights, Adam, 4,000 digits"),
    Reference("gru-lm", "perplexity", "5.62", "trigram of characters"),
    Reference("skip-gram", "wordsim", "0.480", "gensim on the same text"),
    Reference("mf", "rmse", "0.943", "SVD with biases"),
    Reference("neumf", "hit10_of_100", "0.598", "recbole, 3 epochs"),
    Reference("textcnn", "accuracy", "0.849", "TF-IDF and logistic regression"),
    Reference("rbm", "pseudo_ll", "-21.0", "scikit-learn's machine, digits/16, 32 units"),
)


def study(model: catalogue.Model, folder: Path, seeds: int, jobs: int, device: str) -> dict:
    """What `compare` came to, or `train` where there is one geometry only."""
    out = folder / model.name
    common = ["--device", device, "--out", str(out)]
    if len(model.geometries) < 2:
        rows = [_trained(model.name, folder / f"{model.name}-{seed}", seed, device) for seed in range(seeds)]
        return {"verdict": "flat space only", "rows": {"euclidean": {k: [row[k] for row in rows] for k in rows[0]}}}
    words = ["compare", model.name, "--geometries", "lorentz,euclidean", "--seeds", str(seeds), "--jobs", str(jobs)]
    _horosphere(*words, *common)
    results = json.loads((out / RESULTS).read_text())
    rows = {row["entrant"]["name"]: row["scores"] for row in results["rows"]}
    return {"verdict": results["verdict"], "rows": rows, "baselines": results["baselines"]}


def _trained(name: str, out: Path, seed: int, device: str) -> dict[str, float]:
    from horosphere.runs import Run

    _horosphere("train", name, f"seed={seed}", "--device", device, "--out", str(out), "--continue", "--quiet")
    return Run.open(out).scores()


def _horosphere(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "horosphere", *words], check=True)


def shown(values: list[float], digits: int = 3) -> str:
    return f"{fmean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")


def main() -> None:
    known = {model.name: model for model in catalogue.classics.MODELS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=known, default=[row.model for row in REFERENCES], metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("runs/classics"))
    parser.add_argument("--keep", type=Path, help="a .json file that gets a line of numbers for each model")
    args = parser.parse_args()
    references = {row.model: row for row in REFERENCES}
    table, kept, failed = [], {}, []
    for name in args.only:
        try:
            found = study(known[name], args.out, args.seeds, args.jobs, args.device)
        except subprocess.CalledProcessError as error:
            failed.append(f"{name}: exit code {error.returncode}")
            continue
        reference = references.get(name)
        metric = metric_of(known[name], found["rows"], reference)
        cells = {geometry: shown(scores[metric.name], metric.digits) for geometry, scores in found["rows"].items()}
        known_value = f"{reference.value} ({reference.source})" if reference else ""
        table.append([name, metric.title, known_value, cells.get("euclidean", ""), cells.get("lorentz", "")])
        curved = f", {cells['lorentz']} on the hyperboloid" if "lorentz" in cells else ""
        kept[name] = f"{metric.title} {cells['euclidean']} flat{curved}"
        print(f"{name}: {found['verdict']}", flush=True)
    print(*table_lines(["model", "metric", "reference", "flat", "hyperboloid"], table), sep="\n")
    print(*failed, sep="\n")
    if args.keep:
        before = json.loads(args.keep.read_text()) if args.keep.is_file() else {}
        write_whole(
            args.keep, (json.dumps(before | kept, indent=2, ensure_ascii=False, sort_keys=True) + "\n").encode()
        )


def metric_of(model: catalogue.Model, rows: dict[str, dict], reference: Reference | None):
    """That of the reference, else the most telling one that the runs have."""
    task = catalogue.resolve(catalogue.task(model.task).build)
    there = [metric for metric in task.metrics if all(metric.name in scores for scores in rows.values())]
    return next((metric for metric in there if reference and metric.name == reference.metric), there[0])


if __name__ == "__main__":
    main()
