/** One map: a chart on a canvas, moved by hand, with lines, labels and marks over it. */

import { annotate, labelsFor } from "./annotate";
import type { Atlas } from "./atlas";
import { type Camera, toPixels, toPlace, whole, zoomed } from "./camera";
import { Batches, type Seen, strength, verticesOf } from "./edges";
import { Effort } from "./effort";
import { Flight } from "./flight";
import { Hands } from "./hands";
import type { Complex } from "./hyperbolic";
import { MODELS } from "./hyperbolic";
import { importances, ordered, scattered } from "./importance";
import type { Placed } from "./labels";
import type { Look } from "./look";
import { Renderer } from "./renderer";
import { nearest, type Pixel, project, within } from "./screen";
import type { ChartMeta } from "./source";
import type { Space } from "./space";
import type { Theme } from "./theme";

export type Tool = "move" | "lasso" | "box";

/** What a map tells the page. */
export interface Events {
  hover(node: number | null, x: number, y: number): void;
  pick(node: number | null, adds: boolean): void;
  select(nodes: number[], adds: boolean): void;
  moved(): void;
  lost(): void;
}

const REST = 150; // milliseconds without a move, before more is drawn
const MUCH = 1.5; // times as many vertices as before: worth another frame

// Memory for a point: 24 bytes of coordinates and 12 of frame in each chart that was opened, 8 pixels, 9 look, 4 order,
// 4 importance, 4 scores of labels, 4 links, 4 for each column: about 70, its columns and its label; 24 on the card.
// Where pictures are judged: 4 for each anchor. For an edge: 8 ends, 8 length, 4 order, 8 links, 64 while it is drawn.
export class Pane {
  readonly element = document.createElement("div");
  readonly canvas = document.createElement("canvas");
  readonly overlay = document.createElement("canvas");
  readonly hands: Hands;
  space!: Space;
  chart!: ChartMeta;
  theme!: Theme;
  camera: Camera = { x: 0, y: 0, scale: 1 };
  tool: Tool = "move";
  hovered: number | null = null;
  focus: number | null = null;
  marks: number[] = []; // neighbours of the focused
  showsEdges = true;
  showsLabels = true;
  showsCones = true;
  readonly effort = new Effort();
  readonly importance: Float32Array;
  readonly order: Uint32Array; // the important last; without edges any, so that a part shows what all would
  readonly screen: Float32Array; // x, y of each point in pixels of the page
  private readonly renderer: Renderer;
  private readonly edgeOrder: Uint32Array;
  private readonly batches = new Batches();
  private cosh = new Float64Array(0);
  private labels: Placed[] = [];
  private readonly stale = { frame: true, look: true, points: true, labels: true };
  private asked = 0;
  private rested = 0;
  private fitted = 1; // the scale at which all is seen, in a window of this size
  private flight: Flight | null = null;

