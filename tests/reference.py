"""The slow oracle: textbook hyperbolic geometry in mpmath. It shares no line with the package, and few formulas.

Convention: c > 0, sectional curvature -c. A point or a tangent vector is a list of d mpf, made by `to_mp`.
    Lorentz    a point is its space part x, with time x_t = √(1/c + |x|²); a tangent vector v at x has time x·v/x_t
    Poincaré   the ball of radius 1/√c with metric λ²|dx|², λ = 2/(1 - c|x|²); tangent vectors are plain
    Euclidean  c is 0
    Sphere     curvature +c, by stereographic projection, λ = 2/(1 + c|x|²)

Results hold at least 60 digits for points up to radius 40 that are 1e-20 or more apart. The work is done with 200,
because acosh(1 + u) and time² - |space|² cancel. They are written as the textbook does, and paid for with digits: that
makes this file easy to believe.
"""

from collections.abc import Iterable, Sequence

import mpmath

mp = mpmath.MPContext()  # a context of its own: no test that sets mpmath.mp.dps can take digits from it
mp.dps = 200

Vector = list  # of mpf


# Numbers and vectors


def to_mp(row: Iterable) -> Vector:
    """Exactly the floats of a tensor's row, an array or a list.   (d,) -> d mpf"""
    values = row.tolist() if hasattr(row, "tolist") else row
    return [mp.mpf(value) for value in values]


def to_float(row: Iterable) -> list[float]:
    """Nearest doubles."""
    return [float(value) for value in row]


def scalar(value) -> mpmath.mpf:
    """Exactly this number. A float32 0.1 is not the float64 0.1: pass the curvature the code under test really uses."""
    return mp.mpf(value.item() if hasattr(value, "item") else value)


def dot(a: Vector, b: Vector):
    return mp.fsum(p * q for p, q in zip(a, b, strict=True))


def length(a: Vector):
    """Euclidean length."""
    return mp.sqrt(dot(a, a))


def add(a: Vector, b: Vector) -> Vector:
    return [p + q for p, q in zip(a, b, strict=True)]


def sub(a: Vector, b: Vector) -> Vector:
    return [p - q for p, q in zip(a, b, strict=True)]


def scale(s, a: Vector) -> Vector:
    return [s * p for p in a]


def acosh(value):
    """acosh for a value that is at least 1 but for rounding."""
    return mp.acosh(max(value, mp.one))


def acos(value):
    """acos for a value that is in [-1, 1] but for rounding."""
    return mp.acos(min(max(value, -mp.one), mp.one))


def is_zero(a: Vector) -> bool:
    return all(p == 0 for p in a)


def minkowski(a: Vector, b: Vector):
    """<a, b>_L = -a_t b_t + a·b for ambient vectors, time first."""
    return -a[0] * b[0] + dot(a[1:], b[1:])


def mobius_add(x: Vector, y: Vector, c) -> Vector:
    """x ⊕ y = ((1 + 2c x·y + c|y|²) x + (1 - c|x|²) y) / (1 + 2c x·y + c²|x|²|y|²)"""
    xy, xx, yy = dot(x, y), dot(x, x), dot(y, y)
    top = add(scale(1 + 2 * c * xy + c * yy, x), scale(1 - c * xx, y))
    return scale(1 / (1 + 2 * c * xy + c**2 * xx * yy), top)


# Manifolds


class _Reference:
    """What follows from inner, dist and log alone, the same in every geometry."""

    def __init__(self, c):
        self.c = scalar(c)
        self.sqrt_c = mp.sqrt(self.c)

    def norm(self, x: Vector, v: Vector):
        return mp.sqrt(max(self.inner(x, v, v), mp.zero))

    def exterior_angle(self, x: Vector, y: Vector):
        """Angle at x, in [0, π], between the ray from the origin continued beyond x and the geodesic to y.

        Undefined at x = 0 and at y = x.
        """
        outward = scale(-1, self.log(x, [mp.zero] * len(x)))
        toward = self.log(x, y)
        return acos(self.inner(x, outward, toward) / (self.norm(x, outward) * self.norm(x, toward)))

    def wrapped_normal_log_density(self, z: Vector, mean: Vector, std):
        """log N(v; 0, std² I) - (d-1) log(sinh(√c r)/(√c r)),  r = |v| = dist(mean, z).

        v is normal in an orthonormal frame of the tangent space; the density is with respect to the Riemannian volume.
        The second term is the volume that the exponential map makes of a unit of tangent space: one factor for each
        direction across v.
        """
        d, r, std = len(z), self.dist(mean, z), scalar(std)
        log_normal = -mp.mpf(d) / 2 * mp.log(2 * mp.pi * std**2) - r**2 / (2 * std**2)
        a = self.sqrt_c * r
        return log_normal if a == 0 else log_normal - (d - 1) * mp.log(self.sinh(a) / a)

    sinh = staticmethod(mp.sinh)  # the radius of a circle of radius 1


