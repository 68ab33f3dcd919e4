/** Which edges are drawn, in how many steps: the important first, none that is shorter than a point is wide. */

import { type Batch, EDGE_FLOATS } from "./renderer";
import { FLAT, type Space } from "./space";
import type { Theme } from "./theme";

/** Numbers of steps that edges are drawn in. */
export const STEPS: readonly number[] = [1, 3, 8, 20, 64];

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
  /** Pixels for one unit of the picture. */
  scale: number;
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

/** Of a ribbon of so many steps. */
export const verticesOf = (steps: number): number => 2 * (steps + 1);

/** How many steps make an edge look smooth: more, the farther its middle lies from the straight line. */
export function stepsOf({ edges, cosh, space, screen, scale }: Seen, k: number): number {
  const { frame, model } = space;
  if (model === 1 || model === FLAT) return 0;
  const [a, b] = [edges[2 * k]!, edges[2 * k + 1]!];
  const across = screen[2 * a]! - screen[2 * b]!;
  const down = screen[2 * a + 1]! - screen[2 * b + 1]!;
  const far = Math.sqrt(across * across + down * down);
  // of the disk: the place of (A + B)/2. Elsewhere: arcs may be half circles
  let bend = 0.4 * far;
  if (model === 0) {
    const [va, vb] = [frame[3 * a + 2]!, frame[3 * b + 2]!];
    const below = 1 + Math.sqrt(0.25 * (va * va + vb * vb) + 0.5 * cosh[k]! * va * vb);
    const x = (0.5 * scale * (frame[3 * a]! + frame[3 * b]!)) / below;
    const y = (0.5 * scale * (frame[3 * a + 1]! + frame[3 * b + 1]!)) / below;
    const from = (frame[3 * a]! * scale) / (1 + va);
    const top = (frame[3 * a + 1]! * scale) / (1 + va);
    bend = Math.abs((x - from) * down + (y - top) * across) / (far || 1);
  }
  const wanted = 3 * Math.sqrt(bend);
  return STEPS.findIndex((steps) => steps >= wanted || steps === STEPS.at(-1));
}

/** The arrays for the shaders, one for each number of steps. They are kept from frame to frame. */
export class Batches {
  private readonly arrays: Float32Array[] = [];
  private readonly words: Uint32Array[] = []; // the same memory

  /** most: vertices. all: whether every edge that shows is among them. */
  fill(seen: Seen, most: number): { batches: Batch[]; all: boolean } {
    const { edges, order, cosh, colours, space } = seen;
    const { frame } = space;
    const ink = new Uint32Array(colours.buffer); // the four bytes of a colour at once
    const counts = STEPS.map(() => 0);
    let spent = 0;
    let n = 0;
    for (; n < order.length && spent < most; n++) {
      const k = order[n]!;
      if (!visible(seen, k)) continue;
      const kind = stepsOf(seen, k);
      spent += verticesOf(STEPS[kind]!);
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
    const batches = counts.flatMap((count, kind) =>
      count ? [{ steps: STEPS[kind]!, count, content: this.arrays[kind]!.buffer as ArrayBuffer }] : [],
    );
    return { batches, all: n === order.length };
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
