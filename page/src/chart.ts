// A chart on a canvas: uPlot has the axes, the scales and the selection; the curves are drawn here, each with its own x.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { extent, nearest, roomy, smooth, type Band, type Curve } from "./pure/curves";
import { short, tickText } from "./pure/format";

export interface Drawn { key: string; label: string; color: string; curve: Curve; dash?: number[]; isStrong?: boolean }
export interface DrawnBand { key: string; label: string; color: string; band: Band }
export interface Look {
  curves: Drawn[]; bands: DrawnBand[]; smoothing: number; logX: boolean; logY: boolean; isTime: boolean; isRelative: boolean;
  range: [number, number] | null; isDark: boolean;
}
export interface Reading { key: string; label: string; color: string; x: number; y: number; verdict: string; replay: number }

interface Listeners { zoom: (range: [number, number] | null) => void; cursor: (x: number | null) => void }

const ENVELOPES = 24; // curves up to which envelopes are filled; more would hide each other
const MARK = 3.5;

export class Chart {
  private plot: uPlot | null = null;
  private look: Look | null = null;
  private smoothed = new Map<string, { of: Float64Array; weight: number; values: Float64Array }>();
  private over: HTMLCanvasElement;
  private cursorX: number | null = null;
  private full: [number, number] = [0, 1];
  private shown: [number, number] = [0, 1];
  private pan: { from: number; range: [number, number] } | null = null;

  constructor(private readonly place: HTMLElement, private readonly tell: Listeners) {
    this.over = document.createElement("canvas");
    this.over.className = "crosshair";
    this.over.setAttribute("aria-hidden", "true");
  }

  destroy(): void { this.plot?.destroy(); this.plot = null; }

  get window(): [number, number] { return this.shown; }

  show(look: Look): void {
    const isOther = !this.look || look.logX !== this.look.logX || look.logY !== this.look.logY || look.isTime !== this.look.isTime || look.isRelative !== this.look.isRelative || look.isDark !== this.look.isDark;
    this.look = look;
    const x = extent([...look.curves.map((one) => one.curve.x), ...look.bands.map((one) => one.band.x)], look.logX) ?? [0, 1];
    this.full = x[0] === x[1] ? [x[0] - 0.5, x[1] + 0.5] : x;
    if (!this.pan) this.shown = look.range ?? this.full;
    if (!this.plot || isOther) this.build(); else this.rescale();
  }

  resize(width: number, height: number): void {
    if (this.plot && (this.plot.width !== width || this.plot.height !== height)) { this.plot.setSize({ width, height }); this.sizeOver(); }
  }

  private build(): void {
    this.plot?.destroy();
    const look = this.look!;
    const css = getComputedStyle(this.place);
    const ink = css.getPropertyValue("--quiet").trim() || "#666";
    const line = css.getPropertyValue("--line").trim() || "#ddd";
    const font = `11px ${css.fontFamily}`;
    const axis = { stroke: ink, font, grid: { stroke: line, width: 1 }, ticks: { show: false } };
    const y = this.rangeOfY();
    this.plot = new uPlot({
      width: Math.max(this.place.clientWidth, 120), height: Math.max(this.place.clientHeight, 80),
      padding: [8, 10, 0, 0], legend: { show: false },
      cursor: { x: false, y: false, points: { show: false }, drag: { x: true, y: false, setScale: false, dist: 4 }, bind: { dblclick: () => () => { this.tell.zoom(null); return null; } } },
      scales: {
        x: { time: look.isTime, distr: look.logX ? 3 : 1, range: () => this.shown },
        y: { distr: look.logY ? 3 : 1, range: () => this.rangeOfY() },
      },
      axes: [
        { ...axis, size: 26, gap: 4, space: 60, ...(look.isTime ? {} : { values: (_u: uPlot, ticks: number[]) => ticks.map((at) => (look.isRelative ? duration(at) : tickText(at))) }) },
        { ...axis, size: 56, gap: 4, space: 28, values: (_u: uPlot, ticks: (number | null)[]) => ticks.map((at) => (at === null ? "" : tickText(at))) },
      ],
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: { draw: [() => this.draw()], setSelect: [(u) => this.select(u)], ready: [(u) => this.listen(u)] },
    }, [this.shown, [y[0], y[1]]], this.place);
  }

  private rescale(): void {
    const y = this.rangeOfY();
    this.plot?.setData([this.shown, [y[0], y[1]]]);
    this.drawCursor();
  }

