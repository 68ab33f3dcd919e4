/** The page's state in its address, and back. */

import type { App } from "./app";
import { DISTORTION } from "./atlas";
import { plural } from "./dom";
import { read, type State, type ViewState, write } from "./state";
import type { View } from "./view";

const REST = 400; // milliseconds: browsers bound how often an address may change

/** A notebook shows the page in a frame without an address of its own: nothing can be written there. */
export const hasAddress = (): boolean => location.protocol !== "about:";

export function stateOf(app: App): State {
  const { pane } = app.view;
  const without = `${pane.showsEdges ? "" : "e"}${pane.showsLabels ? "" : "l"}${pane.showsCones ? "" : "c"}`;
  return { views: app.views.map(viewState), active: app.active, search: app.query, without, theme: app.theme };
}

function viewState({ atlas, look, pane, focus }: View): ViewState {
  const { chart, space } = pane;
  return {
    chart: chart.name,
    plane: atlas.planes.get(chart.name) ?? [],
    model: space.kind === "hyperbolic" ? space.model : 0,
    moved: space.state(),
    camera: pane.cameraState(),
    colour: look.colourBy?.name ?? "-",
    size: look.sizeBy?.name ?? "",
    filters: look.state(),
    focus,
    selection: look.selected.size > 20_000 ? [] : [...look.selected],
    omitted: look.selected.size > 20_000 ? look.selected.size : 0,
  };
}

/** Bring the page to a state. What does not fit these embeddings is left as it is. */
export async function restore(app: App, state: State): Promise<void> {
  app.theme = state.theme as App["theme"];
  app.active = state.active;
  app.query = state.search;
  for (const [i, view] of app.views.entries()) await restoreView(app, view, state.views[i]!, state.without);
  app.paint();
  for (const topic of ["active", "tool", "look", "chart", "selection", "search", "focus"] as const) app.emit(topic);
  const omitted = state.views.reduce((most, view) => Math.max(most, view.omitted), 0);
  if (omitted) app.say(`The link does not hold its selection: ${plural(omitted, "point")} were too many.`);
}

async function restoreView(app: App, view: View, state: ViewState, without: string): Promise<void> {
  const { atlas, look, pane } = view;
  const exists = (node: number): boolean => Number.isInteger(node) && node >= 0 && node < atlas.count;
  const [first, second] = state.plane.filter(exists);
  if (second !== undefined && atlas.hasPlanes) await view.show(await atlas.through(first!, second));
  else await view.show(atlas.charts.find(({ name }) => name === state.chart) ?? atlas.charts[0]!);
  if (pane.space.kind === "hyperbolic") pane.setModel([0, 1, 2].includes(state.model) ? state.model : 0);
  pane.space.reset();
  if (state.moved.length === pane.space.state().length) pane.space.restore(state.moved);
  if (state.camera.length === 3) pane.restoreCamera(state.camera);
  const wanted = state.colour || atlas.meta.colour;
  const coloured = atlas.columns.filter(({ kind }) => kind !== "text");
  if (wanted === DISTORTION && atlas.meta.anchors) {
    look.colourBy = { name: DISTORTION, kind: "number", values: new Float32Array(atlas.count), names: [], texts: [] };
  } else look.colourBy = coloured.find(({ name }) => name === wanted) ?? null;
  look.sizeBy = atlas.columns.find(({ name, kind }) => name === state.size && kind === "number") ?? null;
  if (isJson(state.filters)) look.restore(state.filters);
  look.selected.clear();
  for (const node of state.selection.filter(exists)) look.selected.add(node);
  pane.showsEdges = !without.includes("e");
  pane.showsLabels = !without.includes("l");
  pane.showsCones = !without.includes("c");
  app.focusHere(view, state.focus !== null && exists(state.focus) ? state.focus : null);
  pane.restyle();
  void app.measure(view);
}

/** An address may have been cut or written by hand. */
function isJson(text: string): boolean {
  try {
    const content: unknown = text ? JSON.parse(text) : [[], []];
    return Array.isArray(content) && content.length === 2 && content.every(Array.isArray);
  } catch {
    return false;
  }
}

/** Write the address some time after the last change; follow it where the reader changes it. */
export function follow(app: App): void {
  let waiting = 0;
  let written = location.hash.slice(1);
  const store = (): void => {
    written = write(stateOf(app));
    history.replaceState(history.state, "", `#${written}`);
  };
  if (!hasAddress()) return;
  app.on(["moved", "active", "tool", "theme", "search"], () => {
    clearTimeout(waiting);
    waiting = window.setTimeout(store, REST);
  });
  addEventListener("hashchange", () => {
    if (location.hash.slice(1) === written) return;
    clearTimeout(waiting);
    void restore(app, read(location.hash.slice(1), app.views.length));
  });
}

/** The address of what is seen now, and in words what it does not hold. */
export function link(app: App): { address: string; without: string } {
  const hash = write(stateOf(app));
  const omitted = read(hash, app.views.length).views.some((view) => view.omitted);
  return {
    address: `${location.href.replace(/#.*$/, "")}#${hash}`,
    without: omitted ? "The selection is too large for it and left out." : "",
  };
}
