/** A PNG of a map as it is seen, in all its pixels, with its title and what it keeps below it. */

import { css } from "./colours";
import { sentence } from "./dom";
import type { View } from "./view";

const FOOT = 44; // pixels of the page below the map

export function picture(view: View): Promise<Blob | null> {
  const { pane } = view;
  const { canvas, overlay, theme, chart } = pane;
  const ratio = canvas.width / Math.max(1, canvas.clientWidth);
  const sheet = document.createElement("canvas");
  sheet.width = canvas.width;
  sheet.height = canvas.height + Math.round(FOOT * ratio);
  pane.draw(pane.effort.resting); // as it is seen; what was drawn before is gone from the card
  const pen = sheet.getContext("2d")!;
  pen.fillStyle = css(theme.paper);
  pen.fillRect(0, 0, sheet.width, sheet.height);
  pen.drawImage(canvas, 0, 0);
  pen.drawImage(overlay, 0, 0);
  pen.setTransform(ratio, 0, 0, ratio, 0, canvas.height);
  const room = canvas.clientWidth - 24;
  pen.fillStyle = theme.ink;
  pen.font = "600 13px system-ui, sans-serif";
  pen.fillText(`${view.name}: ${view.atlas.meta.geometry}, ${chart.name}`, 12, 17, room);
  pen.fillStyle = theme.muted;
  pen.font = "11px system-ui, sans-serif";
  pen.fillText([sentence(chart.note), view.survival].filter(Boolean).join(" "), 12, 34, room);
  return new Promise((done) => sheet.toBlob(done, "image/png"));
}
