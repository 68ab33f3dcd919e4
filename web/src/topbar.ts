/** The bar above the maps: title, search, tools, what is shown, what can be saved. */

import type { App } from "./app";
import { hasAddress, link } from "./address";
import { download, h, setPressed } from "./dom";
import { toggleHelp } from "./help";
import { icon, type Icon } from "./icons";
import { picture } from "./picture";
import { searchBox } from "./searchbox";
import { drawing } from "./svg";
import { systemTheme } from "./theme";

const QUARTER = Math.PI / 12;

export function topbar(app: App): HTMLElement {
  return h(
    "header",
    { class: "topbar" },
    h("h1", { title: app.meta.title }, app.meta.title),
    searchBox(app),
    h(
      "div",
      { class: "tools", role: "toolbar", "aria-label": "tools" },
      tools(app),
      layers(app),
      turning(app),
      files(app),
      page(app),
    ),
  );
}

function button(name: string, key: string, press: () => void, picture?: Icon): HTMLButtonElement {
  const title = key ? `${name} (${key})` : name;
  return h(
    "button",
    { type: "button", title, "aria-label": name, on: { click: press } },
    picture ? icon(picture) : name,
  );
}

const group = (name: string, ...buttons: HTMLElement[]): HTMLElement =>
  h("div", { class: "group", role: "group", "aria-label": name }, ...buttons);

function tools(app: App): HTMLElement {
  const all = (["move", "lasso", "box"] as const).map((tool) => {
    const key = tool === "move" ? "Esc" : tool === "lasso" ? "s" : "b";
    const made = button(tool, key, () => app.use(tool), tool);
    app.on(["tool"], () => setPressed(made, app.tool === tool));
    setPressed(made, app.tool === tool);
    return made;
  });
  return group("tool of the pointer", ...all);
}

function layers(app: App): HTMLElement {
  const hasEdges = app.views.some(({ atlas }) => atlas.edges.length > 0);
  const hasCones = app.views.some(({ atlas }) => atlas.aperture !== null);
  const all = [
    ["edges", "e", "showsEdges", hasEdges],
    ["labels", "l", "showsLabels", true],
    ["cones", "c", "showsCones", hasCones],
  ] as const;
  const buttons = all
    .filter(([, , , there]) => there)
    .map(([name, key, layer]) => {
      const made = button(name, key, () => app.toggleLayer(layer), name);
      const press = (): void => setPressed(made, app.view.pane[layer]);
      app.on(["tool"], press);
      press();
      return made;
    });
  return group("shown", ...buttons);
}

function turning(app: App): HTMLElement {
  return group(
    "view",
    button("nearer", "+", () => app.view.pane.zoom(1.4), "plus"),
    button("farther", "-", () => app.view.pane.zoom(1 / 1.4), "minus"),
    button("rotate left", "Shift+←", () => app.view.pane.rotate(QUARTER), "left"),
    button("rotate right", "Shift+→", () => app.view.pane.rotate(-QUARTER), "right"),
    button("reset the view", "0", () => app.view.pane.reset(), "reset"),
  );
}

function files(app: App): HTMLElement {
  const buttons = [button("PNG", "", () => void savePicture(app)), button("SVG", "", () => saveDrawing(app))];
  if (hasAddress()) buttons.push(button("Link", "", () => void copyLink(app)));
  return group("save", ...buttons);
}

function page(app: App): HTMLElement {
  const theme = button(
    "light or dark",
    "",
    () => {
      const wanted = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      app.theme = wanted === systemTheme() ? "system" : wanted;
      app.paint();
    },
    "dark",
  );
  app.on(["theme"], () =>
    theme.replaceChildren(icon(document.documentElement.dataset.theme === "dark" ? "light" : "dark")),
  );
  return group("page", theme, button("?", "?", toggleHelp));
}

const fileName = (app: App, ending: string): string =>
  `${app.view.name.replace(/[^\p{L}\p{N}._-]+/gu, "-")}-${app.view.pane.modelName.replaceAll(" ", "-")}.${ending}`;

async function savePicture(app: App): Promise<void> {
  const content = await picture(app.view);
  if (!content) return app.fail("The picture could not be made: the browser gave no image.");
  download(content, fileName(app, "png"));
  app.say("The picture is saved.");
}

function saveDrawing(app: App): void {
  const { text, left } = drawing(app.view);
  download(new Blob([text], { type: "image/svg+xml" }), fileName(app, "svg"));
  app.say(left ? `The drawing is saved: ${left}.` : "The drawing is saved.");
}

async function copyLink(app: App): Promise<void> {
  const { address, without } = link(app);
  if (navigator.clipboard) {
    const copied = await navigator.clipboard.writeText(address).then(
      () => true,
      () => false,
    );
    const here = location.protocol === "file:" ? " It leads to this file, on this machine." : "";
    if (copied) return app.say(`The link is copied.${here} ${without}`);
  }
  history.replaceState(history.state, "", address);
  app.say(`The link is in the address bar. ${without}`);
}
