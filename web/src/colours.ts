/** Colours that people with any colour vision can tell apart, in light and dark. */

export type Colour = readonly [number, number, number];

/** Okabe and Ito's, without black and with the yellow darkened: it must be seen on white. */
export const CATEGORIES: readonly Colour[] = [
  [0, 114, 178],
  [230, 159, 0],
  [0, 158, 115],
  [204, 121, 167],
  [213, 94, 0],
  [86, 180, 233],
  [184, 164, 12],
  [120, 94, 240],
];

export const OTHER: Colour = [150, 150, 150];

/** Viridis at nine places. */
const SCALE: readonly Colour[] = [
  [68, 1, 84],
  [71, 44, 122],
  [59, 81, 139],
  [44, 113, 142],
  [33, 144, 141],
  [39, 173, 129],
  [92, 200, 99],
  [170, 220, 50],
  [253, 231, 37],
];

/** The colour of a share from 0 to 1. */
export function shade(share: number): Colour {
  const at = Math.min(1, Math.max(0, share)) * (SCALE.length - 1);
  const low = Math.min(SCALE.length - 2, Math.floor(at));
  const [a, b, part] = [SCALE[low]!, SCALE[low + 1]!, at - low];
  return [0, 1, 2].map((k) => Math.round(a[k]! + part * (b[k]! - a[k]!))) as unknown as Colour;
}

export const css = ([r, g, b]: Colour, alpha = 1): string => `rgb(${r} ${g} ${b} / ${alpha})`;
