/** What lies over the points: the rim, paths, cones, labels, rings, a lasso. Drawn on a canvas of its own. */

import { css } from "./colours";
import type { Complex } from "./hyperbolic";
import { type Candidate, type Placed, placeLabels } from "./labels";
import type { Pane } from "./pane";
import type { Pixel } from "./screen";
import { FLAT, Hyperbolic } from "./space";

const LABELS = 60; // at first; more as one comes nearer
const SCANNED = 4_000; // labels that are tried
const WHILE_MOVING = 100_000; // points looked at for labels while one moves: the important ones
export const CONE = [230, 159, 0] as const;
const LASSO = [86, 180, 233] as const;
const [BESIDE, FOCUSED] = [8, 13]; // pixels from a point to its label; the focused one has a ring
export const FONT = "12px system-ui, sans-serif";

export function annotate(pane: Pane, labels: Placed[]): void {
  const pen = pane.overlay.getContext("2d")!;
  pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  pen.clearRect(0, 0, pane.overlay.width, pane.overlay.height);
  pen.lineJoin = "round";
  outline(pen, pane);
  if (pane.focus !== null) kin(pen, pane, pane.focus);
  if (pane.showsLabels) write(pen, pane, labels);
  for (const node of pane.marks) ring(pen, pane, node, 5, 1.25);
  if (pane.hovered !== null) ring(pen, pane, pane.hovered, 7, 1.5);
  if (pane.focus !== null) ring(pen, pane, pane.focus, 8, 2.5);
  const { drawn } = pane.hands;
  if (drawn.length > 1) lasso(pen, pane, drawn);
}

/** The rim of the disk or sphere, the edge of the half-plane. */
function outline(pen: CanvasRenderingContext2D, pane: Pane): void {
  const { space, theme, camera, canvas } = pane;
  if (space.kind === "flat") return;
  const middle = pane.toPixels({ re: 0, im: 0 });
  pen.strokeStyle = theme.line;
  pen.lineWidth = 1;
  pen.beginPath();
  if (space.model === 2) {
    pen.moveTo(0, middle.y);
    pen.lineTo(canvas.clientWidth, middle.y);
  } else pen.arc(middle.x, middle.y, camera.scale, 0, 2 * Math.PI);
  pen.stroke();
}

/** The way from a node to its root, and its cone. */
function kin(pen: CanvasRenderingContext2D, pane: Pane, node: number): void {
  const cone = coneOf(pane, node);
  if (cone) {
    trace(pen, cone, true);
    pen.fillStyle = css(CONE, 0.18);
    pen.fill();
    pen.strokeStyle = css(CONE, 0.8);
    pen.lineWidth = 1;
    pen.stroke();
  }
  pen.strokeStyle = pane.theme.accent;
  pen.lineWidth = 2.5;
  for (const piece of wayUp(pane, node)) {
    trace(pen, piece, false);
    pen.stroke();
  }
}

/** The region of a node's cone in pixels, where there is one to show. */
export function coneOf(pane: Pane, node: number): Pixel[] | null {
  const { atlas, space } = pane;
  if (!pane.showsCones || !atlas.aperture || !(space instanceof Hyperbolic)) return null;
  const half = atlas.aperture[node]!;
  const region = half > 0 ? space.cone(node, half, 48).map((z) => pane.toPixels(z)) : [];
  return region.length ? region : null;
}

/** Lines of a node's path to its root, in pixels. */
export function wayUp(pane: Pane, node: number): Pixel[][] {
  const path = pane.atlas.path(node);
  const out: Pixel[][] = [];
  for (let k = 0; k + 1 < path.length; k++) {
    for (const piece of pane.space.line(path[k]!, path[k + 1]!, 32)) out.push(piece.map((z) => pane.toPixels(z)));
  }
  return out;
}

function ring(pen: CanvasRenderingContext2D, pane: Pane, node: number, radius: number, width: number): void {
  const at = pane.at(node);
  if (!at || !pane.look.shown[node]) return;
  for (const [style, wide] of [
    [css(pane.theme.paper, 0.9), width + 2],
    [pane.theme.accent, width],
  ] as const) {
    pen.strokeStyle = style;
    pen.lineWidth = wide;
    pen.beginPath();
    pen.arc(at.x, at.y, radius, 0, 2 * Math.PI);
    pen.stroke();
  }
}

