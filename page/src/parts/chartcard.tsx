// One chart with its title, its readings under the crosshair, and what can be done with it.

import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Chart, type Drawn, type DrawnBand, type Look, type Reading } from "../chart";
import { ENVELOPES } from "../painter";
import { saveBars, saveCsv, savePng, saveRows, saveSvg, type Files } from "../download";
import { band, smooth, type Curve } from "../pure/curves";
import { cellText, durationText, exact, grouped, short } from "../pure/format";
import { isDark } from "../state";
import { watch } from "../store";
import { MEANINGS, Menu, Verdict } from "./basics";
import { Media } from "./media";

export interface RunView { run: string; label: string; color: string; group?: string | undefined; isStrong?: boolean; live?: boolean }
export interface ChartTerms { x: string; smoothing: number; logX: boolean; logY: boolean; range: [number, number] | null; ranks: boolean; band: "" | "std" | "range" }

/** The place of the crosshair, and the chart that the pointer is over. */
export const crosshair = signal<{ x: number; chart: string } | null>(null);
const FEW = 6;
const MANY = 18;

export function ChartCard({ name, runs, terms, onZoom, onLogY, isLarge }: { name: string; runs: RunView[]; terms: ChartTerms; onZoom: (range: [number, number] | null) => void; onLogY?: () => void; isLarge?: boolean }) {
  const card = useRef<HTMLElement>(null);
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<Chart | null>(null);
  const [isNear, setNear] = useState(false);
  const [curves, setCurves] = useState<Curve[] | null>(null);
  const [size, setSize] = useState<[number, number]>([0, 0]);
  const [readings, setReadings] = useState<{ x: number; left: number; isHere: boolean; rows: Reading[] } | null>(null);
  const zoom = useRef(onZoom);
  const files = useRef<Files>({});
  zoom.current = onZoom;

  useEffect(() => {
    const seen = new IntersectionObserver(([entry]) => { if (entry?.isIntersecting) setNear(true); else setNear(false); }, { rootMargin: "300px" });
    const sized = new ResizeObserver(() => { if (place.current) setSize([place.current.clientWidth, place.current.clientHeight]); });
    if (card.current) seen.observe(card.current);
    if (place.current) sized.observe(place.current);
    return () => { seen.disconnect(); sized.disconnect(); chart.current?.destroy(); chart.current = null; };
  }, []);

  // Many curves hide their envelopes, so that they need fewer buckets.
  const isDense = runs.length > ENVELOPES;
  const pixels = isLarge ? (isDense ? 600 : 1500) : isDense ? 300 : 600;
  const ids = runs.map((one) => one.run).join();
  const range = terms.range ? terms.range.join() : "";
  useEffect(() => {
    if (!isNear) return;
    if (!runs.length) { setCurves([]); return; }
    const window: [number, number] | null = terms.range ? widen(terms.range) : null;
    let stop = () => {};
    // While the window moves, the curves at hand are drawn; finer ones are asked for when it rests.
    const timer = setTimeout(() => { stop = watch({ runs: runs.map((one) => one.run), name, x: terms.x, window, pixels, ranks: terms.ranks, envelopes: !isDense }, (found) => setCurves((old) => (found.length || !old?.length ? found : old))); }, curves && terms.range ? 150 : 0);
    return () => { clearTimeout(timer); stop(); };
  }, [isNear, ids, name, terms.x, range, pixels, terms.ranks]);

  const byRun = useMemo(() => new Map(runs.map((one) => [one.run, one])), [runs]);
  const shown = useMemo(() => (curves ?? []).filter((one) => byRun.has(one.run)), [curves, byRun]);
  const numeric = shown.filter((one) => one.x.length > 0);
  const isSingle = numeric.length > 0 && numeric.every((one) => one.count <= 1);
  const isText = !numeric.length && shown.some((one) => one.texts > 0);
  const isPlot = numeric.length > 0 && !isSingle;
  const texts = useMemo(() => (isText ? runs.filter((view) => shown.some((one) => one.run === view.run && one.texts > 0)) : []), [isText, runs, shown]);

  const look = useMemo<Look>(() => {
    const [lines, bands] = group(numeric, byRun, terms);
    return { curves: lines, bands, smoothing: terms.smoothing, logX: terms.logX, logY: terms.logY, isTime: terms.x === "time", isRelative: terms.x === "relative", range: terms.range, isDark: isDark.value };
  }, [numeric.length, curves, byRun, terms, isDark.value]);

  useEffect(() => {
    if (!isPlot || !place.current || !isNear) return;
    chart.current ??= new Chart(place.current, {
      zoom: (next) => zoom.current(next),
      cursor: (x) => { crosshair.value = x === null ? null : { x, chart: name }; },
    });
    chart.current.show(look);
  }, [look, isPlot, isNear]);
  useEffect(() => { if (size[0]) chart.current?.resize(size[0], size[1]); }, [size]);
  useEffect(() => { if (!isPlot && chart.current) { chart.current.destroy(); chart.current = null; } }, [isPlot]);

  useEffect(() => crosshair.subscribe((now) => {
    if (!chart.current || !isNear || !isPlot) return;
    chart.current.setCursor(now ? now.x : null);
    if (!now) { setReadings(null); return; }
    const isHere = now.chart === name;
    setReadings({ x: now.x, left: chart.current.positionOf(now.x), isHere, rows: chart.current.readings(now.x) });
  }), [isNear, isPlot]);

  const onKey = (event: KeyboardEvent) => {
    const now = chart.current;
    if (!now || event.target !== place.current) return;
    const [low, high] = now.window;
    const middle = (low + high) / 2;
    const at = crosshair.value?.x ?? middle;
    const step = (high - low) / 50;
    const act: Record<string, () => void> = {
      "+": () => now.zoomAt(at, 0.8), "=": () => now.zoomAt(at, 0.8), "-": () => now.zoomAt(at, 1.25), "0": () => onZoom(null),
      ArrowLeft: () => (event.shiftKey ? now.panBy(-0.1) : (crosshair.value = { x: Math.max(low, at - step), chart: name })),
      ArrowRight: () => (event.shiftKey ? now.panBy(0.1) : (crosshair.value = { x: Math.min(high, at + step), chart: name })),
      Escape: () => { crosshair.value = null; },
    };
    const found = act[event.key];
    if (found) { found(); event.preventDefault(); }
  };

  const notes = shown.filter((one) => one.note);
  if (curves && !shown.length && runs.length) return <section class="card none" ref={card} hidden />;
  const replayed = [...new Set(numeric.flatMap((one) => one.sources.map((part) => part.verdict)))];
  const odd = numeric.reduce((sum, one) => sum + one.nonfinite.length, 0);
  return <section class={`card ${isLarge ? "large" : ""}`} ref={card} aria-label={`Chart of ${name}`} data-chart={name}>
    <header>
      <h3 title={name}>{name}</h3>
      {replayed.map((verdict) => <Verdict key={verdict} verdict={verdict} />)}
      {odd > 0 && <small class="odd" title="Values that are NaN or infinite are marked at the lower edge (NaN ×, −inf ▾) or the upper edge (inf ▴)">{grouped(String(odd))} not finite</small>}
      <span class="grow" />
      {isPlot && onLogY && <button type="button" class="small ghost" aria-pressed={terms.logY} title="Logarithmic y axis" onClick={onLogY}>log</button>}
      {isPlot && terms.range && <button type="button" class="small ghost" onClick={() => onZoom(null)} title="Show the whole axis (double click, or 0)">reset</button>}
      {isPlot && <Menu label="⤓" title={`Save the chart ${name}`} align="right">{(close) => <div class="list">
        <button type="button" onClick={() => { close(); if (chart.current) savePng(chart.current, name); }}>PNG picture</button>
        <button type="button" onClick={() => { close(); if (chart.current) saveSvg(chart.current, name); }}>SVG curves</button>
        <button type="button" onClick={() => { close(); if (chart.current) saveCsv(chart.current, name, terms.x); }}>CSV numbers</button>
      </div>}</Menu>}
      {(isText || isSingle) && <Menu label="⤓" title={`Save the chart ${name}`} align="right">{(close) => <div class="list">
        {files.current.png && <button type="button" onClick={() => { close(); files.current.png?.(); }}>PNG picture</button>}
        {files.current.csv && <button type="button" onClick={() => { close(); files.current.csv?.(); }}>CSV table</button>}
        {!files.current.png && !files.current.csv && <span class="quiet">nothing to save yet</span>}
      </div>}</Menu>}
    </header>
    <div class={`plot ${isPlot ? "" : isText ? "other media" : "other"}`} ref={place} tabIndex={isPlot || isText ? 0 : undefined} role={isPlot ? "application" : isText ? "region" : undefined} aria-roledescription={isPlot ? "chart" : undefined}
      aria-label={isPlot ? `${name}, ${look.curves.length + look.bands.length} curves. Arrow keys move the crosshair, plus and minus zoom, 0 shows all.` : isText ? `Values of ${name}` : undefined} onKeyDown={onKey}>
      {!curves && <div class="loading" role="status" aria-label="Loading" />}
      {isSingle && <Bars name={name} curves={numeric} byRun={byRun} files={files} />}
      {isText && <Media name={name} files={files} runs={texts} x={terms.x} range={terms.range} count={shown.reduce((sum, one) => sum + one.texts, 0)} />}
      {!numeric.length && notes.length > 0 && <p class="quiet">{notes[0]!.note}. Choose another x axis.</p>}
    </div>
    {readings && isPlot && <Readings {...readings} axis={terms.x} width={size[0]} span={chart.current ? chart.current.window[1] - chart.current.window[0] : 0} />}
    {readings?.isHere && <p class="unseen" aria-live="polite">{readings.rows.slice(0, 3).map((row) => `${row.label} ${short(row.y)}`).join(", ")}</p>}
  </section>;
}

