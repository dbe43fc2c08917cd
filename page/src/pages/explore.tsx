// What made the difference: parallel coordinates and a scatter with brushes, and which args go with a value.

import { useEffect, useMemo, useRef } from "preact/hooks";
import { table } from "../api";
import { Choice, Empty, Failure, Menu, RunLink, Tick, useAnswer, Value } from "../parts/basics";
import { useCanvas } from "../parts/canvas";
import { columnTitle } from "../parts/runlist";
import { WhereBox, whereError } from "../parts/wherebox";
import { categoryCorrelation, rankCorrelation } from "../pure/curves";
import { cellText, numberOf, short, type Cell } from "../pure/format";
import { likelyArgs, likelyMetrics } from "../pure/likely";
import { fromList, toList } from "../pure/params";
import { hrefOf, isDark, param, set } from "../state";
import { knownColumns, loadColumns } from "./workspace";

interface Axis { key: string; title: string; isNumber: boolean; isLog: boolean; places: number[]; low: number; high: number; words: string[] }

const LOG_FROM = 100; // how many times as large as the lowest the highest value of a logarithmic axis is, as of learning rates

function axisOf(key: string, cells: Cell[]): Axis {
  const numbers = cells.map((cell) => (typeof cell === "string" && !cell.startsWith("$int:") && !/^(NaN|-?Infinity)$/.test(cell) ? null : numberOf(cell)));
  const isNumber = cells.some((cell) => cell !== null) && cells.every((cell, i) => cell === null || numbers[i] !== null);
  if (isNumber) {
    const finite = numbers.filter((n): n is number => n !== null && Number.isFinite(n));
    const [low, high] = finite.length ? [Math.min(...finite), Math.max(...finite)] : [0, 1];
    return { key, title: columnTitle(key), isNumber, isLog: low > 0 && high / low >= LOG_FROM, places: numbers.map((n) => n ?? NaN), low, high: high === low ? low + 1 : high, words: [] };
  }
  const words = [...new Set(cells.filter((cell) => cell !== null).map((cell) => cellText(cell)))].sort();
  return { key, title: columnTitle(key), isNumber, isLog: false, places: cells.map((cell) => (cell === null ? NaN : words.indexOf(cellText(cell)))), low: 0, high: Math.max(words.length - 1, 1), words };
}

type Brushes = Map<string, [number, number]>;
const readBrushes = (text: string): Brushes => new Map(toList(text).map((one) => { const [range = "", ...key] = one.split("@").reverse(); const [a, b] = range.split("..").map(Number); return [key.reverse().join("@"), [a ?? 0, b ?? 0]] as [string, [number, number]]; }));
const writeBrushes = (brushes: Brushes) => fromList([...brushes].map(([key, [a, b]]) => `${key}@${Number(a.toPrecision(5))}..${Number(b.toPrecision(5))}`));

