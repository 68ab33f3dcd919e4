import { expect, test } from "vitest";
import * as H from "../src/hyperbolic";
import { Hyperbolic } from "../src/space";
import { near, random } from "./helpers";

const any = random(3);
const direction = (): H.Complex => {
  const angle = 2 * Math.PI * any();
  return { re: Math.cos(angle), im: Math.sin(angle) };
};
const isometry = (far: number): H.Isometry =>
  H.compose(H.rotation(6 * any()), H.compose(H.translation(direction(), far * any()), H.rotation(6 * any())));
/** (X, Y) of points up to a radius. */
const points = (count: number, far: number): Float64Array => {
  const out = new Float64Array(2 * count);
  for (let i = 0; i < count; i++) {
    const { re, im } = direction();
    const r = Math.sinh(far * any());
    out.set([r * re, r * im], 2 * i);
  }
  return out;
};

/** The Lorentz matrix of a translation, by the formula: what the pairs do, in another way. */
function lorentz(u: H.Complex, length: number, [x, y, t]: readonly number[]): [number, number, number] {
  const [cosh, sinh] = [Math.cosh(length), Math.sinh(length)];
  const along = x! * u.re + y! * u.im;
  const more = (cosh - 1) * along + sinh * t!;
  return [x! + more * u.re, y! + more * u.im, sinh * along + cosh * t!];
}

test("moved is the Lorentz translation", () => {
  const xy = points(50, 4);
  const pairs = H.pairs(xy);
  for (let i = 0; i < 50; i++) {
    const [u, length] = [direction(), 3 * any()];
    const t = Math.sqrt(1 + xy[2 * i]! ** 2 + xy[2 * i + 1]! ** 2);
    const wanted = lorentz(u, length, [xy[2 * i]!, xy[2 * i + 1]!, t]);
    H.moved(H.translation(u, length), pairs, i).forEach((value, k) => near(value, wanted[k]!, 1e-12));
  }
});

test("rotation turns", () => {
  const pairs = H.pairs(Float64Array.of(2, 0));
  const [x, y] = H.moved(H.rotation(Math.PI / 3), pairs, 0);
  near(x, 2 * Math.cos(Math.PI / 3));
  near(y, 2 * Math.sin(Math.PI / 3));
});

test("compose is one after the other, and inverse undoes", () => {
  const pairs = H.pairs(points(20, 4));
  for (let i = 0; i < 20; i++) {
    const [f, g] = [isometry(4), isometry(4)];
    const [x, y] = H.moved(g, pairs, i);
    const wanted = H.moved(f, H.pairs(Float64Array.of(x, y)), 0);
    H.moved(H.compose(f, g), pairs, i).forEach((value, k) => near(value, wanted[k]!, 1e-11));
    const back = H.moved(H.compose(H.inverse(f), f), pairs, i);
    H.moved(H.IDENTITY, pairs, i).forEach((value, k) => near(back[k]!, value, 1e-11));
  }
});

test("carry takes one place to the other, and keeps the line between them", () => {
  for (let k = 0; k < 50; k++) {
    const [u, v] = [direction(), direction()];
    const [r, s] = [0.98 * any(), 0.98 * any()];
    const [from, to] = [
      { re: r * u.re, im: r * u.im },
      { re: s * v.re, im: s * v.im },
    ];
    const there = H.placed(H.carry(from, to), from);
    near(there.re, to.re, 1e-10);
    near(there.im, to.im, 1e-10);
  }
});

test("moveAll gives what moved gives, in single precision", () => {
  const pairs = H.pairs(points(40, 8));
  const [by, out] = [isometry(5), new Float32Array(120)];
  H.moveAll(by, pairs, out);
  for (let i = 0; i < 40; i++) {
    const [x, y, t] = H.moved(by, pairs, i);
    [x / t, y / t, 1 / t].forEach((value, k) => near(out[3 * i + k]!, value, 1e-6));
  }
});