class LorentzRef(_Reference):
    """The upper sheet of <x, x>_L = -1/c."""

    def time(self, x: Vector):
        return mp.sqrt(1 / self.c + dot(x, x))

    def ambient(self, x: Vector) -> Vector:
        """(x_t, x)"""
        return [self.time(x), *x]

    def ambient_tangent(self, x: Vector, v: Vector) -> Vector:
        """(x·v/x_t, v), the vector with <x, v>_L = 0"""
        return [dot(x, v) / self.time(x), *v]

    def inner(self, x: Vector, u: Vector, v: Vector):
        return minkowski(self.ambient_tangent(x, u), self.ambient_tangent(x, v))

    def cosh_dist(self, x: Vector, y: Vector):
        """cosh(√c dist) = -c <x, y>_L"""
        return -self.c * minkowski(self.ambient(x), self.ambient(y))

    def dist(self, x: Vector, y: Vector):
        return mp.zero if x == y else acosh(self.cosh_dist(x, y)) / self.sqrt_c

    def exp0(self, v: Vector) -> Vector:
        """sinh(√c|v|)/√c · v/|v|"""
        return v if is_zero(v) else scale(mp.sinh(self.sqrt_c * length(v)) / (self.sqrt_c * length(v)), v)

    def log0(self, x: Vector) -> Vector:
        """acosh(√c x_t)/√c · x/|x|"""
        return x if is_zero(x) else scale(acosh(self.sqrt_c * self.time(x)) / (self.sqrt_c * length(x)), x)

    def exp(self, x: Vector, v: Vector) -> Vector:
        """cosh(√c|v|_L) x + sinh(√c|v|_L)/√c · v/|v|_L"""
        if is_zero(v):
            return x
        a = self.sqrt_c * self.norm(x, v)
        return add(scale(mp.cosh(a), x), scale(mp.sinh(a) / a, v))

    def log(self, x: Vector, y: Vector) -> Vector:
        """a/sinh(a) · (y - cosh(a) x),  a = √c dist(x, y)"""
        a = self.sqrt_c * self.dist(x, y)
        return [mp.zero] * len(x) if a == 0 else scale(a / mp.sinh(a), sub(y, scale(mp.cosh(a), x)))

    def transport(self, v: Vector, x: Vector, y: Vector) -> Vector:
        """v - <log_x y, v>/dist² · (log_x y + log_y x):  the part along the geodesic turns with it, the rest stays."""
        if x == y:
            return v
        there, back = self.log(x, y), self.log(y, x)
        return sub(v, scale(self.inner(x, there, v) / self.dist(x, y) ** 2, add(there, back)))

    def geodesic(self, x: Vector, y: Vector, t) -> Vector:
        """(sinh((1-t)a) x + sinh(t a) y) / sinh(a),  a = √c dist(x, y)"""
        a, t = self.sqrt_c * self.dist(x, y), scalar(t)
        return x if a == 0 else add(scale(mp.sinh((1 - t) * a) / mp.sinh(a), x), scale(mp.sinh(t * a) / mp.sinh(a), y))

    def midpoint(self, points: Sequence[Vector], weights: Sequence) -> Vector:
        """z/√(-c<z, z>_L),  z = Σ w_i x_i with time included"""
        z = [mp.zero] * (len(points[0]) + 1)
        for x, w in zip(points, weights, strict=True):
            z = add(z, scale(scalar(w), self.ambient(x)))
        return scale(1 / mp.sqrt(-self.c * minkowski(z, z)), z[1:])

    def rgrad(self, x: Vector, g: Vector) -> Vector:
        """(I + c x xᵀ) g, the inverse of the metric I - x xᵀ/x_t² of the space chart"""
        return add(g, scale(self.c * dot(x, g), x))

    def hyperplane_distance(self, x: Vector, p: Vector, w: Vector):
        """asinh(√c <x, w>_L/|w|_L)/√c, w tangent at p"""
        return (
            mp.asinh(self.sqrt_c * minkowski(self.ambient(x), self.ambient_tangent(p, w)) / self.norm(p, w))
            / self.sqrt_c
        )

    def translate(self, x: Vector, by: Vector) -> Vector:
        """The space rows of the boost, [√c b, I + c b bᵀ/(1 + √c b_t)], times (x_t, x)"""
        along = self.sqrt_c * self.time(x) + self.c * dot(by, x) / (1 + self.sqrt_c * self.time(by))
        return add(x, scale(along, by))

    def half_aperture(self, x: Vector, k=0.1):
        """asin(2k/(√c|x|)), π/2 where there is no such angle"""
        sine, radius = 2 * scalar(k), self.sqrt_c * length(x)
        return mp.pi / 2 if sine >= radius else mp.asin(sine / radius)


