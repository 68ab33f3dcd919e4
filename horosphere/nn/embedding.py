"""Tables of points."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from horosphere.errors import UserError, one_line
from horosphere.geometry import Euclidean, Manifold, Poincare, Product
from horosphere.geometry.holders import HoldsPoints
from horosphere.nn.axes import one_geometry
from horosphere.nn.centred import over_processes
from horosphere.nn.first_call import ROUNDED, require_manifold, require_tensor, settle
from horosphere.nn.near import NO_SCALE, farthest_out, has_values, in_radii, refuse_far, require_near
from horosphere.nn.watch import Watch, has_numbers


class Embedding(HoldsPoints, nn.Embedding):
    """nn.Embedding whose rows are points of a manifold; `optim.param_groups` puts them into a group of their own.

    Rows start as a wrapped normal of this std around the origin, in flat space a plain normal. Rows that torch's own
    optimizers took out of a ball are refused when they are read; compiled code does not look.

    >>> from horosphere.geometry import Lorentz
    >>> table = Embedding(100, 2, Lorentz(), std=0.1)
    >>> table(torch.tensor([3, 7])).shape
    torch.Size([2, 2])
    """

    point_parameters = ("weight",)

    def __init__(
        self, num_embeddings: int, embedding_dim: int, manifold: Manifold, std: float = 1.0, **torch_options: Any
    ):
        require_manifold(manifold, type(self).__name__)
        self.std = std
        # nn.Embedding.__init__ calls reset_parameters, before modules can be set
        object.__setattr__(self, "_start", manifold)
        super().__init__(num_embeddings, embedding_dim, **torch_options)
        del self._start
        self.manifold = settle(self, manifold, reads=False)
        self._has_edge, self._watch = any(isinstance(m, Poincare) for m in manifold.modules()), Watch()

    def forward(self, input: Tensor) -> Tensor:
        rows = super().forward(input)
        if self._has_edge and has_numbers(rows) and rows.numel():
            self._require_inside(rows)
        return rows

    @torch.no_grad()
    def _require_inside(self, rows: Tensor) -> None:
        balls = _in_balls(rows, self.manifold)
        out = self._watch.largest(balls[0] if len(balls) == 1 else torch.stack(balls).max())
        if out > ROUNDED:
            what = f"a row lies at {out:.3g} times the radius of the ball, and is no point any more"
            how = "step points with horosphere.optim.RiemannianAdam(model.parameters()), not with torch's optimizers"
            learned = "; a curvature that is learned may pass them too: use Lorentz for that"
            raise UserError(f"Embedding: {what}; {how}" + learned * any(True for _ in self.manifold.parameters()))

    def reset_parameters(self) -> None:
        """New rows, and the curvature that their manifold began with: a row is a point of no other.

        A model made on the meta device has no curvature yet, and `modules()` names a table before its manifold.
        """
        manifold: Manifold | None = self.__dict__.get("_start")
        if manifold is None:
            manifold = self.manifold
            for part in manifold.modules():
                if hasattr(part, "reset_parameters"):
                    part.reset_parameters()  # type: ignore[operator]
        nn.init.normal_(self.weight, std=self.std)  # in place, as torch does: the table may be sharded
        with torch.no_grad():
            self.weight.copy_(manifold.lift(self.weight))
            self._fill_padding_idx_with_zero()


def _in_balls(x: Tensor, manifold: Manifold) -> list[Tensor]:
    """√c|x|, the largest of all points, in every ball of a product.   (..., d) -> [(), …]"""
    if isinstance(manifold, Product):
        parts = zip(manifold.split(x), manifold.factors, strict=True)
        return [largest for part, m in parts for largest in _in_balls(part, m)]
    if not isinstance(manifold, Poincare):
        return []
    return [(torch.linalg.vector_norm(x, dim=-1).max() * manifold.c**0.5).squeeze()]


MATCHED = 2.0  # radii of curvature at which the mean feature is put: docs/results/classifiers.md


class Lift(nn.Module):
    """Euclidean features to points: v to the point scale·|v| from the origin towards v; the identity in flat space.

    Features of length r feel curvature c as features of length √c·r feel curvature 1. So a scale suits the features to
    the curvature. "matched" takes it from the first batch in training, over all processes, or from `fit`: the mean
    feature is put two radii of curvature, 2/√c, from the origin. A product has a scale for each curved factor.
    A matched scale is part of the state dict. A number is used as it is; 1 makes |v| the distance.

    reach: radii of curvature that points lie out at most; longer features are drawn in to it (Guo et al. 2022). None:
    as far as they go, for features that do not grow in a training.

    No batch may lie so far out that its points overflow (`near.farthest`). Compiled code does not look; a GPU does not
    wait, and says it at a later call.

    >>> from horosphere.geometry import Lorentz
    >>> L, v = Lorentz(), torch.tensor([[30.0, 40.0], [60.0, 80.0]])
    >>> L.dist0(Lift(L)(v)).round(decimals=3)
    tensor([1.3330, 2.6670])
    >>> L.dist0(Lift(L, scale=0.1)(v)).round(decimals=3)
    tensor([ 5., 10.])
    >>> L.dist0(Lift(L, scale=0.1, reach=8.0)(v)).round(decimals=3)
    tensor([5., 8.])
    """

    scale: Tensor | float

    def __init__(self, manifold: Manifold, scale: float | Literal["matched"] = "matched", reach: float | None = None):
        super().__init__()
        self.reach = reach
        if reach is not None and not reach > 0:
            raise UserError(f"Lift: reach={one_line(reach, 40)}; give a positive number of radii, or None")
        if reach is not None:
            one_geometry(manifold, "Lift(reach=…)")
        self.manifold, self._looked = settle(self, manifold, reads=False), False  # at the first batch
        self._watch = Watch()
        if scale == "matched":
            factors = len(manifold.dims) if isinstance(manifold, Product) else 1
            if manifold.flat:
                self.scale = 1.0
            else:
                self.register_buffer("scale", torch.zeros(factors))  # 0: not known yet
        elif isinstance(scale, str) or not 0 < scale < float("inf"):
            raise UserError(f'Lift: scale={one_line(scale, 40)}; give a positive number, or "matched"')
        else:
            self.scale = float(scale)

    def reset_parameters(self) -> None:
        """As it was before the first batch."""
        self._looked = False
        if isinstance(self.scale, Tensor):
            nn.init.zeros_(self.scale)

    @torch.no_grad()
    def fit(self, v: Tensor) -> "Lift":
        """Set a matched scale by these features.   (..., d)

        >>> from horosphere.geometry import Lorentz
        >>> Lift(Lorentz(c=4.0)).fit(torch.tensor([[3.0, 4.0]])).scale
        tensor([0.2000])
        """
        if self.manifold.flat:
            return self
        if not isinstance(self.scale, Tensor):
            raise UserError(f"Lift: its scale is the number {self.scale:g}; leave scale= out to have one to fit")
        radii = self._radii(v)
        if has_values(v):
            if not radii.isfinite().all():
                raise UserError("Lift: features that are not finite, or none at all, have no length to match")
            if not radii.any():  # at the origin, whatever the scale: the next batch will do
                return self
        self.scale.copy_(torch.where(radii > 0, MATCHED / radii, 1.0))
        self._looked = True
        return self

    def _radii(self, v: Tensor) -> Tensor:
        """How many radii of curvature the mean feature of all processes is long, in each factor.   (..., d) -> (k,)"""
        sums = torch.stack([in_radii(part / root, m).double().sum() for part, m, root in self._parts(v.detach())])
        total = over_processes(torch.cat((sums, sums.new_full((1,), v[..., 0].numel()))))
        return total[:-1] / total[-1]

    def forward(self, v: Tensor) -> Tensor:
        if not isinstance(v, Tensor):
            require_tensor(v, "Lift")
        if self.manifold.flat:
            return self.manifold.lift(v)
        if not self._looked:
            self._look(v)
            return self.manifold.lift(self._placed(v))
        scaled = self._placed(v)
        if has_numbers(scaled) and scaled.numel():
            self._require_near(scaled)
        return self.manifold.lift(scaled)

    @torch.no_grad()
    def _require_near(self, scaled: Tensor) -> None:
        how = "its scale is matched to far shorter ones: fit(features) matches it again"
        out = self._watch.largest(farthest_out(scaled, self.manifold))
        refuse_far(out, scaled.dtype, how if isinstance(self.scale, Tensor) else NO_SCALE)

    def _look(self, v: Tensor) -> None:
        """At the first batch: its values are read where they can be, and a GPU waits."""
        readable = has_values(v)
        if isinstance(self.scale, Tensor):
            self._match(self.scale, v, readable)
        if readable:
            require_near(self._placed(v), self.manifold)
            self._looked = self._looked or not isinstance(self.scale, Tensor)

    def _match(self, scale: Tensor, v: Tensor, readable: bool) -> None:
        if readable and scale.any():  # a checkpoint was copied into it
            self._looked = True
        elif readable and not self.training:
            how = "train it, call fit(features), or load its weights"
            raise UserError(f'Lift(scale="matched") has seen no features: {how} before eval()')
        elif readable:
            self.fit(v)
        elif torch.compiler.is_compiling():
            if self.training:
                before = scale.clone()
                self.fit(v)
                scale.copy_(torch.where(before == 0, scale, before))  # here nobody can look whether it was resumed
        elif not v.is_meta:
            raise UserError('Lift(scale="matched") cannot read features here; call its fit(features) before')

    def _placed(self, v: Tensor) -> Tensor:
        """Scaled, and drawn in to the reach."""
        scaled = self._scaled(v)
        if self.reach is None or self.manifold.flat:
            return scaled
        out = in_radii(scaled, self.manifold).clamp_min(self.reach)
        return scaled * (self.reach / out).unsqueeze(-1).to(scaled.dtype)

    def _scaled(self, v: Tensor) -> Tensor:
        """Curved coordinates times their scale, which is 1 while it is not known."""
        if self.manifold.flat or (isinstance(self.scale, float) and self.scale == 1.0):
            return v
        parts = self._parts(v)
        if isinstance(self.scale, Tensor):
            known = self.scale if self._looked else torch.where(self.scale == 0, 1.0, self.scale)
            scales: Sequence[Tensor | float] = known.unbind()
        else:
            scales = [self.scale] * len(parts)
        scaled = [part if m.flat else part * s for (part, m, _), s in zip(parts, scales, strict=True)]
        return scaled[0] if len(scaled) == 1 else torch.cat(scaled, -1)

    def _parts(self, v: Tensor) -> list[tuple[Tensor, Manifold, float]]:
        """The features of each factor, and the root of its weight, by which `lift` divides them."""
        m = self.manifold
        if isinstance(m, Product):
            return [(part, f, w**0.5) for part, f, w in zip(m.split(v), m.factors, m.weights, strict=True)]
        return [(v, m, 1.0)]

    def _load_from_state_dict(self, *given: Any) -> None:
        super()._load_from_state_dict(*given)
        if isinstance(self.scale, Tensor) and not self.scale.is_meta:
            self._looked = bool(self.scale.any())  # one that is not known yet can be loaded, too

    def extra_repr(self) -> str:
        return 'scale="matched"' if isinstance(self.scale, Tensor) else f"scale={self.scale:g}"


class Lower(nn.Module):
    """Points to Euclidean features of length dist0(x): the inverse of `Lift` at scale 1; the identity in flat space.

    >>> from horosphere.geometry import Lorentz
    >>> L, v = Lorentz(), torch.tensor([3.0, 4.0])
    >>> Lower(L)(Lift(L, scale=1.0)(v)).round(decimals=3)
    tensor([3., 4.])
    """

    def __init__(self, manifold: Manifold):
        super().__init__()
        self.manifold = settle(self, manifold, makes=Euclidean())

    def forward(self, x: Tensor) -> Tensor:
        return self.manifold.lower(x)
