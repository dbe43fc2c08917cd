// The steps of logged texts, images and histograms, and which value belongs to a step.

export interface Placed { n: number; x: number | null }

/** All places of some lists of values, ascending, each once; values without an x are placed by their number. */
export function allSteps(lists: readonly (readonly Placed[])[]): number[] {
  return [...new Set(lists.flatMap((list) => list.map(placeOf)))].sort((a, b) => a - b);
}

export const placeOf = (value: Placed) => value.x ?? value.n;

/** The last value at or before a place; the first one if all are after it; the last one without a place. */
export function valueFor<T extends Placed>(values: readonly T[], at: number | null): T | undefined {
  if (at === null) return values[values.length - 1];
  let found = values[0];
  for (const value of values) if (placeOf(value) <= at) found = value;
  return found;
}

/** The position of the step that is shown for a place in the address. */
export function stepIndex(steps: readonly number[], at: number | null): number {
  if (at === null) return steps.length - 1;
  let found = 0;
  steps.forEach((step, i) => { if (step <= at) found = i; });
  return found;
}
