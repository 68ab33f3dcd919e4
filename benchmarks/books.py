"""What curvature itself buys on books: all three curvatures at three sizes, and HELM-D taken apart.

    python benchmarks/books.py --plan                                  # the trainings, and an estimate of GPU minutes
    python benchmarks/books.py --data ../shared/data --device cuda --jobs 10 --minutes 8.5
    python benchmarks/books.py --results docs/results/books.json --picture books.png   # of what is there, no training
    python benchmarks/books.py tiny tiny-forms --jobs 2                # on two cores; the text comes with Python
    python benchmarks/books.py --smoke                                 # anywhere: tiny, stopped once, gone on with

Every entrant has its own rate: the best of some on one half of the validation books, with seed 0; where the best is the
last of them, the next one is tried too. Then it trains with other seeds, and is judged on the other half and on BLiMP.
With CUDA's MPS (`nvidia-cuda-mps-control -d`) ten trainings at once are a fourth faster.
It is `compare --tune` but for what a GPU asks that is lent for minutes: parts by importance, and one small file.
All that ended stands in one JSON (--results), from which the same command goes on, on another machine as well. Folders
of runs are removed when their numbers are there. Parts come in the order of `PARTS`, or as named. Without names they
are those that learn from books: 43m forms 10m 134m.
"""

import argparse
import json
import math
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from side_by_side import work  # the script beside this one

from horosphere.catalogue import comparisons
from horosphere.cli import main as horosphere
from horosphere.errors import Diverged
from horosphere.evaluate.choice import evaluate_task
from horosphere.evaluate.metric import Metric, finite
from horosphere.evaluate.text import validate
from horosphere.files import write_whole
from horosphere.models.writing import autocast
from horosphere.plots.sweep import draw_sweep
from horosphere.progress import progress
from horosphere.runs import Run
from horosphere.study.compare import stuck
from horosphere.study.executors import Outcome
from horosphere.study.planning import plan
from horosphere.tables import table_lines
from horosphere.tasks.language import Language, load
from horosphere.train.distributed import World

COMMON = ("eval_every=none", "sample_every=none", "save_every=100000", "keep=1")
BOOKS = ("steps=1200",)
DEMO = ("steps=240", "num_hidden_layers=3")  # as large as in `make demo`
TINY = ("steps=60", "batch=8", "length=32", "vocab=300", "num_hidden_layers=2")
WIDER = 3  # rates at most beyond the first ones
UNIT = ("qk_norm=true", "unit_weights=true", "residual=interpolate")
LATENT = ("q_lora_rank=192", "kv_lora_rank=128", "qk_nope_head_dim=32", "qk_rope_head_dim=32", "v_head_dim=64")
Forms = dict[str, tuple[str, tuple[str, ...]]]  # the model of the table that each changes, and how
# HELM-D taken apart
FORMS: Forms = {
    # normalisation, with curvature and without
    "HELM-D, unit rows": ("HELM-D", UNIT),
    "HELM-D, qk_norm": ("HELM-D", UNIT[:1]),
    "Qwen3, normed stream": ("Qwen3", UNIT[2:]),
    "Qwen3, unit matrices": ("Qwen3", UNIT[1:2]),
    "Qwen3, depth-scaled": ("Qwen3", ("depth_scaled_init=true",)),
    # distances, and the centroid of values and of the stream
    "Llama, distances": ("Llama", ("score=distance",)),
    "HELM-D, dot products": ("HELM-D", ("score=dot",)),
    "HELM-D, mean values": ("HELM-D", ("average=mean",)),
    "HELM-D, added stream": ("HELM-D", ("residual=additive",)),
    "HELM-D, interpolating": ("HELM-D", ("residual=interpolate",)),
    "HELM-D, none of them": ("HELM-D", ("score=dot", "average=mean", "residual=additive")),
    # curvature; 1 is HELM-D's
    "HELM-D, c = 0.01": ("HELM-D", ("curvature=0.01",)),
    "HELM-D, c = 0.1": ("HELM-D", ("curvature=0.1",)),
    "HELM-D, c = 4": ("HELM-D", ("curvature=4",)),
    "Sphere, centroids": ("HELM-D", ("geometry=sphere",)),
}
# the mixture of 43 M: its norm, its attention and its experts, each alone, in as many parameters
MIXED: Forms = {
    "DeepSeek-V3, qk_norm": ("DeepSeek-V3", UNIT[:1]),
    "HELM-MiCE, no qk_norm": ("HELM-MiCE", ("qk_norm=false",)),
    "HELM-MiCE, unit rows": ("HELM-MiCE", UNIT[1:]),
    "DeepSeek-V3, unit rows": ("DeepSeek-V3", UNIT),
    "HELM-MiCE, full attention": ("HELM-MiCE", ("attention=full", "moe_intermediate_size=448")),
    "HELM-D, latent attention": ("HELM-D", ("attention=latent", *LATENT, *UNIT[:1], "intermediate_size=2432")),
}


