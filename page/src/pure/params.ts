// The state of every control as a query string: written in a fixed order, defaults left out.

export type Params = Record<string, string>;

export function parse(search: string): Params {
  return Object.fromEntries(new URLSearchParams(search));
}

export function write(params: Params): string {
  const kept = Object.entries(params).filter(([, value]) => value !== "").sort(([a], [b]) => (a < b ? -1 : 1));
  // Commas, colons and slashes are allowed in a query; left as they are, addresses stay readable.
  const text = new URLSearchParams(kept).toString().replace(/%2C/g, ",").replace(/%3A/g, ":").replace(/%2F/g, "/");
  return text ? `?${text}` : "";
}

/** A list in one parameter; commas and backslashes in items are escaped. */
export function toList(text: string | undefined): string[] {
  if (!text) return [];
  const out: string[] = [];
  let item = "";
  for (let i = 0; i < text.length; i++) {
    if (text[i] === "\\" && i + 1 < text.length) { item += text[i + 1]!; i++; }
    else if (text[i] === ",") { out.push(item); item = ""; }
    else item += text[i]!;
  }
  return [...out, item];
}

export function fromList(items: readonly string[]): string {
  return items.map((item) => item.replace(/[\\,]/g, "\\$&")).join(",");
}

export function toRange(text: string | undefined): [number, number] | null {
  const parts = (text ?? "").split("..").map(Number);
  return parts.length === 2 && parts.every(Number.isFinite) && parts[0]! < parts[1]! ? [parts[0]!, parts[1]!] : null;
}

export function fromRange(range: [number, number] | null): string {
  return range ? `${Number(range[0].toPrecision(8))}..${Number(range[1].toPrecision(8))}` : "";
}
