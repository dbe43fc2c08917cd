// The colours of runs: told apart in light and dark, and stable for a run wherever it is shown.

export const PALETTE = [
  "#2f6fde", "#d9622b", "#1f9d6b", "#b13fb0", "#c08a00", "#0f9bb8", "#d6406d", "#6a58d6", "#5f8f1f", "#8c6239",
  "#3d8bfd", "#e0883a", "#2bb98a", "#d06bd0", "#a3a01a", "#4cb3cf", "#e87a9b", "#9384ea", "#86b545", "#b08a63",
];

/**
 * The places of runs in the palette, each run's own: the first ten to start share the first ten colours, the next ten
 * the next, each taking the place of its id or the next free one. So sorting, hiding and newer runs change no colour.
 */
export function assignColors(runs: readonly { run: string; started_us: number }[], chosen: ReadonlyMap<string, number>): Map<string, string> {
  const out = new Map<string, string>();
  const taken = new Set<number>();
  [...runs].sort((a, b) => a.started_us - b.started_us || (a.run < b.run ? -1 : 1)).forEach(({ run }, i) => {
    const half = PALETTE.length / 2;
    const block = Math.floor(i / half) % 2 ? half : 0;
    let place = hash(run) % half;
    if (i < PALETTE.length) while (taken.has(block + place)) place = (place + 1) % half;
    taken.add(block + place);
    out.set(run, PALETTE[(chosen.get(run) ?? block + place) % PALETTE.length]!);
  });
  return out;
}

export function hash(text: string): number {
  let value = 2166136261;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 16777619);
  return value >>> 0;
}
