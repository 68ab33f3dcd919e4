/** From one view to another: the space moves along a geodesic, the camera with it. */

import type { Camera } from "./camera";

const LONG = 600; // milliseconds

export class Flight {
  private readonly begin: number;

  constructor(
    /** Moves the space to a share of the way. */
    private readonly way: (share: number) => void,
    private readonly from: Camera,
    private readonly to: Camera,
    readonly done: () => void,
  ) {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.begin = performance.now() - (still ? LONG : 0);
  }

  /** Move the space to where it is at a time; the camera there. */
  at(now: number): Camera {
    const time = Math.min(1, Math.max(0, (now - this.begin) / LONG));
    const share = time * time * (3 - 2 * time); // slow at both ends
    this.way(share);
    const mix = (a: number, b: number): number => a + share * (b - a);
    const { from, to } = this;
    return { x: mix(from.x, to.x), y: mix(from.y, to.y), scale: mix(from.scale, to.scale) };
  }

  isOver(now: number): boolean {
    return now - this.begin >= LONG;
  }
}
