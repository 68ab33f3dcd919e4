/** Above each map: its name, which chart and which model. Below it: what the picture keeps. */

import type { App } from "./app";
import { h, sentence } from "./dom";
import { MODELS } from "./hyperbolic";
import type { View } from "./view";

const PLANE = "\u0000plane"; // no chart's name

export function paneFrame(app: App, view: View): HTMLElement {
  const note = h("p", { class: "caption" });
  const charts = chartChooser(app, view);
  const models = modelChooser(app, view);
  const update = (): void => {
    const kept = h("span", { class: view.survival ? "" : "waiting" }, view.survival || view.survives(0.99));
    note.replaceChildren(sentence(view.pane.chart.note), " ", ...(view.atlas.meta.anchors ? [kept] : []));
  };
  app.on(["chart"], update);
  const frame = h(
    "section",
    {
      class: "map",
      "aria-label": view.name,
      on: { pointerdown: () => app.activate(view), focusin: () => app.activate(view) },
    },
    h("div", { class: "maphead" }, h("h2", {}, view.name), h("small", {}, view.atlas.meta.geometry), charts, models),
    view.pane.element,
    note,
  );
  const mark = (): void => void frame.classList.toggle("active", app.views.length > 1 && app.view === view);
  app.on(["active"], mark);
  mark();
  return frame;
}

function chartChooser(app: App, view: View): HTMLElement {
  const { atlas } = view;
  const choose = h("select", { "aria-label": "chart", title: "how the points are laid out" });
  choose.addEventListener("change", () => {
    if (choose.value !== PLANE) {
      app.planning = false;
      void app.chart(
        view,
        atlas.charts.find(({ name }) => name === choose.value)!,
      );
      return;
    }
    app.plan(view);
  });
  const update = (): void => {
    const options = atlas.charts.map(({ name, note }) => h("option", { value: name, title: note }, name));
    if (atlas.hasPlanes) options.push(h("option", { value: PLANE }, "plane through two nodes…"));
    choose.replaceChildren(...options);
    choose.value = app.planning && app.view === view ? PLANE : view.pane.chart.name;
    choose.hidden = options.length < 2;
  };
  app.on(["chart"], update);
  return choose;
}

function modelChooser(app: App, view: View): HTMLElement {
  const choose = h("select", { "aria-label": "model", title: "which picture of the hyperbolic plane (m)" });
  choose.append(...MODELS.map(({ name }, k) => h("option", { value: k }, name)));
  choose.addEventListener("change", () => app.model(view, Number(choose.value)));
  const update = (): void => {
    choose.hidden = view.pane.space.kind !== "hyperbolic";
    choose.value = String(view.pane.space.model);
  };
  app.on(["chart"], update);
  return choose;
}
