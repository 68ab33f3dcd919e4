/** A chart as it is looked at: the geometry of a picture, the points in it, and how it was moved.
 *
 * A place of the picture is a complex number in units of the picture: the disk has radius 1, the sphere too. What the
 * screen makes of places is the camera's business (`pane.ts`).
 */

import * as H from "./hyperbolic";
import type { Complex } from "./hyperbolic";
import * as S from "./sphere";

export type Kind = "hyperbolic" | "flat" | "sphere";

/** How the shaders read a frame; the first three are those of `hyperbolic.MODELS`. */
export const FLAT = 3;
export const SPHERE = 4;

export interface Space {
  readonly kind: Kind;
  readonly count: number;
  /** Three numbers a point, as the shaders read them. `update` writes them. */
  readonly frame: Float32Array;
  /** Half the width of the picture before anything was moved. */
  readonly reach: number;
  model: number;
  update(): void;
  /** Where a point lies in the picture; null where it is behind the sphere. */
  place(i: number): Complex | null;
  /** Whether there is something of the space at a place of the picture. */
  has(z: Complex): boolean;
  /** Move so that what was at one place lies at the other. */
  drag(from: Complex, to: Complex): void;
  rotate(angle: number): void;
  /** Ways to bring a point to the middle: a function of a share of the way, from 0 to 1. */
  centring(i: number): (share: number) => void;
  reset(): void;
  state(): number[];
  restore(state: number[]): void;
  /** In the unit of the chart. */
  distance(i: number, j: number): number;
  /** The line between two points, as places; pieces where parts lie behind the sphere. */
  line(i: number, j: number, steps: number): Complex[][];
  /** What the edge shader needs to know of an edge: cosh of its length; 0 elsewhere. */
  edge(i: number, j: number): number;
}

export function space(kind: Kind, coordinates: Float64Array): Space {
  return kind === "hyperbolic"
    ? new Hyperbolic(coordinates)
    : kind === "sphere"
      ? new Sphere(coordinates)
      : new Flat(coordinates);
}

export class Hyperbolic implements Space {
  readonly kind = "hyperbolic";
  readonly count: number;
  readonly frame: Float32Array;
  readonly reach = 1;
  model = 0;
  view = H.IDENTITY;
  readonly pairs: Float64Array;

  constructor(coordinates: Float64Array) {
    this.count = coordinates.length / 2;
    this.pairs = H.pairs(coordinates);
    this.frame = new Float32Array(3 * this.count);
  }

  update(): void {
    H.moveAll(this.view, this.pairs, this.frame);
  }

  place(i: number): Complex {
    return this.picture(this.klein(i));
  }

  has(z: Complex): boolean {
    return H.MODELS[this.model]!.disk(z) !== null;
  }

  drag(from: Complex, to: Complex): void {
    const model = H.MODELS[this.model]!;
    const [start, end] = [model.disk(from), model.disk(to)];
    if (start && end) this.view = H.compose(H.carry(start, end), this.view);
  }

  rotate(angle: number): void {
    this.view = H.compose(H.rotation(angle), this.view);
  }

  centring(i: number): (share: number) => void {
    const from = this.view;
    const [x, y, t] = H.moved(from, this.pairs, i);
    const space = Math.hypot(x, y);
    const away = space > 0 ? { re: -x / space, im: -y / space } : { re: 1, im: 0 };
    const length = Math.asinh(space);
    if (!Number.isFinite(t)) return () => undefined;
    return (share) => {
      this.view = H.compose(H.translation(away, share * length), from);
    };
  }

  reset(): void {
    this.view = H.IDENTITY;
  }

  state(): number[] {
    return [this.view.a.re, this.view.a.im, this.view.b.re, this.view.b.im];
  }

  restore([ar, ai, br, bi]: number[]): void {
    const view = { a: { re: ar!, im: ai! }, b: { re: br!, im: bi! } };
    const size = view.a.re ** 2 + view.a.im ** 2 - view.b.re ** 2 - view.b.im ** 2;
    if (size > 0 && Number.isFinite(size)) this.view = H.compose(view, H.IDENTITY);
  }