  /** The lowest and highest of what lies in the window. */
  private rangeOfY(): [number, number] {
    const look = this.look!;
    let found: [number, number] | null = null;
    const [from, to] = this.shown;
    const isWhole = from <= this.full[0] && to >= this.full[1];
    const part = (x: Float64Array, y: Float64Array | null) => {
      if (!y || isWhole) return y;
      let first = 0; let last = x.length;
      while (first < last && x[first]! < from) first++;
      while (last > first && x[last - 1]! > to) last--;
      return y.subarray(first, last);
    };
    for (const { curve } of look.curves) {
      const withEnvelope = look.curves.length <= ENVELOPES;
      found = extent([part(curve.x, curve.last), withEnvelope ? part(curve.x, curve.low) : null, withEnvelope ? part(curve.x, curve.high) : null], look.logY, found);
    }
    for (const { band } of look.bands) found = extent([part(band.x, band.low), part(band.x, band.high)], look.logY, found);
    return roomy(found ?? (look.logY ? [0.1, 1] : [0, 1]), look.logY);
  }

  private values(one: Drawn): Float64Array {
    const weight = this.look!.smoothing;
    if (weight <= 0) return one.curve.last;
    const known = this.smoothed.get(one.key);
    if (known && known.of === one.curve.last && known.weight === weight) return known.values;
    const values = smooth(one.curve.last, weight);
    this.smoothed.set(one.key, { of: one.curve.last, weight, values });
    return values;
  }

  // --- drawing ------------------------------------------------------------------------------------------------------------

  private draw(): void {
    const u = this.plot ?? null;
    if (!u || !this.look) return;
    const { ctx, bbox } = u;
    const scale = devicePixelRatio || 1;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.lineJoin = "round";
    for (const one of this.look.bands) this.drawBand(u, one, scale);
    const isDense = this.look.curves.length > ENVELOPES;
    for (const one of this.look.curves) if (!isDense && one.curve.low && one.curve.high) this.fill(u, one.curve.x, one.curve.low, one.curve.high, one.color, 0.16);
    for (const one of this.look.curves) {
      if (this.look.smoothing > 0 && !isDense) this.stroke(u, one.curve.x, one.curve.last, one.color, 1 * scale, 0.25, []);
      const isReplayed = one.curve.sources.length > 0;
      this.stroke(u, one.curve.x, this.values(one), one.color, (one.isStrong ? 2.6 : isDense ? 1.1 : 1.6) * scale, one.isStrong || !isDense ? 1 : 0.8, isReplayed ? [5 * scale, 3 * scale] : (one.dash ?? []).map((n) => n * scale));
    }
    for (const one of this.look.curves) this.drawMarks(u, one, scale);
    ctx.restore();
  }

  private drawBand(u: uPlot, one: DrawnBand, scale: number): void {
    this.fill(u, one.band.x, one.band.low, one.band.high, one.color, 0.18);
    this.stroke(u, one.band.x, one.band.mean, one.color, 2 * scale, 1, []);
  }

  /** Positions on the canvas as a function that is quick to call. */
  private scaler(u: uPlot, axis: "x" | "y"): (value: number) => number {
    const isLog = axis === "x" ? this.look!.logX : this.look!.logY;
    const { min = 0, max = 1 } = u.scales[axis] as { min?: number; max?: number };
    const from = isLog ? Math.log10(min) : min;
    const span = (isLog ? Math.log10(max) : max) - from || 1;
    const { left, top, width, height } = u.bbox;
    if (axis === "x") return (value) => left + (((isLog ? Math.log10(value) : value) - from) / span) * width;
    return (value) => top + height - (((isLog ? Math.log10(value) : value) - from) / span) * height;
  }

  private visible(x: Float64Array): [number, number] {
    let first = 0; let last = x.length;
    const [from, to] = this.shown;
    let low = 0; let high = x.length;
    while (low < high) { const middle = (low + high) >> 1; if (x[middle]! < from) low = middle + 1; else high = middle; }
    first = Math.max(0, low - 1);
    high = x.length;
    while (low < high) { const middle = (low + high) >> 1; if (x[middle]! <= to) low = middle + 1; else high = middle; }
    last = Math.min(x.length, low + 1);
    return [first, last];
  }

  private stroke(u: uPlot, x: Float64Array, y: Float64Array, color: string, width: number, alpha: number, dash: number[]): void {
    const { ctx } = u;
    const toX = this.scaler(u, "x"); const toY = this.scaler(u, "y");
    const [first, last] = this.visible(x);
    ctx.globalAlpha = alpha; ctx.strokeStyle = color; ctx.lineWidth = width; ctx.setLineDash(dash);
    ctx.beginPath();
    let isDown = false; let count = 0; let lastPoint: [number, number] | null = null;
    for (let i = first; i < last; i++) {
      const value = y[i]!;
      if (!Number.isFinite(value) || (this.look!.logY && value <= 0) || (this.look!.logX && x[i]! <= 0)) { isDown = false; continue; }
      const px = toX(x[i]!); const py = toY(value);
      if (isDown) ctx.lineTo(px, py); else ctx.moveTo(px, py);
      isDown = true; count += 1; lastPoint = [px, py];
    }
    ctx.stroke();
    if (count === 1 && lastPoint) { ctx.fillStyle = color; ctx.beginPath(); ctx.arc(lastPoint[0], lastPoint[1], width * 1.5, 0, 7); ctx.fill(); }
    ctx.globalAlpha = 1; ctx.setLineDash([]);
  }