@dataclass(frozen=True)
class Part:
    comparison: str
    rates: tuple[float, ...]
    seeds: int  # judged, from 1 on; seed 0 chose the rate
    million: int  # parameters
    ms: float = 0.0  # a step on an H200, ten trainings at once
    settings: tuple[str, ...] = BOOKS
    forms: Forms | None = None  # in place of the comparison's entrants
    whole: str = ""  # the part whose HELM-D the forms stand beside

    @property
    def of_books(self) -> bool:
        """Others learn from the text that comes with Python, and BLiMP is beyond them."""
        return self.settings is BOOKS


PARTS = {
    "43m": Part("curvatures-small", (1e-3, 2e-3), 3, 43, 16),
    "forms": Part("curvatures-small", (1e-3, 2e-3), 3, 43, 16, forms={**FORMS, **MIXED}, whole="43m"),
    "10m": Part("curvatures-10m", (2e-3, 4e-3), 3, 11, 7),
    "134m": Part("curvatures-134m", (1e-3, 2e-3), 2, 134, 42),
    "tiny": Part("curvatures-tiny", (5e-3, 1e-2), 3, 1, settings=DEMO),
    "tiny-forms": Part("curvatures-tiny", (5e-3, 1e-2), 3, 1, settings=DEMO, forms=FORMS, whole="tiny"),
    "smoke": Part("curvatures-tiny", (5e-3, 1e-2), 1, 1, settings=TINY),
}
SMOKE = ("HELM-D", "DeepSeek-V3")  # entrants


@dataclass(frozen=True)
class Training:
    part: str
    name: str
    lr: float
    seed: int
    words: tuple[str, ...]  # of `horosphere train`

    @property
    def key(self) -> str:
        return f"{self.part}: {self.name}, lr {self.lr:g}, seed {self.seed}"


