// A chart as CSV: one row per x, one column per run, with all digits.

import { exact } from "./format";

export function csvField(text: string): string {
  // A leading = + - @ of a text would be a formula in a spreadsheet.
  const safe = /^[=+@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

export function toCsv(x: string, lines: { label: string; x: Float64Array; y: Float64Array }[]): string {
  const places = [...new Set(lines.flatMap((line) => [...line.x]))].sort((a, b) => a - b);
  const columns = lines.map((line) => new Map([...line.x].map((at, i) => [at, line.y[i]!])));
  const head = [x, ...lines.map((line) => line.label)].map(csvField).join(",");
  const rows = places.map((at) => [exact(at), ...columns.map((column) => { const y = column.get(at); return y === undefined ? "" : exact(y); })].join(","));
  return `${[head, ...rows].join("\n")}\n`;
}