  private fill(u: uPlot, x: Float64Array, low: Float64Array, high: Float64Array, color: string, alpha: number): void {
    const { ctx } = u;
    const toX = this.scaler(u, "x"); const toY = this.scaler(u, "y");
    const [first, last] = this.visible(x);
    const floor = this.look!.logY ? Number.MIN_VALUE : -Infinity;
    ctx.globalAlpha = alpha; ctx.fillStyle = color;
    ctx.beginPath();
    for (let i = first; i < last; i++) if (Number.isFinite(high[i]!) && high[i]! > floor) ctx.lineTo(toX(x[i]!), toY(high[i]!));
    for (let i = last - 1; i >= first; i--) if (Number.isFinite(low[i]!) && low[i]! > floor) ctx.lineTo(toX(x[i]!), toY(low[i]!));
    ctx.fill();
    ctx.globalAlpha = 1;
  }

  /** NaN and infinities where they happened, and what was replayed and is not shown to be right. */
  private drawMarks(u: uPlot, one: Drawn, scale: number): void {
    const { ctx, bbox } = u;
    const toX = this.scaler(u, "x");
    const size = MARK * scale;
    ctx.strokeStyle = one.color; ctx.fillStyle = one.color; ctx.lineWidth = 1.6 * scale;
    for (const mark of one.curve.nonfinite) {
      const x = toX(mark.x);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      const y = mark.kind === "Infinity" ? bbox.top + 2 * size : bbox.top + bbox.height - 2 * size;
      ctx.beginPath();
      if (mark.kind === "NaN") { ctx.moveTo(x - size, y - size); ctx.lineTo(x + size, y + size); ctx.moveTo(x - size, y + size); ctx.lineTo(x + size, y - size); ctx.stroke(); }
      else { const up = mark.kind === "Infinity" ? -1 : 1; ctx.moveTo(x - size, y - up * size); ctx.lineTo(x + size, y - up * size); ctx.lineTo(x, y + up * size); ctx.fill(); }
    }
    for (const source of one.curve.sources) {
      if (source.verdict !== "unverified" && source.verdict !== "contradicted") continue;
      const from = Math.max(toX(source.from), bbox.left); const to = Math.min(toX(source.to), bbox.left + bbox.width);
      ctx.globalAlpha = 0.9; ctx.fillRect(from, bbox.top + bbox.height - 3 * scale, Math.max(to - from, 3 * scale), 3 * scale);
      ctx.globalAlpha = 1;
    }
  }

  // --- the pointer --------------------------------------------------------------------------------------------------------

