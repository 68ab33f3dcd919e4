/** The selected points: how many, which, as a table, as pictures, as a file. */

import type { App } from "./app";
import { csv } from "./csv";
import { download, grouped, h, plural, short } from "./dom";
import { shortened } from "./labels";
import { goTo } from "./nodepanel";
import { image } from "./thumbs";
import type { View } from "./view";

const ROWS = 50;
const COLUMNS = 6;
const PICTURES = 24;

export function selectionPanel(app: App): HTMLElement {
  const body = h("div", {});
  const update = (): void => {
    const { view } = app;
    const { size } = view.look.selected;
    body.replaceChildren(...(size ? [] : [hint()]), makers(app, view), ...(size ? chosen(app, view) : []));
  };
  app.on(["selection", "active", "focus"], update);
  update();
  return h("section", { class: "panel", "aria-label": "selection" }, h("h3", {}, "Selection"), body);
}

const hint = (): HTMLElement => h("p", { class: "muted" }, "Draw with the lasso or the box, or select those:");

function makers(app: App, view: View): HTMLElement {
  const { focus } = view;
  const make = (name: string, nodes: () => Iterable<number>, needs: boolean): HTMLElement => {
    const press = (): void => app.select(view, nodes());
    return h("button", { type: "button", class: "small", disabled: !needs, on: { click: press } }, name);
  };
  const below = view.atlas.meta.directed ? "subtree" : "linked";
  return h(
    "div",
    { class: "row" },
    make("in view", () => view.pane.inView(), true),
    make("neighbours", () => [focus!, ...(view.neighbours?.numbers ?? [])], focus !== null),
    view.atlas.edges.length > 0 && make(below, () => view.atlas.subtree(focus!), focus !== null),
  );
}

function chosen(app: App, view: View): Node[] {
  const { selected } = view.look;
  const nodes = first(view, ROWS);
  const row = h(
    "div",
    { class: "row" },
    h("strong", {}, `${plural(selected.size, "point")} selected`),
    h("button", { type: "button", class: "small", on: { click: () => save(view) } }, "CSV"),
    h("button", { type: "button", class: "small", on: { click: () => app.select(view, []) } }, "clear"),
  );
  const out: Node[] = [row];
  if (view.pairing) out.push(h("p", { class: "note" }, view.pairing));
  if (view.atlas.meta.thumbnails) out.push(pictures(app, view, nodes));
  out.push(table(app, view, nodes));
  if (selected.size > ROWS)
    out.push(h("p", { class: "muted" }, `the first ${ROWS} of ${grouped(selected.size)}; the CSV has all`));
  return out;
}

/** The most important of the selected. */
function first({ look, pane }: View, most: number): number[] {
  const out: number[] = [];
  const { order } = pane;
  for (let n = order.length - 1; n >= 0 && out.length < Math.min(most, look.selected.size); n--) {
    if (look.selected.has(order[n]!)) out.push(order[n]!);
  }
  return out;
}

function pictures(app: App, view: View, nodes: number[]): HTMLElement {
  const made = nodes.slice(0, PICTURES).map((node) => {
    const go = (): void => app.focus(view, node, true);
    const label = view.label(node);
    return h(
      "button",
      { type: "button", title: label, on: { click: go } },
      image(view, node),
      h("span", {}, shortened(label, 18)),
    );
  });
  return h("div", { class: "pictures" }, ...made);
}

function table(app: App, view: View, nodes: number[]): HTMLElement {
  const columns = view.atlas.columns.slice(0, COLUMNS);
  const head = h(
    "tr",
    {},
    h("th", { scope: "col" }, "label"),
    ...columns.map(({ name }) => h("th", { scope: "col" }, name)),
  );
  const rows = nodes.slice(0, ROWS).map((node) => {
    const cells = columns.map((column) => {
      const value = view.value(column, node);
      return typeof value === "number" ? h("td", { class: "number" }, short(value)) : h("td", {}, shortened(value, 40));
    });
    return h("tr", {}, h("th", { scope: "row" }, goTo(app, view, node, 32)), ...cells);
  });
  return h("div", { class: "table", tabindex: 0 }, h("table", {}, h("thead", {}, head), h("tbody", {}, ...rows)));
}

/** A number of single precision, without the digits it does not have. */
const single = (value: number): number => (Number.isInteger(value) ? value : Number(value.toPrecision(7)));

function save(view: View): void {
  const { columns } = view.atlas;
  const rows = first(view, Infinity).map((node) => {
    const values = columns.map((column) => view.value(column, node));
    return [view.atlas.labels[node]!, ...values.map((value) => (typeof value === "number" ? single(value) : value))];
  });
  const text = csv([["label", ...columns.map(({ name }) => name)], ...rows]);
  download(new Blob([text], { type: "text/csv" }), `${view.name.replace(/[^\p{L}\p{N}._-]+/gu, "-")}-selection.csv`);
}
