// Completion in a where clause: which word the caret is in, and what may stand there.

export interface Column { name: string; kind: string; runs: number | null; values?: number | null; is_number?: boolean | null }
export interface Completion { text: string; insert: string; kind: string }

const OPERATORS = ["=", "!=", "<", "<=", ">", ">=", "like", "in", "is null", "is not null", "between"];
const JOINERS = ["and", "or"];

/** The word that ends at the caret, and where it begins. */
export function wordAt(text: string, caret: number): { word: string; start: number } {
  const head = text.slice(0, caret);
  const found = /"[^"]*$|[\w./-]*$/.exec(head);
  const word = found ? found[0] : "";
  return { word, start: caret - word.length };
}

/** A name as SQL needs it: quoted unless it is a plain word. */
export function quoted(name: string): string {
  return /^[A-Za-z_]\w*$/.test(name) ? name : `"${name.replace(/"/g, '""')}"`;
}

/** Whether the caret is inside a quoted text, where nothing is completed. */
export function isInText(text: string, caret: number): boolean {
  return (text.slice(0, caret).match(/'/g) ?? []).length % 2 === 1;
}

/** What may follow at the caret. */
export function complete(text: string, caret: number, columns: Column[], most = 12): Completion[] {
  if (isInText(text, caret)) return [];
  const { word, start } = wordAt(text, caret);
  const previous = text.slice(0, start).trimEnd();
  const plain = word.replace(/^"/, "").toLowerCase();
  if (/("|[\w.)])$/.test(previous) && !/\b(and|or|not|where|between|like|in)$/i.test(previous)) {
    const isAfterValue = /(=|<|>|like|between|in|null)\s*('[^']*'|[\w.+-]+|\([^)]*\))$/i.test(previous) || /null$/i.test(previous);
    return (isAfterValue ? JOINERS : OPERATORS).filter((one) => one.startsWith(plain)).map((one) => ({ text: one, insert: `${one} `, kind: "operator" }));
  }
  if (/(=|<|>|like)$/i.test(previous)) return [];
  const begins = columns.filter((one) => one.name.toLowerCase().startsWith(plain));
  const holds = columns.filter((one) => !one.name.toLowerCase().startsWith(plain) && one.name.toLowerCase().includes(plain));
  const seen = new Set<string>();
  return [...begins, ...holds].filter((one) => !seen.has(one.name) && seen.add(one.name)).slice(0, most)
    .map((one) => ({ text: one.name, insert: `${quoted(one.name)} `, kind: one.kind }));
}
