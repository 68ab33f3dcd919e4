import { expect, test } from "vitest";
import { cell, csv } from "../src/csv";
import { short } from "../src/dom";
import { Effort } from "../src/effort";
import { counted } from "../src/histogram";
import { importances, ordered, scattered } from "../src/importance";
import { placeLabels, shortened } from "../src/labels";
import { Look } from "../src/look";
import { inPolygon, nearest, within } from "../src/screen";
import { folded, search } from "../src/search";
import { packed, read, type State, unpacked, write } from "../src/state";
import { escaped } from "../src/svg";
import { atlasOf, random } from "./helpers";

test("labels do not cover each other, and stay on the sheet", () => {
  const any = random(7);
  const candidates = Array.from({ length: 500 }, (_, node) => ({ node, x: 600 * any(), y: 400 * any(), gap: 8 }));
  const sheet = { width: 600, height: 15, most: 80, measure: (text: string) => 7 * text.length };
  const placed = placeLabels(candidates, (node) => `label ${node}`, sheet);
  expect(placed.length).toBeGreaterThan(40);
  expect(placed.length).toBeLessThanOrEqual(80);
  expect(placed[0]!.node).toBe(0);
  for (const a of placed) {
    expect(a.x + 7 * a.text.length).toBeLessThanOrEqual(600);
    for (const b of placed) {
      if (a === b) continue;
      const apart = a.x + 7 * a.text.length <= b.x || b.x + 7 * b.text.length <= a.x || Math.abs(a.y - b.y) >= 15;
      expect(apart).toBe(true);
    }
  }
});

test("long labels are cut, and lines made one", () => {
  expect(shortened("a\n b")).toBe("a b");
  expect(shortened("x".repeat(40))).toHaveLength(32);
});

test("a polygon holds what is inside, also where it is not convex", () => {
  const bay = [
    [0, 0],
    [10, 0],
    [10, 10],
    [5, 3],
    [0, 10],
  ].map(([re, im]) => ({ re: re!, im: im! }));
  expect(inPolygon(5, 2, bay)).toBe(true);
  expect(inPolygon(5, 8, bay)).toBe(false);
  expect(inPolygon(1, 6, bay)).toBe(true);
  expect(within(Float32Array.of(5, 2, 5, 8, NaN, 3, 1, 6), Uint8Array.of(1, 1, 1, 0), bay)).toEqual([0]);
});

test("the nearest is the most important of those that are as near, and never a hidden one", () => {
  const screen = Float32Array.of(100, 100, 101, 100, 100, 100, 300, 300);
  const importance = Float32Array.of(0.1, 0.9, 1, 1);
  expect(nearest(screen, Uint8Array.of(1, 1, 0, 1), importance, 100, 100)).toBe(1);
  expect(nearest(screen, Uint8Array.of(1, 1, 1, 1), importance, 200, 200)).toBeNull();
});

test("CSV: quoted by RFC 4180, and no formula", () => {
  expect(cell('say "a", b')).toBe('"say ""a"", b"');
  expect(["=1+1", "+1", "-1", "@x", "\tx"].map(cell)).toEqual(["'=1+1", "'+1", "'-1", "'@x", "'\tx"]);
  expect(cell("\rx")).toBe('"\'\rx"');
  expect([cell(-1.5), cell(NaN), cell("two\nlines")]).toEqual(["-1.5", "", '"two\nlines"']);
  expect(
    csv([
      ["a", 1],
      ["b", 2],
    ]),
  ).toBe("a,1\r\nb,2\r\n");
});

test("SVG: labels are text", () => {
  expect(escaped('<script>alert("1 & 2")</script>')).toBe("&lt;script&gt;alert(&quot;1 &amp; 2&quot;)&lt;/script&gt;");
  expect(escaped("a\u0000b\u000bc")).toBe("abc");
});

const STATE: State = {
  views: [
    {
      chart: "tree layout",
      plane: [],
      model: 2,
      moved: [1.2345678901234567, -1e-17, 12345.678901234567, 0.1 + 0.2],
      camera: [0.1, -3.3333333333333335, 7],
      colour: "depth & <b>",
      size: "radius",
      filters: '[[["branch",[1,2]]],[["radius",[0.5,2.25]]]]',
      focus: 0,
      selection: [3, 4, 5, 6, 90, 1000],
      omitted: 0,
    },
    {
      chart: "",
      plane: [4, 17],
      model: 0,
      moved: [],
      camera: [],
      colour: "-",
      size: "",
      filters: "",
      focus: null,
      selection: [],
      omitted: 0,
    },
  ],
  active: 1,
  search: "größe = 1&2",
  without: "ec",
  theme: "dark",
};

test("what is written into the address is read from it, with all digits", () => {
  expect(read(write(STATE), 2)).toEqual(STATE);
});

test("a large selection is left out of the address, and said so", () => {
  const selection = Array.from({ length: 5000 }, (_, k) => 7 * k * (k % 5));
  const text = write({ ...STATE, views: [{ ...STATE.views[0]!, selection }] });
  expect(text.length).toBeLessThan(5000);
  expect(read(text, 1).views[0]).toMatchObject({ selection: [], omitted: 5000 });
});

