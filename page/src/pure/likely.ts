// Which columns people want to see first: values that rank runs, and args that differ between them.

import type { Column } from "./where";

const SCORES = /(^|[^a-z])(acc|accuracy|f1|score|auc|reward|return|bleu|rouge|map|iou|psnr|ssim|r2)([^a-z]|$)/i;
const LOSSES = /(^|[^a-z])(loss|error|err|perplexity|ppl|rmse|mse|mae)([^a-z]|$)/i;
const HELD_OUT = /(^|[^a-z])(val|valid|validation|eval|test|dev)([^a-z]|$)/i;

/** Numbers that rank runs, the likeliest first: scores before losses, held-out ones before those of the training. */
export function likelyMetrics(known: readonly Column[]): string[] {
  const rank = (name: string) => (SCORES.test(name) ? 0 : LOSSES.test(name) ? 2 : 4) + (HELD_OUT.test(name) ? 0 : 1);
  const names = known.filter((one) => one.kind === "metric" && one.is_number !== false).map((one) => one.name);
  return names.map((name, i) => ({ name, i })).sort((a, b) => rank(a.name) - rank(b.name) || a.i - b.i).map(({ name }) => name);
}

/** Whether the name of a value says that it ranks runs. */
export const isRanking = (name: string): boolean => SCORES.test(name) || LOSSES.test(name);

/** Args: those that differ between runs before those that are the same in all, then those that more runs have, then the more varied. */
export function likelyArgs(known: readonly Column[]): string[] {
  const rank = (one: Column) => (one.values === 1 ? 2 : (one.values ?? 0) > 10 && one.values === one.runs ? 1 : 0); // each run its own: a path, a name
  return known.filter((one) => one.kind === "arg").map((one, i) => ({ one, i }))
    .sort((a, b) => rank(a.one) - rank(b.one) || (b.one.runs ?? 0) - (a.one.runs ?? 0) || (b.one.values ?? 0) - (a.one.values ?? 0) || a.i - b.i).map(({ one }) => one.name);
}
