/** The keyboard. `KEYS` is also what the help shows. */

import type { App } from "./app";
import { closeHelp, helpIsOpen, toggleHelp } from "./help";
import { MODELS } from "./hyperbolic";

export const KEYS: readonly [string, string][] = [
  ["← ↑ ↓ →", "move the map"],
  ["Shift + ← →", "rotate"],
  ["+  −", "nearer, farther"],
  ["0", "reset the view"],
  ["/", "search"],
  ["n  p", "next, previous point by importance"],
  ["N  P", "next, previous neighbour"],
  ["u", "up to the parent"],
  ["Enter", "bring the focused point to the middle"],
  ["x", "select the focused point, or not"],
  ["e  l  c", "edges, labels, cones"],
  ["m", "next model: Poincaré disk, Klein disk, half-plane"],
  ["s  b", "select with a lasso, with a box"],
  ["Esc", "give up, step by step: search, focus, selection, tool"],
  ["?", "this help"],
];

const STEP = 40; // pixels
const TURN = Math.PI / 24;

export function listen(app: App): void {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.target as HTMLElement;
    const typing = target.matches("input, textarea, select");
    if (event.key === "Escape") {
      if (!closeHelp()) app.escape();
      if (typing) app.view.pane.canvas.focus({ preventScroll: true });
    } else if (typing || (helpIsOpen() && event.key !== "?")) return;
    else if (
      target === app.view.pane.canvas ? inMap(app, event) || anywhere(app, event.key) : anywhere(app, event.key)
    ) {
      event.preventDefault();
    }
  });
}

/** Keys that mean something only where the map has the keyboard. */
function inMap(app: App, { key, shiftKey }: KeyboardEvent): boolean {
  const { pane, focus } = app.view;
  const arrows: Record<string, [number, number]> = {
    ArrowLeft: [STEP, 0],
    ArrowRight: [-STEP, 0],
    ArrowUp: [0, STEP],
    ArrowDown: [0, -STEP],
  };
  const arrow = arrows[key];
  if (arrow && shiftKey) pane.rotate(key === "ArrowLeft" || key === "ArrowUp" ? TURN : -TURN);
  else if (arrow) pane.push(...arrow);
  else if (key === "Enter" && focus !== null) void pane.centre(focus);
  else return false;
  return true;
}

function anywhere(app: App, key: string): boolean {
  const { view } = app;
  const { pane, focus } = view;
  const actions: Record<string, () => void> = {
    "+": () => pane.zoom(1.25),
    "=": () => pane.zoom(1.25),
    "-": () => pane.zoom(0.8),
    "0": () => pane.reset(),
    "/": () => document.getElementById("search")!.focus(),
    n: () => app.step(1),
    p: () => app.step(-1),
    N: () => app.stepNear(1),
    P: () => app.stepNear(-1),
    u: () => {
      const up = focus === null ? undefined : view.atlas.parents(focus)[0];
      if (up !== undefined) app.focus(view, up);
    },
    x: () => focus !== null && app.toggle(view, focus),
    e: () => app.toggleLayer("showsEdges"),
    l: () => app.toggleLayer("showsLabels"),
    c: () => app.toggleLayer("showsCones"),
    m: () => pane.space.kind === "hyperbolic" && app.model(view, (pane.space.model + 1) % MODELS.length),
    s: () => app.use("lasso"),
    b: () => app.use("box"),
    "?": toggleHelp,
  };
  actions[key]?.();
  return key in actions;
}
