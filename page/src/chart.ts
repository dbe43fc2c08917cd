// A chart on a canvas: uPlot has the axes, the scales and the selection; the curves are drawn here, each with its own x.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { extent, nearest, roomy, smooth, type Band, type Curve } from "./pure/curves";
import { short, tickText } from "./pure/format";
import { MovingLayer, type View } from "./movinglayer";
import { ENVELOPES, paintCurves, within, type Paper } from "./painter";

export interface Drawn { key: string; label: string; color: string; curve: Curve; dash?: number[]; isStrong?: boolean }
export interface DrawnBand { key: string; label: string; color: string; band: Band }
export interface Look {
  curves: Drawn[]; bands: DrawnBand[]; smoothing: number; logX: boolean; logY: boolean; isTime: boolean; isRelative: boolean;
  range: [number, number] | null; isDark: boolean;
}
export interface Reading { key: string; label: string; color: string; x: number; y: number; verdict: string; replay: number }

interface Listeners { zoom: (range: [number, number] | null) => void; cursor: (x: number | null) => void }

const THICK_POINTS = 8_000; // up to so many points of a chart, lines are wider than a device pixel
const MOVED_POINTS = 2_000; // of more, the picture is moved with the window
const REST_MS = 120;

export class Chart {
  private plot: uPlot | null = null;
  private look: Look | null = null;
  private smoothed = new Map<string, { of: Float64Array; weight: number; values: Float64Array }>();
  private over: HTMLCanvasElement;
  private cursorX: number | null = null;
  private full: [number, number] = [0, 1];
  private shown: [number, number] = [0, 1];
  private pan: { from: number; range: [number, number] } | null = null;
  private heldY: [number, number] = [0, 1];
  private layer = new MovingLayer();
  private isMoving = false;
  private restTimer = 0;

  constructor(private readonly place: HTMLElement, private readonly tell: Listeners) {
    this.over = document.createElement("canvas");
    this.over.className = "crosshair";
    this.over.setAttribute("aria-hidden", "true");
  }

  destroy(): void { this.rest(); this.plot?.destroy(); this.plot = null; }

  get window(): [number, number] { return this.shown; }

  show(look: Look): void {
    const isOther = !this.look || look.logX !== this.look.logX || look.logY !== this.look.logY || look.isTime !== this.look.isTime || look.isRelative !== this.look.isRelative || look.isDark !== this.look.isDark;
    if (this.plot && !isOther && isMoved(this.look!, look)) this.move(); else this.rest();
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
    if (!this.isMoving) this.heldY = this.findRangeOfY();
    return this.heldY;
  }

  private findRangeOfY(): [number, number] {
    const look = this.look!;
    let found: [number, number] | null = null;
    const [from, to] = this.shown;
    const isWhole = from <= this.full[0] && to >= this.full[1];
    const part = (x: Float64Array, y: Float64Array | null) => (!y || isWhole ? y : y.subarray(...within(x, from, to, 0)));
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
    const look = this.look;
    const view = this.view(u);
    const isThin = this.pointsShown() > THICK_POINTS;
    const paint = (onto: CanvasRenderingContext2D, of: View, from: number, to: number) => paintCurves(onto, look, { ...this.paper(u), ...of }, (one) => this.values(one), from, to, isThin);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    if (this.isMoving) this.layer.show(ctx, view, paint); else paint(ctx, view, view.left, view.left + view.width);
    ctx.restore();
  }

  private view(u: uPlot): View {
    const { min = 0, max = 1 } = u.scales.x as { min?: number; max?: number };
    const { logX } = this.look!;
    const from = logX ? Math.log10(min) : min;
    const { left, top, width, height } = u.bbox;
    return { from, span: (logX ? Math.log10(max) : max) - from || 1, left, top, width, height };
  }

  private paper(u: uPlot): Omit<Paper, keyof View> {
    const { min = 0, max = 1 } = u.scales.y as { min?: number; max?: number };
    const { logX, logY } = this.look!;
    const fromY = logY ? Math.log10(min) : min;
    return { fromY, spanY: (logY ? Math.log10(max) : max) - fromY || 1, logX, logY, scale: devicePixelRatio || 1 };
  }

  private pointsShown(): number {
    return this.look!.curves.reduce((sum, one) => { const [first, last] = within(one.curve.x, this.shown[0], this.shown[1]); return sum + last - first; }, 0);
  }

  // --- a window that moves ------------------------------------------------------------------------------------------------

  /** Until the window rests, the picture of many points is moved instead of drawn, and the y axis stays. */
  private move(): void {
    if (!this.isMoving && this.pointsShown() < MOVED_POINTS) return;
    this.isMoving = true;
    clearTimeout(this.restTimer);
    this.restTimer = window.setTimeout(() => { this.rest(); this.rescale(); }, REST_MS);
  }

  private rest(): void {
    clearTimeout(this.restTimer);
    this.isMoving = false;
    this.layer.forget();
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
    this.move();
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

/** Whether only the window differs between two looks. */
function isMoved(old: Look, now: Look): boolean {
  if (String(old.range) === String(now.range) || old.smoothing !== now.smoothing || old.curves.length !== now.curves.length || old.bands.length !== now.bands.length) return false;
  return now.curves.every((one, i) => { const was = old.curves[i]!; return was.curve === one.curve && was.color === one.color && was.isStrong === one.isStrong; })
    && now.bands.every((one, i) => old.bands[i]!.key === one.key && old.bands[i]!.color === one.color);
}

function duration(seconds: number): string {
  const size = Math.abs(seconds);
  if (size >= 86400) return `${short(seconds / 86400, 3)} d`;
  if (size >= 3600) return `${short(seconds / 3600, 3)} h`;
  if (size >= 60) return `${short(seconds / 60, 3)} min`;
  return `${short(seconds, 3)} s`;
}
