/** The page's geometry against values that Python wrote into the file HOROSPHERE_GEOMETRY names. */

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import * as H from "../src/hyperbolic";

type Pair = [number, number];

interface Values {
  isometries: { a: Pair; b: Pair; points: Pair[]; moved: Pair[]; disk: Pair[]; klein: Pair[]; halfplane: Pair[] }[];
  distances: { x: Pair; y: Pair; d: number }[];
  geodesics: { x: Pair; y: Pair; t: number; point: Pair }[];
}

const file = process.env.HOROSPHERE_GEOMETRY;
const values = file ? (JSON.parse(readFileSync(file, "utf8")) as Values) : null;

function agree(found: readonly number[], wanted: readonly number[], what: string): void {
  const size = Math.max(1, Math.hypot(...wanted));
  const apart = Math.hypot(...wanted.map((value, k) => value - found[k]!));
  expect(apart, `${what}: ${found.join(", ")} for ${wanted.join(", ")}`).toBeLessThanOrEqual(1e-9 * size);
}

const complex = ([re, im]: Pair): H.Complex => ({ re, im });

describe.skipIf(!values)("page and Python agree", () => {
  test("isometries and models", () => {
    for (const { a, b, points, moved, disk, klein, halfplane } of values!.isometries) {
      const pairs = H.pairs(Float64Array.from(points.flat()));
      points.forEach((_, i) => {
        const [x, y, t] = H.moved({ a: complex(a), b: complex(b) }, pairs, i);
        agree([x, y], moved[i]!, "moved");
        [disk, klein, halfplane].forEach((places, model) => {
          const { re, im } = H.MODELS[model]!.place(x / t, y / t, 1 / t);
          agree([re, im], places[i]!, H.MODELS[model]!.name);
        });
      });
    }
  });

  test("distances", () => {
    for (const { x, y, d } of values!.distances)
      agree([H.distance(H.pairs(Float64Array.of(...x, ...y)), 0, 1)], [d], "distance");
  });

  test("geodesics", () => {
    for (const { x, y, t, point } of values!.geodesics) agree(along(x, y, t), point, "geodesic");
  });
});

/** The point at a share t of the way. */
function along(x: Pair, y: Pair, t: number): Pair {
  const pairs = H.pairs(Float64Array.of(...x, ...y));
  const d = H.distance(pairs, 0, 1);
  const [from, to] = [0, 1].map((i) => {
    const [X, Y, T] = H.moved(H.IDENTITY, pairs, i);
    return [X / T, Y / T, 1 / T] as const;
  });
  // sinh((1-t)d) A + sinh(td) B on the hyperboloid; in Klein coordinates the weights are divided by w
  const [r, s] = [Math.sinh((1 - t) * d) / from![2], Math.sinh(t * d) / to![2]];
  // from the end that weighs more: 1 - s has no digits left where s is nearly 1
  const [begin, end, share] = r < s ? [to!, from!, r / (r + s)] : [from!, to!, d > 0 ? s / (r + s) : t];
  const [X, Y, w] = H.between(begin, end, Math.cosh(d), share);
  return [X / w, Y / w];
}
