/** What the address of the page says, so that a link shows the same picture. Numbers keep all their digits. */

export interface ViewState {
  chart: string;
  /** Two nodes, where the chart is a plane through them. */
  plane: number[];
  model: number;
  /** How the space was moved, as `Space.state` gives it. */
  moved: number[];
  camera: number[];
  colour: string;
  size: string;
  filters: string;
  focus: number | null;
  selection: number[];
  /** Selected nodes that were too many for an address. */
  omitted: number;
}

export interface State {
  views: ViewState[];
  active: number;
  search: string;
  /** Layers that are not shown: e, l, c. */
  without: string;
  theme: string;
}

const LONGEST = 4_000; // letters of a selection
const MOST = 1_000_000; // nodes of it

export function write({ views, active, search, without, theme }: State): string {
  const out = new URLSearchParams();
  const put = (name: string, value: string): void => {
    if (value) out.set(name, value);
  };
  views.forEach((view, i) => {
    const selection = packed(view.selection);
    const fits = selection.length <= LONGEST;
    put(`${i}.chart`, view.plane.length ? "" : view.chart);
    put(`${i}.plane`, view.plane.join(","));
    put(`${i}.model`, view.model ? String(view.model) : "");
    put(`${i}.moved`, view.moved.join(","));
    put(`${i}.camera`, view.camera.join(","));
    put(`${i}.colour`, view.colour);
    put(`${i}.size`, view.size);
    put(`${i}.filters`, view.filters);
    put(`${i}.focus`, view.focus === null ? "" : String(view.focus));
    put(`${i}.selection`, fits ? selection : "");
    put(`${i}.omitted`, fits ? (view.omitted ? String(view.omitted) : "") : String(view.selection.length));
  });
  put("active", active ? String(active) : "");
  put("search", search);
  put("without", without);
  put("theme", theme === "system" ? "" : theme);
  return out.toString();
}

export function read(text: string, count: number): State {
  const from = new URLSearchParams(text);
  const get = (name: string): string => from.get(name) ?? "";
  const views = Array.from({ length: count }, (_, i): ViewState => {
    const focus = get(`${i}.focus`);
    return {
      chart: get(`${i}.chart`),
      plane: numbers(get(`${i}.plane`)),
      model: Number(get(`${i}.model`)) || 0,
      moved: numbers(get(`${i}.moved`)),
      camera: numbers(get(`${i}.camera`)),
      colour: get(`${i}.colour`),
      size: get(`${i}.size`),
      filters: get(`${i}.filters`),
      focus: /^\d+$/.test(focus) ? Number(focus) : null,
      selection: unpacked(get(`${i}.selection`)),
      omitted: Number(get(`${i}.omitted`)) || 0,
    };
  });
  const active = Number(get("active"));
  const theme = get("theme");
  return {
    views,
    active: active > 0 && active < count ? Math.floor(active) : 0,
    search: get("search"),
    without: get("without"),
    theme: theme === "light" || theme === "dark" ? theme : "system",
  };
}

const numbers = (text: string): number[] => {
  const out = text ? text.split(",").map(Number) : [];
  return out.every(Number.isFinite) ? out : [];
};

/** Steps from each number to the next, in base 36: a run of n neighbours is "1*n". */
export function packed(nodes: number[]): string {
  const sorted = [...nodes].sort((a, b) => a - b);
  const out: string[] = [];
  for (let k = 0; k < sorted.length; k++) {
    let run = 0;
    while (k + run + 1 < sorted.length && sorted[k + run + 1] === sorted[k + run]! + 1) run++;
    out.push((sorted[k]! - (k ? sorted[k - 1]! : 0)).toString(36) + (run ? `*${run.toString(36)}` : ""));
    k += run;
  }
  return out.join(".");
}

export function unpacked(text: string): number[] {
  const out: number[] = [];
  let last = 0;
  for (const part of text ? text.split(".") : []) {
    const [step, run] = part.split("*").map((digits) => parseInt(digits, 36));
    if (!(step! >= 0) || out.length + (run ?? 0) > MOST) return out;
    last += step!;
    out.push(last);
    for (let k = 0; k < (run ?? 0); k++) out.push(++last);
  }
  return out;
}
