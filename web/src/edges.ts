/** Which edges are drawn, in how many steps: the important first, none that is shorter than a point is wide. */

import { type Batch, EDGE_FLOATS } from "./renderer";
import { FLAT, type Space } from "./space";
import type { Theme } from "./theme";

/** Edges shorter than so many pixels need so few steps to look smooth. */
export const STEPS = [
  { below: 14, steps: 3 },
  { below: 60, steps: 8 },
  { below: 240, steps: 20 },
  { below: Infinity, steps: 64 },
] as const;

export interface Seen {
  edges: Uint32Array;
  /** Numbers of edges, the important first. */
  order: Uint32Array;
  /** cosh of the length of each. */
  cosh: Float64Array;
  space: Space;
  /** Pixels of all points. */
  screen: Float32Array;
  shown: Uint8Array;
  colours: Uint8Array;
  width: number;
  height: number;
}

/** Whether an edge shows: longer than a point, and not all to one side of the screen. */
export function visible(seen: Seen, k: number): number {
  const { edges, screen, shown, width, height, space } = seen;
  const [a, b] = [edges[2 * k]!, edges[2 * k + 1]!];
  if (!shown[a] || !shown[b]) return 0;
  const ax = screen[2 * a]!;
  const ay = screen[2 * a + 1]!;
  const bx = screen[2 * b]!;
  const by = screen[2 * b + 1]!;
  const far = Math.abs(ax - bx) + Math.abs(ay - by);
  if (far < 2) return 0;
  const beside = Math.max(ax, bx) < 0 || Math.max(ay, by) < 0 || Math.min(ax, bx) > width || Math.min(ay, by) > height;
  if (beside && space.model !== 2 && far < width) return 0; // a long arc may bend back into view
  return Number.isFinite(far) ? far : 100; // behind the sphere: unknown
}

/** The arrays for the shaders, one for each number of steps. They are kept from frame to frame. */
export class Batches {
  private readonly arrays: Float32Array[] = [];
  private readonly words: Uint32Array[] = []; // the same memory

  fill(seen: Seen, most: number): Batch[] {
    const { edges, order, cosh, colours, space } = seen;
    const { frame, model } = space;
    const ink = new Uint32Array(colours.buffer); // the four bytes of a colour at once
    const straight = model === 1 || model === FLAT;
    const room = Math.min(order.length, most);
    const counts = STEPS.map(() => 0);
    let drawn = 0;
    for (let n = 0; n < order.length && drawn < room; n++) {
      const k = order[n]!;
      const far = visible(seen, k);
      if (!far) continue;
      drawn++;
      const kind = straight ? 0 : STEPS.findIndex(({ below }) => far < below);
      const at = EDGE_FLOATS * counts[kind]!++;
      const out = this.array(kind, at + EDGE_FLOATS);
      const [a, b] = [edges[2 * k]!, edges[2 * k + 1]!];
      for (let j = 0; j < 3; j++) {
        out[at + j] = frame[3 * a + j]!;
        out[at + 3 + j] = frame[3 * b + j]!;
      }
      out[at + 6] = cosh[k]! * frame[3 * a + 2]! * frame[3 * b + 2]!;
      this.words[kind]![at + 7] = ink[a]!;
    }
    return counts.flatMap((count, kind) =>
      count
        ? [{ steps: straight ? 1 : STEPS[kind]!.steps, count, content: this.arrays[kind]!.buffer as ArrayBuffer }]
        : [],
    );
  }

  /** Room for so many numbers: twice as much as before where it is too small. */
  private array(kind: number, length: number): Float32Array {
    const old = this.arrays[kind];
    if (old && old.length >= length) return old;
    const larger = new Float32Array(old ? 2 * old.length : 1024 * EDGE_FLOATS);
    if (old) larger.set(old);
    this.words[kind] = new Uint32Array(larger.buffer);
    return (this.arrays[kind] = larger);
  }
}

/** Many lines are drawn faintly, few strongly; on dark paper they need more. */
export const strength = (lines: number, { name }: Theme): number =>
  (name === "dark" ? 1.4 : 1) * Math.min(0.6, Math.max(0.12, 14 / Math.sqrt(lines || 1)));
