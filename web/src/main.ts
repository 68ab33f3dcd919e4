/** The page: loads what it is given, builds itself, and lets the parts talk. */

import "./style.css";
import { follow, restore } from "./address";
import { App } from "./app";
import { Atlas } from "./atlas";
import { colourPanel, radiusPanel } from "./colourpanel";
import { grouped, h } from "./dom";
import { help } from "./help";
import { KEYS, listen } from "./keys";
import { nodePanel } from "./nodepanel";
import type { Events } from "./pane";
import { paneFrame } from "./panehead";
import { selectionPanel } from "./selectionpanel";
import { type Meta, openSource } from "./source";
import { read } from "./state";
import { Tooltip } from "./tooltip";
import { topbar } from "./topbar";
import { View } from "./view";

const page = document.getElementById("explorer")!;
const status = h("p", { class: "status", role: "status" }, "Loading…");
const alert = h("p", { class: "alert", role: "alert", hidden: true });

const fail = (text: string): void => {
  alert.textContent = text;
  alert.hidden = false;
};

async function start(): Promise<void> {
  page.append(alert, status);
  const source = openSource();
  const meta = await source.meta();
  const atlases = meta.atlases.map((one, i) => new Atlas(source, i, one));
  for (const atlas of atlases) {
    status.textContent = `Loading ${atlas.meta.name}: ${grouped(atlas.count)} points…`;
    await atlas.load();
  }
  performance.mark("data");
  status.textContent = "Drawing…";
  await build(meta, atlases);
}

async function build(meta: Meta, atlases: Atlas[]): Promise<void> {
  const app = new App(meta);
  const tooltip = new Tooltip();
  const live = h("p", { class: "live", role: "status", "aria-live": "polite" });
  const toast = h("p", { class: "toast", hidden: true });
  let waiting = 0;
  app.announce = (text) => (live.textContent = text);
  app.say = (text) => {
    app.announce(text);
    toast.textContent = text;
    toast.hidden = false;
    clearTimeout(waiting);
    waiting = window.setTimeout(() => (toast.hidden = true), 5000);
  };
  app.on(["tool"], () => (page.dataset.tool = app.tool));
  app.fail = fail;
  for (const atlas of atlases) app.views.push(new View(atlas, (view) => events(app, view, tooltip)));
  app.paint();
  document.title = meta.title;
  for (const view of app.views) await view.show(view.atlas.charts[0]!);
  const tabs = app.views.length > 1 ? switcher(app) : null;
  const panels = [nodePanel(app), selectionPanel(app), colourPanel(app), radiusPanel(app)];
  const maps = h("main", { class: "maps" }, ...app.views.map((view) => paneFrame(app, view)));
  const side = h("aside", { class: "side", "aria-label": "details" }, tabs, ...panels);
  page.append(
    topbar(app),
    h("div", { class: "body" }, maps, side),
    live,
    toast,
    tooltip.element,
    help(KEYS, meta.version),
  );
  status.remove();
  listen(app);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => app.paint());
  await restore(app, read(location.hash.slice(1), app.views.length));
  follow(app);
  expose(app);
  const seen = (): void => {
    if (app.views.every(({ pane }) => pane.effort.frames.length)) performance.mark("picture");
    else requestAnimationFrame(seen);
  };
  requestAnimationFrame(seen);
}

function events(app: App, view: View, tooltip: Tooltip): Events {
  return {
    hover: (node, x, y) => {
      tooltip.show(view, node, x, y);
      if (view.pane.hovered === node) return;
      view.pane.hovered = node;
      view.pane.canvas.classList.toggle("pointing", node !== null);
      view.pane.remark();
    },
    pick: (node, adds) => {
      if (adds && node !== null) app.toggle(view, node);
      else if (!adds) app.focus(view, node);
    },
    select: (nodes, adds) => app.select(view, nodes, adds),
    moved: () => {
      tooltip.show(view, null, 0, 0); // what it told about is elsewhere now
      app.emit("moved");
    },
    lost: () => fail("The browser has taken the graphics away (WebGL context lost). Load the page again."),
  };
}

/** Which of several embeddings the panel is about. */
function switcher(app: App): HTMLElement {
  const buttons = app.views.map((view) => {
    const made = h("button", { type: "button", on: { click: () => app.activate(view) } }, view.name);
    const mark = (): void => made.setAttribute("aria-pressed", String(app.view === view));
    app.on(["active"], mark);
    mark();
    return made;
  });
  return h("div", { class: "switch group", role: "group", "aria-label": "embedding" }, ...buttons);
}

/** For tests and measurements: window.horosphere = { app, views, panes, atlases, at(atlas, node) -> pixels,
 * get(atlas) and set(atlas, moved, camera), timed(atlas, most?) -> ms of a frame, frames(atlas) -> ms of the last }. */
function expose(app: App): void {
  const { views } = app;
  const at = (atlas: number, node: number): unknown => views[atlas]!.pane.at(node);
  const timed = (atlas: number, most?: number): number => {
    const { pane } = views[atlas]!;
    const began = performance.now();
    pane.touch();
    pane.draw(most);
    pane.finish();
    return performance.now() - began;
  };
  const set = (atlas: number, moved: number[], camera: number[]): void => {
    const { pane } = views[atlas]!;
    pane.space.restore(moved);
    pane.restoreCamera(camera);
  };
  const get = (atlas: number): unknown => ({
    moved: views[atlas]!.pane.space.state(),
    camera: views[atlas]!.pane.cameraState(),
  });
  const [panes, atlases] = [views.map(({ pane }) => pane), views.map(({ atlas }) => atlas)];
  const frames = (atlas: number): number[] => panes[atlas]!.effort.frames;
  Object.assign(window, { horosphere: { app, views, panes, atlases, at, get, set, timed, frames } });
}

start().catch((error: Error) => {
  status.remove();
  fail(`The explorer could not start: ${error.message}`);
});
