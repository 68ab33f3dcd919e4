/** Labels that do not cover each other: the important ones first, more of them as one comes nearer. */

export interface Candidate {
  node: number;
  /** The point, in pixels. */
  x: number;
  y: number;
  /** Pixels from the point to its label. */
  gap: number;
}

export interface Placed {
  node: number;
  text: string;
  /** Where the text begins, and the middle of its height. */
  x: number;
  y: number;
}

export interface Sheet {
  /** Pixels: labels that would leave it on the right stand to the left of their points. */
  width: number;
  /** Of a line. */
  height: number;
  /** Labels at most. */
  most: number;
  measure(text: string): number;
}

type Box = readonly [left: number, top: number, right: number, bottom: number];

const LONGEST = 32; // letters
const CELL = 64; // pixels a side of the grid that finds overlaps

export function shortened(text: string, longest = LONGEST): string {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > longest ? `${line.slice(0, longest - 1)}…` : line;
}

/** candidates: the most important first. */
export function placeLabels(candidates: Iterable<Candidate>, text: (node: number) => string, sheet: Sheet): Placed[] {
  const taken = new Map<string, Box[]>();
  const out: Placed[] = [];
  for (const { node, x, y, gap } of candidates) {
    if (out.length >= sheet.most) break;
    const label = shortened(text(node));
    if (!label) continue;
    const wide = sheet.measure(label);
    const isLeft = x + gap + wide > sheet.width && x - gap - wide >= 0;
    const from = isLeft ? x - gap - wide : x + gap;
    const box: Box = [from - 2, y - sheet.height / 2, from + wide + 2, y + sheet.height / 2];
    const cells = cellsOf(box);
    if (cells.some((cell) => taken.get(cell)?.some((other) => overlap(box, other)))) continue;
    for (const cell of cells) {
      const there = taken.get(cell);
      if (there) there.push(box);
      else taken.set(cell, [box]);
    }
    out.push({ node, text: label, x: from, y });
  }
  return out;
}

const overlap = (a: Box, b: Box): boolean => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

function cellsOf([left, top, right, bottom]: Box): string[] {
  const cells: string[] = [];
  for (let i = Math.floor(left / CELL); i <= Math.floor(right / CELL); i++) {
    for (let j = Math.floor(top / CELL); j <= Math.floor(bottom / CELL); j++) cells.push(`${i},${j}`);
  }
  return cells;
}
