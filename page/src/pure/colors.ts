// The colours of runs: told apart in light and dark, and stable for a run wherever it is shown.

export const PALETTE = [
  "#2f6fde", "#d9622b", "#1f9d6b", "#b13fb0", "#c08a00", "#0f9bb8", "#d6406d", "#6a58d6", "#5f8f1f", "#8c6239",
  "#3d8bfd", "#e0883a", "#2bb98a", "#d06bd0", "#a3a01a", "#4cb3cf", "#e87a9b", "#9384ea", "#86b545", "#b08a63",
];

/** The place of a run in the palette: by its position, or by its id if it has none. */
export function colorOf(run: string, position: number, chosen: ReadonlyMap<string, number>): string {
  const own = chosen.get(run);
  return PALETTE[(own ?? (position >= 0 ? position : hash(run))) % PALETTE.length]!;
}

export function hash(text: string): number {
  let value = 2166136261;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 16777619);
  return value >>> 0;
}
