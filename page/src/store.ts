// The curves that charts show: asked for in batches, kept until they change.

import { ApiError, series, trouble } from "./api";
import type { Curve } from "./pure/curves";
import { onChange } from "./events";

export interface Wanted { runs: string[]; name: string; x: string; window: [number, number] | null; pixels: number; ranks: boolean; envelopes: boolean }
interface Kept { curves: Curve[] }
type Told = (curves: Curve[]) => void;
interface Waiting { wanted: Wanted; missing: string[]; done: () => void }

const MOST_KEPT = 6_000;
const MOST_POINTS = 40_000; // of one request, so that the first curves are seen soon
const SOON_MS = 100; // parts that arrive within so long of each other are shown at once: drawing takes time, too
const kept = new Map<string, Kept>();
const queue: Waiting[] = [];
const watching = new Set<{ wanted: Wanted; refresh: (runs: Set<string> | null) => void }>();
let timer = 0;

const windowKey = (window: [number, number] | null) => (window ? `${window[0]}..${window[1]}` : "");
const keyOf = (run: string, wanted: Wanted) => `${run}|${wanted.name}|${wanted.x}|${windowKey(wanted.window)}|${wanted.pixels}|${wanted.ranks}|${wanted.envelopes}`;

/** Calls back with the curves that are there, and again whenever more arrive or they change. Returns how to stop. */
export function watch(wanted: Wanted, told: Told): () => void {
  let isOver = false;
  const tell = () => { if (!isOver) told(wanted.runs.flatMap((run) => kept.get(keyOf(run, wanted))?.curves ?? [])); };
  const refresh = (runs: Set<string> | null) => {
    const old = wanted.runs.filter((run) => !runs || runs.has(run));
    if (old.length) queueUp({ wanted, missing: old, done: tell });
  };
  const entry = { wanted, refresh };
  watching.add(entry);
  const missing = wanted.runs.filter((run) => !kept.has(keyOf(run, wanted)));
  if (missing.length < wanted.runs.length || !wanted.runs.length) tell();
  if (missing.length) queueUp({ wanted, missing, done: tell });
  return () => { isOver = true; watching.delete(entry); };
}

function queueUp(waiting: Waiting): void {
  queue.push(waiting);
  if (!timer) timer = window.setTimeout(flush, 8);
}

function flush(): void {
  timer = 0;
  const groups = new Map<string, Waiting[]>();
  for (const one of queue.splice(0)) {
    const key = `${one.wanted.x}|${windowKey(one.wanted.window)}|${one.wanted.pixels}|${one.wanted.ranks}|${one.wanted.envelopes}|${one.missing.join()}`;
    groups.set(key, [...(groups.get(key) ?? []), one]);
  }
  for (const group of groups.values()) {
    const perName = group[0]!.missing.length * group[0]!.wanted.pixels;
    const namesAtOnce = Math.max(1, Math.floor(MOST_POINTS / Math.max(perName, 1)));
    for (let at = 0; at < group.length; at += namesAtOnce) void ask(group.slice(at, at + namesAtOnce));
  }
}

async function ask(group: Waiting[]): Promise<void> {
  const { wanted, missing } = group[0]!;
  const most = Math.max(10, Math.floor(MOST_POINTS / (wanted.pixels * group.length)));
  const runsAtOnce = Math.ceil(missing.length / Math.ceil(missing.length / most)); // parts of one size are answered at one time
  const parts: string[][] = [];
  for (let at = 0; at < missing.length; at += runsAtOnce) parts.push(missing.slice(at, at + runsAtOnce));
  let showing = 0; let left = parts.length;
  const show = () => {
    left -= 1;
    if (left && showing) return;
    clearTimeout(showing);
    const tell = () => { showing = 0; for (const one of group) one.done(); };
    if (left) showing = window.setTimeout(tell, SOON_MS); else tell();
  };
  await Promise.all(parts.map(async (runs) => {
    const names = [...new Set(group.map((one) => one.wanted.name))];
    try {
      const found = await series({
        runs, names, x: wanted.x, pixels: wanted.pixels,
        ...(wanted.window ? { from: wanted.window[0], to: wanted.window[1] } : {}), ...(wanted.ranks ? { all_ranks: true } : {}), ...(wanted.envelopes ? {} : { envelopes: false }),
      });
      for (const name of names) for (const run of runs) keep(keyOf(run, { ...wanted, name }), found.filter((one) => one.run === run && one.name === name));
    } catch (error) {
      if (error instanceof ApiError) trouble.value = error.message;
    }
    show();
  }));
}

function keep(key: string, curves: Curve[]): void {
  kept.delete(key);
  kept.set(key, { curves });
  if (kept.size > MOST_KEPT) for (const old of kept.keys()) { kept.delete(old); if (kept.size <= MOST_KEPT) break; }
}

function forget(runs: Set<string> | null): void {
  for (const key of [...kept.keys()]) if (!runs || runs.has(key.slice(0, key.indexOf("|")))) kept.delete(key);
}

onChange((change) => {
  if (change.kind === "question") return;
  const runs = change.kind === "reset" ? null : new Set(Object.keys(change.runs));
  // What is shown stays until its successor is here; what is not shown is asked for when it is needed.
  const shown = new Set([...watching].flatMap((one) => one.wanted.runs.map((run) => keyOf(run, one.wanted))));
  for (const key of [...kept.keys()]) if (!shown.has(key) && (!runs || runs.has(key.slice(0, key.indexOf("|"))))) kept.delete(key);
  for (const one of watching) {
    if (change.kind === "points" && !one.wanted.runs.some((run) => change.runs[run] && one.wanted.name in change.runs[run]!)) continue;
    one.refresh(runs);
  }
});

export const forgetAll = () => forget(null);
