/** Which points matter most: they are labelled first, drawn on top, and stay where not all can be drawn. */

import type { Atlas } from "./atlas";

/** From 0 to 1. With edges: by how many nodes lie below, or are linked. Without: by how near the middle a point is. */
export function importances(atlas: Atlas): Float32Array {
  const { count, edges } = atlas;
  const out = new Float32Array(count);
  if (edges.length) {
    const weights = atlas.meta.directed ? below(edges, count) : degrees(edges, count);
    const most = Math.log1p(weights.reduce((a, b) => Math.max(a, b), 0)) || 1;
    for (let i = 0; i < count; i++) out[i] = 0.9 * (Math.log1p(weights[i]!) / most);
  }
  // among equals the one nearest the middle: 0.1 of the scale, or all of it without edges
  const radius = atlas.columns.find((column) => column.name === "radius" && column.kind === "number")?.values;
  const far = radius ? radius.reduce((a, b) => (b > a ? b : a), 0) || 1 : 1;
  const part = edges.length ? 0.1 : 1;
  for (let i = 0; i < count; i++) {
    const share = radius ? 1 - radius[i]! / far : 1 - i / count;
    out[i] = out[i]! + part * (Number.isFinite(share) ? share : 0);
  }
  return out;
}

/** A key for points of which none matters more than another: any part of the order is spread evenly over all numbers. */
export const scattered = (i: number): number => (i * 0.6180339887498949) % 1;

/** Numbers in the order of their keys, least first. Sorting numbers is ten times as fast as comparing by a function:
 * the key goes into the upper bits of a double, the number into the lower ones. */
export function ordered(count: number, key: (i: number) => number): Uint32Array {
  const packed = new Float64Array(count);
  const room = 2 ** Math.ceil(Math.log2(Math.max(2, count)));
  const levels = 2 ** 52 / room;
  for (let i = 0; i < count; i++) packed[i] = Math.round(Math.min(1, Math.max(0, key(i))) * (levels - 1)) * room + i;
  packed.sort();
  return Uint32Array.from(packed, (value) => value % room);
}

function degrees(edges: Uint32Array, count: number): Float64Array {
  const out = new Float64Array(count);
  for (const end of edges) out[end]!++;
  return out;
}

/** Nodes below each node, by first parents. Cycles are left out: their nodes are never without children to wait for. */
function below(edges: Uint32Array, count: number): Float64Array {
  const parent = new Int32Array(count).fill(-1);
  const waiting = new Uint32Array(count);
  for (let k = 0; k < edges.length; k += 2) {
    const [child, up] = [edges[k]!, edges[k + 1]!];
    if (parent[child]! >= 0 || child === up) continue;
    parent[child] = up;
    waiting[up]!++;
  }
  const out = new Float64Array(count);
  const queue: number[] = [];
  for (let i = 0; i < count; i++) if (!waiting[i]) queue.push(i);
  for (const node of queue) {
    const up = parent[node]!;
    if (up < 0) continue;
    out[up]! += out[node]! + 1;
    if (--waiting[up]! === 0) queue.push(up);
  }
  return out;
}
