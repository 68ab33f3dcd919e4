"""Train the embedding of a graph, and keep it: one folder with points, labels and how they came about."""

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from horosphere import __version__
from horosphere.data import Graph
from horosphere.errors import UserError
from horosphere.files import new_folder
from horosphere.geometry import Manifold, geometry
from horosphere.models.node_embedding import NodeEmbedding, Relations
from horosphere.optim import RiemannianAdam, param_groups
from horosphere.train.config import EmbedConfig

WARM_UP = 0.5  # of the run: points find their directions while they are near the origin, and small steps keep them there for long
FINAL = 0.05  # of the peak learning rate
CURVATURE_PACE = (
    1e-3  # learning rate of log c: it moves all points at once, and must not leave before they have found their places
)
ABOUT = "embedding.json"  # what makes a folder an embedding


def embed(
    graph: Graph, config: EmbedConfig, device: str = "cpu", progress: Callable[[int, str], None] | None = None
) -> "Embedded":
    """Points for the nodes of a graph. Deterministic for a seed and a device; `progress(epoch, note)` after each epoch."""
    config.check()
    if not len(graph.edges):
        raise UserError("the graph has no edges: there is nothing to learn")
    torch.manual_seed(config.seed)
    manifold = geometry(config.geometry, config.dim, config.curvature, config.learn_curvature)
    model = NodeEmbedding(len(graph), config.dim, manifold).to(device)
    loss_of = (
        torch.compile(model, dynamic=True) if torch.device(device).type == "cuda" else model
    )  # hundreds of small kernels otherwise
    relations = Relations(config.relations(graph), len(graph), device)
    optimizer = RiemannianAdam(param_groups(model), lr=config.step_length)
    curvature = set(manifold.parameters())
    peaks = [
        CURVATURE_PACE if curvature.issuperset(group["params"]) else config.step_length
        for group in optimizer.param_groups
    ]
    generator = torch.Generator(device).manual_seed(config.seed)
    subjects = relations.subjects
    batch = config.batch_for(len(subjects))
    total = config.epochs * math.ceil(len(subjects) / batch)

    begin, step = time.perf_counter(), 0
    for epoch in range(config.epochs):
        epoch_loss = torch.zeros((), dtype=torch.float64, device=device)
        for nodes in subjects[torch.randperm(len(subjects), generator=generator, device=device)].split(batch):
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * schedule(step / total)
            negatives = torch.randint(len(graph), (config.negatives,), generator=generator, device=device).unique()
            loss = loss_of(relations.batch(nodes), negatives)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            epoch_loss += loss.detach() * len(nodes) / len(subjects)
            step += 1
        if not (epoch_loss.isfinite() and model.points.isfinite().all()):  # the last step may be the one that breaks
            raise UserError(
                f"the {config.geometry} embedding diverged in epoch {epoch + 1} (loss {epoch_loss:.3g}): lower --lr (now {config.lr:g})"
            )
        if progress:
            progress(epoch + 1, f"loss {epoch_loss:.3f}")
    return Embedded(
        model.points.cpu(),
        graph.labels,
        manifold.cpu().requires_grad_(False),
        config,
        time.perf_counter() - begin,
        graph.directed,
    )


def schedule(done: float) -> float:
    """Share of the peak learning rate after this share of the run: linear warm-up times a cosine down to FINAL."""
    return min(1.0, done / WARM_UP) * (FINAL + (1 - FINAL) * (1 + math.cos(math.pi * done)) / 2)


@dataclass(frozen=True)
class Embedded:
    """Points (N, d) float64 on a manifold, with the labels of their nodes."""

    points: Tensor
    labels: list[str]
    manifold: Manifold
    config: EmbedConfig
    seconds: float
    directed: bool = True  # whether the graph was a hierarchy
    metrics: dict[str, float] = field(default_factory=dict)

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """A new folder that is there whole, or not at all."""
        with new_folder(folder, overwrite, mark=ABOUT) as aside:
            self.write(aside)

    def write(self, folder: Path) -> None:
        """points.safetensors (with the curvature, where it was learned), labels.json, embedding.json"""
        from safetensors.torch import save

        curvature = {f"manifold.{name}": tensor for name, tensor in self.manifold.state_dict().items()}
        (folder / "points.safetensors").write_bytes(
            save({"points": self.points.contiguous(), **curvature})
        )  # save_file hides it from other users
        (folder / "labels.json").write_text(json.dumps(self.labels, ensure_ascii=False, indent=0), encoding="utf-8")
        about = {
            "config": asdict(self.config),
            "directed": self.directed,
            "metrics": self.metrics,
            "seconds": round(self.seconds, 2),
        }
        versions = {"horosphere": __version__, "torch": torch.__version__}
        (folder / ABOUT).write_text(json.dumps({**about, "versions": versions}, indent=2), encoding="utf-8")

    @staticmethod
    def load(folder: str | Path) -> "Embedded":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        folder = Path(folder)
        if not (folder / ABOUT).is_file():
            raise UserError(f"{folder}: not a folder made by `horosphere embed` (it has no {ABOUT})")
        try:
            about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
            labels = json.loads((folder / "labels.json").read_text(encoding="utf-8"))
            tensors = load_file(folder / "points.safetensors")
            points = tensors.pop("points")
            config = EmbedConfig(**about["config"])
            if points.shape != (len(labels), config.dim):
                raise ValueError(f"points {tuple(points.shape)} for {len(labels)} labels in {config.dim} dimensions")
            manifold = geometry(config.geometry, config.dim, config.curvature, config.learn_curvature)
            manifold.load_state_dict({name.removeprefix("manifold."): tensor for name, tensor in tensors.items()})
            manifold.requires_grad_(False)
            return Embedded(points, labels, manifold, config, about["seconds"], about["directed"], about["metrics"])
        except (OSError, ValueError, LookupError, TypeError, RuntimeError, SafetensorError, UserError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UserError(
                f"{folder}: a damaged embedding ({reason}); make it again with `horosphere embed`"
            ) from error
