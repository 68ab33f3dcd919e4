/** One embedding on the page: its points, how they look, its map, and which node is in focus. */

import { Atlas, type Column, DISTORTION } from "./atlas";
import { Look } from "./look";
import { type Events, Pane } from "./pane";
import type { ChartMeta, Neighbours } from "./source";

export class View {
  readonly look: Look;
  readonly pane: Pane;
  focus: number | null = null;
  neighbours: Neighbours | null = null;
  /** Why there are no neighbours. */
  trouble = "";
  /** What another embedding's focus or selection has found here: one line, or nothing. */
  pairing = "";
  distortion: Column | null = null;
  /** How far distances of the picture are off, on average: 0.1 is ten per cent. NaN: not known. */
  off = NaN;

  constructor(
    readonly atlas: Atlas,
    events: (view: View) => Events,
  ) {
    this.look = new Look(atlas);
    const wanted = atlas.meta.colour;
    this.look.colourBy = atlas.columns.find(({ name, kind }) => name === wanted && kind !== "text") ?? null;
    this.pane = new Pane(atlas, this.look, events(this));
  }

  get name(): string {
    return this.atlas.meta.name;
  }

  label(node: number): string {
    return this.atlas.labels[node] || `point ${node}`;
  }

  column(name: string): Column | undefined {
    return this.atlas.columns.find((column) => column.name === name);
  }

  async show(chart: ChartMeta): Promise<void> {
    this.pane.show(chart, await this.atlas.chart(chart));
    this.distortion = null;
    this.off = NaN;
  }

  /** How well the picture keeps distances: known some time after the picture is seen. */
  async measure(): Promise<void> {
    const { chart } = this.pane;
    const column = await this.atlas.distortion(chart);
    if (!column || this.pane.chart !== chart) return;
    let [sum, counted] = [0, 0];
    for (const value of column.values) {
      if (Number.isNaN(value)) continue;
      sum += value;
      counted++;
    }
    this.distortion = column;
    this.off = sum / counted;
    if (this.look.colourBy?.name === DISTORTION) {
      this.look.colourBy = column;
      this.pane.restyle();
    }
  }

  /** What the picture keeps of distance, in words; nothing while that is not known. */
  get survival(): string {
    return Number.isNaN(this.off) ? "" : this.survives(this.off);
  }

  survives(off: number): string {
    if (off < 0.005) return "Distances are exact in this picture.";
    return `Distances in this picture are off by ${Math.round(100 * off)} % on average.`;
  }

  /** A cell of a column as one reads it. */
  value(column: Column, node: number): string | number {
    if (column.kind === "text") return column.texts[node] ?? "";
    const value = column.values[node]!;
    return column.kind === "category" ? (column.names[value] ?? "") : value;
  }
}
