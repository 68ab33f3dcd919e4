/** The hyperbolic plane of curvature -1, in double precision.
 *
 * A point of the hyperboloid (X, Y), T = √(1 + X² + Y²), is kept as a pair of complex numbers (p, q), |q|² - |p|² = 1:
 * q = √((T+1)/2), p = (X + iY)/2q. Its place in the Poincaré disk is p/q. Far out p and q are large and p/q has no
 * digits left, so nothing here computes with p/q. An isometry is a pair (a, b) with |a|² - |b|² = 1 that acts linearly:
 * p' = a p + b q, q' = b̄ p + ā q. A 3 x 3 matrix would lose twice as many digits.
 */

export interface Complex {
  re: number;
  im: number;
}

/** p' = a p + b q, q' = b̄ p + ā q. */
export interface Isometry {
  a: Complex;
  b: Complex;
}

export const IDENTITY: Isometry = { a: { re: 1, im: 0 }, b: { re: 0, im: 0 } };

const times = (x: Complex, y: Complex): Complex => ({ re: x.re * y.re - x.im * y.im, im: x.re * y.im + x.im * y.re });
const plus = (x: Complex, y: Complex): Complex => ({ re: x.re + y.re, im: x.im + y.im });
const conjugate = (x: Complex): Complex => ({ re: x.re, im: -x.im });
const scaled = (x: Complex, by: number): Complex => ({ re: x.re * by, im: x.im * by });
const square = (x: Complex): number => x.re * x.re + x.im * x.im;

/** First `before`, then `after`. */
export function compose(after: Isometry, before: Isometry): Isometry {
  return normalised({
    a: plus(times(after.a, before.a), times(after.b, conjugate(before.b))),
    b: plus(times(after.a, before.b), times(after.b, conjugate(before.a))),
  });
}

/** Rounding lets |a|² - |b|² drift from 1. */
function normalised({ a, b }: Isometry): Isometry {
  const by =
    1 / Math.sqrt((Math.sqrt(square(a)) - Math.sqrt(square(b))) * (Math.sqrt(square(a)) + Math.sqrt(square(b))));
  return { a: scaled(a, by), b: scaled(b, by) };
}

export function inverse({ a, b }: Isometry): Isometry {
  return { a: conjugate(a), b: scaled(b, -1) };
}

export function rotation(angle: number): Isometry {
  return { a: { re: Math.cos(angle / 2), im: Math.sin(angle / 2) }, b: { re: 0, im: 0 } };
}

/** Along the ray from the origin in a direction (of length 1), by a hyperbolic length. */
export function translation(direction: Complex, length: number): Isometry {
  return { a: { re: Math.cosh(length / 2), im: 0 }, b: scaled(direction, Math.sinh(length / 2)) };
}

/** The isometry without rotation that takes the origin to a place in the disk. */
function toward(place: Complex): Isometry {
  const by = 1 / Math.sqrt(1 - square(place));
  return { a: { re: by, im: 0 }, b: scaled(place, by) };
}

/** The translation along the geodesic from one place in the disk to another. It carries the first to the second. */
export function carry(from: Complex, to: Complex): Isometry {
  const there = toward(from);
  return compose(compose(there, toward(placed(inverse(there), to))), inverse(there));
}

/** Where an isometry takes a place in the disk. */
export function placed({ a, b }: Isometry, z: Complex): Complex {
  const p = plus(times(a, z), b);
  const q = plus(times(conjugate(b), z), conjugate(a));
  return scaled(times(p, conjugate(q)), 1 / square(q));
}

// -- many points ----------------------------------------------------------------------------------------------

/** (X, Y) of the hyperboloid -> p.re, p.im, q of each point. q is real at first. */
export function pairs(hyperboloid: Float64Array): Float64Array {
  const count = hyperboloid.length / 2;
  const out = new Float64Array(3 * count);
  for (let i = 0; i < count; i++) {
    const x = hyperboloid[2 * i]!;
    const y = hyperboloid[2 * i + 1]!;
    const q = Math.sqrt((Math.sqrt(1 + x * x + y * y) + 1) / 2);
    out[3 * i] = x / (2 * q);
    out[3 * i + 1] = y / (2 * q);
    out[3 * i + 2] = q;
  }
  return out;
}

