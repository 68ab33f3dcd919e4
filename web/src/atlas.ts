/** The points of one embedding: labels, columns, how they are related, and the charts to look at them in. */

import { type Space, space } from "./space";
import { folded, type Hits, search } from "./search";
import type { AtlasMeta, ChartMeta, ColumnMeta, Neighbours, Source } from "./source";

export interface Column {
  name: string;
  kind: ColumnMeta["kind"];
  /** Numbers, or codes of categories. Of texts: nothing. */
  values: Float32Array;
  names: string[];
  texts: string[];
}

export const DISTORTION = "distortion of the picture";
const THROUGH = "plane through";
const AT_ONCE = 2e5; // distances between two breaths of the page

export class Atlas {
  readonly charts: ChartMeta[];
  labels: string[] = [];
  columns: Column[] = [];
  edges = new Uint32Array(0);
  aperture: Float32Array | null = null;
  /** The two nodes of each plane that was asked for, by the name of its chart. */
  readonly planes = new Map<string, [number, number]>();
  private spaces = new Map<string, Space>();
  private links: { starts: Uint32Array; others: Uint32Array } | null = null;
  private numbers: Map<string, number> | null = null;
  private lower: string[] | null = null;
  private anchored: Float32Array | null = null;

  constructor(
    private readonly source: Source,
    readonly number: number,
    readonly meta: AtlasMeta,
  ) {
    this.charts = [...meta.charts];
  }

  get count(): number {
    return this.meta.count;
  }

  async load(): Promise<void> {
    const { meta } = this;
    const [labels, edges, aperture, ...columns] = await Promise.all([
      this.array("labels"),
      meta.edges ? this.array(meta.edges) : null,
      meta.aperture ? this.array(meta.aperture) : null,
      ...meta.columns.map((column) => this.column(column)),
      this.chart(this.charts[0]!),
    ]);
    this.labels = JSON.parse(new TextDecoder().decode(labels)) as string[];
    if (edges) this.edges = new Uint32Array(edges);
    if (aperture) this.aperture = new Float32Array(aperture);
    this.columns = columns.filter((column): column is Column => "values" in column);
  }

  private array(name: string): Promise<ArrayBuffer> {
    return this.source.array(this.number, name);
  }

  private async column({ name, kind, array, names = [] }: ColumnMeta): Promise<Column> {
    const content = await this.array(array);
    if (kind === "text") {
      const texts = JSON.parse(new TextDecoder().decode(content)) as string[];
      return { name, kind, values: new Float32Array(0), names, texts };
    }
    return { name, kind, values: new Float32Array(content), names, texts: [] };
  }

  /** The points of a chart, which keep how they were moved. */
  async chart(meta: ChartMeta): Promise<Space> {
    let found = this.spaces.get(meta.name);
    if (!found) {
      found = space(meta.kind, new Float64Array(await this.array(meta.array)));
      this.spaces.set(meta.name, found);
    }
    return found;
  }

  // -- planes and what they keep ----------------------------------------------------------------------------------

  get hasPlanes(): boolean {
    return this.meta.logs !== null && this.meta.logs.dim > 2;
  }

  /** The totally geodesic plane through the origin and two nodes. Other points keep their radius; their direction is
   * the one of their shadow on the plane. */
  async through(first: number, second: number): Promise<ChartMeta> {
    const { array, dim } = this.meta.logs!;
    const logs = new Float32Array(await this.array(array));
    const row = (i: number): Float64Array => Float64Array.from(logs.subarray(i * dim, (i + 1) * dim));
    const [u, v] = orthonormal(row(first), row(second));
    const model = this.charts[0]!;
    const width = model.kind === "sphere" ? 3 : 2;
    const out = new Float64Array(width * this.count);
    for (let i = 0; i < this.count; i++) {
      let [x, y, length] = [0, 0, 0];
      for (let k = 0; k < dim; k++) {
        const value = logs[i * dim + k]!;
        x += value * u[k]!;
        y += value * v[k]!;
        length += value * value;
      }
      const r = Math.sqrt(length) / model.unit;
      const flat = Math.hypot(x, y);
      if (flat === 0) [x, y] = [1, 0];
      const far =
        (model.kind === "hyperbolic" ? Math.sinh(r) : model.kind === "sphere" ? Math.sin(r) : r) / (flat || 1);
      out.set(model.kind === "sphere" ? [x * far, y * far, Math.cos(r)] : [x * far, y * far], width * i);
    }
    const name = `${THROUGH} ${this.labels[first]} and ${this.labels[second]}`;
    const note = "radius exact, direction seen from the origin on this plane";
    const chart: ChartMeta = { name, kind: model.kind, array: "", unit: model.unit, note };
    this.spaces.set(name, space(chart.kind, out));
    this.planes.set(name, [first, second]);
    const known = this.charts.find((other) => other.name === name);
    if (!known) this.charts.push(chart);
    return known ?? chart;
  }