class SphereRef(_Reference):
    """The unit sphere of R^(d+1), by stereographic projection from the antipode of the origin, times 1/√c."""

    sinh = staticmethod(mp.sin)

    def unit(self, x: Vector) -> Vector:
        """(1 - |y|², 2y)/(1 + |y|²), y = √c x: the height first"""
        y = scale(self.sqrt_c, x)
        return scale(1 / (1 + dot(y, y)), [1 - dot(y, y), *scale(2, y)])

    def point(self, p: Vector) -> Vector:
        return scale(1 / ((1 + p[0]) * self.sqrt_c), p[1:])

    def pushed(self, x: Vector, v: Vector) -> Vector:
        """The differential of `unit` on v"""
        y, w = scale(self.sqrt_c, x), scale(self.sqrt_c, v)
        gap, fall = 1 + dot(y, y), 4 * dot(y, w) / (1 + dot(y, y)) ** 2
        return [-fall, *sub(scale(2 / gap, w), scale(fall, y))]

    def pulled(self, x: Vector, v: Vector) -> Vector:
        """The differential of `point` on v"""
        p = self.unit(x)
        return scale(1 / ((1 + p[0]) ** 2 * self.sqrt_c), sub(scale(1 + p[0], v[1:]), scale(v[0], p[1:])))

    def inner(self, x: Vector, u: Vector, v: Vector):
        return dot(self.pushed(x, u), self.pushed(x, v)) / self.c

    def dist(self, x: Vector, y: Vector):
        return acos(dot(self.unit(x), self.unit(y))) / self.sqrt_c

    def exp(self, x: Vector, v: Vector) -> Vector:
        w = self.pushed(x, v)
        if is_zero(w):
            return x
        return self.point(add(scale(mp.cos(length(w)), self.unit(x)), scale(mp.sin(length(w)) / length(w), w)))

    def log(self, x: Vector, y: Vector) -> Vector:
        p, q = self.unit(x), self.unit(y)
        across = sub(q, scale(dot(p, q), p))
        return scale(0, x) if x == y else self.pulled(x, scale(acos(dot(p, q)) / length(across), across))

    def exp0(self, v: Vector) -> Vector:
        return self.exp([mp.zero] * len(v), v)

    def log0(self, x: Vector) -> Vector:
        return self.log([mp.zero] * len(x), x)

    def transport(self, v: Vector, x: Vector, y: Vector) -> Vector:
        """The rotation in the plane of both points, from one to the other"""
        return self.pulled(y, self.turned(self.pushed(x, v), self.unit(x), self.unit(y)))

    def turned(self, w: Vector, p: Vector, q: Vector) -> Vector:
        """(1 + K + K²/(1 + p·q)) w, K = q pᵀ - p qᵀ"""
        k = sub(scale(dot(p, w), q), scale(dot(q, w), p))
        kk = sub(scale(dot(p, k), q), scale(dot(q, k), p))
        return add(add(w, k), scale(1 / (1 + dot(p, q)), kk))

    def geodesic(self, x: Vector, y: Vector, t) -> Vector:
        return self.exp(x, scale(scalar(t), self.log(x, y)))

    def midpoint(self, points: Sequence[Vector], weights: Sequence) -> Vector:
        total = [mp.zero] * (len(points[0]) + 1)
        for x, w in zip(points, weights, strict=True):
            total = add(total, scale(scalar(w), self.unit(x)))
        return self.point(scale(1 / length(total), total))

    def rgrad(self, x: Vector, g: Vector) -> Vector:
        """g/λ²"""
        return scale((1 + self.c * dot(x, x)) ** 2 / 4, g)

    def hyperplane_distance(self, x: Vector, p: Vector, w: Vector):
        normal = self.pushed(p, w)
        return mp.asin(dot(self.unit(x), normal) / length(normal)) / self.sqrt_c

    def translate(self, x: Vector, by: Vector) -> Vector:
        pole = [mp.one, *([mp.zero] * len(x))]
        return self.point(self.turned(self.unit(x), pole, self.unit(by)))


