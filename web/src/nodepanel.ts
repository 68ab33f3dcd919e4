/** The focused node: what it is, how it is related, what lies near it in all dimensions. */

import type { App } from "./app";
import { h, plural, sentence, short } from "./dom";
import { shortened } from "./labels";
import { image } from "./thumbs";
import type { View } from "./view";

const FIRST = 10; // neighbours, until more are asked for
const PATH = 12; // ancestors named; the rest is said in a number
const SNIPPET = 400;

export function nodePanel(app: App): HTMLElement {
  const body = h("div", {});
  let all = false;
  const update = (): void => {
    const { view } = app;
    const { focus } = view;
    body.replaceChildren(...(focus === null ? nothing(view) : card(app, view, focus)), neighbours());
    body.classList.toggle("quiet", focus === null);
  };
  const neighbours = (): Node => {
    const { view } = app;
    return view.focus === null
      ? document.createTextNode("")
      : near(app, view, view.focus, all, () => {
          all = true;
          update();
        });
  };
  app.on(["focus"], () => (all = false));
  app.on(["focus", "neighbours", "active", "look"], update);
  update();
  return h("section", { class: "panel", "aria-label": "focused point" }, body);
}

function nothing(view: View): Node[] {
  const { count, meta, edges } = view.atlas;
  const size = [plural(count, "point"), edges.length ? plural(edges.length / 2, "edge") : ""]
    .filter(Boolean)
    .join(", ");
  const out = [
    h("h3", {}, meta.name),
    h("p", {}, `${size}. ${sentence(meta.geometry)}`),
    h("p", { class: "muted" }, "Click a point, or search, to see what it is and what lies near it."),
  ];
  if (view.pairing) out.push(h("p", { class: "note" }, view.pairing));
  return out;
}

/** A name that leads to its node. */
export function goTo(app: App, view: View, node: number, longest = 40): HTMLElement {
  const go = (): void => app.focus(view, node, true);
  return h(
    "button",
    { type: "button", class: "goto", title: view.label(node), on: { click: go } },
    shortened(view.label(node), longest),
  );
}

function card(app: App, view: View, node: number): Node[] {
  const { atlas } = view;
  const out: Node[] = [];
  const picture = image(view, node);
  out.push(h("div", { class: "cardhead" }, picture, h("h3", {}, view.label(node))));
  if (view.pairing) out.push(h("p", { class: "note" }, view.pairing));
  out.push(...ancestors(app, view, node));
  if (atlas.edges.length) out.push(h("p", { class: "muted" }, relations(view, node)));
  const rows = atlas.columns.flatMap((column) => {
    const value = view.value(column, node);
    if (column.kind === "text") return value ? [[column.name, shortened(String(value), SNIPPET)]] : [];
    return [[column.name, typeof value === "number" ? short(value) : value || "–"]];
  });
  if (rows.length)
    out.push(
      h("dl", { class: "values" }, ...rows.flatMap(([name, value]) => [h("dt", {}, name!), h("dd", {}, value!)])),
    );
  return out;
}

function relations({ atlas }: View, node: number): string {
  if (!atlas.meta.directed) return `${plural(atlas.degree(node), "link")} in the graph`;
  const [up, down] = [atlas.parents(node).length, atlas.children(node).length];
  return `${plural(up, "parent")}, ${plural(down, "child", "children")}`;
}

function ancestors(app: App, view: View, node: number): Node[] {
  const path = view.atlas.path(node).slice(1).reverse();
  if (!path.length) return [];
  const left = Math.max(0, path.length - PATH);
  const items = path.slice(left).map((other) => h("li", {}, goTo(app, view, other, 28)));
  if (left) items.unshift(h("li", { class: "muted" }, `${left} more`));
  return [h("ol", { class: "path", "aria-label": "path from the root" }, ...items)];
}

/** Three digits, in as many letters as there is room for. */
const far = (distance: number): string =>
  distance > 0 && distance < 0.01 ? distance.toExponential(1) : distance.toPrecision(3);

/** Neighbours in the true geometry, and which of them the graph links to the node. */
function near(app: App, view: View, node: number, all: boolean, more: () => void): Node {
  const title = h("h4", {}, "Nearest in all dimensions");
  const { neighbours, atlas } = view;
  if (!neighbours) return h("div", {}, title, h("p", { class: "muted" }, view.trouble || "…"));
  if (!neighbours.numbers.length) return h("div", {}, title, h("p", { class: "muted" }, "There is no other point."));
  const relation = neighbours.numbers.map((other) => atlas.relation(node, other));
  const isHit = relation.map((word) => word === "parent" || word === "child" || word === "linked");
  const shown = all ? neighbours.numbers.length : Math.min(FIRST, neighbours.numbers.length);
  const rows = neighbours.numbers
    .slice(0, shown)
    .map((other, k) =>
      h(
        "li",
        { class: isHit[k] ? "hit" : "" },
        h("span", { class: "sign", "aria-hidden": "true" }, atlas.edges.length ? (isHit[k] ? "●" : "○") : ""),
        goTo(app, view, other),
        h("small", {}, relation[k] || ""),
        h("span", { class: "distance", title: "true distance" }, far(neighbours.distances[k]!)),
      ),
    );
  const hits = isHit.slice(0, shown).filter(Boolean).length;
  const said = atlas.edges.length ? h("p", { class: "muted" }, `${hits} of ${shown} are linked in the graph`) : null;
  const rest =
    shown < neighbours.numbers.length && h("button", { type: "button", class: "more", on: { click: more } }, "more");
  return h("div", { class: "near" }, title, said, h("ol", { class: "neighbours" }, ...rows), rest);
}
