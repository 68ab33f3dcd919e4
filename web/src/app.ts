/** What happens on the page: focus, selection, colours, charts. Panels listen, and call these. */

import { type Column, DISTORTION } from "./atlas";
import { plural } from "./dom";
import type { Tool } from "./pane";
import type { ChartMeta, Meta } from "./source";
import { systemTheme, THEMES } from "./theme";
import { View } from "./view";

export type Topic =
  "focus" | "neighbours" | "selection" | "look" | "chart" | "active" | "tool" | "moved" | "theme" | "search";

export class App {
  readonly views: View[] = [];
  active = 0;
  tool: Tool = "move";
  /** The focused node waits for a second one to make a plane with. */
  planning = false;
  query = "";
  theme: "light" | "dark" | "system" = "system";
  /** To those who listen. */
  announce: (text: string) => void = () => undefined;
  /** To everybody. */
  say: (text: string) => void = () => undefined;
  fail: (text: string) => void = () => undefined;
  private readonly listeners = new Map<Topic, { listener: () => void; owner: Node | null }[]>();
  private walk: { origin: number; at: number; list: number[] } | null = null;

  constructor(readonly meta: Meta) {}

  /** A listener with an owner ends when that is no longer part of the page. */
  on(topics: Topic[], listener: () => void, owner: Node | null = null): void {
    for (const topic of topics) this.listeners.set(topic, [...(this.listeners.get(topic) ?? []), { listener, owner }]);
  }

  emit(topic: Topic): void {
    const living = (this.listeners.get(topic) ?? []).filter(({ owner }) => !owner || owner.isConnected);
    this.listeners.set(topic, living);
    for (const { listener } of living) listener();
  }

  get view(): View {
    return this.views[this.active]!;
  }

  activate(view: View): void {
    const number = this.views.indexOf(view);
    if (number === this.active) return;
    this.active = number;
    this.emit("active");
  }

  // -- focus --------------------------------------------------------------------------------------------------------

  /** Show everything about a node; the node of the same name elsewhere too. */
  focus(view: View, node: number | null, flies = false): void {
    if (this.planning && node !== null && view === this.view && node !== view.focus) {
      if (view.focus !== null) return void this.throughPlane(view, view.focus, node);
      this.say("Now pick the second node of the plane.");
    }
    this.walk = null;
    this.focusOne(view, node, flies);
    const label = node === null ? null : view.atlas.labels[node]!;
    view.pairing = "";
    for (const other of this.views) {
      if (other === view) continue;
      const twin = label === null ? -1 : other.atlas.find(label);
      other.pairing = "";
      if (label !== null && twin < 0) {
        view.pairing = `${other.name} has no “${view.label(node!)}”.`;
        other.pairing = `“${view.label(node!)}” is not here.`;
      }
      this.focusOne(other, twin < 0 ? null : twin, flies);
    }
    this.announce(node === null ? "nothing in focus" : `${view.label(node)} in focus. ${view.pairing}`);
    this.emit("focus");
    this.emit("moved");
  }

  /** As `focus`, in one embedding only. */
  focusHere(view: View, node: number | null): void {
    this.focusOne(view, node, false);
  }

  private focusOne(view: View, node: number | null, flies: boolean): void {
    const { pane } = view;
    view.focus = pane.focus = node;
    view.neighbours = null;
    view.trouble = "";
    pane.marks = [];
    pane.remark(true);
    if (node === null) return;
    if (flies) void pane.centre(node);
    void this.ask(view, node);
  }

  private async ask(view: View, node: number): Promise<void> {
    if (!view.atlas.meta.neighbours) {
      view.trouble = view.atlas.count > 1 ? "Neighbours are not part of this page." : "There is no other point.";
      return;
    }
    const found = await view.atlas.neighbours(node).catch((error: Error) => error);
    if (view.focus !== node) return;
    if (found instanceof Error) view.trouble = `No neighbours: ${found.message}`;
    else {
      view.neighbours = found;
      view.pane.marks = found.numbers.slice(0, 10);
      view.pane.remark();
    }
    this.emit("neighbours");
  }

  /** The next node by importance, of those that are shown. */
  step(by: 1 | -1): void {
    const { view } = this;
    const { order } = view.pane;
    const count = order.length;
    let at = view.focus === null ? (by > 0 ? count : -1) : order.indexOf(view.focus);
    for (let tried = 0; tried < count; tried++) {
      at = (at - by + count) % count; // the important ones are last
      if (view.look.shown[order[at]!]) break;
    }
    this.reach(view, order[at]!);
  }

  /** Focus a node, and fly to it where it is not seen. */
  private reach(view: View, node: number): void {
    const at = view.pane.at(node);
    const { clientWidth: width, clientHeight: height } = view.pane.canvas;
    this.focus(view, node, !at || at.x < 0 || at.y < 0 || at.x > width || at.y > height);
  }

