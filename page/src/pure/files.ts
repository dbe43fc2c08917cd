// Charts and tables as CSV: of a chart one row per x and one column per run, with all digits.

import { exact, exactText, type Cell } from "./format";

export function csvField(text: string): string {
  // A leading = + - @ of a text would be a formula in a spreadsheet.
  const safe = /^[=+@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

/** A table as CSV: texts are quoted where they must be, numbers have all digits. */
export function rowsToCsv(head: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const field = (cell: Cell) => (typeof cell === "number" ? exact(cell) : csvField(typeof cell === "string" ? cell : exactText(cell)));
  return `${[head.map(csvField), ...rows.map((row) => row.map(field))].map((row) => row.join(",")).join("\n")}\n`;
}

export function toCsv(x: string, lines: { label: string; x: Float64Array; y: Float64Array }[]): string {
  const places = [...new Set(lines.flatMap((line) => [...line.x]))].sort((a, b) => a - b);
  const columns = lines.map((line) => new Map([...line.x].map((at, i) => [at, line.y[i]!])));
  const head = [x, ...lines.map((line) => line.label)].map(csvField).join(",");
  const rows = places.map((at) => [exact(at), ...columns.map((column) => { const y = column.get(at); return y === undefined ? "" : exact(y); })].join(","));
  return `${[head, ...rows].join("\n")}\n`;
}
