// Arithmetic over curves: smoothing, interpolation, bands of groups, ranges of axes.

export interface Curve {
  run: string;
  name: string;
  rank: number;
  count: number;
  texts: number;
  x: Float64Array;
  last: Float64Array;
  low: Float64Array | null;
  high: Float64Array | null;
  nonfinite: { x: number; kind: string }[];
  sources: { from: number; to: number; replay: number; verdict: string }[];
  note?: string;
}

/** An exponential moving average without bias at the start; gaps (NaN) stay gaps. */
export function smooth(values: Float64Array, weight: number): Float64Array {
  if (weight <= 0) return values;
  const out = new Float64Array(values.length);
  let sum = 0;
  let norm = 0;
  for (let i = 0; i < values.length; i++) {
    const value = values[i]!;
    if (!Number.isFinite(value)) { out[i] = NaN; continue; }
    sum = weight * sum + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    out[i] = sum / norm;
  }
  return out;
}

/** The position of the last x that is not greater; -1 if all are. */
export function before(x: Float64Array, at: number): number {
  let low = 0;
  let high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle]! <= at) low = middle + 1; else high = middle;
  }
  return low - 1;
}

/** The position of the x nearest to a place; -1 for an empty curve. */
export function nearest(x: Float64Array, at: number): number {
  const left = before(x, at);
  if (left < 0) return x.length ? 0 : -1;
  if (left + 1 < x.length && x[left + 1]! - at < at - x[left]!) return left + 1;
  return left;
}

/** The value of a curve at a place, between two values on the line between them; NaN outside. */
export function valueAt(x: Float64Array, y: Float64Array, at: number): number {
  const left = before(x, at);
  if (left < 0 || (left === x.length - 1 && x[left] !== at)) return NaN;
  const x0 = x[left]!;
  if (x0 === at || left + 1 >= x.length) return y[left]!;
  const part = (at - x0) / (x[left + 1]! - x0);
  return y[left]! + part * (y[left + 1]! - y[left]!);
}

export interface Band { x: Float64Array; mean: Float64Array; low: Float64Array; high: Float64Array; runs: number }

/** The mean of several curves with its standard deviation, or their lowest and highest, at common places. */
export function band(curves: { x: Float64Array; y: Float64Array }[], kind: "std" | "range", most = 500): Band {
  const places = commonPlaces(curves.map((one) => one.x), most);
  const mean = new Float64Array(places.length);
  const low = new Float64Array(places.length);
  const high = new Float64Array(places.length);
  places.forEach((at, i) => {
    const found = curves.map((one) => valueAt(one.x, one.y, at)).filter(Number.isFinite);
    const middle = found.reduce((sum, value) => sum + value, 0) / found.length;
    const spread = found.length > 1 ? Math.sqrt(found.reduce((sum, value) => sum + (value - middle) ** 2, 0) / (found.length - 1)) : 0;
    mean[i] = found.length ? middle : NaN;
    low[i] = found.length ? (kind === "std" ? middle - spread : Math.min(...found)) : NaN;
    high[i] = found.length ? (kind === "std" ? middle + spread : Math.max(...found)) : NaN;
  });
  return { x: places, mean, low, high, runs: curves.length };
}

function commonPlaces(axes: Float64Array[], most: number): Float64Array {
  const all = new Set<number>();
  for (const axis of axes) for (const x of axis) all.add(x);
  const sorted = Float64Array.from(all).sort();
  if (sorted.length <= most) return sorted;
  const step = (sorted.length - 1) / (most - 1);
  return Float64Array.from({ length: most }, (_, i) => sorted[Math.round(i * step)]!);
}

/** The lowest and the highest finite number; null without any. On a log axis only positive ones count. */
export function extent(arrays: (Float64Array | null)[], isLog: boolean, into: [number, number] | null = null): [number, number] | null {
  let low = into ? into[0] : Infinity;
  let high = into ? into[1] : -Infinity;
  for (const array of arrays) {
    if (!array) continue;
    for (let i = 0; i < array.length; i++) {
      const value = array[i]!;
      if (!Number.isFinite(value) || (isLog && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : null;
}

/** A range with some room, so that no curve touches the frame. */
export function roomy([low, high]: [number, number], isLog: boolean): [number, number] {
  if (isLog) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.04, high * (high / low) ** 0.04];
  const room = low === high ? Math.abs(low) * 0.1 || 1 : (high - low) * 0.05;
  return [low - room, high + room];
}

/** Spearman's rank correlation, with ties sharing their mean rank. */
export function rankCorrelation(a: number[], b: number[]): number {
  if (a.length < 3) return NaN;
  const left = ranks(a);
  const right = ranks(b);
  const mean = (a.length - 1) / 2;
  let both = 0;
  let one = 0;
  let two = 0;
  for (let i = 0; i < a.length; i++) {
    both += (left[i]! - mean) * (right[i]! - mean);
    one += (left[i]! - mean) ** 2;
    two += (right[i]! - mean) ** 2;
  }
  return one && two ? both / Math.sqrt(one * two) : NaN;
}

/** How much of the variance of ranks lies between the groups of a category (eta, the correlation ratio). */
export function categoryCorrelation(groups: string[], values: number[]): number {
  if (values.length < 3) return NaN;
  const rank = ranks(values);
  const mean = (values.length - 1) / 2;
  const byGroup = new Map<string, number[]>();
  groups.forEach((group, i) => byGroup.set(group, [...(byGroup.get(group) ?? []), rank[i]!]));
  if (byGroup.size < 2 || byGroup.size === values.length) return NaN;
  const total = rank.reduce((sum, r) => sum + (r - mean) ** 2, 0);
  let between = 0;
  for (const members of byGroup.values()) {
    const middle = members.reduce((sum, r) => sum + r, 0) / members.length;
    between += members.length * (middle - mean) ** 2;
  }
  return total ? Math.sqrt(between / total) : NaN;
}

function ranks(values: number[]): number[] {
  const order = values.map((_, i) => i).sort((i, j) => values[i]! - values[j]!);
  const out = new Array<number>(values.length);
  for (let i = 0; i < order.length;) {
    let j = i;
    while (j + 1 < order.length && values[order[j + 1]!] === values[order[i]!]) j++;
    for (let k = i; k <= j; k++) out[order[k]!] = (i + j) / 2;
    i = j + 1;
  }
  return out;
}
