"""Tree embeddings: Horosphere beside gensim's PoincareModel, in one run, judged by one ruler.

    python benchmarks/embedding.py --trees trees/                      # mammals and nouns against gensim, on the CPU
    python benchmarks/embedding.py --trees trees/ --long --device cuda --seeds 3 --dims 10,5 --jobs 6

With `--long` nouns alone are learned to the end, beside published figures. The same command goes on where it stopped.

Both see the transitive closure in the same dimension, and `horosphere.measure.reconstruction` ranks both. Mammals have
the same number of epochs. Nouns have about the same time, in which gensim finishes two epochs. An epoch is every
relation once.
"""

import argparse
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from side_by_side import work  # the script beside this one

from horosphere.data import read_graph
from horosphere.geometry import Poincare
from horosphere.measure import reconstruction
from horosphere.runs import Run
from horosphere.study.executors import Outcome
from horosphere.tables import table_lines
from horosphere.tasks.nodes import POINTS, Nodes
from horosphere.train.engine import Place
from horosphere.train.recipe import Recipe
from horosphere.train.training import train

PUBLISHED = "published (Nickel & Kiela 2018), nouns, Lorentz: mean rank 2.95, mAP 0.928 in 10 dimensions"
SCORES = [metric for metric in Nodes.metrics if metric.name in ("map", "mean_rank")]


@dataclass(frozen=True)
class Settings:
    """Those of the recipe `embedding` that differ between runs."""

    data: Path
    dim: int
    epochs: int
    batch: int
    lr: float = 0.07
    negatives: int = 256
    rank_nodes: int | None = None  # nodes ranked; none: all
    geometry: str = "lorentz"
    seed: int = 0

    def words(self) -> list[str]:
        """Of the recipe."""
        return [f"{name}={'none' if value is None else value}" for name, value in asdict(self).items()]


@dataclass(frozen=True)
class Result:
    seconds: float  # an epoch
    mean_rank: float
    map: float


def horosphere_side(settings: Settings, device: str) -> Result:
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        scores = train(Recipe.read("embedding", settings.words()), Place(run, quiet=True), device).evaluation
        training = max(line.get("seconds", 0.0) for line in Run.open(run).lines())  # before the evaluation
    return Result(training / settings.epochs, scores["mean_rank"], scores["map"])