export function Explore() {
  useEffect(() => { void loadColumns(); }, []);
  const known = knownColumns.value;
  const args = likelyArgs(known).map((one) => `arg:${one}`);
  const constant = new Set(known.filter((one) => one.kind === "arg" && one.values === 1).map((one) => `arg:${one.name}`));
  const differing = args.filter((one) => !constant.has(one));
  const metrics = known.filter((one) => one.kind === "metric" && one.is_number !== false).map((one) => `metric:${one.name}`);
  const guess = likelyMetrics(known).map((one) => `metric:${one}`)[0] ?? "";
  const target = param("target") || guess;
  const keys = param("axes") ? toList(param("axes")) : [...(differing.length ? differing : args).slice(0, 6), target].filter(Boolean);
  const where = param("where");
  const scatterX = param("sx") || args[0] || target; const scatterY = param("sy") || target;
  const columns = [...new Set([...args.slice(0, 40), ...keys, scatterX, scatterY, target])].filter(Boolean);
  const { answer, error } = useAnswer((stop) => (columns.length ? table({ where, columns, limit: 1000 }, stop) : Promise.resolve(null)), JSON.stringify([where, columns]));
  const axes = useMemo(() => new Map(columns.map((key) => [key, axisOf(key, (answer?.rows ?? []).map((row) => row.cells[key] ?? null))])), [answer]);
  const brushText = param("brush");
  const brushes = useMemo(() => readBrushes(brushText), [brushText]);
  const kept = useMemo(() => (answer?.rows ?? []).map((_, i) => [...brushes].every(([key, [low, high]]) => { const place = axes.get(key)?.places[i] ?? NaN; return place >= low && place <= high; })), [answer, axes, brushes]);
  const brush = (key: string, range: [number, number] | null) => { const next = new Map(brushes); if (range) next.set(key, range); else next.delete(key); set({ brush: writeBrushes(next) }); };
  const wrong = whereError(error);
  if (error && !wrong) return <Empty title="Nothing to explore"><Failure error={error} /></Empty>;
  if (!answer && !wrong) return known.length ? <div class="loading page" role="status" aria-label="Loading" /> : <Empty title="Nothing to explore yet"><p>Runs with args and logged values appear here.</p></Empty>;
  const found = answer ?? { rows: [], total: 0 };
  const shownAxes = keys.map((key) => axes.get(key)).filter((one): one is Axis => one !== undefined);
  const color = axes.get(target);
  const rows = found.rows.filter((_, i) => kept[i]);
  const options = [...metrics, ...args, "took_s"].map((key): [string, string] => [key, columnTitle(key)]);
  return <article class="page wide">
    <header class="title"><h1>Explore</h1><span class="quiet" role="status">{rows.length} of {found.total} runs{found.total > 1000 ? " (the first 1000)" : ""}</span>{brushes.size > 0 && <button type="button" onClick={() => set({ brush: "" })}>clear {brushes.size === 1 ? "the brush" : `${brushes.size} brushes`}</button>}</header>
    <div class="tools"><Choice label="value" value={target} of={options.filter(([key]) => key.startsWith("metric:"))} onChange={(value) => set({ target: value, axes: "" })} />
      <Menu label="axes ▾" title="Which axes the parallel coordinates have">{() => <div class="picker"><div class="names">{options.map(([key, title]) => <div key={key}><Tick label={title} checked={keys.includes(key)} onChange={(on) => set({ axes: fromList(on ? [...keys, key] : keys.filter((one) => one !== key)) })} /><small>{key.split(":")[0]}</small></div>)}</div>
        <button type="button" class="small" onClick={() => set({ axes: "" })}>usual axes</button></div>}</Menu>
      <WhereBox id="explore-where" value={where} onChange={(value) => set({ where: value }, "replace")} columns={known} error={wrong} /></div>
    <section aria-label="Parallel coordinates"><h2>Parallel coordinates <small class="quiet">drag along an axis to keep a part of it</small></h2>
      <Parallel axes={shownAxes} kept={kept} color={color} brushes={brushes} onBrush={brush} /></section>
    <div class="columns">
      <section aria-label="Scatter"><h2>Scatter</h2><div class="tools"><Choice label="x" value={scatterX} of={options} onChange={(value) => set({ sx: value })} /><Choice label="y" value={scatterY} of={options} onChange={(value) => set({ sy: value })} /></div>
        {axes.get(scatterX) && axes.get(scatterY) && <Scatter x={axes.get(scatterX)!} y={axes.get(scatterY)!} kept={kept} color={color} onBrush={(x, y) => { const next = new Map(brushes); next.set(scatterX, x); next.set(scatterY, y); set({ brush: writeBrushes(next) }); }} />}</section>
      <section aria-label="Importance"><h2>What goes with {columnTitle(target)} <small class="quiet">rank correlation, over the runs above</small></h2><Importance args={args} axes={axes} target={color} kept={kept} /></section>
    </div>
    <section><h2>Runs</h2><div class="scroll" tabIndex={0} role="region" aria-label="Chosen runs"><table><thead><tr><th>run</th>{keys.map((key) => <th key={key} class="number">{columnTitle(key)}</th>)}</tr></thead><tbody>{rows.slice(0, 50).map((row) => <tr key={row.run}><th scope="row"><RunLink run={row.run} name={row.name} /></th>{keys.map((key) => <td key={key} class="number"><Value cell={row.cells[key]} /></td>)}</tr>)}</tbody></table></div>
      <p class="bar"><a class="button" href={hrefOf("/", { top: "0", show: fromList(rows.slice(0, 100).map((row) => row.run)) })}>their curves</a><a class="button" href={hrefOf("/ask", { runs: fromList(rows.slice(0, 100).map((row) => row.run)) })}>ask: add a column</a></p></section>
  </article>;
}

