import { expect } from "vitest";
import { Atlas } from "../src/atlas";
import type { AtlasMeta, Source } from "../src/source";

/** Numbers from 0 to 1 that are the same in every run. */
export function random(seed = 1): () => number {
  let state = seed;
  return () => {
    state = (state * 48271) % 2147483647;
    return state / 2147483647;
  };
}

/** Near, relative to its size where it is large. */
export function near(found: number, wanted: number, tolerance = 1e-9): void {
  expect(Math.abs(found - wanted), `${found} for ${wanted}`).toBeLessThanOrEqual(
    tolerance * Math.max(1, Math.abs(wanted)),
  );
}

/** An atlas from arrays: what a source would give. */
export async function atlasOf(
  labels: string[],
  edges: number[],
  { meta = {}, arrays = {} }: { meta?: Partial<AtlasMeta>; arrays?: Record<string, ArrayBuffer> } = {},
): Promise<Atlas> {
  const points = Float64Array.from({ length: 2 * labels.length }, (_, k) => Math.sin(k));
  const all: Record<string, ArrayBuffer> = {
    labels: new TextEncoder().encode(JSON.stringify(labels)).buffer as ArrayBuffer,
    edges: Uint32Array.from(edges).buffer as ArrayBuffer,
    points: points.buffer as ArrayBuffer,
    ...arrays,
  };
  const source: Source = {
    meta: () => Promise.reject(new Error("not asked")),
    array: (_, name) => Promise.resolve(all[name]!),
    neighbours: () => Promise.resolve({ numbers: [], distances: [] }),
    thumbnail: () => Promise.resolve(null),
  };
  const atlas = new Atlas(source, 0, {
    name: "trial",
    count: labels.length,
    geometry: "hyperbolic",
    directed: true,
    charts: [{ name: "chart", kind: "hyperbolic", array: "points", unit: 1, note: "" }],
    columns: [],
    edges: edges.length ? "edges" : null,
    logs: null,
    anchors: null,
    nearest: null,
    neighbours: true,
    thumbnails: false,
    aperture: null,
    colour: null,
    ...meta,
  });
  await atlas.load();
  return atlas;
}
