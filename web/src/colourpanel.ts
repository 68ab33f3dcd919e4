/** What colours and sizes mean, and which points they leave. */

import type { App } from "./app";
import { type Column, DISTORTION } from "./atlas";
import { css, shade } from "./colours";
import { grouped, h, setPressed, short } from "./dom";
import { histogram } from "./histogram";
import { shortened } from "./labels";
import type { Legend } from "./look";
import type { View } from "./view";

const LISTED = 100; // categories of a legend

export function colourPanel(app: App): HTMLElement {
  const body = h("div", {});
  let shown: { view: View; colour: Column | null } | null = null;
  const update = (): void => {
    const { view } = app;
    const colour = view.look.colourBy;
    // while one drags in a histogram it must stay
    if (shown?.view === view && shown.colour === colour && colour?.kind !== "category") return;
    shown = { view, colour };
    const top = body.querySelector(".legend")?.scrollTop ?? 0;
    body.replaceChildren(...choosers(app, view), ...legend(app, view));
    const list = body.querySelector(".legend");
    if (list) list.scrollTop = top;
  };
  app.on(["look", "active", "chart"], update);
  update();
  return h("section", { class: "panel", "aria-label": "colours" }, h("h3", {}, "Colour and size"), body, filters(app));
}

/** What is left out by filters, of whichever column, and the way back. */
function filters(app: App): HTMLElement {
  const said = h("span", {});
  const clear = (): void => {
    app.view.look.clearFilters();
    app.restyled(app.view);
  };
  const row = h(
    "p",
    { class: "row filters" },
    said,
    h("button", { type: "button", class: "small", on: { click: clear } }, "show all"),
  );
  const update = (): void => {
    const names = app.view.look.filters();
    row.hidden = names.length === 0;
    said.textContent = `Filtered by ${names.join(", ")}.`;
  };
  app.on(["look", "active"], update);
  update();
  return row;
}

function choosers(app: App, view: View): Node[] {
  const { atlas, look } = view;
  const coloured = atlas.columns.filter(({ kind }) => kind !== "text").map(({ name }) => name);
  if (atlas.meta.anchors) coloured.push(DISTORTION);
  const sized = atlas.columns.filter(({ kind }) => kind === "number").map(({ name }) => name);
  const find = (name: string): Column | null =>
    name === DISTORTION ? view.distortion : (atlas.columns.find((column) => column.name === name) ?? null);
  const colour = chooser("Colour", coloured, look.colourBy?.name ?? "", (name) => {
    const column = find(name);
    if (name === DISTORTION && !column) app.say("The distortion is still being computed: a moment.");
    else app.colour(view, column);
  });
  const size = chooser("Size", sized, look.sizeBy?.name ?? "", (name) => app.size(view, find(name)));
  return [colour, size];
}

function chooser(name: string, options: string[], chosen: string, choose: (name: string) => void): HTMLElement {
  const select = h("select", {}, h("option", { value: "" }, "the same for all"));
  select.append(...options.map((option) => h("option", { value: option }, option)));
  select.value = chosen;
  select.disabled = options.length === 0;
  select.addEventListener("change", () => choose(select.value));
  return h("label", { class: "field" }, h("span", {}, name), select);
}

function legend(app: App, view: View): Node[] {
  const column = view.look.colourBy;
  if (!column) return [];
  if (column.kind === "category") return categories(app, view, column);
  const bar = h("div", { class: "bar" });
  const stops = Array.from({ length: 9 }, (_, k) => css(shade(k / 8)));
  bar.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  const [low, high] = [h("span", {}), h("span", {})];
  const scale = h("div", { class: "scale" }, low, h("span", {}, column.name), high);
  const label = (): void => [low, high].forEach((end, k) => (end.textContent = short(view.look.domain(column)[k]!)));
  app.on(["look"], label, scale);
  label();
  return [bar, scale, histogram(app, view, column)];
}

function categories(app: App, view: View, column: Column): Node[] {
  const { look } = view;
  const all = look.legend(column);
  const hide = (codes: number[], hidden: boolean): void => {
    look.hide(column, codes, hidden);
    app.restyled(view);
  };
  const items = all
    .slice(0, LISTED)
    .map((entry) => h("li", {}, category(look.isHidden(column, entry.code), entry, hide)));
  if (all.length > LISTED) items.push(h("li", { class: "muted" }, `${grouped(all.length - LISTED)} more`));
  const codes = all.map(({ code }) => code);
  const none = look.hiddenOf(column) === codes.length;
  const buttons = h(
    "div",
    { class: "row" },
    h("button", { type: "button", class: "small", on: { click: () => hide(codes, false) } }, "show all"),
    h("button", { type: "button", class: "small", disabled: none, on: { click: () => hide(codes, true) } }, "hide all"),
  );
  return [h("ul", { class: "legend" }, ...items), buttons];
}

function category(hidden: boolean, entry: Legend, hide: (codes: number[], hidden: boolean) => void): HTMLElement {
  const { code, name, count, colour } = entry;
  const swatch = h("span", { class: "swatch", "aria-hidden": "true" });
  swatch.style.background = css(colour);
  const press = (): void => hide([code], !hidden);
  const made = h(
    "button",
    { type: "button", title: hidden ? "show" : "hide", on: { click: press } },
    swatch,
    h("span", { class: "name" }, shortened(name || "none", 32)),
    h("small", {}, grouped(count)),
  );
  setPressed(made, !hidden);
  return made;
}

/** Where the points lie by radius, unless the colours show it already. */
export function radiusPanel(app: App): HTMLElement {
  const section = h("section", { class: "panel", "aria-label": "radius" });
  let shown: View | null = null;
  const update = (): void => {
    const { view } = app;
    const column = view.column("radius");
    section.hidden = !column || column.kind !== "number" || view.look.colourBy === column;
    if (section.hidden) shown = null;
    else if (shown !== view) {
      shown = view;
      section.replaceChildren(h("h3", {}, "Radius"), histogram(app, view, column!));
    }
  };
  app.on(["look", "active"], update);
  update();
  return section;
}
