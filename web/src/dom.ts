/** Elements made by script. Whatever text is given stays text. */

type Child = Node | string | null | undefined | false;
type Handlers = { [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void };
type Attributes = Record<string, string | number | boolean | null | undefined>;

/** h("button", { class: "tool", on: { click } }, "Move") */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  { on = {}, ...attributes }: { on?: Handlers } & Record<string, unknown> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes as Attributes)) {
    if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const [name, handler] of Object.entries(on)) element.addEventListener(name, handler as EventListener);
  element.append(
    ...children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** Something to press that stays pressed or not. */
export function setPressed(button: HTMLElement, pressed: boolean): void {
  button.setAttribute("aria-pressed", String(pressed));
}

/** A file from the page to its reader. */
export function download(content: Blob, name: string): void {
  const link = h("a", { href: URL.createObjectURL(content), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** 1,234 */
export const grouped = (n: number): string => n.toLocaleString("en");

/** Numbers as one reads them: four digits that matter. */
export function short(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return grouped(value);
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-4 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

/** With a capital letter and a full stop. */
export const sentence = (text: string): string =>
  text && `${text[0]!.toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

export const plural = (n: number, one: string, many = `${one}s`): string => `${grouped(n)} ${n === 1 ? one : many}`;
