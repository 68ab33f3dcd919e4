/** What pointers do to a map: drag, wheel, pinch, lasso, box, click and double click. */

import type { Complex } from "./hyperbolic";
import type { Pane } from "./pane";
import type { Pixel } from "./screen";

const CLICK = 4; // pixels a pointer may move in a click

const complex = ({ x, y }: Pixel): Complex => ({ re: x, im: y });
const middle = (a: Pixel, b: Pixel): Pixel => ({ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });

export class Hands {
  /** A lasso or box as far as it is drawn, in pixels. */
  drawn: Complex[] = [];
  private readonly pointers = new Map<number, Pixel>();
  private begun: Pixel | null = null;
  private far = 0; // the farthest it was from where it began: a lasso that closes is no click

  constructor(private readonly pane: Pane) {
    const { canvas } = pane;
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointercancel", (event) => {
      this.pointers.delete(event.pointerId);
      this.drawn = [];
      pane.remark();
    });
    canvas.addEventListener("pointerleave", () => pane.events.hover(null, 0, 0));
    canvas.addEventListener("dblclick", (event) => {
      const { x, y } = this.here(event);
      const node = pane.nearest(x, y);
      if (node !== null) void pane.centre(node);
    });
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  /** Give up a lasso or box. */
  drop(): boolean {
    const had = this.drawn.length > 0;
    this.drawn = [];
    this.pane.remark();
    return had;
  }

  private here(event: MouseEvent): Pixel {
    const box = this.pane.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  private down(event: PointerEvent): void {
    const { pane, pointers } = this;
    if (event.button > 0) return;
    pane.canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, this.here(event));
    this.begun = pointers.size === 1 ? this.here(event) : null;
    this.far = 0;
    this.drawn = pointers.size === 1 && pane.tool !== "move" ? [complex(this.here(event))] : [];
    pane.land();
    pane.events.hover(null, 0, 0);
  }

  private move(event: PointerEvent): void {
    const { pane, pointers } = this;
    const [now, before] = [this.here(event), pointers.get(event.pointerId)];
    if (!before) {
      pane.events.hover(pane.nearest(now.x, now.y), now.x, now.y);
      return;
    }
    const still = this.far < CLICK;
    if (this.begun) this.far = Math.max(this.far, Math.hypot(now.x - this.begun.x, now.y - this.begun.y));
    if (pointers.size === 2) this.pinch(event.pointerId, now);
    else if (this.drawn.length) this.extend(now);
    else if (!this.begun || this.far >= CLICK) pane.grab(this.begun && still ? this.begun : before, now);
    pointers.set(event.pointerId, now);
  }

  private up(event: PointerEvent): void {
    const { pane, pointers } = this;
    const now = this.here(event);
    const alone = pointers.size === 1;
    if (!pointers.delete(event.pointerId)) return;
    if (alone && this.begun && this.far < CLICK) pane.events.pick(pane.nearest(now.x, now.y), event.shiftKey);
    else if (this.drawn.length > 2) pane.events.select(pane.within(this.drawn), event.shiftKey);
    this.drawn = [];
    pane.events.moved();
    pane.remark();
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const { x, y } = this.here(event);
    const pixels = event.deltaMode === 1 ? 16 * event.deltaY : event.deltaY;
    if (event.shiftKey) this.pane.rotate((pixels || event.deltaX) / 400);
    else this.pane.zoom(Math.exp(-Math.max(-300, Math.min(300, pixels)) / 500), x, y);
  }

  private extend(now: Pixel): void {
    const first = this.drawn[0]!;
    if (this.pane.tool === "box") {
      const [re, im] = [now.x, now.y];
      this.drawn = [first, { re, im: first.im }, { re, im }, { re: first.re, im }];
    } else this.drawn.push(complex(now));
    this.pane.remark();
  }

  /** Two fingers: the space follows them, turns with them, and comes nearer as they part. */
  private pinch(moved: number, now: Pixel): void {
    const other = [...this.pointers].find(([id]) => id !== moved)?.[1];
    const before = this.pointers.get(moved)!;
    if (!other) return;
    const length = (a: Pixel): number => Math.max(1, Math.hypot(a.x - other.x, a.y - other.y));
    const angle = (a: Pixel): number => Math.atan2(a.y - other.y, a.x - other.x);
    const turned = angle(now) - angle(before);
    const to = middle(now, other);
    this.pane.grab(middle(before, other), to);
    this.pane.zoom(length(now) / length(before), to.x, to.y);
    this.pane.rotate(-Math.atan2(Math.sin(turned), Math.cos(turned)));
  }
}
