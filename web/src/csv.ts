/** Tables for spreadsheets, by RFC 4180. */

/** A text that a spreadsheet would take for a formula gets an apostrophe in front. Numbers are written as they are. */
export function cell(content: string | number): string {
  if (typeof content === "number") return Number.isFinite(content) ? String(content) : "";
  const safe = /^[=+\-@\t\r]/.test(content) ? `'${content}` : content;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export const csv = (rows: (string | number)[][]): string =>
  rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