/** One point of `pairs`, moved: the place (X, Y, T) on the hyperboloid. */
export function moved(by: Isometry, points: Float64Array, i: number): [number, number, number] {
  const p = { re: points[3 * i]!, im: points[3 * i + 1]! };
  const q = points[3 * i + 2]!;
  const first = plus(times(by.a, p), scaled(by.b, q));
  const second = plus(times(conjugate(by.b), p), scaled(conjugate(by.a), q));
  const { re, im } = scaled(times(first, conjugate(second)), 2);
  return [re, im, square(first) + square(second)];
}

/** All points of `pairs`, moved: X/T, Y/T and 1/T of each in single precision. These suffice for every picture. */
export function moveAll(by: Isometry, points: Float64Array, out: Float32Array): void {
  const { re: ar, im: ai } = by.a;
  const { re: br, im: bi } = by.b;
  for (let i = 0; i < points.length; i += 3) {
    const pr = points[i]!;
    const pi = points[i + 1]!;
    const q = points[i + 2]!;
    const fr = ar * pr - ai * pi + br * q;
    const fi = ar * pi + ai * pr + bi * q;
    const sr = br * pr + bi * pi + ar * q;
    const si = br * pi - bi * pr - ai * q;
    const inverseTime = 1 / (fr * fr + fi * fi + sr * sr + si * si);
    out[i] = 2 * (fr * sr + fi * si) * inverseTime;
    out[i + 1] = 2 * (fi * sr - fr * si) * inverseTime;
    out[i + 2] = inverseTime;
  }
}

/** 2 asinh |p₁q₂ - p₂q₁|: right for near pairs too. */
export function distance(points: Float64Array, i: number, j: number): number {
  const re = points[3 * i]! * points[3 * j + 2]! - points[3 * j]! * points[3 * i + 2]!;
  const im = points[3 * i + 1]! * points[3 * j + 2]! - points[3 * j + 1]! * points[3 * i + 2]!;
  return 2 * Math.asinh(Math.hypot(re, im));
}

// -- pictures of the plane ------------------------------------------------------------------------------------

/** Klein coordinates (x, y) = (X, Y)/T, and w = 1/T: what `moveAll` gives. */
export interface Model {
  name: string;
  place(x: number, y: number, w: number): Complex;
  /** The place in the Poincaré disk of a place in this picture; null outside it. */
  disk(z: Complex): Complex | null;
}

const inside = (z: Complex): Complex | null => (square(z) < 1 ? z : null);

export const MODELS: readonly Model[] = [
  { name: "Poincaré disk", place: (x, y, w) => ({ re: x / (1 + w), im: y / (1 + w) }), disk: inside },
  {
    name: "Klein disk",
    place: (x, y) => ({ re: x, im: y }),
    disk: (z) => (square(z) < 1 ? scaled(z, 1 / (1 + Math.sqrt(1 - square(z)))) : null),
  },
  {
    // the origin lies at i, and the point (1, 0) of the rim at infinity
    name: "half-plane",
    place: (x, y, w) => {
      const below = x > 0 ? (w * w + y * y) / (1 + x) : 1 - x; // both are 1 - x; near 1 the first keeps its digits
      return { re: -y / below, im: w / below };
    },
    disk: (z) => {
      if (z.im <= 0) return null;
      const below = z.re * z.re + (z.im + 1) ** 2; // (z - i)/(z + i)
      return inside({ re: (square(z) - 1) / below, im: (-2 * z.re) / below });
    },
  },
];

/** Klein coordinates and 1/T of a point. */
export type Klein = readonly [x: number, y: number, w: number];

/** The point (1-s)A + sB of the geodesic between two points given so, A = (x, y, 1).
 *
 * -<P, P> = (1-s)²w_A² + s²w_B² + 2s(1-s)·w_A w_B cosh d. No term is negative, so nothing cancels at the rim.
 */
export function between(from: Klein, to: Klein, coshDistance: number, s: number): [number, number, number] {
  const r = 1 - s;
  const norm = r * r * from[2] ** 2 + s * s * to[2] ** 2 + 2 * r * s * from[2] * to[2] * coshDistance;
  return [r * from[0] + s * to[0], r * from[1] + s * to[1], Math.sqrt(norm)];
}

/** `steps` + 1 points of the geodesic, with s = sin²: they are dense at the ends, where the picture is steep. */
export function geodesic(from: Klein, to: Klein, coshDistance: number, steps: number): [number, number, number][] {
  return Array.from({ length: steps + 1 }, (_, step) =>
    between(from, to, coshDistance, Math.sin((Math.PI / 2) * (step / steps)) ** 2),
  );
}