  private listen(u: uPlot): void {
    u.over.appendChild(this.over);
    this.sizeOver(u);
    u.over.addEventListener("pointermove", (event) => {
      const left = event.clientX - u.over.getBoundingClientRect().left;
      this.tell.cursor(u.posToVal(left, "x"));
    });
    u.over.addEventListener("pointerleave", () => this.tell.cursor(null));
    u.over.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const at = u.posToVal(event.clientX - u.over.getBoundingClientRect().left, "x");
      this.zoomAt(at, event.deltaY > 0 ? 1.25 : 0.8);
    }, { passive: false });
    u.over.addEventListener("mousedown", (event) => {
      if (!event.shiftKey) return;
      event.stopImmediatePropagation();
      const box = u.over.getBoundingClientRect();
      this.pan = { from: event.clientX, range: [...this.shown] };
      const move = (moved: MouseEvent) => {
        const { from, range } = this.pan!;
        this.moveTo(range, (from - moved.clientX) / box.width);
      };
      const up = () => { removeEventListener("mousemove", move); removeEventListener("mouseup", up); this.pan = null; this.tell.zoom([...this.shown]); };
      addEventListener("mousemove", move); addEventListener("mouseup", up);
    }, { capture: true });
  }

  private moveTo([low, high]: [number, number], part: number): void {
    if (this.look!.logX) {
      const ratio = (high / low) ** part;
      this.shown = [low * ratio, high * ratio];
    } else this.shown = [low + part * (high - low), high + part * (high - low)];
    this.rescale();
  }

  /** Zooms around a place; the address follows when the pointer rests. */
  zoomAt(at: number, factor: number): void {
    const [low, high] = this.shown;
    const next: [number, number] = this.look?.logX
      ? [at * (low / at) ** factor, at * (high / at) ** factor]
      : [at - (at - low) * factor, at + (high - at) * factor];
    this.tell.zoom(next[0] <= this.full[0] && next[1] >= this.full[1] ? null : next);
  }

  /** Moves the window by a part of its width. */
  panBy(part: number): void {
    this.moveTo([...this.shown], part);
    this.tell.zoom([...this.shown]);
  }

  private select(u: uPlot): void {
    if (u.select.width < 4) return;
    const from = u.posToVal(u.select.left, "x");
    const to = u.posToVal(u.select.left + u.select.width, "x");
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.tell.zoom([from, to]);
  }

  private sizeOver(u = this.plot): void {
    if (!u) return;
    const scale = devicePixelRatio || 1;
    this.over.width = u.over.clientWidth * scale;
    this.over.height = u.over.clientHeight * scale;
  }

  setCursor(x: number | null): void {
    this.cursorX = x;
    this.drawCursor();
  }

  private drawCursor(): void {
    const u = this.plot;
    const ctx = this.over.getContext("2d");
    if (!u || !ctx) return;
    ctx.clearRect(0, 0, this.over.width, this.over.height);
    if (this.cursorX === null || this.cursorX < this.shown[0] || this.cursorX > this.shown[1]) return;
    const scale = devicePixelRatio || 1;
    const x = u.valToPos(this.cursorX, "x") * scale;
    ctx.strokeStyle = getComputedStyle(this.place).getPropertyValue("--quiet") || "#888";
    ctx.setLineDash([3 * scale, 3 * scale]);
    ctx.beginPath(); ctx.moveTo(x, 0); ctx.lineTo(x, this.over.height); ctx.stroke();
    ctx.setLineDash([]);
    for (const one of this.readings(this.cursorX, 30)) {
      if (!Number.isFinite(one.y)) continue;
      ctx.fillStyle = one.color;
      ctx.beginPath(); ctx.arc(u.valToPos(one.x, "x") * scale, u.valToPos(one.y, "y") * scale, 3 * scale, 0, 7); ctx.fill();
    }
  }

  /** The value of each curve nearest to a place, the highest first. */
  readings(at: number, most = 200): Reading[] {
    if (!this.look) return [];
    const found: Reading[] = [];
    for (const one of this.look.curves) {
      const i = nearest(one.curve.x, at);
      if (i < 0) continue;
      const x = one.curve.x[i]!;
      const source = one.curve.sources.find((part) => x >= part.from && x <= part.to);
      found.push({ key: one.key, label: one.label, color: one.color, x, y: this.values(one)[i]!, verdict: source?.verdict ?? "", replay: source?.replay ?? 0 });
    }
    for (const one of this.look.bands) {
      const i = nearest(one.band.x, at);
      if (i >= 0) found.push({ key: one.key, label: one.label, color: one.color, x: one.band.x[i]!, y: one.band.mean[i]!, verdict: "", replay: 0 });
    }
    return found.sort((a, b) => (Number.isFinite(b.y) ? b.y : -Infinity) - (Number.isFinite(a.y) ? a.y : -Infinity)).slice(0, most);
  }

  positionOf(x: number): number { return this.plot ? this.plot.valToPos(x, "x") + this.plot.bbox.left / (devicePixelRatio || 1) : 0; }

  /** The chart as a picture. */
  canvas(): HTMLCanvasElement | null { return this.plot ? this.plot.ctx.canvas : null; }

  lines(): { label: string; x: Float64Array; y: Float64Array; color: string }[] {
    if (!this.look) return [];
    return [...this.look.curves.map((one) => ({ label: one.label, x: one.curve.x, y: this.values(one), color: one.color })),
      ...this.look.bands.map((one) => ({ label: one.label, x: one.band.x, y: one.band.mean, color: one.color }))];
  }

  get box(): { x: [number, number]; y: [number, number]; logX: boolean; logY: boolean } {
    return { x: this.shown, y: this.rangeOfY(), logX: this.look?.logX ?? false, logY: this.look?.logY ?? false };
  }
}

function duration(seconds: number): string {
  const size = Math.abs(seconds);
  if (size >= 86400) return `${short(seconds / 86400, 3)} d`;
  if (size >= 3600) return `${short(seconds / 3600, 3)} h`;
  if (size >= 60) return `${short(seconds / 60, 3)} min`;
  return `${short(seconds, 3)} s`;
}
