/** A PNG of a map as it is seen, in all its pixels. */

import type { Pane } from "./pane";

export function picture(pane: Pane): Promise<Blob | null> {
  const { canvas, overlay } = pane;
  const sheet = document.createElement("canvas");
  sheet.width = canvas.width;
  sheet.height = canvas.height;
  pane.draw(pane.effort.resting); // as it is seen; what was drawn before is gone from the card
  const pen = sheet.getContext("2d")!;
  pen.drawImage(canvas, 0, 0);
  pen.drawImage(overlay, 0, 0);
  return new Promise((done) => sheet.toBlob(done, "image/png"));
}
