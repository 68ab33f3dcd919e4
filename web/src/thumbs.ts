/** Small pictures of points: asked for once, and forgotten when there are too many. */

import { h } from "./dom";
import type { View } from "./view";

const KEPT = 300;
const kept = new Map<string, Promise<string | null>>();

export function thumbnail(view: View, node: number): Promise<string | null> {
  const key = `${view.atlas.number}/${node}`;
  const found = kept.get(key) ?? view.atlas.thumbnail(node).catch(() => null); // a point without a picture is no error
  kept.delete(key);
  kept.set(key, found); // the last used is last
  for (const [old, address] of kept) {
    if (kept.size <= KEPT) break;
    kept.delete(old);
    void address.then((text) => text?.startsWith("blob:") && URL.revokeObjectURL(text));
  }
  return found;
}

/** An image that shows itself when it is there; nothing where the point has none. */
export function image(view: View, node: number): HTMLImageElement | null {
  if (!view.atlas.meta.thumbnails) return null;
  const made = h("img", { alt: "", class: "thumb", hidden: true });
  void thumbnail(view, node).then((address) => {
    if (!address) return;
    made.src = address;
    made.hidden = false;
  });
  return made;
}
