// How values are written: numbers as Python writes them, so that what is seen can be pasted there.

const DIGITS = 6;

export type Cell = null | boolean | number | string | Cell[] | { [key: string]: Cell };

/** The digits and the exponent of a finite number, rounded half to even as Python does. */
function rounded(value: number, digits: number): [string, number] {
  const [mantissa = "0", power = "0"] = Math.abs(value).toExponential(60).split("e");
  const all = mantissa.replace(".", "");
  let exponent = Number(power);
  const head = all.slice(0, digits);
  const rest = all.slice(digits);
  const isTie = rest[0] === "5" && /^50*$/.test(rest);
  const up = isTie ? Number(head[digits - 1]) % 2 === 1 : (rest[0] ?? "0") >= "5";
  let text = head;
  if (up) {
    text = (BigInt(head) + 1n).toString();
    if (text.length > digits) { text = text.slice(0, digits); exponent += 1; }
  }
  return [text, exponent];
}

/** Python's format(value, ".6g"). */
export function short(value: number, digits = DIGITS): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  if (value === 0) return `${sign}0`;
  const [text, exponent] = rounded(value, digits);
  return sign + place(text.replace(/0+$/, "") || "0", exponent, exponent < -4 || exponent >= digits);
}

function place(text: string, exponent: number, isScientific: boolean): string {
  if (isScientific) {
    const power = `${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
    return `${text[0]}${text.length > 1 ? `.${text.slice(1)}` : ""}e${power}`;
  }
  if (exponent < 0) return `0.${"0".repeat(-exponent - 1)}${text}`;
  if (text.length <= exponent + 1) return text.padEnd(exponent + 1, "0");
  return `${text.slice(0, exponent + 1)}.${text.slice(exponent + 1)}`;
}

/** Python's repr(value), without the `.0` of whole numbers, which JSON does not keep. */
export function exact(value: number): string {
  if (!Number.isFinite(value)) return short(value);
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  if (value === 0) return `${sign}0`;
  const [mantissa = "0", power = "0"] = Math.abs(value).toExponential().split("e");
  const exponent = Number(power);
  return sign + place(mantissa.replace(".", ""), exponent, exponent < -4 || exponent >= 16);
}

/** A number with its thousands set apart: 12,000.4. Exponents stay as they are. */
export function grouped(text: string): string {
  if (/[en]/.test(text)) return text;
  const [whole = "", rest] = text.split(".");
  return whole.replace(/\B(?=(\d{3})+(?!\d))/g, ",") + (rest === undefined ? "" : `.${rest}`);
}

/** A number from the wire: NaN and infinities are words, large integers text with a prefix. */
export function numberOf(cell: unknown): number | null {
  if (typeof cell === "number") return cell;
  if (typeof cell === "boolean") return Number(cell);
  if (cell === "NaN") return NaN;
  if (cell === "Infinity") return Infinity;
  if (cell === "-Infinity") return -Infinity;
  if (typeof cell === "string" && cell.startsWith("$int:")) return Number(cell.slice(5));
  return null;
}

/** What stands in a cell. */
export function cellText(cell: Cell | undefined): string {
  if (cell === null || cell === undefined) return "";
  if (typeof cell === "number") return grouped(Number.isInteger(cell) && Math.abs(cell) < 1e15 ? String(cell) : short(cell));
  if (typeof cell === "boolean") return cell ? "true" : "false";
  if (typeof cell === "string") {
    if (cell.startsWith("$int:")) return grouped(cell.slice(5));
    return cell === "NaN" ? "nan" : cell === "Infinity" ? "inf" : cell === "-Infinity" ? "-inf" : cell;
  }
  return JSON.stringify(cell);
}

/** All digits, for titles and copies. */
export function exactText(cell: Cell | undefined): string {
  if (typeof cell === "number") return exact(cell);
  if (typeof cell === "string" && cell.startsWith("$int:")) return cell.slice(5);
  return cellText(cell);
}

/** A tick of an axis: 250M rather than 2.5e+08. */
export function tickText(value: number): string {
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
    if (size >= unit && (unit > 1e3 || size >= 1e4) && size < 1e15) return `${short(value / unit, 5)}${letter}`;
  }
  return short(value, 5);
}

export function bytesText(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  let value = bytes;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${at === 0 ? value : short(value, 3)} ${units[at]}`;
}

export function durationText(seconds: number | null): string {
  if (seconds === null || !Number.isFinite(seconds)) return "";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${short(seconds, 3)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

export function whenText(us: number, now = Date.now()): string {
  const date = new Date(us / 1000);
  const pad = (n: number) => String(n).padStart(2, "0");
  const clock = `${pad(date.getHours())}:${pad(date.getMinutes())}`;
  const ago = (now - us / 1000) / 1000;
  if (ago < 60 && ago >= 0) return "just now";
  if (ago < 3600 && ago >= 0) return `${Math.floor(ago / 60)} min ago`;
  if (date.toDateString() === new Date(now).toDateString()) return `today ${clock}`;
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${clock}`;
}

/** A value in its stored form without its tags: an array as its shape, a long text as its beginning. */
export function plainForm(form: Cell): Cell {
  if (Array.isArray(form)) return form.map(plainForm);
  if (form === null || typeof form !== "object") return form;
  const [tag = "", ...more] = Object.keys(form);
  if (!tag.startsWith("$") || more.length) return Object.fromEntries(Object.entries(form).map(([key, value]) => [key, plainForm(value)]));
  const inner = form[tag] as Cell;
  const part = (name: string): Cell => (inner !== null && typeof inner === "object" && !Array.isArray(inner) ? inner[name] ?? null : null);
  if (tag === "$float") return inner === "nan" ? "NaN" : inner === "inf" ? "Infinity" : "-Infinity";
  if (tag === "$np" && Array.isArray(inner)) return plainForm(inner[1] ?? null);
  if (tag === "$array" || tag === "$image") return `${tag.slice(1)} ${(part("shape") as number[] | null ?? []).join(" × ")}`.trim();
  if (tag === "$text") return `${String(part("head"))}…`;
  if (tag === "$repr") return part("text");
  if (tag === "$tuple" || tag === "$set" || tag === "$frozenset") return plainForm(inner);
  if (tag === "$path" || tag === "$datetime" || tag === "$timestamp") return inner;
  return tag === "$frame" ? "table" : tag === "$secret" ? "<redacted>" : `<${tag.slice(1)}>`;
}

/** The last value as the route of one run sends it: JSON text for what is no number. */
export function lastCell(last: Cell): Cell {
  if (typeof last !== "string") return last;
  try { return plainForm(JSON.parse(last) as Cell); } catch { return last; }
}
