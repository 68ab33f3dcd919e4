/** How much can be drawn: as much as the graphics card manages in a time, which is measured as one moves.
 *
 * The unit is a vertex: one for a point, two for each step of an edge. A card without hardware manages about a
 * thousand in a millisecond, a good one a million.
 */

const SMOOTH = 40; // milliseconds a frame may take while one moves
const PATIENT = 1000; // milliseconds for the picture that stays
const LEAST = 20_000; // vertices that are drawn all the same
const AT_FIRST = 60_000; // before anything is known

export class Effort {
  /** Milliseconds of the last frames, from their drawing until the card was done. */
  readonly frames: number[] = [];
  private rate = 0; // vertices in a millisecond
  private open: { begun: number; vertices: number } | null = null;

  get moving(): number {
    return this.rate ? Math.max(LEAST, Math.floor(0.8 * SMOOTH * this.rate)) : AT_FIRST;
  }

  get resting(): number {
    return this.rate ? Math.max(LEAST, Math.floor(PATIENT * this.rate)) : AT_FIRST;
  }

  begin(begun: number, vertices: number): void {
    this.open = { begun, vertices };
  }

  /** The card is done. */
  end(now: number): void {
    if (!this.open) return;
    const { begun, vertices } = this.open;
    this.open = null;
    const took = Math.max(1, now - begun);
    this.frames.push(took);
    if (this.frames.length > 100) this.frames.shift();
    this.rate = this.rate ? 0.5 * (this.rate + vertices / took) : vertices / took;
  }
}
