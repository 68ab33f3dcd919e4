/** Which points are shown, in which colour, how large. */

import type { Atlas, Column } from "./atlas";
import { CATEGORIES, type Colour, OTHER, shade } from "./colours";

const [SMALLEST, LARGEST] = [3, 14]; // pixels a point is wide, where a column says its size
const FAINT = 40; // of 255: what is not selected, while something is

export interface Legend {
  code: number;
  name: string;
  count: number;
  colour: Colour;
}

export class Look {
  colourBy: Column | null = null;
  sizeBy: Column | null = null;
  readonly selected = new Set<number>();
  readonly colours: Uint8Array;
  readonly widths: Float32Array;
  readonly shown: Uint8Array;
  private readonly hidden = new Map<string, Set<number>>(); // codes by the name of a column
  private readonly ranges = new Map<string, [number, number]>();

  constructor(private readonly atlas: Atlas) {
    this.colours = new Uint8Array(4 * atlas.count);
    this.widths = new Float32Array(atlas.count);
    this.shown = new Uint8Array(atlas.count).fill(1);
  }

  /** Names, counts and colours of a column's categories, the commonest first. */
  legend(column: Column): Legend[] {
    const counts = new Uint32Array(column.names.length);
    for (const code of column.values) counts[code]!++;
    const order = [...counts.keys()].filter((code) => counts[code]).sort((a, b) => counts[b]! - counts[a]!);
    let named = 0; // a category without a name is what is missing: it takes no colour
    return order.map((code) => {
      const name = column.names[code]!;
      const colour = (name !== "" && CATEGORIES[named++]) || OTHER;
      return { code, name, count: counts[code]!, colour };
    });
  }

  isHidden(column: Column, code: number): boolean {
    return this.hidden.get(column.name)?.has(code) ?? false;
  }

  hiddenOf(column: Column): number {
    return this.hidden.get(column.name)?.size ?? 0;
  }

  hide(column: Column, codes: Iterable<number>, hidden: boolean): void {
    const known = this.hidden.get(column.name) ?? new Set();
    for (const code of codes) {
      if (hidden) known.add(code);
      else known.delete(code);
    }
    this.hidden.set(column.name, known);
  }

  range(column: Column): [number, number] | null {
    return this.ranges.get(column.name) ?? null;
  }

  setRange(column: Column, range: [number, number] | null): void {
    if (range) this.ranges.set(column.name, range);
    else this.ranges.delete(column.name);
  }

  /** Names of the columns that filter. */
  filters(): string[] {
    const hiding = [...this.hidden].filter(([, codes]) => codes.size).map(([name]) => name);
    return [...hiding, ...this.ranges.keys()];
  }

  /** The numbers that the ends of the scale of colours stand for. */
  domain(column: Column): [number, number] {
    return this.ranges.get(column.name) ?? extent(column.values);
  }

  clearFilters(): void {
    this.ranges.clear();
    this.hidden.clear();
  }

  /** Colours, widths and visibility anew. */
  update(): void {
    const { atlas, colours, widths, shown, colourBy, sizeBy } = this;
    shown.fill(1);
    for (const column of new Set(colourBy ? [...atlas.columns, colourBy] : atlas.columns)) {
      const codes = this.hidden.get(column.name);
      const range = this.ranges.get(column.name);
      if (codes?.size) column.values.forEach((code, i) => codes.has(code) && (shown[i] = 0));
      if (range) column.values.forEach((value, i) => (value >= range[0] && value <= range[1]) || (shown[i] = 0));
    }
    const colourOf = this.colouring(colourBy);
    const plain = Math.max(SMALLEST, Math.min(8, 80 / atlas.count ** 0.35));
    const widthOf = sizeBy ? scaling(sizeBy) : (): number => plain;
    for (let i = 0; i < atlas.count; i++) {
      const colour = colourOf(i);
      colours[4 * i] = colour[0];
      colours[4 * i + 1] = colour[1];
      colours[4 * i + 2] = colour[2];
      const faint = this.selected.size > 0 && !this.selected.has(i);
      colours[4 * i + 3] = shown[i] ? (faint ? FAINT : 255) : 0;
      widths[i] = widthOf(i);
    }
  }

  private colouring(column: Column | null): (i: number) => Colour {
    if (!column) return () => CATEGORIES[0]!;
    if (column.kind === "category") {
      const byCode = new Map(this.legend(column).map(({ code, colour }) => [code, colour]));
      return (i) => byCode.get(column.values[i]!) ?? OTHER;
    }
    const [low, high] = this.domain(column);
    const table = Array.from({ length: 256 }, (_, k) => shade(k / 255));
    return (i) => {
      const share = (column.values[i]! - low) / (high - low || 1);
      return Number.isFinite(share) ? table[Math.round(255 * Math.min(1, Math.max(0, share)))]! : OTHER;
    };
  }

  // -- for the address of the page ----------------------------------------------------------------------------------

  state(): string {
    const hidden = [...this.hidden].filter(([, codes]) => codes.size).map(([name, codes]) => [name, [...codes]]);
    return hidden.length || this.ranges.size ? JSON.stringify([hidden, [...this.ranges]]) : "";
  }

  restore(state: string): void {
    this.clearFilters();
    if (!state) return;
    const [hidden, ranges] = JSON.parse(state) as [unknown[], unknown[]]; // from an address: anybody may have written it
    const numbers = (one: unknown): one is [string, number[]] =>
      Array.isArray(one) && typeof one[0] === "string" && Array.isArray(one[1]) && one[1].every(Number.isFinite);
    for (const one of hidden) if (numbers(one)) this.hidden.set(one[0], new Set(one[1]));
    for (const one of ranges) if (numbers(one) && one[1].length === 2) this.ranges.set(one[0], [one[1][0]!, one[1][1]!]);
  }
}

/** The least and the largest number. */
export function extent(values: Float32Array): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 1];
}

/** Areas that grow with the numbers of a column. */
function scaling(column: Column): (i: number) => number {
  const [low, high] = extent(column.values);
  return (i) => {
    const share = (column.values[i]! - low) / (high - low || 1);
    const area = Number.isFinite(share) ? share : 0;
    return Math.sqrt(SMALLEST ** 2 + area * (LARGEST ** 2 - SMALLEST ** 2));
  };
}
