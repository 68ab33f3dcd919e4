/** Where points are on the screen, and which of them lie at a place of it: plain scans over arrays of numbers. */

import type { Complex } from "./hyperbolic";
import type { Camera } from "./camera";
import { SPHERE, type Space } from "./space";

export interface Pixel {
  x: number;
  y: number;
}

export const NEAR = 12; // pixels within which a point is meant

/** Pixels of all points, from the frame; NaN behind the sphere. */
export function project(space: Space, camera: Camera, width: number, height: number, out: Float32Array): void {
  const { frame, model } = space;
  const { scale } = camera;
  const left = width / 2 - scale * camera.x;
  const top = height / 2 + scale * camera.y;
  for (let i = 0, j = 0; i < frame.length; i += 3, j += 2) {
    let x = frame[i]!;
    let y = frame[i + 1]!;
    const w = frame[i + 2]!;
    if (model === 0) {
      x /= 1 + w;
      y /= 1 + w;
    } else if (model === 2) {
      const below = Math.max(x > 0 ? (w * w + y * y) / (1 + x) : 1 - x, 1e-30); // as the shader does
      x = -y / below;
      y = w / below;
    } else if (model === SPHERE && w < 0) x = NaN;
    out[j] = left + scale * x;
    out[j + 1] = top - scale * y;
  }
}

/** The point at a place; of several that are as near, the most important. */
export function nearest(
  screen: Float32Array,
  shown: Uint8Array,
  importance: Float32Array,
  x: number,
  y: number,
): number | null {
  let best = NEAR * NEAR;
  let found = -1;
  for (let i = 0; i < shown.length; i++) {
    const across = screen[2 * i]! - x;
    const down = screen[2 * i + 1]! - y;
    const far = across * across + down * down;
    if (!(far < best + 4) || !shown[i]) continue;
    if (found >= 0 && far > best - 4 && importance[i]! < importance[found]!) continue;
    best = Math.min(best, far);
    found = i;
  }
  return found >= 0 ? found : null;
}

/** Points inside a polygon. */
export function within(screen: Float32Array, shown: Uint8Array, polygon: Complex[]): number[] {
  const [left, right] = bounds(polygon.map(({ re }) => re));
  const [top, bottom] = bounds(polygon.map(({ im }) => im));
  const found: number[] = [];
  for (let i = 0; i < shown.length; i++) {
    const x = screen[2 * i]!;
    const y = screen[2 * i + 1]!;
    if (!shown[i] || !(x >= left && x <= right && y >= top && y <= bottom)) continue;
    if (inPolygon(x, y, polygon)) found.push(i);
  }
  return found;
}

/** By the parity of crossings. */
export function inPolygon(x: number, y: number, polygon: Complex[]): boolean {
  let inside = false;
  for (let k = 0, before = polygon.length - 1; k < polygon.length; before = k++) {
    const [a, b] = [polygon[k]!, polygon[before]!];
    if (a.im > y !== b.im > y && x < ((b.re - a.re) * (y - a.im)) / (b.im - a.im) + a.re) inside = !inside;
  }
  return inside;
}

function bounds(values: number[]): [number, number] {
  return values.reduce(([low, high], x) => [Math.min(low, x), Math.max(high, x)], [Infinity, -Infinity]);
}
