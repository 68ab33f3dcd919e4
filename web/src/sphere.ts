/** Rotations of the unit sphere, as quaternions (w, x, y, z) of length 1, and great circles. */

export type Vector = readonly [number, number, number];
export type Quaternion = readonly [number, number, number, number];

export const UPRIGHT: Quaternion = [1, 0, 0, 0];

/** First `before`, then `after`. */
export function multiply(after: Quaternion, before: Quaternion): Quaternion {
  const [a, b, c, d] = after;
  const [e, f, g, h] = before;
  const product = [
    a * e - b * f - c * g - d * h,
    a * f + b * e + c * h - d * g,
    a * g - b * h + c * e + d * f,
    a * h + b * g - c * f + d * e,
  ] as const;
  const length = Math.hypot(...product);
  return [product[0] / length, product[1] / length, product[2] / length, product[3] / length];
}

export function about(axis: Vector, angle: number): Quaternion {
  const length = Math.hypot(...axis);
  if (length === 0) return UPRIGHT;
  const by = Math.sin(angle / 2) / length;
  return [Math.cos(angle / 2), axis[0] * by, axis[1] * by, axis[2] * by];
}

/** The shortest rotation that takes one vector of length 1 to another. */
export function between(from: Vector, to: Vector): Quaternion {
  const axis = cross(from, to);
  return about(axis, Math.atan2(Math.hypot(...axis), dot(from, to)));
}

export function rotated(q: Quaternion, v: Vector): Vector {
  const axis: Vector = [q[1], q[2], q[3]];
  const t = cross(axis, v).map((x) => 2 * x) as unknown as Vector;
  const u = cross(axis, t);
  return [v[0] + q[0] * t[0] + u[0], v[1] + q[0] * t[1] + u[1], v[2] + q[0] * t[2] + u[2]];
}

/** 2 atan2(|x - y|, |x + y|): right near 0 and near π. */
export function angle(x: Vector, y: Vector): number {
  return (
    2 * Math.atan2(Math.hypot(x[0] - y[0], x[1] - y[1], x[2] - y[2]), Math.hypot(x[0] + y[0], x[1] + y[1], x[2] + y[2]))
  );
}

export function dot(x: Vector, y: Vector): number {
  return x[0] * y[0] + x[1] * y[1] + x[2] * y[2];
}

function cross(x: Vector, y: Vector): Vector {
  return [x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]];
}

/** Points of the great circle from one vector to another, by the shorter way. */
export function arc(from: Vector, to: Vector, steps: number): Vector[] {
  const whole = angle(from, to);
  const sine = Math.sin(whole);
  const out: Vector[] = [];
  for (let step = 0; step <= steps; step++) {
    const s = step / steps;
    const r = sine > 1e-9 ? Math.sin((1 - s) * whole) / sine : 1 - s; // nearly one point: a straight line is as good
    const t = sine > 1e-9 ? Math.sin(s * whole) / sine : s;
    out.push([r * from[0] + t * to[0], r * from[1] + t * to[1], r * from[2] + t * to[2]]);
  }
  return out;
}