const part = (axis: Axis, place: number) => (axis.isLog ? Math.log(Math.max(place, 1e-300) / axis.low) / Math.log(axis.high / axis.low) : (place - axis.low) / (axis.high - axis.low));
const placeAtPart = (axis: Axis, at: number) => (axis.isLog ? axis.low * (axis.high / axis.low) ** at : axis.low + at * (axis.high - axis.low));

function shade(color: Axis | undefined, i: number): string {
  const at = color ? part(color, color.places[i] ?? NaN) : NaN;
  if (!Number.isFinite(at)) return isDark.value ? "#8a93a0" : "#9aa3af";
  const hue = 255 - 215 * at; // blue to orange, told apart without colour vision by its lightness
  return `hsl(${hue} 65% ${isDark.value ? 66 + 6 * at : 52 - 14 * at}%)`;
}

const TOP = 26; const BOTTOM = 18; const SIDE = 46;

function Parallel({ axes, kept, color, brushes, onBrush }: { axes: Axis[]; kept: boolean[]; color: Axis | undefined; brushes: Brushes; onBrush: (key: string, range: [number, number] | null) => void }) {
  const drag = useRef<{ axis: Axis; from: number } | null>(null);
  const xOf = (i: number, width: number) => SIDE + (axes.length > 1 ? (i / (axes.length - 1)) * (width - 2 * SIDE) : (width - 2 * SIDE) / 2);
  const yOf = (axis: Axis, place: number, height: number) => height - BOTTOM - part(axis, place) * (height - TOP - BOTTOM);
  const canvas = useCanvas((ctx, width, height) => {
    const css = getComputedStyle(ctx.canvas);
    const order = kept.map((_, i) => i).sort((a, b) => Number(kept[a]) - Number(kept[b]));
    for (const i of order) {
      ctx.globalAlpha = kept[i] ? 0.75 : 0.07; ctx.strokeStyle = shade(color, i); ctx.lineWidth = 1.3;
      ctx.beginPath();
      axes.forEach((axis, k) => { const place = axis.places[i]!; if (Number.isFinite(place)) ctx.lineTo(xOf(k, width), yOf(axis, place, height)); });
      ctx.stroke();
    }
    ctx.globalAlpha = 1;
    axes.forEach((axis, k) => {
      const x = xOf(k, width);
      ctx.strokeStyle = css.getPropertyValue("--quiet"); ctx.lineWidth = 1; ctx.beginPath(); ctx.moveTo(x, TOP); ctx.lineTo(x, height - BOTTOM); ctx.stroke();
      ctx.fillStyle = css.color; ctx.textAlign = "center"; ctx.fillText(`${axis.title.slice(0, 18)}${axis.isLog ? " (log)" : ""}`, x, 12);
      ctx.fillStyle = css.getPropertyValue("--quiet");
      const marks: [number, string][] = axis.isNumber ? [[axis.high, short(axis.high, 4)], [axis.low, short(axis.low, 4)]] : axis.words.slice(0, 12).map((word, n) => [n, word.slice(0, 10)]);
      for (const [place, text] of marks) { const y = yOf(axis, place, height); ctx.textAlign = k === axes.length - 1 ? "right" : "left"; ctx.fillText(text, x + (k === axes.length - 1 ? -6 : 6), Math.min(Math.max(y + 4, TOP + 2), height - 4)); }
      const range = brushes.get(axis.key);
      if (range) { ctx.fillStyle = css.getPropertyValue("--accent"); ctx.globalAlpha = 0.3; const y1 = yOf(axis, range[1], height); ctx.fillRect(x - 6, y1, 12, yOf(axis, range[0], height) - y1); ctx.globalAlpha = 1; }
    });
  }, [axes, kept, color, brushes, isDark.value]);
  const placeAt = (event: PointerEvent, axis: Axis) => { const box = canvas.current!.getBoundingClientRect(); const at = (box.height - BOTTOM - (event.clientY - box.top)) / (box.height - TOP - BOTTOM); return placeAtPart(axis, Math.min(Math.max(at, -0.02), 1.02)); };
  const down = (event: PointerEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const k = axes.findIndex((_, i) => Math.abs(xOf(i, box.width) - (event.clientX - box.left)) < 16);
    if (k < 0) return;
    drag.current = { axis: axes[k]!, from: placeAt(event, axes[k]!) };
    canvas.current!.setPointerCapture(event.pointerId);
  };
  const up = (event: PointerEvent) => {
    if (!drag.current) return;
    const { axis, from } = drag.current; drag.current = null;
    const to = placeAt(event, axis);
    onBrush(axis.key, Math.abs(part(axis, to) - part(axis, from)) < 0.01 ? null : [Math.min(from, to), Math.max(from, to)]);
  };
  return <><canvas ref={canvas} class="parallel" role="img" aria-label={`Parallel coordinates of ${axes.map((axis) => axis.title).join(", ")}`} onPointerDown={down} onPointerUp={up} />
    <details class="byhand"><summary>brushes by number</summary>{axes.filter((axis) => axis.isNumber).map((axis) => { const [low, high] = brushes.get(axis.key) ?? [axis.low, axis.high]; return <label key={axis.key} class="choice"><span>{axis.title}</span><input type="number" step="any" aria-label={`${axis.title} from`} value={low} onChange={(event) => onBrush(axis.key, [Number(event.currentTarget.value), high])} /><input type="number" step="any" aria-label={`${axis.title} to`} value={high} onChange={(event) => onBrush(axis.key, [low, Number(event.currentTarget.value)])} /></label>; })}</details></>;
}