  /** The next neighbour of the node from which the walk began. */
  stepNear(by: 1 | -1): void {
    const { view } = this;
    if (!this.walk) {
      if (view.focus === null || !view.neighbours?.numbers.length) return this.announce("no neighbours to walk");
      this.walk = { origin: view.focus, at: by > 0 ? -1 : 0, list: view.neighbours.numbers };
    }
    const walk = this.walk;
    walk.at = (walk.at + by + walk.list.length) % walk.list.length;
    this.reach(view, walk.list[walk.at]!);
    this.walk = walk;
  }

  // -- selection ------------------------------------------------------------------------------------------------------

  select(view: View, nodes: Iterable<number>, adds = false): void {
    const { selected } = view.look;
    if (!adds) selected.clear();
    for (const node of nodes) selected.add(node);
    view.pairing = "";
    for (const other of this.views) if (other !== view) this.mirror(view, other);
    for (const { pane } of this.views) pane.restyle();
    this.announce(selected.size ? `${plural(selected.size, "point")} selected. ${view.pairing}` : "nothing selected");
    this.emit("selection");
    this.emit("moved");
  }

  toggle(view: View, node: number): void {
    const rest = new Set(view.look.selected);
    if (!rest.delete(node)) rest.add(node);
    this.select(view, rest);
  }

  private mirror(view: View, other: View): void {
    const { selected } = other.look;
    selected.clear();
    other.pairing = "";
    for (const node of view.look.selected) {
      const twin = other.atlas.find(view.atlas.labels[node]!);
      if (twin >= 0) selected.add(twin);
    }
    if (view.look.selected.size && !selected.size) {
      view.pairing = `None of the selection is in ${other.name}.`;
      other.pairing = `None of the selection in ${view.name} is here.`;
    }
  }

  // -- looks and charts -----------------------------------------------------------------------------------------------

  colour(view: View, column: Column | null): void {
    view.look.colourBy = column;
    this.restyled(view);
  }

  size(view: View, column: Column | null): void {
    view.look.sizeBy = column;
    this.restyled(view);
  }

  /** Filters or colours have changed. */
  restyled(view: View): void {
    view.pane.restyle();
    this.emit("look");
    this.emit("moved");
  }

  async chart(view: View, chart: ChartMeta): Promise<void> {
    try {
      await view.show(chart);
    } catch (error) {
      return this.fail(`This chart could not be loaded: ${(error as Error).message}`);
    }
    this.emit("chart");
    this.emit("moved");
    await this.measure(view);
  }

  async measure(view: View): Promise<void> {
    try {
      await view.measure();
    } catch (error) {
      this.fail(`What the picture keeps of distance is not known: ${(error as Error).message}`);
    }
    this.emit("chart");
    if (view.look.colourBy?.name === DISTORTION) this.emit("look");
  }

  /** The next two nodes, or the focused and the next, make a plane. */
  plan(view: View): void {
    this.planning = true;
    this.activate(view);
    this.say(view.focus === null ? "Pick the first node of the plane." : "Pick the second node of the plane.");
    this.emit("chart");
  }

  async throughPlane(view: View, first: number, second: number): Promise<void> {
    this.planning = false;
    try {
      await this.chart(view, await view.atlas.through(first, second));
      this.say(view.pane.chart.name);
    } catch (error) {
      this.fail(`The plane could not be made: ${(error as Error).message}`);
    }
  }

  model(view: View, model: number): void {
    view.pane.setModel(model);
    this.announce(view.pane.modelName);
    this.emit("chart");
  }

  // -- tools ----------------------------------------------------------------------------------------------------------

  use(tool: Tool): void {
    this.tool = tool;
    for (const { pane } of this.views) pane.tool = tool;
    this.emit("tool");
  }

  /** Of all maps: edges, labels or cones. */
  toggleLayer(layer: "showsEdges" | "showsLabels" | "showsCones"): void {
    const shows = !this.view.pane[layer];
    for (const { pane } of this.views) {
      pane[layer] = shows;
      if (layer === "showsEdges") pane.touch();
      else pane.remark(true);
    }
    this.emit("tool");
    this.emit("moved");
  }

  /** One thing less each time: plane, lasso, search, focus, selection, tool. */
  escape(): void {
    const { view } = this;
    if (this.planning) {
      this.planning = false;
      this.emit("chart");
    } else if (this.views.some(({ pane }) => pane.hands.drop())) return;
    else if (this.query) {
      this.query = "";
      this.emit("search");
    } else if (this.views.some(({ focus }) => focus !== null)) this.focus(view, null);
    else if (view.look.selected.size) this.select(view, []);
    else if (this.tool !== "move") this.use("move");
  }

  paint(): void {
    const name = this.theme === "system" ? systemTheme() : this.theme;
    document.documentElement.dataset.theme = name;
    for (const { pane } of this.views) {
      pane.theme = THEMES[name];
      if (pane.space) pane.restyle();
    }
    this.emit("theme");
  }
}