  /** How far distances of a chart are from the true ones: mean |drawn/true - 1| of each point to the anchors. */
  async distortion(chart: ChartMeta): Promise<Column | null> {
    const { anchors } = this.meta;
    if (!anchors) return null;
    this.anchored ??= new Float32Array(await this.array(anchors.array));
    const [drawn, width] = [await this.chart(chart), anchors.numbers.length];
    const values = new Float32Array(this.count);
    const rows = Math.ceil(AT_ONCE / Math.max(1, width));
    for (let i = 0; i < this.count; i++) {
      if (i % rows === rows - 1) await new Promise((resume) => setTimeout(resume));
      let [sum, counted] = [0, 0];
      for (let k = 0; k < width; k++) {
        const truth = this.anchored[i * width + k]!;
        if (truth > 0) {
          sum += Math.abs((chart.unit * drawn.distance(i, anchors.numbers[k]!)) / truth - 1);
          counted++;
        }
      }
      values[i] = counted ? sum / counted : NaN;
    }
    return { name: DISTORTION, kind: "number", values, names: [], texts: [] };
  }

  // -- nodes ------------------------------------------------------------------------------------------------------

  find(label: string): number {
    if (!this.numbers) {
      this.numbers = new Map();
      for (let i = this.count - 1; i >= 0; i--) this.numbers.set(this.labels[i]!, i); // of equal labels the first
    }
    return this.numbers.get(label) ?? -1;
  }

  search(text: string, most: number): Hits {
    this.lower ??= this.labels.map(folded);
    const texts = this.columns.find(({ kind }) => kind === "text")?.texts ?? [];
    return search(this.lower, texts, text, most);
  }

  neighbours(node: number): Promise<Neighbours> {
    return this.source.neighbours(this.number, node);
  }

  thumbnail(node: number): Promise<string | null> {
    return this.meta.thumbnails ? this.source.thumbnail(this.number, node) : Promise.resolve(null);
  }

  parents(node: number): number[] {
    return this.linked(node).filter((other) => other >= 0);
  }

  children(node: number): number[] {
    return this.linked(node)
      .filter((other) => other < 0)
      .map((other) => -other - 1);
  }

  degree(node: number): number {
    const { starts } = this.index();
    return starts[node + 1]! - starts[node]!;
  }

  /** From the node up to a root, by first parents; a cycle is gone round once. */
  path(node: number): number[] {
    const path = new Set([node]);
    if (!this.meta.directed) return [...path];
    for (let up = this.parents(node)[0]; up !== undefined && !path.has(up); up = this.parents(up)[0]) path.add(up);
    return [...path];
  }

  /** The node and all below it; of a graph without direction: the node and those linked to it. */
  subtree(node: number): number[] {
    const seen = new Set([node]);
    if (!this.meta.directed) return [node, ...this.parents(node), ...this.children(node)];
    for (const here of seen) for (const child of this.children(here)) seen.add(child);
    return [...seen];
  }

  /** What the other is to the node. */
  relation(node: number, other: number): string {
    const above = this.parents(node);
    if (!this.meta.directed) return above.includes(other) || this.children(node).includes(other) ? "linked" : "";
    if (above.includes(other)) return "parent";
    if (this.parents(other).includes(node)) return "child";
    if (this.above(node).has(other)) return "ancestor";
    if (this.above(other).has(node)) return "descendant";
    return above.some((parent) => this.parents(other).includes(parent)) ? "sibling" : "";
  }

  private above(node: number): Set<number> {
    const seen = new Set<number>();
    const queue = [node];
    for (const here of queue) {
      for (const parent of this.parents(here)) {
        if (!seen.has(parent)) {
          seen.add(parent);
          queue.push(parent);
        }
      }
    }
    return seen;
  }

  private index(): { starts: Uint32Array; others: Uint32Array } {
    return (this.links ??= index(this.edges, this.count));
  }

  /** Parents as they are numbered, children as -number - 1. */
  private linked(node: number): number[] {
    const { starts, others } = this.index();
    const out: number[] = [];
    for (let k = starts[node]!; k < starts[node + 1]!; k++) {
      const end = others[k]!;
      out.push(end < this.count ? end : this.count - end - 1);
    }
    return out;
  }
}

/** For each node the other ends of its edges: parents by number, children by `count` + number. */
function index(edges: Uint32Array, count: number): { starts: Uint32Array; others: Uint32Array } {
  const starts = new Uint32Array(count + 1);
  for (const end of edges) starts[end + 1]!++;
  for (let i = 0; i < count; i++) starts[i + 1]! += starts[i]!;
  const [next, others] = [starts.slice(), new Uint32Array(edges.length)];
  for (let k = 0; k < edges.length; k += 2) {
    const [child, parent] = [edges[k]!, edges[k + 1]!];
    others[next[child]!++] = parent;
    others[next[parent]!++] = count + child;
  }
  return { starts, others };
}

/** Two vectors of length 1 at right angles that span what the given ones do. */
export function orthonormal(first: Float64Array, second: Float64Array): [Float64Array, Float64Array] {
  const unit = (v: Float64Array): Float64Array => {
    const length = Math.sqrt(v.reduce((sum, x) => sum + x * x, 0));
    return length ? v.map((x) => x / length) : v;
  };
  const u = unit(first);
  const along = second.reduce((sum, x, k) => sum + x * u[k]!, 0);
  return [u, unit(second.map((x, k) => x - along * u[k]!))];
}