class PoincareRef(_Reference):
    """The ball of radius 1/√c."""

    def lam(self, x: Vector):
        """λ = 2/(1 - c|x|²)"""
        return 2 / (1 - self.c * dot(x, x))

    def add(self, x: Vector, y: Vector) -> Vector:
        return mobius_add(x, y, self.c)

    def toward(self, x: Vector, y: Vector) -> Vector:
        """(-x) ⊕ y:  y seen from x"""
        return self.add(scale(-1, x), y)

    def inner(self, x: Vector, u: Vector, v: Vector):
        return self.lam(x) ** 2 * dot(u, v)

    def dist(self, x: Vector, y: Vector):
        """acosh(1 + 2c|x - y|²/((1 - c|x|²)(1 - c|y|²)))/√c"""
        gap = sub(x, y)
        return (
            acosh(1 + 2 * self.c * dot(gap, gap) / ((1 - self.c * dot(x, x)) * (1 - self.c * dot(y, y)))) / self.sqrt_c
        )

    def exp0(self, v: Vector) -> Vector:
        """tanh(√c|v|)/√c · v/|v|:  at distance λ_0|v| = 2|v| from the origin"""
        return v if is_zero(v) else scale(mp.tanh(self.sqrt_c * length(v)) / (self.sqrt_c * length(v)), v)

    def log0(self, x: Vector) -> Vector:
        """artanh(√c|x|)/√c · x/|x|"""
        return x if is_zero(x) else scale(mp.atanh(self.sqrt_c * length(x)) / (self.sqrt_c * length(x)), x)

    def exp(self, x: Vector, v: Vector) -> Vector:
        """x ⊕ tanh(√c λ_x|v|/2)/√c · v/|v|"""
        return self.add(x, self.exp0(scale(self.lam(x) / 2, v)))

    def log(self, x: Vector, y: Vector) -> Vector:
        """2/λ_x · artanh(√c|u|)/√c · u/|u|,  u = (-x) ⊕ y"""
        return scale(2 / self.lam(x), self.log0(self.toward(x, y)))

    def gyration(self, a: Vector, b: Vector, v: Vector) -> Vector:
        """gyr[a, b] v = -(a ⊕ b) ⊕ (a ⊕ (b ⊕ v)), a rotation.

        v is shortened to half the ball's radius for it, and lengthened after.
        """
        if is_zero(v):
            return v
        shorten = 1 / (2 * self.sqrt_c * length(v))
        turned = self.toward(self.add(a, b), self.add(a, self.add(b, scale(shorten, v))))
        return scale(1 / shorten, turned)

    def transport(self, v: Vector, x: Vector, y: Vector) -> Vector:
        """λ_x/λ_y · gyr[y, -x] v"""
        return scale(self.lam(x) / self.lam(y), self.gyration(y, scale(-1, x), v))

    def geodesic(self, x: Vector, y: Vector, t) -> Vector:
        """x ⊕ t ⊗ ((-x) ⊕ y)"""
        return self.add(x, self.exp0(scale(scalar(t), self.log0(self.toward(x, y)))))

    def midpoint(self, points: Sequence[Vector], weights: Sequence) -> Vector:
        """The Lorentz centroid, through the isometry"""
        lifted = [poincare_to_lorentz(x, self.c) for x in points]
        return lorentz_to_poincare(LorentzRef(self.c).midpoint(lifted, weights), self.c)

    def rgrad(self, x: Vector, g: Vector) -> Vector:
        """g/λ²"""
        return scale(1 / self.lam(x) ** 2, g)

    def hyperplane_distance(self, x: Vector, p: Vector, w: Vector):
        """asinh(2√c u·w/((1 - c|u|²)|w|))/√c,  u = (-p) ⊕ x"""
        u = self.toward(p, x)
        return mp.asinh(self.sqrt_c * self.lam(u) * dot(u, w) / length(w)) / self.sqrt_c

    def translate(self, x: Vector, by: Vector) -> Vector:
        """by ⊕ x"""
        return self.add(by, x)

    def half_aperture(self, x: Vector, k=0.1):
        """asin(k(1 - c|x|²)/(√c|x|)), π/2 where there is no such angle"""
        sine, radius = scalar(k) * (1 - self.c * dot(x, x)), self.sqrt_c * length(x)
        return mp.pi / 2 if sine >= radius else mp.asin(sine / radius)