  distance(i: number, j: number): number {
    return H.distance(this.pairs, i, j);
  }

  edge(i: number, j: number): number {
    return Math.cosh(this.distance(i, j));
  }

  line(i: number, j: number, steps: number): Complex[][] {
    const points = H.geodesic(this.klein(i), this.klein(j), this.edge(i, j), steps);
    return [points.map((point) => this.picture(point))];
  }

  /** The region of a node's entailment cone: its corner, one side out to the rim, along the rim, and back. */
  cone(i: number, halfAperture: number, steps: number): Complex[] {
    const p = { re: this.pairs[3 * i]!, im: this.pairs[3 * i + 1]! };
    const length = Math.hypot(p.re, p.im);
    if (length === 0) return [];
    const outward = Math.atan2(p.im, p.re);
    const there = H.compose(this.view, H.translation({ re: p.re / length, im: p.im / length }, 2 * Math.asinh(length)));
    const along = (angle: number, far: number): Complex => {
      const [x, y, t] = H.moved(
        there,
        H.pairs(Float64Array.of(Math.sinh(far) * Math.cos(angle), Math.sinh(far) * Math.sin(angle))),
        0,
      );
      return this.picture([x / t, y / t, 1 / t]);
    };
    const FAR = 20; // as good as the rim
    const out: Complex[] = [];
    for (let k = 0; k <= steps; k++) out.push(along(outward - halfAperture, (FAR * k * k) / (steps * steps)));
    for (let k = 1; k < steps; k++) out.push(along(outward + halfAperture * ((2 * k) / steps - 1), FAR));
    for (let k = steps; k >= 0; k--) out.push(along(outward + halfAperture, (FAR * k * k) / (steps * steps)));
    return out;
  }

  private klein(i: number): [number, number, number] {
    const [x, y, t] = H.moved(this.view, this.pairs, i);
    return [x / t, y / t, 1 / t];
  }

  private picture([x, y, w]: readonly [number, number, number]): Complex {
    return H.MODELS[this.model]!.place(x, y, w);
  }
}

class Flat implements Space {
  readonly kind = "flat";
  readonly count: number;
  readonly frame: Float32Array;
  readonly reach: number;
  readonly model = FLAT;
  private angle = 0;
  private shift: Complex = { re: 0, im: 0 };

  constructor(private readonly coordinates: Float64Array) {
    this.count = coordinates.length / 2;
    this.frame = new Float32Array(3 * this.count);
    const lengths = Float32Array.from({ length: this.count }, (_, i) =>
      Math.hypot(coordinates[2 * i]!, coordinates[2 * i + 1]!),
    );
    this.reach = lengths.sort()[Math.ceil(0.995 * (this.count - 1))] || 1; // a few that lie far out do not count
  }

  update(): void {
    const [cos, sin] = [Math.cos(this.angle), Math.sin(this.angle)];
    const { re, im } = this.shift;
    for (let i = 0; i < this.count; i++) {
      const x = this.coordinates[2 * i]!;
      const y = this.coordinates[2 * i + 1]!;
      this.frame[3 * i] = cos * x - sin * y + re;
      this.frame[3 * i + 1] = sin * x + cos * y + im;
    }
  }

  place(i: number): Complex {
    const [cos, sin] = [Math.cos(this.angle), Math.sin(this.angle)];
    const x = this.coordinates[2 * i]!;
    const y = this.coordinates[2 * i + 1]!;
    return { re: cos * x - sin * y + this.shift.re, im: sin * x + cos * y + this.shift.im };
  }

  has(): boolean {
    return true;
  }

  drag(from: Complex, to: Complex): void {
    this.shift = { re: this.shift.re + to.re - from.re, im: this.shift.im + to.im - from.im };
  }

  rotate(angle: number): void {
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    this.angle += angle;
    this.shift = { re: cos * this.shift.re - sin * this.shift.im, im: sin * this.shift.re + cos * this.shift.im };
  }

