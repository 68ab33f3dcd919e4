/** Light and dark: what the canvases are drawn with. The page's own colours are in the style sheet. */

export interface Theme {
  name: "light" | "dark";
  paper: [number, number, number];
  ink: string;
  muted: string;
  line: string;
  accent: string;
}

export const THEMES: Record<"light" | "dark", Theme> = {
  light: {
    name: "light",
    paper: [255, 255, 255],
    ink: "#1d2530",
    muted: "#566170",
    line: "#b9c2cd",
    accent: "#b3261e",
  },
  dark: { name: "dark", paper: [18, 22, 29], ink: "#e8ebf0", muted: "#a3adba", line: "#46505e", accent: "#ff8a7a" },
};

export const systemTheme = (): "light" | "dark" =>
  matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
