/** Elements made by script. Whatever text is given stays text. */

type Child = Node | string | null | undefined | false;
type Handlers = { [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void };
type Attributes = Record<string, string | number | boolean | null | undefined>;

/** h("button", { class: "tool", on: { click } }, "Move") */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  { on = {}, ...attributes }: { on?: Handlers } & Record<string, unknown> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes as Attributes)) {
    if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const [name, handler] of Object.entries(on)) element.addEventListener(name, handler as EventListener);
  element.append(
    ...children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false),
  );
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** Strokes on a grid of 20. */
const ICONS = {
  move: "M10 2v16M2 10h16M7.5 4.5 10 2l2.5 2.5M7.5 15.5 10 18l2.5-2.5M4.5 7.5 2 10l2.5 2.5M15.5 7.5 18 10l-2.5 2.5",
  lasso:
    "M6 13c-2-1-3.500-2.500-3.500-4.500C2.500 5.500 6 3.500 10 3.500s7.500 2 7.500 5-3.500 5-7.500 5c-1.500 0-2.500-.2-3.500-.5M6 13a1.500 1.500 0 1 0 1 2c.3.800 0 1.800-1 2.500",
  box: "M3 6V3h3M9 3h2M14 3h3v3M17 9v2M17 14v3h-3M11 17H9M6 17H3v-3M3 11V9",
  edges:
    "M5 15 10 5l5 10M10 5v0M5 15v0M15 15v0M8.500 5a1.500 1.500 0 1 0 3 0 1.500 1.500 0 1 0-3 0M3.500 15a1.500 1.500 0 1 0 3 0 1.500 1.500 0 1 0-3 0M13.500 15a1.500 1.500 0 1 0 3 0 1.500 1.500 0 1 0-3 0",
  labels: "M4 16 10 4l6 12M6.500 11.500h7",
  cones: "M4 10 16 3M4 10l12 7M16 3c2 4 2 10 0 14",
  left: "M4 4v4h4M4.500 8A7 7 0 1 1 3.500 12",
  right: "M16 4v4h-4M15.500 8A7 7 0 1 0 16.500 12",
  reset: "M3 8V3h5M17 8V3h-5M3 12v5h5M17 12v5h-5",
  plus: "M10 4v12M4 10h12",
  minus: "M4 10h12",
  light:
    "M10 6.500a3.500 3.500 0 1 0 0 7 3.500 3.500 0 1 0 0-7M10 2v1.500M10 16.500V18M2 10h1.500M16.500 10H18M4.300 4.300l1.100 1.100M14.600 14.600l1.100 1.100M15.700 4.300l-1.100 1.100M5.400 14.600l-1.100 1.100",
  dark: "M16 12A7 7 0 1 1 8 4a5.500 5.500 0 0 0 8 8",
} as const;

export type Icon = keyof typeof ICONS;

export function icon(name: Icon): SVGElement {
  const svg = document.createElementNS(SVG, "svg");
  const path = document.createElementNS(SVG, "path");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** Something to press that stays pressed or not. */
export function setPressed(button: HTMLElement, pressed: boolean): void {
  button.setAttribute("aria-pressed", String(pressed));
}

/** A file from the page to its reader. */
export function download(content: Blob, name: string): void {
  const link = h("a", { href: URL.createObjectURL(content), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** 1,234 */
export const grouped = (n: number): string => n.toLocaleString("en");

/** Numbers as one reads them: four digits that matter. */
export function short(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return grouped(value);
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-4 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

/** With a capital letter and a full stop. */
export const sentence = (text: string): string =>
  text && `${text[0]!.toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

export const plural = (n: number, one: string, many = `${one}s`): string => `${grouped(n)} ${n === 1 ? one : many}`;
