/** Which edges are drawn, in how many steps: the important first, none that is shorter than a point is wide. */

import { type Batch, EDGE_FLOATS } from "./renderer";
import { FLAT, type Space } from "./space";

const SHORT = 40; // pixels: an edge below it needs few steps
const STEPS = { long: 24, short: 4 };

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
  return Number.isFinite(far) ? far : SHORT;
}

/** The arrays for the shaders. They are kept from frame to frame. */
export class Batches {
  private long = new Float32Array(0);
  private short = new Float32Array(0);

  fill(seen: Seen, most: number): Batch[] {
    const { edges, order, cosh, colours, space } = seen;
    const { frame, model } = space;
    const straight = model === 1 || model === FLAT;
    const room = Math.min(order.length, most);
    if (this.long.length < EDGE_FLOATS * room) {
      this.long = new Float32Array(EDGE_FLOATS * room);
      this.short = new Float32Array(EDGE_FLOATS * room);
    }
    const bytes = { long: new Uint8Array(this.long.buffer), short: new Uint8Array(this.short.buffer) };
    let longs = 0;
    let shorts = 0;
    for (let n = 0; n < order.length && longs + shorts < room; n++) {
      const k = order[n]!;
      const far = visible(seen, k);
      if (!far) continue;
      const isShort = !straight && far < SHORT;
      const out = isShort ? this.short : this.long;
      const ink = isShort ? bytes.short : bytes.long;
      const at = EDGE_FLOATS * (isShort ? shorts++ : longs++);
      const [a, b] = [edges[2 * k]!, edges[2 * k + 1]!];
      for (let j = 0; j < 3; j++) {
        out[at + j] = frame[3 * a + j]!;
        out[at + 3 + j] = frame[3 * b + j]!;
      }
      out[at + 6] = cosh[k]! * frame[3 * a + 2]! * frame[3 * b + 2]!;
      for (let j = 0; j < 4; j++) ink[4 * (at + 7) + j] = colours[4 * a + j]!;
    }
    return [
      { steps: straight ? 1 : STEPS.long, count: longs, content: this.long.buffer },
      { steps: STEPS.short, count: shorts, content: this.short.buffer },
    ].filter((batch) => batch.count > 0);
  }
}

/** Many lines are drawn faintly, few strongly. */
export const strength = (lines: number): number => Math.min(0.6, Math.max(0.12, 14 / Math.sqrt(lines || 1)));
