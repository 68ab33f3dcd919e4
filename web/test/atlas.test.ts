import { expect, test } from "vitest";
import { orthonormal } from "../src/atlas";
import { atlasOf, near } from "./helpers";

//        root
//       /    \
//    mammal  bird      platypus is below mammal and below bird
//    /  \   /   \
//  dog platypus  owl
const LABELS = ["root", "mammal", "bird", "dog", "platypus", "owl"];
const EDGES = [1, 0, 2, 0, 3, 1, 4, 1, 4, 2, 5, 2];

test("relations in a graph with a direction", async () => {
  const atlas = await atlasOf(LABELS, EDGES);
  const relation = (a: string, b: string): string => atlas.relation(atlas.find(a), atlas.find(b));
  expect(relation("dog", "mammal")).toBe("parent");
  expect(relation("mammal", "dog")).toBe("child");
  expect(relation("dog", "root")).toBe("ancestor");
  expect(relation("root", "owl")).toBe("descendant");
  expect(relation("owl", "platypus")).toBe("sibling");
  expect(relation("dog", "owl")).toBe("");
  expect(atlas.parents(4)).toEqual([1, 2]);
  expect(atlas.children(2)).toEqual([4, 5]);
  expect([atlas.degree(0), atlas.degree(4)]).toEqual([2, 2]);
});

test("paths go up by first parents, subtrees go down; a cycle ends", async () => {
  const atlas = await atlasOf(LABELS, EDGES);
  expect(atlas.path(4)).toEqual([4, 1, 0]);
  expect(atlas.path(0)).toEqual([0]);
  expect(atlas.subtree(2).sort()).toEqual([2, 4, 5]);
  const cycle = await atlasOf(["a", "b", "c"], [0, 1, 1, 2, 2, 0]);
  expect(cycle.path(0)).toEqual([0, 1, 2]);
  expect(cycle.subtree(0).sort()).toEqual([0, 1, 2]);
});

test("without a direction there are only links", async () => {
  const atlas = await atlasOf(["a", "b", "c"], [0, 1, 2, 1], { meta: { directed: false } });
  expect([atlas.relation(0, 1), atlas.relation(1, 0), atlas.relation(0, 2)]).toEqual(["linked", "linked", ""]);
  expect(atlas.path(0)).toEqual([0]);
  expect(atlas.subtree(1).sort()).toEqual([0, 1, 2]);
});

test("of equal labels the first is found", async () => {
  const atlas = await atlasOf(["x", "same", "same"], []);
  expect([atlas.find("same"), atlas.find("none")]).toEqual([1, -1]);
});

test("orthonormal", () => {
  const [u, v] = orthonormal(Float64Array.of(3, 0, 4), Float64Array.of(1, 2, 3));
  const dot = (a: Float64Array, b: Float64Array): number => a.reduce((sum, x, k) => sum + x * b[k]!, 0);
  near(dot(u, u), 1);
  near(dot(v, v), 1);
  near(dot(u, v), 0);
});

test("a plane through two nodes keeps radii, and what lies on the plane", async () => {
  const logs = Float32Array.of(0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3);
  const atlas = await atlasOf(["o", "a", "b", "c"], [], {
    meta: { logs: { array: "logs", dim: 3 } },
    arrays: { logs: logs.buffer as ArrayBuffer },
  });
  const plane = await atlas.through(1, 2);
  const space = await atlas.chart(plane);
  [1, 2, 3].forEach((node) => near(space.distance(0, node), node, 1e-6));
  near(Math.cosh(space.distance(1, 2)), Math.cosh(1) * Math.cosh(2), 1e-6); // at a right angle
  expect(atlas.charts).toContain(plane);
  expect(atlas.planes.get(plane.name)).toEqual([1, 2]);
});

test("distortion: none where the chart is the truth, known where it is half of it", async () => {
  const points = Float64Array.of(0, 0, Math.sinh(1), 0, 0, Math.sinh(2));
  const anchors = Float32Array.of(0, 2, 4);
  const atlas = await atlasOf(["o", "a", "b"], [], {
    meta: { anchors: { numbers: [0], array: "anchors" } },
    arrays: { points: points.buffer as ArrayBuffer, anchors: anchors.buffer as ArrayBuffer },
  });
  const { values } = (await atlas.distortion(atlas.charts[0]!))!;
  near(values[1]!, 0.5, 1e-6);
  near(values[2]!, 0.5, 1e-6);
  expect(values[0]).toBeNaN(); // its only anchor is itself
});