function widen([low, high]: [number, number]): [number, number] {
  const room = (high - low) * 0.25; // so that a small pan needs no request
  return [low - room, high + room];
}

function group(curves: Curve[], byRun: Map<string, RunView>, terms: ChartTerms): [Drawn[], DrawnBand[]] {
  if (terms.ranks) return fan(curves, byRun);
  if (!terms.band || ![...byRun.values()].some((one) => one.group !== undefined)) {
    return [curves.map((curve) => { const view = byRun.get(curve.run)!; return { key: curve.run, label: view.label, color: view.color, curve, isStrong: view.isStrong ?? false }; }), []];
  }
  const groups = new Map<string, Curve[]>();
  for (const curve of curves) { const key = byRun.get(curve.run)!.group ?? ""; groups.set(key, [...(groups.get(key) ?? []), curve]); }
  return [[], [...groups].map(([key, members]) => ({
    key, label: `${key} (${members.length})`, color: byRun.get(members[0]!.run)!.color,
    band: band(members.map((one) => ({ x: one.x, y: smooth(one.last, terms.smoothing) })), terms.band as "std" | "range"),
  }))];
}

/** All ranks of a run: rank 0 strong, the others thin, and the span between the lowest and the highest. */
function fan(curves: Curve[], byRun: Map<string, RunView>): [Drawn[], DrawnBand[]] {
  const bands = [...byRun.values()].flatMap((view) => {
    const members = curves.filter((one) => one.run === view.run);
    return members.length > 1 ? [{ key: `${view.run} span`, label: `${view.label} mean of ${members.length} ranks`, color: view.color, band: band(members.map((one) => ({ x: one.x, y: one.last })), "range") }] : [];
  });
  const lines = curves.map((curve) => { const view = byRun.get(curve.run)!; return { key: `${curve.run} ${curve.rank}`, label: `${view.label} rank ${curve.rank}`, color: view.color, curve, isStrong: curve.rank === 0, dash: curve.rank ? [2, 2] : [] }; });
  return [lines, bands];
}

