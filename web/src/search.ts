/** Search as one types: the best first, without an object for each hit. */

export interface Hits {
  nodes: number[];
  /** Of all that were found. */
  total: number;
}

const INSIDE = 3;
const LETTER = /[\p{L}\p{N}]/u;

/** Small letters without marks: whoever has no ü on the keyboard finds it by u. */
export const folded = (text: string): string => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();

/** Exact labels, then those that begin with the text, then words that do, then any; short ones before long ones.
 * Where labels give too few, texts that hold it follow. lower: labels, folded. */
export function search(lower: string[], texts: string[], text: string, most: number): Hits {
  const wanted = folded(text.trim());
  const nodes: number[] = [];
  const scores: number[] = [];
  let total = 0;
  if (!wanted) return { nodes, total };
  for (let i = 0; i < lower.length; i++) {
    const at = lower[i]!.indexOf(wanted);
    if (at < 0) continue;
    total++;
    insert(nodes, scores, i, 1e6 * rank(lower[i]!, wanted, at) + Math.min(lower[i]!.length, 1e6 - 1), most);
  }
  for (let i = 0; i < texts.length && nodes.length < most; i++) {
    if (lower[i]!.includes(wanted) || !folded(texts[i]!).includes(wanted)) continue;
    total++;
    nodes.push(i);
  }
  return { nodes, total };
}

function rank(label: string, wanted: string, at: number): number {
  if (at === 0) return label.length === wanted.length ? 0 : 1;
  return LETTER.test(label[at - 1]!) ? INSIDE : 2;
}

function insert(nodes: number[], scores: number[], node: number, score: number, most: number): void {
  if (nodes.length === most && score >= scores[most - 1]!) return;
  let at = scores.length;
  while (at > 0 && scores[at - 1]! > score) at--;
  nodes.splice(at, 0, node);
  scores.splice(at, 0, score);
  nodes.length = scores.length = Math.min(most, nodes.length);
}