class Study:
    """Who trains with what, and what came of it so far."""

    def __init__(self, args: argparse.Namespace):
        self.args, self.file = args, args.results
        self.runs: dict[str, dict[str, Any]] = json.loads(self.file.read_text())["runs"] if self.file.is_file() else {}
        self.entrants = {part: self._entrants(part) for part in args.parts}

    def _entrants(self, part: str) -> dict[str, tuple[str, ...]]:
        """{name: words}, with as many parameters in all."""
        args, about = self.args, PARTS[part]
        train, valid = (args.train, args.valid) if about.of_books else ("topics", "topics-held-out")
        common = [*about.settings, *COMMON, f"data={train}", f"valid={valid}"]
        words = plan(about.comparison, common, None, 1, args.out / part).words
        if about.forms:
            words = {name: [*words[base], *changes] for name, (base, changes) in about.forms.items()}
        chosen = SMOKE if args.smoke else words
        return {name: tuple(words[name]) for name in chosen if args.only in name}

    # -- what to do -------------------------------------------------------------------------------------------------

    def tried(self, part: str, name: str) -> dict[float, float]:
        """Bits a byte on the tuning half by rate; infinite where a training failed."""
        words = self.entrants[part][name]
        rates = [PARTS[part].rates[0] * 2.0**i for i in range(-WIDER, len(PARTS[part].rates) + WIDER)]
        found = {lr: self.runs.get(Training(part, name, lr, 0, words).key) for lr in rates}
        return {lr: run.get("tuning", math.inf) for lr, run in found.items() if run}

    def rate(self, part: str, name: str) -> float:
        tried = self.tried(part, name)
        return min(tried, key=lambda lr: (tried[lr], lr))

    def missing(self, part: str, name: str) -> Iterator[Training]:
        """First rates; then one beyond, while the best is the last; then seeds that are judged."""
        about, words, tried = PARTS[part], self.entrants[part][name], self.tried(part, name)
        first = [lr for lr in about.rates if lr not in tried]
        yield from (Training(part, name, lr, 0, words) for lr in first)
        if first:
            return
        best = self.rate(part, name)
        beyond = {min(tried): best / 2, max(tried): best * 2}.get(best)
        if beyond and len(tried) < len(about.rates) + WIDER * (not self.args.smoke):
            yield Training(part, name, beyond, 0, words)
            return
        trainings = [Training(part, name, best, seed, words) for seed in range(1, about.seeds + 1)]
        yield from (training for training in trainings if training.key not in self.runs)

    def todo(self) -> list[Training]:
        """The first parts first; in a part, who is to be judged before who is to be tuned."""
        found = [t for part, names in self.entrants.items() for name in names for t in self.missing(part, name)]
        return sorted(found, key=lambda t: (self.args.parts.index(t.part), t.seed == 0, t.seed))

    def wanted(self) -> dict[str, list[str]]:
        return {
            t.key: [__file__, "one", str(self.folder(t.key)), self.blimp(t), self.args.device, *self.words(t)]
            for t in self.todo()
        }

    def blimp(self, t: Training) -> str:
        return str(self.args.blimp) if PARTS[t.part].of_books else ""

    def words(self, t: Training) -> list[str]:
        return [*t.words, f"lr={t.lr:g}", f"seed={t.seed}"]

    def folder(self, key: str) -> Path:
        return self.args.out / "".join(c if c.isalnum() or c in ".-" else "-" for c in key)

    # -- what came of it --------------------------------------------------------------------------------------------

    def ended(self, key: str, outcome: Outcome) -> None:
        """Trainings that diverge count; other complaints are ours to mend, and the training is wanted again."""
        folder, words = self.folder(key), next(self.words(t) for t in self.todo() if t.key == key)
        about = {"failed": outcome.said} if outcome.code else json.loads((folder / "result.json").read_text())
        if outcome.code in (0, Diverged.exit_code):
            self.runs[key] = {"words": words, **about}
            write_whole(self.file, json.dumps({"runs": self.runs}, indent=1).encode())
            shutil.rmtree(folder, ignore_errors=True)
        print(f"{key}: {about.get('failed') or '{tuning:.4f} {judged:.4f} bits/byte'.format(**about)}", flush=True)

    def judged(self, part: str, name: str, score: str) -> list[float]:
        """Of each seed that ended; nan where the training failed."""
        lr, words = self.rate(part, name), self.entrants[part][name]
        keys = [Training(part, name, lr, seed, words).key for seed in range(1, PARTS[part].seeds + 1)]
        return [self.runs[key].get(score, math.nan) for key in keys if key in self.runs]

    def rows(self, part: str) -> list[list[str]]:
        rows = [self.row(part, name) for name in self.entrants[part] if self.tried(part, name)]
        return sorted(rows, key=lambda row: row[3] or "9")  # who was not judged yet comes last

    def row(self, part: str, name: str) -> list[str]:
        tried, lr = self.tried(part, name), self.rate(part, name)
        bits, blimp = self.judged(part, name, "judged"), self.judged(part, name, "blimp")
        failed = sum(not math.isfinite(score) for score in (*bits, *tried.values()))
        edge = " (edge)" * (lr in (min(tried), max(tried)))
        told = [BITS.cell(bits) if bits else "", self.behind(part, bits), BLIMP.cell(blimp) if finite(blimp) else ""]
        return [name, f"{lr:g}{edge}", f"{tried[lr]:.4f}", *told, str(len(bits)), str(failed)]

    def behind(self, part: str, bits: list[float]) -> str:
        """By how much HELM-D is ahead, and the interval of that."""
        whole = PARTS[part].whole or part
        known = whole in self.entrants and self.tried(whole, "HELM-D")
        best = self.judged(whole, "HELM-D", "judged") if known else []
        if len(best) != len(bits) or best == bits:
            return ""
        lead = BITS.lead(best, bits)
        return f"{lead.mean:+.4f}" + f" ± {lead.half:.4f}" * math.isfinite(lead.half)


BITS, BLIMP = Metric("judged", "bits/byte", 4, "low", "judged"), Metric("blimp", "BLiMP", 3, "high")
HEADS = ["model", "lr", "tuning", "bits/byte", "behind HELM-D", "BLiMP", "seeds", "failed"]


# -- one training -----------------------------------------------------------------------------------------------------


