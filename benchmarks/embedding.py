"""Tree embeddings: Horosphere beside gensim's PoincareModel, in one run, judged by one ruler.

    python benchmarks/embedding.py --trees ../shared/data/trees        # mammals and nouns against gensim, on the CPU
    python benchmarks/embedding.py --trees ... --long --device cuda    # nouns to the end, beside published figures

Both see the transitive closure in the same dimension, and `horosphere.measure.reconstruction` ranks both. Mammals have
the same number of epochs. Nouns have about the same time, in which gensim finishes two epochs. An epoch is every
relation once.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from horosphere.data import Graph, read_graph
from horosphere.geometry import Poincare
from horosphere.measure import reconstruction
from horosphere.train.config import EmbedConfig
from horosphere.train.embed import embed

PUBLISHED = "published (Nickel & Kiela 2018), nouns, Lorentz, 10 dimensions: mean rank 2.95, mAP 0.928"


def horosphere_side(
    graph: Graph, config: EmbedConfig, device: str, rank_nodes: int | None
) -> tuple[float, float, float]:
    result = embed(graph, config, device)
    score = reconstruction(result.points, result.manifold, graph.relations(), nodes=rank_nodes, device=device)
    return result.seconds / config.epochs, score.mean_rank, score.map


def gensim_side(graph: Graph, dim: int, epochs: int, rank_nodes: int | None, seed: int) -> tuple[float, float, float]:
    """gensim with its defaults (10 negatives, batches of 10, learning rate 0.1) and the burn-in its authors advise."""
    from gensim.models.poincare import PoincareModel

    relations = graph.relations()
    named = [(str(u), str(v)) for u, v in relations]
    model = PoincareModel(named, size=dim, negative=10, burn_in=min(10, epochs // 5), seed=seed)
    begin = time.perf_counter()
    model.train(epochs=epochs, batch_size=10)
    seconds = (time.perf_counter() - begin) / (epochs + model.burn_in)
    points = np.zeros((len(graph), dim))
    for i in range(len(graph)):
        if str(i) in model.kv.key_to_index:
            points[i] = model.kv[str(i)]
    score = reconstruction(torch.as_tensor(points), Poincare(), relations, nodes=rank_nodes)
    return seconds, score.mean_rank, score.map


def versus(name: str, graph: Graph, gensim_epochs: int, config: EmbedConfig, rank_nodes: int | None) -> None:
    print(f"\n{name}: {len(graph):,} nodes, {len(graph.relations()):,} relations, {config.dim} dimensions", flush=True)
    print(f"{'':24}{'epochs':>8}{'s an epoch':>12}{'total':>9}{'mean rank':>12}{'mAP':>8}")
    slow = 0.0
    for side in ("gensim poincare", "horosphere poincare", "horosphere lorentz"):
        if side.startswith("gensim"):
            epochs = gensim_epochs
            slow, rank, mean_precision = gensim_side(graph, config.dim, epochs, rank_nodes, config.seed)
            seconds, faster = slow, ""
        else:
            epochs = config.epochs
            seconds, rank, mean_precision = horosphere_side(
                graph, replace(config, geometry=side.split()[1]), "cpu", rank_nodes
            )
            faster = f"   {slow / seconds:.0f}x faster an epoch"
        print(
            f"{side:24}{epochs:8}{seconds:12.3f}{seconds * epochs:8.1f}s{rank:12.2f}{mean_precision:8.3f}{faster}",
            flush=True,
        )


def long_run(graph: Graph, config: EmbedConfig, device: str) -> None:
    begin = time.perf_counter()
    seconds, rank, mean_precision = horosphere_side(graph, config, device, None)
    shape = (
        f"{config.dim} dimensions, {config.epochs} epochs, batch {config.batch}, {config.negatives} negatives, "
        f"lr {config.lr:g}, seed {config.seed}"
    )
    took = (
        f"{seconds * config.epochs:.0f} s training ({seconds * 1e3:.0f} ms an epoch), "
        f"{time.perf_counter() - begin:.0f} s with evaluation"
    )
    print(
        f"{config.geometry:10} mean rank {rank:7.2f}  mAP {mean_precision:.3f}  {shape}: {took} on {device}", flush=True
    )


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
    parser.add_argument("--lr", type=float, default=0.12, help="of the long run")
    parser.add_argument("--geometries", default="lorentz", help="of the long run")
    parser.add_argument("--seeds", type=int, default=1, help="of the long run")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()

    if args.long:
        print(PUBLISHED)
        graph = read_graph(args.trees / "noun_hypernyms.tsv.gz")
        config = EmbedConfig(dim=10, epochs=args.epochs, batch=args.batch, negatives=args.negatives, lr=args.lr)
        for geometry in args.geometries.split(","):
            for seed in range(args.seeds):
                long_run(graph, replace(config, geometry=geometry, seed=seed), args.device)
        return
    if args.only != "nouns":
        mammals = read_graph(args.trees / "mammal_hypernyms.tsv")
        versus(
            "mammals",
            mammals,
            args.mammal_epochs,
            EmbedConfig(dim=5, epochs=args.mammal_epochs, batch=256, lr=0.2),
            None,
        )
    if args.only != "mammals":
        nouns = read_graph(args.trees / "noun_hypernyms.tsv.gz")
        versus(
            "WordNet nouns",
            nouns,
            args.gensim_noun_epochs,
            EmbedConfig(dim=10, epochs=args.noun_epochs, batch=1024),
            args.rank_nodes,
        )


if __name__ == "__main__":
    main()