test("a selection of many that follow each other is short", () => {
  const run = Array.from({ length: 80_000 }, (_, k) => k + 5);
  expect(packed(run)).toBe("5*1pq7");
  expect(unpacked(packed([9, 2, 3, 1000]))).toEqual([2, 3, 9, 1000]);
  expect(unpacked("!nonsense")).toEqual([]);
  expect(unpacked("0*zzzzz.0*zzzzz").length).toBeLessThanOrEqual(1); // no address fills the memory
});

test("nonsense in the address is as nothing", () => {
  const { views, active, theme } = read("0.moved=a,b&0.camera=1,,x&0.focus=-3&active=9&theme=pink&0.selection=%%", 1);
  expect(views[0]).toMatchObject({ moved: [], camera: [], focus: null, selection: [] });
  expect([active, theme]).toEqual([0, "system"]);
});

test("search: exact, then beginnings, then words, then the rest; short before long", () => {
  const labels = ["housecat", "cat house", "a cat", "cat", "catalog", "dog"];
  const { nodes, total } = search(labels, [], " CAT ", 10);
  expect(nodes.map((i) => labels[i])).toEqual(["cat", "catalog", "cat house", "a cat", "housecat"]);
  expect(total).toBe(5);
  expect(search(labels, [], "cat", 2).nodes).toEqual([3, 4]);
  expect(search([folded("Hüte"), folded("Öfen")], [], "ofen", 2).nodes).toEqual([1]);
  expect(search(labels, [], "  ", 2)).toEqual({ nodes: [], total: 0 });
  expect(search(["a", "b"], ["A cat.", "no"], "cat", 5).nodes).toEqual([0]);
});

test("a histogram counts every number once, and nothing that is missing", () => {
  const { all, part } = counted(Float32Array.of(0, 1, 2, 3, 4, NaN), 0, 4, 4, (i) => i > 2);
  expect([...all]).toEqual([1, 1, 1, 2]);
  expect([...part]).toEqual([0, 0, 0, 2]);
});

test("numbers are sorted by their keys", () => {
  const any = random(2);
  const keys = Array.from({ length: 1000 }, any);
  const order = ordered(1000, (i) => keys[i]!);
  for (let k = 1; k < 1000; k++) expect(keys[order[k]!]!).toBeGreaterThanOrEqual(keys[order[k - 1]!]! - 1e-9);
  expect(new Set(order).size).toBe(1000);
});

test("without edges any part of the order is a fair sample", () => {
  const part = [...ordered(10_000, scattered)].slice(-1000);
  for (let tenth = 0; tenth < 10; tenth++) {
    const there = part.filter((i) => Math.floor(i / 1000) === tenth).length;
    expect(Math.abs(there - 100)).toBeLessThan(5);
  }
});

test("who has more below matters more; a cycle does no harm", async () => {
  const tree = await atlasOf(["root", "a", "b", "a1", "a2"], [1, 0, 2, 0, 3, 1, 4, 1]);
  const [root, a, b, a1] = importances(tree);
  expect(root).toBeGreaterThan(a!);
  expect(a).toBeGreaterThan(b!);
  expect(a).toBeGreaterThan(a1!);
  const cycle = await atlasOf(["x", "y"], [0, 1, 1, 0]);
  expect([...importances(cycle)].every(Number.isFinite)).toBe(true);
});

test("filters hide, legends count, missing numbers are grey", async () => {
  const arrays = {
    kind: Float32Array.of(1, 1, 0, 2).buffer as ArrayBuffer,
    size: Float32Array.of(1, NaN, 3, 4).buffer as ArrayBuffer,
  };
  const columns = [
    { name: "kind", kind: "category" as const, array: "kind", names: ["", "cat", "dog"] },
    { name: "size", kind: "number" as const, array: "size" },
  ];
  const atlas = await atlasOf(["a", "b", "c", "d"], [], { meta: { columns }, arrays });
  const look = new Look(atlas);
  const [kind, size] = [atlas.columns[0]!, atlas.columns[1]!];
  expect(look.legend(kind).map(({ name, count }) => [name, count])).toEqual([
    ["cat", 2],
    ["", 1],
    ["dog", 1],
  ]);
  look.hide(kind, [2], true);
  look.setRange(size, [0, 3.5]);
  look.colourBy = size;
  look.update();
  expect([...look.shown]).toEqual([1, 0, 1, 0]);
  const other = new Look(atlas);
  other.restore(look.state());
  other.update();
  expect([...other.shown]).toEqual([1, 0, 1, 0]);
  expect(other.filters()).toEqual(["kind", "size"]);
  look.clearFilters();
  look.update();
  expect([...look.colours.subarray(4, 7)]).toEqual([150, 150, 150]);
});

test("numbers as one reads them", () => {
  expect([short(1234567), short(0.000012345), short(3.14159), short(NaN)]).toEqual([
    "1,234,567",
    "1.23e-5",
    "3.142",
    "–",
  ]);
});

test("as much is drawn as the card manages in the time", () => {
  const effort = new Effort();
  const before = effort.moving;
  effort.begin(0, 60_000);
  effort.end(600); // 100 vertices in a millisecond
  expect(effort.moving).toBe(20_000); // never less
  expect(effort.resting).toBe(100_000);
  for (let k = 0; k < 20; k++) {
    effort.begin(0, 1_000_000);
    effort.end(1);
  }
  expect(effort.moving).toBeGreaterThan(20 * before);
  expect(effort.frames).toHaveLength(21);
});