def one(out: str, blimp: str, device: str, *words: str) -> None:
    """Train, then judge, in a process of its own. What stays at word frequencies counts as failed, and says so."""
    code = horosphere(["train", *words, "--device", device, "--out", out, "--continue", "--quiet"])
    if code:
        sys.exit(code)
    run, (model, tokenizer) = Run.open(out), load(out)
    task, place = Language.of(run), World(device=torch.device(device))
    lines, data = [line for line in run.lines() if "loss" in line], task.open_data()
    result: dict[str, Any] = {
        "parameters": run.about.count("parameters"),
        "seconds": max(line.get("seconds", 0.0) for line in lines),
        "curve": [[line["step"], round(line["loss"], 4)] for line in lines[:: max(1, len(lines) // 40)]],
    }
    with autocast(device):
        model.to(device)
        halves = {"tuning": data.parted("tuning").valid, "judged": data.parted("rest").valid}
        bits = {name: validate(model, half, task.length, place).bits_per_byte for name, half in halves.items()}
        if blimp and "seed=0" not in words:
            bits["blimp"] = evaluate_task("blimp", blimp, model, tokenizer, device).score.acc.value
    why = stuck(task, run)
    result |= {"failed": why, "would_be": bits} if why else bits
    write_whole(Path(out, "result.json"), json.dumps(result).encode())


# -- the whole --------------------------------------------------------------------------------------------------------


def show_plan(study: Study) -> None:
    """As if one rate more than the first ones settled the best."""
    total = 0.0
    for part, names in study.entrants.items():
        about = PARTS[part]
        left = {name: [*study.missing(part, name)] for name in names}
        for trainings in left.values():
            print(*(t.key for t in trainings), sep="\n")
        # one rate more where none was tried yet, and the seeds
        count = sum(len(ts) + (about.seeds + 1) * any(t.seed == 0 for t in ts) for ts in left.values())
        minutes = count * 1200 * about.ms / 60_000
        told = f", about {minutes:.0f} GPU minutes" if about.of_books else ""
        print(f"{part}: {count} trainings with those of the seeds to come{told}\n")
        total += minutes
    print(f"about {total:.0f} GPU minutes, {study.args.jobs} at once, and more where a rate lies at an edge")


def draw(study: Study, path: Path) -> None:
    """Bits a byte of the judged half, a line an entrant."""
    scores: dict[str, dict[int, list[float]]] = {}
    flat: dict[str, str] = {}
    for part, about in sorted(PARTS.items(), key=lambda named: named[1].million):
        if part in study.entrants and about.of_books and not about.forms:
            for entrant in comparisons()[about.comparison].entrants:
                if bits := study.judged(part, entrant.name, "judged") if study.tried(part, entrant.name) else []:
                    scores.setdefault(entrant.name, {})[about.million] = bits
                    flat |= {entrant.name: entrant.twin_of} if entrant.flat else {}
    draw_sweep(scores, "million parameters", "bits a byte, each at its own rate", flat, path)
    print(f"{path}: {', '.join(scores)}")


def stopped(study: Study) -> Study:
    """Stopped when one has ended. On a new machine nothing is left but the results, which are not asked for again."""

    def ended(key: str, outcome: Outcome) -> None:
        study.ended(key, outcome)
        raise KeyboardInterrupt

    work(study.wanted, study.args.jobs, study.args.minutes, ended)
    for folder in study.args.out.glob("smoke-*"):
        shutil.rmtree(folder)
    again = Study(study.args)
    assert again.runs == study.runs
    assert again.runs
    assert not again.runs.keys() & again.wanted().keys()
    return again


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"in this order: {', '.join(PARTS)} (default: those of books)")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="holds text/ and eval/")
    parser.add_argument("--only", default="", help="entrants whose name contains this")
    parser.add_argument("--jobs", type=int, default=10, help="trainings at once")
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("runs/books"))
    parser.add_argument("--results", type=Path, help="the JSON (default: results.json in --out)")
    parser.add_argument("--plan", action="store_true", help="say what is to be done, and how long it may take")
    parser.add_argument("--picture", type=Path, help="draw what is there: bits a byte against size")
    parser.add_argument("--smoke", action="store_true", help="tiny models on a text that comes with Python")
    args = parser.parse_args()
    args.parts = ["smoke"] if args.smoke else args.parts or [part for part, about in PARTS.items() if about.of_books]
    if wrong := [part for part in args.parts if part not in PARTS]:
        parser.error(f"there is no part {wrong[0]}: choose from {', '.join(PARTS)}")
    args.out = (args.out / "smoke" if args.smoke else args.out).resolve()
    args.results = args.results or args.out / "results.json"
    args.train, args.valid = (f"{args.data}/text/books-{part}.txt.gz" for part in ("train", "valid"))
    args.blimp = (args.data / "eval" / "blimp.jsonl.gz").resolve()
    return args


def main() -> None:
    args = parsed()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.smoke:
        shutil.rmtree(args.out)
        args.out.mkdir()
    with progress("reading the books", 1, quiet=False):
        study = Study(args)  # texts are made into tokens here, once
    if args.plan:
        return show_plan(study)
    if args.picture:
        return draw(study, args.picture)
    if args.smoke:
        study = stopped(study)
    work(study.wanted, args.jobs, args.minutes, study.ended)
    for part in args.parts:
        print("", f"{part}:", *table_lines(HEADS, study.rows(part)), sep="\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        one(*sys.argv[2:])
    else:
        main()