/** An axis with some room at its ends, so that no point is on the frame. */
const roomier = (axis: Axis): Axis => { if (axis.isLog) return { ...axis, low: placeAtPart(axis, -0.04), high: placeAtPart(axis, 1.04) }; const room = axis.isNumber ? (axis.high - axis.low) * 0.04 : 0.3; return { ...axis, low: axis.low - room, high: axis.high + room }; };

function Scatter({ x: plainX, y: plainY, kept, color, onBrush }: { x: Axis; y: Axis; kept: boolean[]; color: Axis | undefined; onBrush: (x: [number, number], y: [number, number]) => void }) {
  const drag = useRef<[number, number] | null>(null);
  const [LEFT, LOW, ROOM] = [56, 26, 10];
  const x = useMemo(() => roomier(plainX), [plainX]); const y = useMemo(() => roomier(plainY), [plainY]);
  const canvas = useCanvas((ctx, width, height) => {
    const css = getComputedStyle(ctx.canvas);
    ctx.strokeStyle = css.getPropertyValue("--line"); ctx.fillStyle = css.getPropertyValue("--quiet");
    for (let i = 0; i <= 4; i++) {
      const px = LEFT + (i / 4) * (width - LEFT - ROOM); const py = height - LOW - (i / 4) * (height - LOW - ROOM);
      ctx.beginPath(); ctx.moveTo(LEFT, py); ctx.lineTo(width - ROOM, py); ctx.moveTo(px, ROOM); ctx.lineTo(px, height - LOW); ctx.stroke();
      ctx.textAlign = "right"; ctx.fillText(y.isNumber ? short(placeAtPart(y, i / 4), 4) : "", LEFT - 6, py + 4);
      ctx.textAlign = "center"; ctx.fillText(x.isNumber ? short(placeAtPart(x, i / 4), x.isLog ? 2 : 4) : "", px, height - 8);
    }
    if (!x.isNumber) x.words.forEach((word, n) => ctx.fillText(word.slice(0, 12), LEFT + part(x, n) * (width - LEFT - ROOM), height - 8));
    kept.forEach((is, i) => {
      const a = x.places[i]!; const b = y.places[i]!;
      if (!Number.isFinite(a) || !Number.isFinite(b)) return;
      ctx.globalAlpha = is ? 0.85 : 0.12; ctx.fillStyle = shade(color, i);
      ctx.beginPath(); ctx.arc(LEFT + part(x, a) * (width - LEFT - ROOM), height - LOW - part(y, b) * (height - LOW - ROOM), 4, 0, 7); ctx.fill();
    });
    ctx.globalAlpha = 1;
  }, [x, y, kept, color, isDark.value]);
  const at = (event: PointerEvent): [number, number] => { const box = canvas.current!.getBoundingClientRect(); return [placeAtPart(x, (event.clientX - box.left - LEFT) / (box.width - LEFT - ROOM)), placeAtPart(y, (box.height - LOW - (event.clientY - box.top)) / (box.height - LOW - ROOM))]; };
  const up = (event: PointerEvent) => { if (!drag.current) return; const [x0, y0] = drag.current; const [x1, y1] = at(event); drag.current = null; if (Math.abs(part(x, x1) - part(x, x0)) > 0.01 || Math.abs(part(y, y1) - part(y, y0)) > 0.01) onBrush([Math.min(x0, x1), Math.max(x0, x1)], [Math.min(y0, y1), Math.max(y0, y1)]); };
  return <canvas ref={canvas} class="scatter" role="img" aria-label={`Scatter of ${y.title} over ${x.title}`} onPointerDown={(event) => { drag.current = at(event); canvas.current!.setPointerCapture(event.pointerId); }} onPointerUp={up} />;
}

