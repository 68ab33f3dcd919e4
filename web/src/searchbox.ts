/** Search as one types: a list of hits, by keyboard and pointer. */

import type { App } from "./app";
import { grouped, h, plural } from "./dom";
import { shortened } from "./labels";

const MOST = 30; // hits in the list
const REST = 60; // milliseconds

export function searchBox(app: App): HTMLElement {
  const list = h("ul", { id: "hits", role: "listbox", "aria-label": "hits", hidden: true });
  const input = h("input", {
    type: "search",
    id: "search",
    placeholder: "Search",
    title: "Search (/)",
    autocomplete: "off",
    spellcheck: "false",
    role: "combobox",
    "aria-label": "search labels",
    "aria-controls": "hits",
    "aria-expanded": "false",
  });
  let nodes: number[] = [];
  let at = 0;
  let waiting = 0;

  const mark = (): void => {
    [...list.children].forEach((item, k) => item.setAttribute("aria-selected", String(k === at)));
    list.children[at]?.scrollIntoView({ block: "nearest" });
    if (nodes.length) input.setAttribute("aria-activedescendant", `hit-${at}`);
  };
  const close = (): void => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const go = (node: number | undefined): void => {
    if (node === undefined) return;
    close();
    app.focus(app.view, node, true);
    app.view.pane.canvas.focus({ preventScroll: true });
  };
  const find = (): void => {
    waiting = 0;
    const { view } = app;
    const hits = view.atlas.search(input.value, MOST);
    nodes = hits.nodes;
    at = 0;
    list.replaceChildren(...nodes.map((node, k) => item(app, node, k, () => go(node))));
    if (!input.value.trim()) return close();
    if (hits.total > nodes.length)
      list.append(h("li", { class: "note" }, `${grouped(hits.total - nodes.length)} more`));
    if (!hits.total) list.append(h("li", { class: "note" }, "nothing found"));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    app.announce(plural(hits.total, "hit"));
    mark();
  };

  input.addEventListener("input", () => {
    app.query = input.value;
    app.emit("moved");
    clearTimeout(waiting);
    waiting = window.setTimeout(find, REST);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (list.hidden) find();
      else at = (at + (event.key === "ArrowDown" ? 1 : nodes.length - 1)) % Math.max(1, nodes.length);
      mark();
    } else if (event.key === "Enter") {
      clearTimeout(waiting);
      if (list.hidden || waiting) find();
      go(nodes[at]);
    } else if (event.key === "Escape" && !list.hidden && !input.value) close();
    else return;
    event.preventDefault();
  });
  input.addEventListener("focus", () => input.value && find());
  input.addEventListener("blur", () => setTimeout(close, 150));
  app.on(["search"], () => {
    input.value = app.query;
    close();
  });
  return h("div", { class: "search" }, input, list);
}

function item(app: App, node: number, k: number, go: () => void): HTMLElement {
  const { atlas } = app.view;
  const above = atlas.meta.directed ? atlas.parents(node)[0] : undefined;
  const press = { mousedown: (event: MouseEvent) => event.preventDefault(), click: go };
  return h(
    "li",
    { role: "option", id: `hit-${k}`, on: press },
    h("span", {}, shortened(app.view.label(node), 60)),
    above !== undefined && h("small", {}, shortened(app.view.label(above), 30)),
  );
}