function lasso(pen: CanvasRenderingContext2D, pane: Pane, drawn: Complex[]): void {
  trace(
    pen,
    drawn.map(({ re, im }) => ({ x: re, y: im })),
    true,
  );
  pen.fillStyle = css(LASSO, 0.15);
  pen.fill();
  pen.strokeStyle = pane.theme.accent;
  pen.setLineDash([4, 3]);
  pen.lineWidth = 1.5;
  pen.stroke();
  pen.setLineDash([]);
}

function trace(pen: CanvasRenderingContext2D, points: Pixel[], closes: boolean): void {
  pen.beginPath();
  points.forEach(({ x, y }, k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  if (closes) pen.closePath();
}

function write(pen: CanvasRenderingContext2D, pane: Pane, labels: Placed[]): void {
  pen.font = FONT;
  pen.textBaseline = "middle";
  pen.lineWidth = 3;
  pen.strokeStyle = css(pane.theme.paper, 0.85);
  pen.fillStyle = pane.theme.ink;
  for (const { text, x, y } of labels) {
    pen.strokeText(text, x, y);
    pen.fillText(text, x, y);
  }
}

/** The labels that fit. all: every point is looked at, not only the important ones. */
export function labelsFor(pane: Pane, all: boolean): Placed[] {
  const pen = pane.overlay.getContext("2d")!;
  pen.font = FONT;
  const nearer = Math.log2(Math.max(1, pane.camera.scale / pane.whole().scale));
  const most = Math.round((LABELS + 20 * nearer) * Math.min(1.5, Math.max(0.3, pane.canvas.clientWidth / 900)));
  const measure = (text: string): number => pen.measureText(text).width;
  const sheet = { width: pane.canvas.clientWidth, height: 15, most, measure };
  return placeLabels(candidates(pane, all), (node) => pane.atlas.labels[node]!, sheet);
}

let scores = new Float32Array(0);

/** Nodes to label: the focused, the selected, then by importance and by how large the picture is there. */
function candidates(pane: Pane, all: boolean): Candidate[] {
  const { screen, look, importance, space, order } = pane;
  const { clientWidth: width, clientHeight: height } = pane.canvas;
  const curved = space.model < FLAT;
  const chosen = look.selected;
  const seen: number[] = [];
  if (scores.length < order.length) scores = new Float32Array(order.length);
  const last = all ? 0 : Math.max(0, order.length - WHILE_MOVING);
  for (let n = order.length - 1; n >= last; n--) {
    const i = order[n]!;
    const x = screen[2 * i]!;
    const y = screen[2 * i + 1]!;
    if (!look.shown[i] || !(x >= 0 && x <= width && y >= 0 && y <= height)) continue;
    const w = space.frame[3 * i + 2]!;
    let score = importance[i]! * (curved ? (2 * w) / (1 + w) : 1);
    if (chosen.size) score += chosen.has(i) ? 1 : -1;
    scores[i] = i === pane.focus ? Infinity : score;
    seen.push(i);
  }
  const least = seen.length > SCANNED ? threshold(seen) : -Infinity;
  const best = seen.filter((i) => scores[i]! >= least).sort((a, b) => scores[b]! - scores[a]!);
  return best.slice(0, SCANNED).map((node) => {
    const gap = node === pane.focus ? FOCUSED : BESIDE;
    return { node, x: screen[2 * node]!, y: screen[2 * node + 1]!, gap };
  });
}

/** The score that about SCANNED nodes reach, from a sample. */
function threshold(seen: number[]): number {
  const step = Math.ceil(seen.length / 2_000);
  const sample = new Float32Array(Math.ceil(seen.length / step)).map((_, k) => scores[seen[k * step]!]!).sort();
  return sample[Math.floor(sample.length * (1 - SCANNED / seen.length))]!;
}