def gensim_side(settings: Settings) -> Result:
    """gensim with its defaults (10 negatives, batches of 10, learning rate 0.1) and the burn-in its authors advise."""
    from gensim.models.poincare import PoincareModel

    graph, dim, epochs = read_graph(settings.data), settings.dim, settings.epochs
    relations = graph.relations()
    named = [(str(u), str(v)) for u, v in relations]
    model = PoincareModel(named, size=dim, negative=10, burn_in=min(10, epochs // 5), seed=settings.seed)
    begin = time.perf_counter()
    model.train(epochs=epochs, batch_size=10)
    seconds = (time.perf_counter() - begin) / (epochs + model.burn_in)
    points = np.zeros((len(graph), dim))
    for i in range(len(graph)):
        if str(i) in model.kv.key_to_index:
            points[i] = model.kv[str(i)]
    score = reconstruction(torch.as_tensor(points), Poincare(), relations, nodes=settings.rank_nodes)
    return Result(seconds, score.mean_rank, score.map)


def versus(name: str, settings: Settings, gensim_epochs: int) -> None:
    graph = read_graph(settings.data)
    sizes = f"{len(graph):,} nodes, {len(graph.relations()):,} relations, {settings.dim} dimensions"
    print(f"\n{name}: {sizes}", flush=True)
    print(f"{'':24}{'epochs':>8}{'s an epoch':>12}{'total':>9}{'mean rank':>12}{'mAP':>8}")
    theirs = gensim_side(replace(settings, epochs=gensim_epochs))
    print_row("gensim poincare", gensim_epochs, theirs)
    for geometry in ("poincare", "lorentz"):
        ours = horosphere_side(replace(settings, geometry=geometry), "cpu")
        faster = f"   {theirs.seconds / ours.seconds:.0f}x faster an epoch"
        print_row(f"horosphere {geometry}", settings.epochs, ours, faster)


def print_row(side: str, epochs: int, result: Result, faster: str = "") -> None:
    times = f"{result.seconds:12.3f}{result.seconds * epochs:8.1f}s"
    print(f"{side:24}{epochs:8}{times}{result.mean_rank:12.2f}{result.map:8.3f}{faster}", flush=True)


def long_runs(args: argparse.Namespace) -> None:
    """Nouns, every seed in each geometry and dimension, so many at once; then a row for each of those."""
    print(PUBLISHED)
    shape, dims = Settings(args.nouns, 0, args.epochs, args.batch, args.lr, args.negatives), args.dims.split(",")
    sides = [replace(shape, geometry=geometry, dim=int(dim)) for geometry in args.geometries.split(",") for dim in dims]
    runs = {
        replace(side, seed=seed): args.out / f"{side.geometry}-{side.dim}-{seed}"
        for seed in range(args.seeds)
        for side in sides
    }

    def wanted() -> dict[str, list[str]]:
        how = ["--device", args.device, "--continue", "--quiet"]
        return {
            folder.name: ["-m", "horosphere", "train", "embedding", *settings.words(), *how, "--out", str(folder)]
            for settings, folder in runs.items()
            if not (folder / POINTS).is_file()
        }

    def ended(name: str, outcome: Outcome) -> None:
        print(f"{name}: {outcome.said if outcome.code else Run.open(args.out / name).scores()}", flush=True)

    work(wanted, args.jobs, args.minutes, ended)
    rows = []
    for side in sides:
        done = [
            run for run in (runs[replace(side, seed=seed)] for seed in range(args.seeds)) if (run / POINTS).is_file()
        ]
        scores = [Run.open(run).scores() for run in done]
        seconds = [max(line.get("seconds", 0.0) for line in Run.open(run).lines()) for run in done]
        cells = [metric.cell([score[metric.name] for score in scores]) if done else "" for metric in SCORES]
        rows.append([side.geometry, str(side.dim), *cells, " ".join(f"{s:.0f}" for s in seconds), str(len(done))])
    about = f"{args.epochs} epochs, batch {args.batch}, {args.negatives} negatives, lr {args.lr:g}, {args.jobs} at once"
    print("", about, *table_lines(["geometry", "dim", *[m.head for m in SCORES], "seconds", "seeds"], rows), sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--trees", type=Path, required=True, help="folder with mammal_hypernyms.tsv and noun_hypernyms.tsv.gz"
    )
    parser.add_argument("--only", choices=("mammals", "nouns"))
    parser.add_argument("--mammal-epochs", type=int, default=100)
    parser.add_argument("--gensim-noun-epochs", type=int, default=2, help="few: gensim takes about a minute an epoch")
    parser.add_argument("--noun-epochs", type=int, default=40)
    parser.add_argument(
        "--rank-nodes", type=int, default=2000, help="nouns ranked in the comparison (all of them in the long run)"
    )
    parser.add_argument("--long", action="store_true", help="nouns alone, to the end")
    parser.add_argument("--epochs", type=int, default=1000, help="of the long run")
    parser.add_argument("--batch", type=int, default=4096, help="of the long run")
    parser.add_argument("--negatives", type=int, default=512, help="of the long run")
    parser.add_argument("--lr", type=float, default=0.07, help="of the long run")
    parser.add_argument("--geometries", default="lorentz", help="of the long run")
    parser.add_argument("--seeds", type=int, default=1, help="of the long run")
    parser.add_argument("--dims", default="10", help="of the long run, separated by commas")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at once, of the long run")
    parser.add_argument("--minutes", type=float, default=600.0, help="of the long run")
    parser.add_argument("--out", type=Path, default=Path("runs/nouns"), help="where the long run lies")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()

    mammals, nouns = args.trees / "mammal_hypernyms.tsv", args.trees / "noun_hypernyms.tsv.gz"
    if args.long:
        args.nouns = nouns
        return long_runs(args)
    if args.only != "nouns":
        settings = Settings(mammals, dim=5, epochs=args.mammal_epochs, batch=256, lr=0.12)
        versus("mammals", settings, args.mammal_epochs)
    if args.only != "mammals":
        settings = Settings(nouns, dim=10, epochs=args.noun_epochs, batch=1024, rank_nodes=args.rank_nodes)
        versus("WordNet nouns", settings, args.gensim_noun_epochs)


if __name__ == "__main__":
    main()
