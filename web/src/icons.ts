/** Pictures on buttons. */

const SVG = "http://www.w3.org/2000/svg";

/** Strokes on a grid of 20. */
const ICONS = {
  move:
    "M10 2v16M2 10h16M7.5 4.5 10 2l2.5 2.5M7.5 15.5 10 18l2.5-2.5M4.5 7.5 2 10l2.5 2.5M15.5 7.5 18 10" + "l-2.5 2.5",
  lasso:
    "M6 13c-2-1-3.5-2.5-3.5-4.5C2.5 5.5 6 3.5 10 3.5s7.5 2 7.5 5-3.5 5-7.5 5" +
    "c-1.5 0-2.5-.2-3.5-.5M6 13a1.5 1.5 0 1 0 1 2c.3.8 0 1.8-1 2.5",
  box: "M3 6V3h3M9 3h2M14 3h3v3M17 9v2M17 14v3h-3M11 17H9M6 17H3v-3M3 11V9",
  edges:
    "M5 15 10 5l5 10M10 5v0M5 15v0M15 15v0M8.5 5a1.5 1.5 0 1 0 3 0 1.5 1.5 0 1 0-3 0M3.5 15" +
    "a1.5 1.5 0 1 0 3 0 1.5 1.5 0 1 0-3 0M13.5 15a1.5 1.5 0 1 0 3 0 1.5 1.5 0 1 0-3 0",
  labels: "M4 16 10 4l6 12M6.5 11.5h7",
  cones: "M4 10 16 3M4 10l12 7M16 3c2 4 2 10 0 14",
  left: "M4 4v4h4M4.5 8A7 7 0 1 1 3.5 12",
  right: "M16 4v4h-4M15.5 8A7 7 0 1 0 16.5 12",
  reset: "M3 8V3h5M17 8V3h-5M3 12v5h5M17 12v5h-5",
  plus: "M10 4v12M4 10h12",
  minus: "M4 10h12",
  light:
    "M10 6.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 1 0 0-7M10 2v1.5M10 16.5V18M2 10h1.5M16.5 10" +
    "H18M4.3 4.3l1.1 1.1M14.6 14.6l1.1 1.1M15.7 4.3l-1.1 1.1M5.4 14.6" +
    "l-1.1 1.1",
  dark: "M16 12A7 7 0 1 1 8 4a5.5 5.5 0 0 0 8 8",
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