function Readings({ x, left, isHere, rows, axis, width, span }: { span: number; x: number; left: number; isHere: boolean; rows: Reading[]; axis: string; width: number }) {
  const shown = rows.slice(0, isHere ? MANY : FEW);
  const isRight = left > width / 2;
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => { // a style attribute would be against the content security policy; this is not one
    if (!box.current) return;
    box.current.style.left = isRight ? "" : `${left + 14}px`;
    box.current.style.right = isRight ? `${width - left + 14}px` : "";
  });
  // A curve that ended, or has no value near, is read where it has one, which is told.
  const isElsewhere = (place: number) => Math.abs(place - x) > span * 0.02 && place !== nearestX(rows, x);
  const at = axis === "time" ? new Date(x * 1000).toLocaleString() : axis === "relative" ? durationText(x) : `${axis} ${short(nearestX(rows, x))}`;
  return <div class={`readings ${isHere ? "here" : ""}`} ref={box} aria-hidden="true">
    <b>{at}</b>
    {shown.map((row) => <div key={row.key}><i ref={(node) => { if (node) node.style.background = row.color; }} /><span>{row.label}</span><em title={exact(row.y)}>{cellText(row.y)}</em>{isElsewhere(row.x) ? <small>at {axis === "time" ? new Date(row.x * 1000).toLocaleTimeString() : axis === "relative" ? durationText(row.x) : short(row.x)}</small> : null}{row.verdict ? <small title={MEANINGS[row.verdict]}>{row.verdict} · replay {row.replay}</small> : null}</div>)}
    {rows.length > shown.length && <small>and {rows.length - shown.length} more</small>}
  </div>;
}

const nearestX = (rows: Reading[], x: number) => rows.reduce((best, row) => (Math.abs(row.x - x) < Math.abs(best - x) ? row.x : best), rows[0]?.x ?? x);

function Bars({ name, curves, byRun, files }: { name: string; curves: Curve[]; byRun: Map<string, RunView>; files: { current: Files } }) {
  const rows = curves.map((one) => ({ view: byRun.get(one.run)!, value: one.last[0]!, verdict: one.sources[0]?.verdict })).sort((a, b) => b.value - a.value);
  files.current = {
    png: () => saveBars(name, rows.map((row) => ({ label: row.view.label, value: row.value, color: row.view.color }))),
    csv: () => saveRows(name, ["run", "name", name, "verdict"], rows.map((row) => [row.view.run, row.view.label, row.value, row.verdict ?? "recorded"])),
  };
  const low = Math.min(0, ...rows.map((row) => row.value).filter(Number.isFinite));
  const high = Math.max(...rows.map((row) => row.value).filter(Number.isFinite), low + 1e-300);
  return <div class="bars" tabIndex={0} role="group" aria-label="One value per run">{rows.slice(0, 200).map((row) => <div key={row.view.run}>
    <span title={row.view.label}>{row.view.label}</span>
    <div><i ref={(node) => { if (node) { node.style.width = `${Number.isFinite(row.value) ? Math.max(1, ((row.value - low) / (high - low)) * 100) : 0}%`; node.style.background = row.view.color; } }} /></div>
    <em title={exact(row.value)}>{cellText(row.value)}<Verdict verdict={row.verdict} /></em></div>)}</div>;
}