  centring(i: number): (share: number) => void {
    const [from, at] = [this.shift, this.place(i)];
    return (share) => {
      this.shift = { re: from.re - share * at.re, im: from.im - share * at.im };
    };
  }

  reset(): void {
    this.angle = 0;
    this.shift = { re: 0, im: 0 };
  }

  state(): number[] {
    return [this.angle, this.shift.re, this.shift.im];
  }

  restore([angle, re, im]: number[]): void {
    this.angle = angle!;
    this.shift = { re: re!, im: im! };
  }

  distance(i: number, j: number): number {
    const c = this.coordinates;
    return Math.hypot(c[2 * i]! - c[2 * j]!, c[2 * i + 1]! - c[2 * j + 1]!);
  }

  edge(): number {
    return 0;
  }

  line(i: number, j: number): Complex[][] {
    return [[this.place(i), this.place(j)]];
  }
}

class Sphere implements Space {
  readonly kind = "sphere";
  readonly count: number;
  readonly frame: Float32Array;
  readonly reach = 1;
  readonly model = SPHERE;
  private view: S.Quaternion = S.UPRIGHT;

  constructor(private readonly coordinates: Float64Array) {
    this.count = coordinates.length / 3;
    this.frame = new Float32Array(3 * this.count);
  }

  update(): void {
    const [x, y, z] = [
      S.rotated(this.view, [1, 0, 0]),
      S.rotated(this.view, [0, 1, 0]),
      S.rotated(this.view, [0, 0, 1]),
    ];
    const { coordinates: c, frame } = this;
    for (let i = 0; i < c.length; i += 3) {
      for (let k = 0; k < 3; k++) frame[i + k] = x[k]! * c[i]! + y[k]! * c[i + 1]! + z[k]! * c[i + 2]!;
    }
  }

  place(i: number): Complex | null {
    const [x, y, z] = S.rotated(this.view, this.vector(i));
    return z >= 0 ? { re: x, im: y } : null;
  }

  has(z: Complex): boolean {
    return Math.hypot(z.re, z.im) < 1;
  }

  drag(from: Complex, to: Complex): void {
    this.view = S.multiply(S.between(onSphere(from), onSphere(to)), this.view);
  }

  rotate(angle: number): void {
    this.view = S.multiply(S.about([0, 0, 1], angle), this.view);
  }

  centring(i: number): (share: number) => void {
    const from = this.view;
    const at = S.rotated(from, this.vector(i));
    const far = S.angle(at, [0, 0, 1]);
    const axis: S.Vector = Math.hypot(at[0], at[1]) > 0 ? [at[1], -at[0], 0] : [0, 1, 0];
    return (share) => {
      this.view = S.multiply(S.about(axis, share * far), from);
    };
  }

  reset(): void {
    this.view = S.UPRIGHT;
  }

  state(): number[] {
    return [...this.view];
  }

  restore([w, x, y, z]: number[]): void {
    if (Math.hypot(w!, x!, y!, z!) > 0) this.view = S.multiply([w!, x!, y!, z!], S.UPRIGHT);
  }

  distance(i: number, j: number): number {
    return S.angle(this.vector(i), this.vector(j));
  }

  edge(): number {
    return 0;
  }

  line(i: number, j: number, steps: number): Complex[][] {
    const pieces: Complex[][] = [[]];
    for (const v of S.arc(this.vector(i), this.vector(j), steps)) {
      const [x, y, z] = S.rotated(this.view, v);
      if (z >= 0) pieces.at(-1)!.push({ re: x, im: y });
      else if (pieces.at(-1)!.length) pieces.push([]);
    }
    return pieces.filter((piece) => piece.length > 1);
  }

  private vector(i: number): S.Vector {
    const c = this.coordinates;
    return [c[3 * i]!, c[3 * i + 1]!, c[3 * i + 2]!];
  }
}

/** The point of the front that lies at a place; outside the disk the nearest of the rim. */
function onSphere(z: Complex): S.Vector {
  const length = Math.hypot(z.re, z.im);
  if (length < 1) return [z.re, z.im, Math.sqrt(1 - length * length)];
  return [z.re / length, z.im / length, 0];
}
