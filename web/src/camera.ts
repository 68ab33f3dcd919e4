/** How places of a picture lie on the screen. */

import type { Complex } from "./hyperbolic";
import type { Pixel } from "./screen";
import type { Space } from "./space";

/** A place z is drawn at middle + scale·(z - centre), in pixels of the page. */
export interface Camera {
  x: number;
  y: number;
  scale: number;
}

const CLOSEST = 4096; // times nearer than all of it: there single precision ends
const FARTHEST = 4; // times farther

/** The camera that sees all of it. */
export function whole(space: Space, width: number, height: number): Camera {
  const side = Math.max(80, Math.min(width, height));
  if (space.model === 2) return { x: 0, y: 1.25, scale: 0.36 * Math.max(80, height) };
  return { x: 0, y: 0, scale: (0.47 * side) / space.reach };
}

/** Nearer or farther, where one place stays where it is. fitted: the scale at which all is seen. */
export function zoomed(camera: Camera, by: number, about: Complex, fitted: number): Camera {
  const scale = Math.min(CLOSEST * fitted, Math.max(fitted / FARTHEST, camera.scale * by));
  const shrunk = camera.scale / scale;
  return { x: about.re + (camera.x - about.re) * shrunk, y: about.im + (camera.y - about.im) * shrunk, scale };
}

export function toPlace({ x, y, scale }: Camera, width: number, height: number, at: Pixel): Complex {
  return { re: x + (at.x - width / 2) / scale, im: y - (at.y - height / 2) / scale };
}

export function toPixels({ x, y, scale }: Camera, width: number, height: number, z: Complex): Pixel {
  return { x: width / 2 + scale * (z.re - x), y: height / 2 - scale * (z.im - y) };
}
