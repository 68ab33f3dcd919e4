"""Tree embeddings: Horosphere beside gensim's PoincareModel, in one run, judged by one ruler.

    python benchmarks/embedding.py --trees trees/                      # mammals and nouns against gensim, on the CPU
    python benchmarks/embedding.py --trees trees/ --long --device cuda # nouns to the end, beside published figures

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

from horosphere.data import read_graph
from horosphere.geometry import Poincare
from horosphere.measure import reconstruction
from horosphere.runs import Run
from horosphere.train.engine import Place
from horosphere.train.recipe import Recipe
from horosphere.train.training import train

PUBLISHED = "published (Nickel & Kiela 2018), nouns, Lorentz, 10 dimensions: mean rank 2.95, mAP 0.928"


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

    def recipe(self) -> Recipe:
        given = {name: "none" if value is None else value for name, value in asdict(self).items()}
        return Recipe.read("embedding", [f"{name}={value}" for name, value in given.items()])


@dataclass(frozen=True)
class Result:
    seconds: float  # an epoch
    mean_rank: float
    map: float


def horosphere_side(settings: Settings, device: str) -> Result:
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        scores = train(settings.recipe(), Place(run, quiet=True), device).evaluation
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


def long_run(settings: Settings, device: str) -> None:
    begin = time.perf_counter()
    result = horosphere_side(settings, device)
    shape = (
        f"{settings.dim} dimensions, {settings.epochs} epochs, batch {settings.batch}, "
        f"{settings.negatives} negatives, lr {settings.lr:g}, seed {settings.seed}"
    )
    took = (
        f"{result.seconds * settings.epochs:.0f} s training ({result.seconds * 1e3:.0f} ms an epoch), "
        f"{time.perf_counter() - begin:.0f} s with evaluation"
    )
    scores = f"mean rank {result.mean_rank:7.2f}  mAP {result.map:.3f}"
    print(f"{settings.geometry:10} {scores}  {shape}: {took} on {device}", flush=True)


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
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()

    mammals, nouns = args.trees / "mammal_hypernyms.tsv", args.trees / "noun_hypernyms.tsv.gz"
    if args.long:
        print(PUBLISHED)
        settings = Settings(nouns, 10, args.epochs, args.batch, args.lr, args.negatives)
        for geometry in args.geometries.split(","):
            for seed in range(args.seeds):
                long_run(replace(settings, geometry=geometry, seed=seed), args.device)
        return
    if args.only != "nouns":
        settings = Settings(mammals, dim=5, epochs=args.mammal_epochs, batch=256, lr=0.12)
        versus("mammals", settings, args.mammal_epochs)
    if args.only != "mammals":
        settings = Settings(nouns, dim=10, epochs=args.noun_epochs, batch=1024, rank_nodes=args.rank_nodes)
        versus("WordNet nouns", settings, args.gensim_noun_epochs)


if __name__ == "__main__":
    main()
