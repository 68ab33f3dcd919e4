/** All keys, in a dialog. */

import { h } from "./dom";

let dialog: HTMLDialogElement | null = null;

export function help(keys: readonly [string, string][], version: string): HTMLDialogElement {
  const close = h("button", { type: "button", on: { click: () => dialog!.close() } }, "Close");
  dialog = h(
    "dialog",
    { class: "help", "aria-label": "help" },
    h("h2", {}, "Keys"),
    h("dl", {}, ...keys.flatMap(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("h2", {}, "Pointer"),
    h(
      "dl",
      {},
      ...[
        ["Drag", "moves the space: what you take hold of stays under the pointer"],
        ["Wheel, pinch", "nearer and farther; with Shift: rotate"],
        ["Click", "puts a point in focus; with Shift: selects it"],
        ["Double click", "brings a point to the middle"],
      ].flatMap(([what, does]) => [h("dt", {}, what!), h("dd", {}, does!)]),
    ),
    h("p", { class: "muted" }, `Horosphere ${version}`),
    close,
  );
  return dialog;
}

export function toggleHelp(): void {
  if (dialog?.open) dialog.close();
  else dialog?.showModal();
}

export const helpIsOpen = (): boolean => dialog?.open ?? false;

export function closeHelp(): boolean {
  const open = helpIsOpen();
  if (open) dialog!.close();
  return open;
}
