import { expect, test } from "vitest";
import * as S from "../src/sphere";
import { space } from "../src/space";
import { near, random } from "./helpers";

const any = random(5);
const unit = (): S.Vector => {
  const v = [any() - 0.5, any() - 0.5, any() - 0.5] as const;
  const length = Math.hypot(...v);
  return [v[0] / length, v[1] / length, v[2] / length];
};

test("between takes one to the other, and rotations keep angles", () => {
  for (let k = 0; k < 30; k++) {
    const [a, b, c] = [unit(), unit(), unit()];
    const turn = S.between(a, b);
    S.rotated(turn, a).forEach((x, j) => near(x, b[j]!, 1e-12));
    near(S.angle(S.rotated(turn, a), S.rotated(turn, c)), S.angle(a, c), 1e-12);
  }
});

test("multiply is one after the other", () => {
  const [p, q, v] = [S.about(unit(), 2), S.about(unit(), 1), unit()];
  const wanted = S.rotated(p, S.rotated(q, v));
  S.rotated(S.multiply(p, q), v).forEach((x, j) => near(x, wanted[j]!, 1e-12));
});

test("an arc begins and ends where it should, on the sphere, by the shorter way", () => {
  const [a, b] = [unit(), unit()];
  const arc = S.arc(a, b, 12);
  expect(arc).toHaveLength(13);
  [0, 12].forEach((k, end) => arc[k]!.forEach((x, j) => near(x, (end ? b : a)[j]!, 1e-12)));
  for (const v of arc) {
    near(Math.hypot(...v), 1, 1e-12);
    near(S.angle(a, v) + S.angle(v, b), S.angle(a, b), 1e-7);
  }
});

test("what is behind has no place, and comes to the front when it is centred", () => {
  const sphere = space("sphere", Float64Array.of(0, 0, -1, 1, 0, 0));
  expect(sphere.place(0)).toBeNull();
  sphere.centring(0)(1);
  const place = sphere.place(0)!;
  expect(Math.hypot(place.re, place.im)).toBeLessThan(1e-9);
});

test("the plane: a drag is a shift, a turn is about the middle", () => {
  const flat = space("flat", Float64Array.of(1, 0, 0, 2));
  flat.drag({ re: 0, im: 0 }, { re: 3, im: 1 });
  expect(flat.place(0)).toEqual({ re: 4, im: 1 });
  flat.rotate(Math.PI / 2);
  near(flat.place(0)!.re, -1);
  near(flat.place(0)!.im, 4);
  near(flat.distance(0, 1), Math.sqrt(5));
});
