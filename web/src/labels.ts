/** Labels that do not cover each other: the important ones first, more of them as one comes nearer. */

export interface Placed {
  node: number;
  text: string;
  x: number;
  y: number;
}

const LONGEST = 32; // letters
const CELL = 64; // pixels a side of the grid that finds overlaps

export function shortened(text: string, longest = LONGEST): string {
  const line = text.replace(/\s+/g, " ");
  return line.length > longest ? `${line.slice(0, longest - 1)}…` : line;
}

/** candidates: nodes with their places in pixels, the most important first. */
export function placeLabels(
  candidates: Iterable<{ node: number; x: number; y: number }>,
  text: (node: number) => string,
  measure: (text: string) => number,
  height: number,
  most: number,
): Placed[] {
  const taken = new Map<string, [number, number, number, number][]>();
  const out: Placed[] = [];
  for (const { node, x, y } of candidates) {
    if (out.length >= most) break;
    const label = shortened(text(node));
    const box: [number, number, number, number] = [x + 6, y - height / 2, x + 10 + measure(label), y + height / 2];
    const cells: string[] = [];
    for (let i = Math.floor(box[0] / CELL); i <= Math.floor(box[2] / CELL); i++) {
      for (let j = Math.floor(box[1] / CELL); j <= Math.floor(box[3] / CELL); j++) cells.push(`${i},${j}`);
    }
    const overlaps = cells.some((cell) =>
      taken.get(cell)?.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3]),
    );
    if (overlaps) continue;
    for (const cell of cells) taken.set(cell, [...(taken.get(cell) ?? []), box]);
    out.push({ node, text: label, x, y });
  }
  return out;
}