  constructor(
    readonly atlas: Atlas,
    readonly look: Look,
    readonly events: Events,
  ) {
    this.element.className = "pane";
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", `map of ${atlas.meta.name}. Arrows move, n and p walk the points, ? helps`);
    this.overlay.className = "overlay";
    this.element.append(this.canvas, this.overlay);
    this.renderer = new Renderer(this.canvas);
    this.canvas.addEventListener("webglcontextlost", () => events.lost());
    this.screen = new Float32Array(2 * atlas.count);
    const importance = (this.importance = importances(atlas));
    this.order = ordered(atlas.count, atlas.edges.length ? (i) => importance[i]! : scattered);
    this.renderer.setOrder(this.order);
    const { edges } = atlas;
    this.edgeOrder = ordered(edges.length / 2, (k) => 1 - importance[edges[2 * k]!]!);
    this.hands = new Hands(this);
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  // -- what is shown ----------------------------------------------------------------------------------------

  show(chart: ChartMeta, space: Space): void {
    const model = this.space?.kind === "hyperbolic" ? this.space.model : 0;
    this.land();
    this.chart = chart;
    this.space = space;
    if (space.kind === "hyperbolic") space.model = model;
    const { edges } = this.atlas;
    this.cosh = new Float64Array(edges.length / 2);
    for (let k = 0; k < this.cosh.length; k++) this.cosh[k] = space.edge(edges[2 * k]!, edges[2 * k + 1]!);
    this.fit();
  }

  setModel(model: number): void {
    if (this.space.kind !== "hyperbolic") return;
    this.land();
    this.space.model = model;
    this.fit();
    this.events.moved();
  }

  get modelName(): string {
    const { kind, model } = this.space;
    return kind === "hyperbolic" ? MODELS[model]!.name : kind === "sphere" ? "sphere" : "plane";
  }

  /** The whole of it, on the screen. */
  fit(): void {
    this.camera = this.whole();
    this.fitted = this.camera.scale;
    this.touch();
  }

  reset(): void {
    this.land();
    this.space.reset();
    this.fit();
    this.events.moved();
  }

  whole(): Camera {
    return whole(this.space, this.element.clientWidth, this.element.clientHeight);
  }

  // -- moving -------------------------------------------------------------------------------------------------

  /** By so many pixels. */
  push(dx: number, dy: number): void {
    const middle = this.grip();
    this.grab(middle, { x: middle.x + dx, y: middle.y + dy });
    this.events.moved();
  }

  /** What was at one pixel goes to the other. Outside the space the camera moves. */
  grab(before: Pixel, now: Pixel): void {
    const [from, to] = [this.toPlace(before.x, before.y), this.toPlace(now.x, now.y)];
    if (this.space.has(from) && this.space.has(to)) this.space.drag(from, to);
    else this.camera = { ...this.camera, x: this.camera.x + from.re - to.re, y: this.camera.y + from.im - to.im };
    this.touch();
  }

  /** A place to take hold of, near the middle of the screen. */
  private grip(): Pixel {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const middle = { x: width / 2, y: height / 2 };
    if (this.space.has(this.toPlace(middle.x, middle.y))) return middle;
    return this.toPixels({ re: 0, im: this.space.model === 2 ? 1 : 0 });
  }

  zoom(by: number, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2): void {
    this.camera = zoomed(this.camera, by, this.toPlace(x, y), this.fitted);
    this.touch();
    this.events.moved();
  }

  rotate(angle: number): void {
    this.space.rotate(angle);
    this.touch();
    this.events.moved();
  }

  /** Fly to a node, along the geodesic. */
  centre(node: number): Promise<void> {
    this.land();
    const middle = this.space.model === 2 ? { x: 0, y: 1 } : { x: 0, y: 0 };
    const to = { ...middle, scale: Math.max(this.camera.scale, this.whole().scale) };
    return new Promise((done) => {
      this.flight = new Flight(this.space.centring(node), this.camera, to, done);
      this.touch();
    });
  }

  /** End a flight where it is. */
  land(): void {
    this.flight?.done();
    this.flight = null;
  }

  private fly(now: number): void {
    if (!this.flight) return;
    this.camera = this.flight.at(now);
    this.touch();
    if (!this.flight.isOver(now)) return;
    this.land();
    this.events.moved();
  }

  // -- places and pixels ----------------------------------------------------------------------------------------

  toPlace(x: number, y: number): Complex {
    return toPlace(this.camera, this.canvas.clientWidth, this.canvas.clientHeight, { x, y });
  }

  toPixels(z: Complex): Pixel {
    return toPixels(this.camera, this.canvas.clientWidth, this.canvas.clientHeight, z);
  }

  /** Where a node is on the screen; null behind the sphere. */
  at(node: number): Pixel | null {
    const place = this.space.place(node);
    return place && this.toPixels(place);
  }

  nearest(x: number, y: number): number | null {
    this.refresh();
    return nearest(this.screen, this.look.shown, this.importance, x, y);
  }

  within(polygon: Complex[]): number[] {
    this.refresh();
    return within(this.screen, this.look.shown, polygon);
  }

  /** Points on the screen. */
  inView(): number[] {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    return this.within(
      [
        [0, 0],
        [width, 0],
        [width, height],
        [0, height],
      ].map(([re, im]) => ({ re: re!, im: im! })),
    );
  }

  // -- drawing --------------------------------------------------------------------------------------------------

  /** Something has moved. */
  touch(): void {
    this.stale.frame = true;
    this.later();
  }

  /** Colours or visibility have changed. */
  restyle(): void {
    this.stale.look = true;
    this.later();
  }

  /** Only marks have changed: the points stay as they are drawn. */
  remark(relabels = false): void {
    this.stale.labels ||= relabels;
    this.later();
  }

  private later(): void {
    if (!this.asked) this.asked = requestAnimationFrame((now) => this.frame(now));
  }

  private frame(now: number): void {
    this.asked = 0;
    if (!this.space) return;
    if (this.renderer.busy()) return this.later(); // what is asked for meanwhile becomes one frame
    this.effort.end(performance.now());
    this.fly(now);
    const { stale, effort } = this;
    if (!stale.frame && !stale.look && !stale.points) return this.annotate(true);
    const moving = stale.frame;
    const begun = performance.now();
    const most = moving ? effort.moving : effort.resting;
    const drawn = this.draw(most);
    effort.begin(begun, drawn.vertices);
    this.later(); // to see when the card is done
    clearTimeout(this.rested);
    if (!drawn.all) this.rested = window.setTimeout(() => this.complete(moving ? 0 : most), REST);
  }

  /** More of it, when it rests: as long as the card shows that it manages much more than was drawn. */
  private complete(drawn: number): void {
    if (this.effort.resting < MUCH * drawn) return;
    this.stale.points = true;
    this.stale.labels = true;
    this.later();
  }

  private refresh(): void {
    if (!this.stale.frame) return;
    this.stale.frame = false;
    this.stale.labels = true;
    this.space.update();
    this.renderer.setFrame(this.space.frame);
    project(this.space, this.camera, this.canvas.clientWidth, this.canvas.clientHeight, this.screen);
  }

  /** Draw now. most: vertices of the points, and of the edges. */
  draw(most = Infinity): { vertices: number; all: boolean } {
    const { look, stale, space, camera, theme } = this;
    if (stale.look) {
      stale.look = false;
      stale.labels = true;
      look.update();
      this.renderer.setLook(look.colours, look.widths);
    }
    this.refresh();
    stale.points = false;
    const { batches, all } = this.showsEdges ? this.batches.fill(this.seen(), most) : { batches: [], all: true };
    const lines = batches.reduce((sum, { count }) => sum + count, 0);
    this.renderer.draw(space.model, camera, batches, strength(lines, theme), theme.paper, most);
    this.annotate(all);
    const points = Math.min(most, this.atlas.count);
    const vertices = batches.reduce((sum, { count, steps }) => sum + verticesOf(steps) * count, points);
    return { vertices, all: all && points === this.atlas.count };
  }

  /** What edges are chosen by. */
  seen(): Seen {
    const { atlas, look, space, screen, cosh } = this;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const { shown, colours } = look;
    const { scale } = this.camera;
    return { edges: atlas.edges, order: this.edgeOrder, cosh, space, screen, shown, colours, scale, width, height };
  }

  /** Labels as they lie over the points now. */
  get written(): Placed[] {
    return this.showsLabels ? this.labels : [];
  }

  private annotate(all: boolean): void {
    if (this.stale.labels) {
      this.stale.labels = false;
      this.labels = this.showsLabels ? labelsFor(this, all) : [];
    }
    annotate(this, this.labels);
  }

  finish(): void {
    this.renderer.finish();
  }

  // -- the camera, whatever the size of the window ----------------------------------------------------------------

  private resize(): void {
    const { clientWidth: width, clientHeight: height } = this.element;
    for (const canvas of [this.canvas, this.overlay]) {
      canvas.width = Math.max(1, Math.round(width * devicePixelRatio));
      canvas.height = Math.max(1, Math.round(height * devicePixelRatio));
    }
    if (!this.space) return;
    const { scale } = this.whole();
    this.camera = { ...this.camera, scale: (this.camera.scale * scale) / this.fitted };
    this.fitted = scale;
    this.touch();
  }

  /** Centre, and how near. */
  cameraState(): number[] {
    return [this.camera.x, this.camera.y, this.camera.scale / this.fitted];
  }

  restoreCamera([x, y, nearness]: number[]): void {
    if (![x, y, nearness].every(Number.isFinite) || nearness! <= 0) return;
    this.fitted = this.whole().scale;
    this.camera = { x: x!, y: y!, scale: nearness! * this.fitted };
    this.touch();
  }
}
