/** A histogram of a column: all points in grey, what is shown or selected in colour. Dragging over it filters. */

import type { App } from "./app";
import type { Column } from "./atlas";
import { css, shade } from "./colours";
import { h, short } from "./dom";
import { extent } from "./look";
import type { View } from "./view";

const BINS = 48;
const HEIGHT = 64;

export interface Counts {
  all: Uint32Array;
  part: Uint32Array;
}

/** How many numbers fall into each of equal bins, and how many of those that are meant. */
export function counted(
  values: Float32Array,
  low: number,
  high: number,
  bins: number,
  meant: (i: number) => boolean,
): Counts {
  const [all, part] = [new Uint32Array(bins), new Uint32Array(bins)];
  const by = bins / (high - low || 1);
  for (let i = 0; i < values.length; i++) {
    const bin = Math.min(bins - 1, Math.floor((values[i]! - low) * by));
    if (!(bin >= 0)) continue;
    all[bin]!++;
    if (meant(i)) part[bin]!++;
  }
  return { all, part };
}

/** With two fields for the range: what a drag does, typed. */
export function histogram(app: App, view: View, column: Column): HTMLElement {
  const { look } = view;
  const [low, high] = extent(column.values);
  const canvas = h("canvas", { class: "histogram", role: "img", "aria-label": `histogram of ${column.name}` });
  const step = "any";
  const from = h("input", { type: "number", step, "aria-label": `least ${column.name}`, placeholder: short(low) });
  const to = h("input", { type: "number", step, "aria-label": `greatest ${column.name}`, placeholder: short(high) });
  const clear = h("button", { type: "button", class: "small" }, "all");
  const apply = (range: [number, number] | null): void => {
    look.setRange(column, range);
    app.restyled(view);
  };
  const typed = (): void => {
    const [a, b] = [from.value === "" ? low : Number(from.value), to.value === "" ? high : Number(to.value)];
    apply(from.value === "" && to.value === "" ? null : [Math.min(a, b), Math.max(a, b)]);
  };
  from.addEventListener("change", typed);
  to.addEventListener("change", typed);
  clear.addEventListener("click", () => apply(null));
  const brush = drag(canvas, (a, b) => apply(b - a < 0.01 ? null : [low + a * (high - low), low + b * (high - low)]));
  const draw = (): void => {
    const range = look.range(column);
    from.value = range ? String(Number(range[0].toPrecision(5))) : "";
    to.value = range ? String(Number(range[1].toPrecision(5))) : "";
    clear.hidden = !range;
    requestAnimationFrame(() => paint(canvas, view, column, [low, high], brush()));
  };
  app.on(["look", "selection", "theme"], draw, canvas);
  canvas.addEventListener("brush", draw);
  new ResizeObserver(draw).observe(canvas);
  const ends = h("div", { class: "ends" }, from, h("span", {}, "to"), to, clear);
  return h("div", {}, canvas, ends);
}

/** Shares of the width that a drag spans; the function says which it spans now. */
function drag(canvas: HTMLCanvasElement, done: (from: number, to: number) => void): () => [number, number] | null {
  let [begin, now] = [NaN, NaN];
  const share = (event: PointerEvent): number => {
    const box = canvas.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  const span = (): [number, number] | null =>
    Number.isNaN(begin) ? null : [Math.min(begin, now), Math.max(begin, now)];
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    begin = now = share(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (Number.isNaN(begin)) return;
    now = share(event);
    canvas.dispatchEvent(new Event("brush"));
  });
  const end = (): void => {
    const spanned = span();
    begin = now = NaN;
    if (spanned) done(...spanned);
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", () => (begin = now = NaN));
  return span;
}

function paint(
  canvas: HTMLCanvasElement,
  view: View,
  column: Column,
  ends: [number, number],
  brush: [number, number] | null,
): void {
  const { look, pane } = view;
  const { clientWidth: width } = canvas;
  canvas.width = Math.max(1, Math.round(width * devicePixelRatio));
  canvas.height = Math.round(HEIGHT * devicePixelRatio);
  const meant = (i: number): boolean => look.shown[i] === 1 && (look.selected.size === 0 || look.selected.has(i));
  const { all, part } = counted(column.values, ends[0], ends[1], BINS, meant);
  const most = all.reduce((a, b) => Math.max(a, b), 1);
  const pen = canvas.getContext("2d")!;
  pen.scale(devicePixelRatio, devicePixelRatio);
  const wide = width / BINS;
  // the height is the root of the count: small bins are seen too
  const tall = (n: number): number => (n ? Math.max(1.5, (HEIGHT - 2) * Math.sqrt(n / most)) : 0);
  const [least, greatest] = look.domain(column);
  const colourOf = (k: number): string => {
    const value = ends[0] + ((k + 0.5) / BINS) * (ends[1] - ends[0]);
    return css(shade((value - least) / (greatest - least || 1)));
  };
  const coloured = look.colourBy === column;
  for (let k = 0; k < BINS; k++) {
    pen.fillStyle = pane.theme.line;
    pen.fillRect(k * wide, HEIGHT - tall(all[k]!), wide - 1, tall(all[k]!));
    pen.fillStyle = coloured ? colourOf(k) : "#3b8fc4";
    pen.fillRect(k * wide, HEIGHT - tall(part[k]!), wide - 1, tall(part[k]!));
  }
  const range = look.range(column);
  const shares = brush ?? (range && (range.map((x) => (x - ends[0]) / (ends[1] - ends[0] || 1)) as [number, number]));
  if (!shares) return;
  pen.fillStyle = css([86, 180, 233], 0.2);
  pen.fillRect(shares[0] * width, 0, (shares[1] - shares[0]) * width, HEIGHT);
  pen.fillStyle = pane.theme.accent;
  for (const at of shares) pen.fillRect(Math.min(width - 1.5, at * width), 0, 1.5, HEIGHT);
}
