// How curves and bands look: lines, envelopes, and marks where a value is not finite or not shown to be right.

import type { Drawn, DrawnBand, Look } from "./chart";
import type { View } from "./movinglayer";
import { fillBetween, strokeLine, THIN, type Pen, type Placed } from "./strokes";

/** The window and its place on the canvas; from and span as the scales have them. */
export interface Paper extends View { fromY: number; spanY: number; logX: boolean; logY: boolean; scale: number }

export const ENVELOPES = 24; // curves up to which envelopes are filled; more would hide each other
const MARK = 3.5;

/** The positions of sorted x in a window, with some on either side so that lines reach its edges. */
export function within(x: Float64Array, from: number, to: number, beside = 1): [number, number] {
  let low = 0; let high = x.length;
  while (low < high) { const middle = (low + high) >> 1; if (x[middle]! < from) low = middle + 1; else high = middle; }
  const first = Math.max(0, low - beside);
  high = x.length;
  while (low < high) { const middle = (low + high) >> 1; if (x[middle]! <= to) low = middle + 1; else high = middle; }
  return [first, Math.min(x.length, low + beside)];
}

/** Draws what lies between two places of the canvas. */
export function paintCurves(ctx: CanvasRenderingContext2D, look: Look, paper: Paper, valuesOf: (one: Drawn) => Float64Array, fromPixel: number, toPixel: number, isMany: boolean): void {
  const painter = new Painter(ctx, paper, fromPixel, toPixel);
  const isDense = look.curves.length > ENVELOPES;
  const isThin = isDense || isMany;
  ctx.lineJoin = "round";
  for (const one of look.bands) painter.band(one);
  for (const { curve, color } of look.curves) if (!isDense && curve.low && curve.high) painter.fill(curve.x, curve.low, curve.high, color, 0.16);
  for (const one of look.curves) {
    const { x, last, sources } = one.curve;
    if (look.smoothing > 0 && !isDense) painter.stroke(x, last, { color: one.color, width: THIN, alpha: 0.25, dash: [] });
    const width = one.isStrong ? 2.6 * paper.scale : isThin ? THIN : 1.6 * paper.scale;
    const dash = (sources.length ? [5, 3] : one.dash ?? []).map((n) => n * paper.scale);
    painter.stroke(x, valuesOf(one), { color: one.color, width, alpha: one.isStrong || !isDense ? 1 : 0.8, dash });
  }
  for (const one of look.curves) painter.marks(one);
}

class Painter {
  private readonly window: [number, number];

  constructor(private readonly ctx: CanvasRenderingContext2D, private readonly paper: Paper, private readonly fromPixel: number, private readonly toPixel: number) {
    const { left, width, from, span, logX } = paper;
    const valueAt = (pixel: number) => { const at = from + ((pixel - left) / width) * span; return logX ? 10 ** at : at; };
    this.window = [valueAt(fromPixel), valueAt(toPixel)];
  }

  private toX = (value: number) => { const { logX, left, from, span, width } = this.paper; return left + (((logX ? Math.log10(value) : value) - from) / span) * width; };

  private place(x: Float64Array, y: Float64Array): Placed {
    const { logX, logY, left, top, width, height, from, span, fromY, spanY } = this.paper;
    const perX = width / span; const perY = height / spanY;
    return (i, into) => {
      const value = y[i]!;
      if (!Number.isFinite(value) || (logY && value <= 0) || (logX && x[i]! <= 0)) return false;
      into.x = left + ((logX ? Math.log10(x[i]!) : x[i]!) - from) * perX;
      into.y = top + height - ((logY ? Math.log10(value) : value) - fromY) * perY;
      return true;
    };
  }

  stroke(x: Float64Array, y: Float64Array, pen: Pen): void {
    strokeLine(this.ctx, ...within(x, ...this.window), this.place(x, y), pen);
  }

  fill(x: Float64Array, low: Float64Array, high: Float64Array, color: string, alpha: number): void {
    fillBetween(this.ctx, ...within(x, ...this.window), this.place(x, low), this.place(x, high), color, alpha);
  }

  band({ band, color }: DrawnBand): void {
    this.fill(band.x, band.low, band.high, color, 0.18);
    this.stroke(band.x, band.mean, { color, width: 2 * this.paper.scale, alpha: 1, dash: [] });
  }

  /** NaN and infinities where they happened, and what was replayed and is not shown to be right. */
  marks(one: Drawn): void {
    const { ctx } = this;
    const { top, height, scale } = this.paper;
    const bottom = top + height;
    const size = MARK * scale;
    ctx.strokeStyle = one.color; ctx.fillStyle = one.color; ctx.lineWidth = 1.6 * scale;
    for (const mark of one.curve.nonfinite) {
      const x = this.toX(mark.x);
      if (x < this.fromPixel - size || x > this.toPixel + size) continue;
      const y = mark.kind === "Infinity" ? top + 2 * size : bottom - 2 * size;
      ctx.beginPath();
      if (mark.kind === "NaN") { ctx.moveTo(x - size, y - size); ctx.lineTo(x + size, y + size); ctx.moveTo(x - size, y + size); ctx.lineTo(x + size, y - size); ctx.stroke(); }
      else { const up = mark.kind === "Infinity" ? -1 : 1; ctx.moveTo(x - size, y - up * size); ctx.lineTo(x + size, y - up * size); ctx.lineTo(x, y + up * size); ctx.fill(); }
    }
    for (const source of one.curve.sources) {
      if (source.verdict !== "unverified" && source.verdict !== "contradicted") continue;
      const from = Math.max(this.toX(source.from), this.fromPixel); const to = Math.min(this.toX(source.to), this.toPixel);
      if (to < from) continue;
      ctx.globalAlpha = 0.9; ctx.fillRect(from, bottom - 3 * scale, Math.max(to - from, 3 * scale), 3 * scale);
      ctx.globalAlpha = 1;
    }
  }
}