function Importance({ args, axes, target, kept }: { args: string[]; axes: Map<string, Axis>; target: Axis | undefined; kept: boolean[] }) {
  if (!target) return null;
  const found = args.map((key) => {
    const axis = axes.get(key);
    if (!axis) return null;
    const rows = kept.map((is, i) => (is && Number.isFinite(axis.places[i]!) && Number.isFinite(target.places[i]!) ? i : -1)).filter((i) => i >= 0);
    const values = rows.map((i) => target.places[i]!);
    const strength = axis.isNumber ? rankCorrelation(rows.map((i) => axis.places[i]!), values) : categoryCorrelation(rows.map((i) => axis.words[axis.places[i]!]!), values);
    return { key, title: axis.title, strength, count: rows.length, isNumber: axis.isNumber };
  }).filter((one): one is NonNullable<typeof one> => one !== null && Number.isFinite(one.strength)).sort((a, b) => Math.abs(b.strength) - Math.abs(a.strength));
  if (!found.length) return <p class="quiet">At least three runs with different args are needed.</p>;
  return <><div class="bars importance">{found.map((one) => <div key={one.key}><span>{one.title}</span><div><i class={one.strength < 0 ? "negative" : ""} ref={(node) => { if (node) node.style.width = `${Math.abs(one.strength) * 100}%`; }} /></div><em title={`${one.count} runs`}>{one.isNumber && one.strength > 0 ? "+" : ""}{short(one.strength, 2)}</em></div>)}</div>
    <p class="quiet">+ grows with it, − falls; for words, how far their groups lie apart. A correlation is no cause.</p></>;
}