test("distance does not change with an isometry, and is right for near points", () => {
  const xy = points(2, 3);
  const by = isometry(3);
  const moved = [0, 1].flatMap((i) => H.moved(by, H.pairs(xy), i).slice(0, 2));
  near(H.distance(H.pairs(Float64Array.from(moved)), 0, 1), H.distance(H.pairs(xy), 0, 1), 1e-10);
  near(H.distance(H.pairs(Float64Array.of(0, 0, Math.sinh(1e-9), 0)), 0, 1) / 1e-9, 1, 1e-7);
  near(H.distance(H.pairs(Float64Array.of(Math.sinh(25), 0, -Math.sinh(25), 0)), 0, 1), 50, 1e-12);
});

test("points of a geodesic lie on it: their distances to the ends add up", () => {
  const xy = points(2, 5);
  const pairs = H.pairs(xy);
  const klein = [0, 1].map((i) => {
    const [x, y, t] = H.moved(H.IDENTITY, pairs, i);
    return [x / t, y / t, 1 / t] as const;
  });
  const d = H.distance(pairs, 0, 1);
  for (const [x, y, w] of H.geodesic(klein[0]!, klein[1]!, Math.cosh(d), 16)) {
    const all = H.pairs(Float64Array.of(...xy, x / w, y / w));
    near(w, Math.sqrt(1 - x * x - y * y), 1e-7);
    near(H.distance(all, 0, 2) + H.distance(all, 2, 1), d, 1e-6);
  }
});

test("place and disk of each model undo each other", () => {
  for (const { place, disk, name } of H.MODELS) {
    const pairs = H.pairs(points(50, 3));
    for (let i = 0; i < 50; i++) {
      const [x, y, t] = H.moved(H.IDENTITY, pairs, i);
      const found = disk(place(x / t, y / t, 1 / t))!;
      expect(found, name).not.toBeNull();
      near(found.re, x / (1 + t), 1e-10);
      near(found.im, y / (1 + t), 1e-10);
    }
  }
  expect(H.MODELS[0]!.disk({ re: 1, im: 0.1 })).toBeNull();
  expect(H.MODELS[2]!.disk({ re: 0, im: -1 })).toBeNull();
});

test("the half-plane keeps its digits where the rim goes to infinity", () => {
  const [x, y, t] = H.moved(H.IDENTITY, H.pairs(Float64Array.of(Math.sinh(18), 0)), 0);
  near(H.MODELS[2]!.place(x / t, y / t, 1 / t).im / Math.exp(18), 1, 1e-12);
});

test("a walk by hand out to radius 12 and back leaves every point where it was", () => {
  const space = new Hyperbolic(points(200, 12));
  const before = Array.from({ length: 200 }, (_, i) => space.place(i));
  const [here, there] = [
    { re: 0, im: 0 },
    { re: -0.31, im: 0.17 },
  ];
  let steps = 0;
  while (
    Math.asinh(2 * Math.hypot(space.view.b.re, space.view.b.im) * Math.hypot(space.view.a.re, space.view.a.im)) < 12
  ) {
    space.drag(here, there);
    steps++;
  }
  expect(steps).toBeGreaterThan(10);
  for (let k = 0; k < steps; k++) space.drag(there, here);
  before.forEach((place, i) => {
    const now = space.place(i);
    expect(Math.hypot(now.re - place.re, now.im - place.im)).toBeLessThan(1e-6);
  });
});

test("centring brings a point to the middle, however far out", () => {
  const space = new Hyperbolic(Float64Array.of(Math.sinh(28), 3));
  space.centring(0)(1);
  const { re, im } = space.place(0);
  expect(Math.hypot(re, im)).toBeLessThan(1e-2); // e^28 · 1e-16: one step back from there is exact again
});

test("the state of a view keeps all its digits", () => {
  const space = new Hyperbolic(points(3, 3));
  space.view = isometry(9);
  const other = new Hyperbolic(points(3, 3));
  other.restore(space.state().map((x) => Number(String(x))));
  space.state().forEach((value, k) => near(other.state()[k]!, value, 1e-15));
});
