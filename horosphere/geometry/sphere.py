"""The sphere of curvature +c and radius 1/√c, by its stereographic projection: metric λ²|dx|², λ = 2/(1 + c|x|²).

A point is x (..., d), any vector of R^d up to the end of the chart. The origin is 0, its antipode lies at infinity. So
points have as many numbers as the sphere has dimensions, as in every geometry here, and a product may have spheres for
factors. Near the antipode the chart is finest: a point at |x| is kept to about ε/|x|. It ends at |x| = 1/(8ε√c), which
is 16ε/√c from the antipode and stands for it.

The chart is for storing. Functions compute with unit vectors P = (2y, 1 - |y|²)/(1 + |y|²) of R^(d+1), y = √c x, and
with differences x - y where points are near each other.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from horosphere.geometry._arcs import squared_arcs
from horosphere.geometry._scalar import asinc, atanc, cosm1, dot, length, safe_sqrt, sinc, sq, tanc
from horosphere.geometry._shapes import same_dimension
from horosphere.geometry.manifold import HALF, Curved, full_precision, shares
from horosphere.geometry.poincare import makes_points
from horosphere.geometry.slots import SphereSlots

NEAR = 0.5  # sin² of half an angle up to which differences x - y decide; sums decide beyond


class Sphere(Curved):
    """The sphere of curvature +c.

    >>> S = Sphere(c=1.0)
    >>> x, y = S.lift(torch.tensor([[2.0, 0.0], [-2.0, 0.0]]))
    >>> S.dist(x, y).round(decimals=3)  # 2π - 4: the short way leads behind
    tensor(2.2830)
    """

    sign = 1

    @property
    def slots(self) -> SphereSlots:
        return SphereSlots()

    @full_precision
    def vector(self, x: Tensor) -> Tensor:
        """The unit vector of R^(d+1) in the direction of a point, its height last.   (..., d) -> (..., d + 1)

        >>> Sphere().vector(torch.tensor([[0.0, 0.0], [1.0, 0.0]]))  # the origin, a point of the equator
        tensor([[0., 0., 1.],
                [1., 0., 0.]])
        """
        return torch.cat(self._unit(x), -1)

    @makes_points
    def of_vector(self, v: Tensor) -> Tensor:
        """The point in the direction of a unit vector of R^(d+1). Inverse of `vector`.   (..., d + 1) -> (..., d)

        >>> Sphere(c=4.0).of_vector(torch.tensor([0.6, 0.0, 0.8]))
        tensor([0.1667, 0.0000])
        """
        return self._placed(v[..., :-1], v[..., -1:])

    @makes_points
    def exp0(self, v: Tensor) -> Tensor:
        """tan(√c|v|)/(√c|v|) · v: distance 2|v|, since λ = 2 at the origin"""
        return tanc(self.c * sq(v)) * v

    @full_precision
    def log0(self, x: Tensor) -> Tensor:
        """arctan(√c|x|)/(√c|x|) · x"""
        return atanc(self.c * sq(x)) * x

    @same_dimension
    def lift(self, v: Tensor) -> Tensor:
        return self.exp0(v / 2)

    def lower(self, x: Tensor) -> Tensor:
        return 2 * self.log0(x)

    @makes_points
    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        """cos(n) P + sin(n)/n V, n = |V|; where it does not lead near the antipode as x ⊕ tan(n/2)/n v"""
        return self._led(x, v, _Turn.of(self, x, v, 1.0))

    @full_precision
    def log(self, x: Tensor, y: Tensor) -> Tensor:
        """D/sin(D) · (g_x d + c|d|² x)/g_y, d = y - x, D = √c dist. At the antipode: as long, in some direction."""
        d, gap_x, gap_y = y - x, self._gap(x), self._gap(y)
        seen = gap_x * d + self.c * sq(d) * x  # as long as gap_x·gap_y·sin(D)/(2√c)
        s2 = self.c * sq(d) / (gap_x * gap_y)
        near = s2 < NEAR
        small = torch.where(near, s2, 0.25)
        factor = asinc(small) * (1 - small).rsqrt() / gap_y
        size = length(seen)
        some = torch.zeros_like(seen)
        some[..., :1] = 1.0
        direction = torch.where(size > 0, seen / torch.where(size > 0, size, 1.0), some)
        far = self.dist(x, y).unsqueeze(-1) * gap_x / 2 * direction
        return torch.where(near, factor * seen, far)

    @makes_points
    def flow(self, x: Tensor, v: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """exp(x, t v), and cos(tn) V - n sin(tn) P there"""
        turn = _Turn.of(self, x, v, t)
        y = self._led(x, v, turn)
        of_x, of_v, of_y = turn.velocity(self._gap(y))
        return y, of_x * x + of_v * v + of_y * y

    @same_dimension
    def flow_(self, x: Tensor, v: Tensor, t: Tensor | float) -> None:
        if x.dtype in HALF:
            return super().flow_(x, v, t)
        turn = _Turn.of(self, x, v, t)
        y = self._led(x, v, turn)
        of_x, of_v, of_y = turn.velocity(self._gap(y))
        v.mul_(of_v).addcmul_(of_x, x).addcmul_(of_y, y)
        x.copy_(self._inside(y))

    @full_precision
    def transport(self, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """V - <Q, V>/(1 + <P, Q>) (P + Q)"""
        (ps, pt), (qs, qt), (vs, vt) = self._unit(x), self._unit(y), self._tangent(x, v)
        s, t = ps + qs, pt + qt
        share = 2 * (dot(qs, vs) + qt * vt) / (sq(s) + t * t).clamp_min(torch.finfo(v.dtype).eps ** 2)
        return self._lowered(y, vs - share * s, vt - share * t)

    @full_precision
    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """2 atan2(|P - Q|, |P + Q|)/√c: right near 0 and near π"""
        half_chord = self.c**0.5 * length(x - y) * (self._gap(x) * self._gap(y)).rsqrt()
        (ps, pt), (qs, qt) = self._unit(x), self._unit(y)
        half_sum = length(torch.cat((ps + qs, pt + qt), -1)) / 2
        return (2 / self.c**0.5 * torch.atan2(half_chord, half_sum)).squeeze(-1)

    @full_precision
    def sqdist(self, x: Tensor, y: Tensor) -> Tensor:
        s2 = self.c * sq(x - y) / (self._gap(x) * self._gap(y))
        near = s2 < NEAR
        small = torch.where(near, s2, 0.25)
        ratio = asinc(small)
        return torch.where(near, 4 / self.c * (small * ratio) * ratio, self.dist(x, y).square().unsqueeze(-1)).squeeze(
            -1
        )

    @full_precision
    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        return self._angle(self.vector(x) @ self.vector(y).mT)

    @full_precision
    def pairwise_sq(self, x: Tensor, y: Tensor) -> Tensor:
        """arccos(1 - u)²/c, u = 1 - <P, Q>"""
        return squared_arcs(self.vector(x), self.vector(y), self.c, self.sign)

    @full_precision
    def pairwise_reach(self, x: Tensor, y: Tensor, dist: Tensor) -> Tensor:
        """arccos(cos(√c dist) - noise)/√c, noise = ε(d + 5) of the product"""
        noise = torch.finfo(x.dtype).eps * (x.shape[-1] + 5)
        return self._angle((self.c**0.5 * dist).clamp_max(math.pi).cos() - noise)

    @full_precision
    def dist0(self, x: Tensor) -> Tensor:
        """2 arctan(√c|x|)/√c"""
        return (2 * length(x) * atanc(self.c * sq(x))).squeeze(-1)

    @full_precision
    def dist_to_hyperplane(self, x: Tensor, p: Tensor, w: Tensor) -> Tensor:
        """The angle of X above the great sphere through p with normal w: atan2(<X, N>, |X - <X, N> N|)/√c"""
        d, gap_p, y = x - p, self._gap(p), self.c**0.5 * p
        along = w / length(w)
        sine = 2 * self.c**0.5 * dot(gap_p * d + self.c * sq(d) * p, along) / (gap_p * self._gap(x))
        fall = 2 * dot(y, along) / gap_p
        s, t = self._unit(x)
        rest = length(torch.cat((s - sine * (along - fall * y), t + sine * fall), -1))
        return (torch.atan2(sine, rest) / self.c**0.5).squeeze(-1)

    @full_precision
    def inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """λ² u·v"""
        return (4 * dot(u, v) / self._gap(x).square()).squeeze(-1)

    @full_precision
    def rgrad(self, x: Tensor, g: Tensor) -> Tensor:
        """g/λ²"""
        return self._gap(x).square() / 4 * g

    @makes_points
    def midpoint(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """Σ wᵢ Pᵢ, on the sphere again. Points that cancel each other have the origin for their centroid."""
        per = self._gap(x).reciprocal().squeeze(-1)  # P = (2y, 2 - gap)/gap: a weight of x, and no copy of it
        weights = torch.full_like(per, 1 / max(1, per.shape[-1])) if weights is None else shares(weights)
        s = 2 * self.c**0.5 * ((weights * per).unsqueeze(-2) @ x).squeeze(-2)
        return self._centre(s, (weights * (2 * per - 1)).sum(-1, keepdim=True))

    @makes_points
    def add(self, x: Tensor, y: Tensor, weight: Tensor | float = 1.0) -> Tensor:
        """Centroid of x and weight·y."""
        (ps, pt), (qs, qt) = self._unit(x), self._unit(y)
        return self._centre(ps + weight * qs, pt + weight * qt)

    @makes_points
    def translate(self, x: Tensor, by: Tensor) -> Tensor:
        """The rotation in the plane of the origin O and B: P - 2<U, P>U + 2<O, P>B, U = (O + B)/|O + B|"""
        (s, t), (bs, bt) = self._unit(x), self._unit(by)
        root = self._gap(by).rsqrt()
        us, ut = self.c**0.5 * by * root, root
        share = 2 * (dot(us, s) + ut * t)
        return self._placed(s - share * us + 2 * t * bs, t - share * ut + 2 * t * bt)

    ambient_extra = 1

    @full_precision
    def ambient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The chart's coordinates, and the height over the equator."""
        return x, self._unit(x)[1] / self.c**0.5

    @makes_points
    def point(self, u: Tensor) -> Tensor:
        return self._inside(u)

    @full_precision
    def log_volume(self, v: Tensor) -> Tensor:
        """(d - 1)·log|sin(√c r)/(√c r)|, r = |v|"""
        return (v.shape[-1] - 1) * sinc(self.c * sq(v)).abs().log().squeeze(-1)

    # -- pieces, all keeping the last axis ---------------------------------------------------------------------------

    def _gap(self, x: Tensor) -> Tensor:
        """1 + c|x|² = 2/λ"""
        return 1 + self.c * sq(x)

    def _unit(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The unit vector P of a point, in two parts.   (..., d) -> (..., d), (..., 1)"""
        q = self.c * sq(x)
        return 2 * self.c**0.5 * x / (1 + q), (1 - q) / (1 + q)

    def _placed(self, s: Tensor, t: Tensor) -> Tensor:
        """The place of a unit vector, in the chart or beyond its end: s/(1 + t), below the equator s (1 - t)/|s|²"""
        low = t < 0
        return self._below(s / (self.c**0.5 * torch.where(low, 1.0, 1 + t)), t, low)

    def _below(self, z: Tensor, t: Tensor, low: Tensor) -> Tensor:
        """z (1 - t)/(c|z|²) where low, and the end of the chart for z = 0; z elsewhere."""
        z2 = self.c * sq(z)
        at_end = low & (z2 == 0)
        there = low & ~at_end
        scale = torch.where(there, (1 - t) / torch.where(there, z2, 1.0), 1.0)
        end = z.new_zeros(z.shape[-1])
        end[:1] = 1 / (8 * torch.finfo(z.dtype).eps)
        return torch.where(at_end, end / self.c**0.5, scale * z)

    def _led(self, x: Tensor, v: Tensor, turn: "_Turn") -> Tensor:
        """Where a turn leads: a sum of x and v."""
        of_x, of_v, height = turn.place()
        near_x, near_v, near = turn.near_place()
        low = (height < 0) & ~near
        above = torch.where(low | near, 1.0, 1 + height)
        z = torch.where(near, near_x, of_x / above) * x + torch.where(near, near_v, of_v / above) * v
        return self._below(z, height, low)

    def _inside(self, x: Tensor) -> Tensor:
        """Points nearer to the antipode than the chart of their dtype goes, at its end."""
        most = torch.finfo(x.dtype).max  # what was too large for a half has become infinite
        whole = (x.float() if x.dtype in HALF else x).clamp(-most, most)
        largest, tame = 1 / (8 * torch.finfo(x.dtype).eps), 1e-3 * torch.finfo(whole.dtype).max ** -0.5
        size = self.c**0.5 * (length(tame * whole) / tame)  # squares of what is tame do not overflow
        return (largest / torch.where(size > largest, size, largest) * whole).to(x.dtype)

    def _tangent(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """A tangent vector of the chart as one at P, as long in units of 1/√c."""
        y, w, gap = self.c**0.5 * x, self.c**0.5 * v, self._gap(x)
        fall = 4 * dot(y, w) / gap.square()
        return 2 * w / gap - fall * y, -fall

    def _lowered(self, x: Tensor, vs: Tensor, vt: Tensor) -> Tensor:
        """Back: (1 + |y|²)/2 · (V_s - y V_t)"""
        return self._gap(x) / (2 * self.c**0.5) * (vs - self.c**0.5 * x * vt)

    def _centre(self, s: Tensor, t: Tensor) -> Tensor:
        size2 = sq(s) + t * t
        lost = size2 <= torch.finfo(s.dtype).eps ** 2 * 16  # rounding alone has a direction there
        root = torch.where(lost, 1.0, size2).rsqrt()
        return self._placed(torch.where(lost, 0.0, s * root), torch.where(lost, 1.0, t * root))

    def _angle(self, cosine: Tensor) -> Tensor:
        """2 atan2(√(1 - cos), √(1 + cos))/√c"""
        below, above = (safe_sqrt((1 + sign * cosine).clamp(0, 2)) for sign in (-1, 1))
        return 2 / self.c**0.5 * torch.atan2(below, above)


@dataclass(frozen=True)
class _Turn:
    """P = (2y, 2 - g)/g and V = (2w/g - fall·y, -fall) turned in their plane, y = √c x, w = √c v, g = 1 + |y|².

    Both stay sums of x and v, so all that is computed here is a number a row (..., 1).
    """

    gap: Tensor  # g
    fall: Tensor  # 4 y·w/g²
    n2: Tensor  # |V|²
    keep: Tensor  # cos(tn)
    gain: Tensor  # sin(tn)/n

    @classmethod
    def of(cls, sphere: Sphere, x: Tensor, v: Tensor, t: Tensor | float) -> "_Turn":
        gap = sphere._gap(x)
        scale = 4 * sphere.c / gap.square()
        n2 = scale * sq(v)
        q = t**2 * n2
        return cls(gap, scale * dot(x, v), n2, 1 + cosm1(q), t * sinc(q))

    def place(self) -> tuple[Tensor, Tensor, Tensor]:
        """The shares of x and v, in units of √c, and the height of cos(tn) P + sin(tn)/n V."""
        return self._sum(self.keep, self.gain)

    def near_place(self) -> tuple[Tensor, Tensor, Tensor]:
        """The shares of x and v in x ⊕ tan(tn/2)/n v, and where that is to be taken: not near the antipode.

        A sum with x, so that v = 0 gives x to the last digit.
        """
        front = self.keep > 0
        half = torch.where(front, self.gain / torch.where(front, 1 + self.keep, 1.0), 0.0)  # tan(tn/2)/n
        step2 = half.square() * self.n2
        below = 1 - half * self.fall * self.gap + (self.gap - 1) * step2
        near = front & (below > NEAR * self.gap * (1 + step2))
        below = torch.where(near, below, 1.0)
        return 1 - self.gap * step2 / below, 2 * half / below, near

    def velocity(self, gap: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The shares of x, v and the new point, whose gap this is, in cos(tn) V - n sin(tn) P there."""
        of_x, of_v, height = self._sum(-self.n2 * self.gain, self.keep)
        return gap / 2 * of_x, gap / 2 * of_v, -gap / 2 * height

    def _sum(self, p: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """p·P + v·V"""
        return 2 * p / self.gap - v * self.fall, 2 * v / self.gap, p * (2 / self.gap - 1) - v * self.fall
