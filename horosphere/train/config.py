"""What decides an embedding. Imports nothing heavy: the command line reads its defaults from here."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from horosphere.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from horosphere.data import Graph


@dataclass(frozen=True)
class EmbedConfig:
    """The same for every geometry, so that geometries compare."""

    geometry: str = "lorentz"
    dim: int = 10
    curvature: float | None = None  # c of the curved parts; None: `matched_curvature` of their dimension
    learn_curvature: bool = False
    on: Literal["closure", "edges"] = (
        "closure"  # what a node of a hierarchy is related to: all ancestors, or parents only
    )
    epochs: int = 200
    batch: int | None = None  # nodes a step, with all their relations; None: an eighth of them, 32 to 2048
    negatives: int = 256  # shared by the nodes of a step
    lr: float = 0.12  # in curvature radii 1/√c
    seed: int = 0

    def check(self) -> None:
        from horosphere.geometry import geometry

        for name in ("dim", "epochs", "batch", "negatives"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise UserError(f"--{name} {getattr(self, name)}: it must be at least 1")
        for name in ("curvature", "lr"):
            if getattr(self, name) is not None and not 0 < getattr(self, name) < math.inf:
                raise UserError(f"--{name} {getattr(self, name)}: it must be a positive number")
        geometry(self.geometry, self.dim, self.curvature)

    @property
    def step_length(self) -> float:
        """The learning rate as a distance, the same in every geometry of this dimension, flat ones too."""
        from horosphere.geometry import matched_curvature

        return self.lr / math.sqrt(self.curvature or matched_curvature(self.dim))

    def batch_for(self, nodes: int) -> int:
        return self.batch or min(2048, max(32, nodes // 8))

    def relations(self, graph: "Graph") -> "np.ndarray":
        """The pairs to bring together.   -> (P, 2)"""
        return graph.edges if graph.directed and self.on == "edges" else graph.relations()