class EuclideanRef(_Reference):
    """Flat space; c is accepted and ignored."""

    def __init__(self, c=0):
        super().__init__(0)

    def inner(self, x: Vector, u: Vector, v: Vector):
        return dot(u, v)

    def dist(self, x: Vector, y: Vector):
        return length(sub(x, y))

    def exp0(self, v: Vector) -> Vector:
        return v

    def log0(self, x: Vector) -> Vector:
        return x

    def exp(self, x: Vector, v: Vector) -> Vector:
        return add(x, v)

    def log(self, x: Vector, y: Vector) -> Vector:
        return sub(y, x)

    def transport(self, v: Vector, x: Vector, y: Vector) -> Vector:
        return v

    def geodesic(self, x: Vector, y: Vector, t) -> Vector:
        return add(scale(1 - scalar(t), x), scale(scalar(t), y))

    def midpoint(self, points: Sequence[Vector], weights: Sequence) -> Vector:
        """Σ w_i x_i/Σ w_i"""
        weights = [scalar(w) for w in weights]
        return [dot(weights, coordinate) / mp.fsum(weights) for coordinate in zip(*points, strict=True)]

    def rgrad(self, x: Vector, g: Vector) -> Vector:
        return g

    def hyperplane_distance(self, x: Vector, p: Vector, w: Vector):
        """(x - p)·w/|w|"""
        return dot(sub(x, p), w) / length(w)

    def translate(self, x: Vector, by: Vector) -> Vector:
        return add(by, x)

    def half_aperture(self, x: Vector, k=0.1):
        """asin(k/|x|), π/2 where there is no such angle"""
        sine, radius = scalar(k), length(x)
        return mp.pi / 2 if sine >= radius else mp.asin(sine / radius)


# Maps between the models, all isometries


def lorentz_to_poincare(x: Vector, c) -> Vector:
    """x/(1 + √c x_t)"""
    L = LorentzRef(c)
    return scale(1 / (1 + L.sqrt_c * L.time(x)), x)


def poincare_to_lorentz(p: Vector, c) -> Vector:
    """2p/(1 - c|p|²)"""
    return scale(2 / (1 - scalar(c) * dot(p, p)), p)


def lorentz_to_klein(x: Vector, c) -> Vector:
    """x/(√c x_t), in the ball of radius 1/√c"""
    L = LorentzRef(c)
    return scale(1 / (L.sqrt_c * L.time(x)), x)


def klein_to_lorentz(k: Vector, c) -> Vector:
    """k/√(1 - c|k|²)"""
    return scale(1 / mp.sqrt(1 - scalar(c) * dot(k, k)), k)


def klein_dist(a: Vector, b: Vector, c):
    """acosh((1 - c a·b)/√((1 - c|a|²)(1 - c|b|²)))/√c"""
    c = scalar(c)
    return acosh((1 - c * dot(a, b)) / mp.sqrt((1 - c * dot(a, a)) * (1 - c * dot(b, b)))) / mp.sqrt(c)


def lorentz_to_halfspace(x: Vector, c) -> Vector:
    """y_i = X_i/(T - X_d), y_d = 1/(T - X_d) with X = √c x, T = √(1 + |X|²).

    y has no unit: the metric is |dy|²/(c y_d²).
    """
    X = scale(mp.sqrt(scalar(c)), x)
    gap = mp.sqrt(1 + dot(X, X)) - X[-1]
    return [*scale(1 / gap, X[:-1]), 1 / gap]


def halfspace_to_lorentz(y: Vector, c) -> Vector:
    """X_i = y_i/y_d, X_d = (|y|² - 1)/(2y_d), x = X/√c"""
    X = [*scale(1 / y[-1], y[:-1]), (dot(y, y) - 1) / (2 * y[-1])]
    return scale(1 / mp.sqrt(scalar(c)), X)


def halfspace_dist(a: Vector, b: Vector, c):
    """acosh(1 + |a - b|²/(2 a_d b_d))/√c"""
    gap = sub(a, b)
    return acosh(1 + dot(gap, gap) / (2 * a[-1] * b[-1])) / mp.sqrt(scalar(c))
