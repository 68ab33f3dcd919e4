/** The current view as a drawing: what is in view, as lines and circles. */

import { coneOf, CONE, wayUp } from "./annotate";
import { css } from "./colours";
import { grouped, sentence } from "./dom";
import { STEPS, stepsOf, strength, visible } from "./edges";
import type { Pane } from "./pane";
import type { Pixel } from "./screen";
import { FLAT } from "./space";
import type { View } from "./view";

const MOST = 20_000; // points, and edges: more make a file that nothing opens
const FOOT = 44; // pixels below the map, for title and note

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

/** Text in XML: escaped, and without the characters XML cannot hold. */
export function escaped(text: string): string {
  return text
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "")
    .replace(/[&<>"']/g, (letter) => ESCAPES[letter]!);
}

const line = (points: Pixel[]): string =>
  points.map(({ x, y }, k) => `${k ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

/** The drawing, and in words what was left out. */
export function drawing(view: View): { text: string; left: string } {
  const { pane } = view;
  pane.draw(pane.effort.resting);
  const { clientWidth: width, clientHeight: height } = pane.canvas;
  const points = circles(pane);
  const edges = pane.showsEdges ? arcs(pane) : { lines: [], left: 0 };
  const left = [
    [points.left, "points"],
    [edges.left, "edges"],
  ]
    .filter(([n]) => n)
    .map(([n, what]) => `${grouped(n as number)} ${what} in view were left out`)
    .join(", ");
  const note = [sentence(pane.chart.note), view.survival, sentence(left)].filter(Boolean).join(" ");
  const { theme } = pane;
  const text = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height + FOOT}"`,
    ` viewBox="0 0 ${width} ${height + FOOT}"`,
    ` font-family="system-ui, sans-serif">\n<title>${escaped(view.name)}</title>\n<desc>${escaped(note)}</desc>\n`,
    `<rect width="100%" height="100%" fill="${css(theme.paper)}"/>\n`,
    `<clipPath id="map"><rect width="${width}" height="${height}"/></clipPath>\n<g clip-path="url(#map)">\n`,
    rim(pane),
    `<g fill="none" stroke-opacity="${strength(edges.lines.length, theme).toFixed(2)}">\n${edges.lines.join("")}</g>\n`,
    `<g>\n${points.lines.join("")}</g>\n`,
    kin(pane),
    labels(pane),
    `</g>\n<text x="12" y="${height + 17}" font-size="13" font-weight="600" fill="${theme.ink}">`,
    `${escaped(`${view.name}: ${view.atlas.meta.geometry}, ${pane.chart.name}`)}</text>\n`,
    `<text x="12" y="${height + 34}" font-size="11" fill="${theme.muted}">${escaped(note)}</text>\n</svg>\n`,
  ].join("");
  return { text, left };
}

function rim(pane: Pane): string {
  const { space, camera, theme, canvas } = pane;
  if (space.kind === "flat") return "";
  const { x, y } = pane.toPixels({ re: 0, im: 0 });
  if (space.model === 2) return `<path d="M0 ${y}H${canvas.clientWidth}" stroke="${theme.line}"/>\n`;
  return `<circle cx="${x}" cy="${y}" r="${camera.scale}" fill="none" stroke="${theme.line}"/>\n`;
}

/** Points in view, the important last, on top. */
function circles(pane: Pane): { lines: string[]; left: number } {
  const { look, screen, space, order } = pane;
  const { clientWidth: width, clientHeight: height } = pane.canvas;
  const lines: string[] = [];
  let left = 0;
  for (let n = order.length - 1; n >= 0; n--) {
    const i = order[n]!;
    const [x, y, alpha] = [screen[2 * i]!, screen[2 * i + 1]!, look.colours[4 * i + 3]!];
    if (!alpha || !(x > -9 && x < width + 9 && y > -9 && y < height + 9)) continue;
    if (lines.length >= MOST) {
      left++;
      continue;
    }
    const w = space.frame[3 * i + 2]!;
    const shrink = space.model < FLAT ? 0.45 + (1.05 * 2 * w) / (1 + w) : 1; // as the shader does
    const radius = Math.max(0.75, (look.widths[i]! * shrink) / 2);
    const at = `cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="${radius.toFixed(1)}"`;
    lines.push(`<circle ${at} fill="${ink(pane, i)}"${faint("fill-opacity", alpha)}/>\n`);
  }
  return { lines: lines.reverse(), left };
}

/** What is not selected, while something is. alpha: of 255. */
const faint = (name: string, alpha: number): string => (alpha < 255 ? ` ${name}="${(alpha / 255).toFixed(2)}"` : "");

const ink = ({ look: { colours } }: Pane, i: number): string =>
  css([colours[4 * i]!, colours[4 * i + 1]!, colours[4 * i + 2]!]);

function arcs(pane: Pane): { lines: string[]; left: number } {
  const seen = pane.seen();
  const { edges, order, space } = seen;
  const lines: string[] = [];
  let left = 0;
  for (const k of order) {
    if (!visible(seen, k)) continue;
    if (lines.length >= MOST) {
      left++;
      continue;
    }
    const [a, b] = [edges[2 * k]!, edges[2 * k + 1]!];
    const steps = STEPS[stepsOf(seen, k)]!;
    const path = space
      .line(a, b, steps)
      .map((piece) => line(piece.map((z) => pane.toPixels(z))))
      .join("");
    lines.push(`<path d="${path}" stroke="${ink(pane, a)}"${faint("opacity", pane.look.colours[4 * a + 3]!)}/>\n`);
  }
  return { lines, left };
}

function kin(pane: Pane): string {
  const { focus, theme } = pane;
  if (focus === null) return "";
  const cone = coneOf(pane, focus);
  const ring = (node: number, radius: number, width: number): string => {
    const at = pane.at(node);
    const circle = at && `<circle cx="${at.x.toFixed(1)}" cy="${at.y.toFixed(1)}" r="${radius}"`;
    return circle && pane.look.shown[node]
      ? `${circle} fill="none" stroke="${theme.accent}" stroke-width="${width}"/>\n`
      : "";
  };
  const region = cone ? `<path d="${line(cone)}Z" fill="${css(CONE, 0.18)}" stroke="${css(CONE, 0.8)}"/>\n` : "";
  const way = wayUp(pane, focus).map(line).join("");
  return [
    region,
    way && `<path d="${way}" fill="none" stroke="${theme.accent}" stroke-width="2.5"/>\n`,
    ...pane.marks.map((node) => ring(node, 5, 1.25)),
    ring(focus, 8, 2.5),
  ].join("");
}

function labels(pane: Pane): string {
  const { theme } = pane;
  const lines = pane.written.map(
    ({ text, x, y }) => `<text x="${x.toFixed(1)}" y="${(y + 4).toFixed(1)}">${escaped(text)}</text>\n`,
  );
  const paper = `stroke="${css(theme.paper)}" stroke-opacity="0.85"`;
  const halo = `${paper} stroke-width="3" stroke-linejoin="round" paint-order="stroke"`;
  return `<g font-size="12" fill="${theme.ink}" ${halo}>\n${lines.join("")}</g>\n`;
}
