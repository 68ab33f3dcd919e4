/** What a point is, beside the pointer. */

import { h, short } from "./dom";
import { shortened } from "./labels";
import { image } from "./thumbs";
import type { View } from "./view";

const GAP = 14;

export class Tooltip {
  readonly element = h("div", { class: "tooltip", role: "tooltip", hidden: true });
  private shown: { view: View; node: number } | null = null;

  show(view: View, node: number | null, x: number, y: number): void {
    const { element } = this;
    element.hidden = node === null;
    if (node === null) {
      this.shown = null;
      return;
    }
    if (this.shown?.view !== view || this.shown.node !== node) {
      element.replaceChildren(...content(view, node));
      this.shown = { view, node };
    }
    const box = view.pane.canvas.getBoundingClientRect();
    const [left, top] = [box.left + x, box.top + y];
    const { offsetWidth: width, offsetHeight: height } = element;
    element.style.left = `${left + GAP + width > innerWidth ? Math.max(4, left - GAP - width) : left + GAP}px`;
    element.style.top = `${top + GAP + height > innerHeight ? Math.max(4, top - GAP - height) : top + GAP}px`;
  }
}

function content(view: View, node: number): Node[] {
  const out: Node[] = [h("strong", {}, shortened(view.label(node), 80))];
  const picture = image(view, node);
  if (picture) out.push(picture);
  const column = view.look.colourBy;
  if (column) {
    const value = view.value(column, node);
    out.push(h("span", {}, `${column.name}: ${typeof value === "number" ? short(value) : value || "–"}`));
  }
  for (const { kind, texts } of view.atlas.columns) {
    if (kind === "text" && texts[node]) out.push(h("span", { class: "snippet" }, shortened(texts[node]!, 160)));
  }
  return out;
}
