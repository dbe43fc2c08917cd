// Logged values that are no numbers: texts and tables, histograms over the steps, and images with a slider.

import { useRef } from "preact/hooks";
import { get } from "../api";
import { saveCanvas, saveImages, saveRows, type Files } from "../download";
import { cellText, durationText, short, type Cell } from "../pure/format";
import { allSteps, placeOf, stepIndex, valueFor, type Placed } from "../pure/steps";
import { isDark, param, prefix, set } from "../state";
import { Choice, Failure, useAnswer, Verdict } from "./basics";
import { useCanvas } from "./canvas";
import type { RunView } from "./chartcard";

const MOST_RUNS = 12;
const MOST_IMAGES = 8;

interface MediaValue extends Placed { kind: string; text?: string; images?: number; columns?: string[]; rows?: Cell[][]; truncated?: boolean; error?: string; verdict?: string; replay?: number }
interface MediaList { run: string; total: number; values: MediaValue[] }
interface HistogramRow extends Placed { counts: number[]; size: number; odd?: number; low?: number; high?: number; mean?: number; std?: number; error?: string }
interface Histograms { edges: number[]; rows: HistogramRow[]; total: number }
interface Shown { files: { current: Files }; name: string; runs: RunView[]; lists: Map<string, MediaList>; axis: string }

const atParam = () => { const text = param("at"); return text && Number.isFinite(Number(text)) ? Number(text) : null; };

export function Media({ files, name, runs, x, range, count }: { files: { current: Files }; name: string; runs: RunView[]; x: string; range: [number, number] | null; count: number }) {
  const some = runs.slice(0, MOST_RUNS);
  const window = range ? { from: range[0], to: range[1] } : {};
  const found = useAnswer((stop) => Promise.all(some.map((one) => get<MediaList>(`/api/runs/${one.run}/media`, { name, x, ...window }, stop))), JSON.stringify([name, x, range, count, some.map((one) => one.run)]));
  if (found.error) return <Failure error={found.error} />;
  if (!found.answer) return <div class="loading" role="status" aria-label="Loading" />;
  const lists = new Map(found.answer.filter((one) => one.values.length).map((one) => [one.run, one]));
  const kinds = [...lists.values()].map((one) => one.values[one.values.length - 1]!.kind);
  const kind = ["image", "histogram", "table"].find((one) => kinds.includes(one)) ?? "text";
  const shown: Shown = { files, name, runs: some.filter((one) => lists.has(one.run)), lists, axis: x };
  if (!lists.size) return <p class="quiet">Nothing in this part of the axis.</p>;
  return <>
    {kind === "image" ? <Images {...shown} /> : kind === "histogram" ? <Histogram {...shown} range={range} count={count} /> : kind === "table" ? <Tables {...shown} /> : <Texts {...shown} />}
    {runs.length > MOST_RUNS && <p class="quiet">The first {MOST_RUNS} of {runs.length} runs are shown.</p>}
  </>;
}

const axisText = (axis: string, at: number) => (axis === "time" ? new Date(at * 1000).toLocaleString() : axis === "relative" ? durationText(at) : `${axis} ${cellText(at)}`);

/** A slider over the steps. All charts of this kind follow it, as all curves follow the crosshair. */
function Steps({ steps, axis, name }: { steps: number[]; axis: string; name: string }) {
  const i = stepIndex(steps, atParam());
  if (steps.length < 2) return <p class="steps quiet">{steps.length ? axisText(axis, steps[0]!) : ""}</p>;
  const text = axisText(axis, steps[i]!);
  return <label class="steps"><span class="unseen">Step of {name}</span>
    <input type="range" min="0" max={steps.length - 1} step="1" value={i} aria-valuetext={text} aria-label={`Step of ${name}`}
      onInput={(event) => { const next = Number(event.currentTarget.value); set({ at: next === steps.length - 1 ? "" : String(steps[next]) }, "replace"); }} />
    <output>{text}</output></label>;
}

const Swatch = ({ color }: { color: string }) => <i class="swatch" ref={(node) => { if (node) node.style.background = color; }} />;
const Who = ({ run, value, axis }: { run: RunView; value: MediaValue; axis: string }) =>
  <><Swatch color={run.color} /><span title={run.label}>{run.label}</span> <small class="quiet">{axisText(axis, placeOf(value))}</small><Verdict verdict={value.verdict} /></>;

function Images({ files, name, runs, lists, axis }: Shown) {
  const at = atParam();
  const place = useRef<HTMLDivElement>(null);
  files.current = { png: () => saveImages(name, [...(place.current?.querySelectorAll("img") ?? [])].map((node) => ({ node, caption: node.closest("figure")?.querySelector("figcaption")?.textContent ?? "" }))) };
  return <><Steps steps={allSteps([...lists.values()].map((one) => one.values))} axis={axis} name={name} />
    <div class="images" ref={place}>{runs.map((run) => {
      const value = valueFor(lists.get(run.run)!.values.filter((one) => one.kind === "image"), at);
      if (!value) return null;
      const count = value.images ?? 1;
      return <figure key={run.run}><div>{Array.from({ length: Math.min(count, MOST_IMAGES) }, (_, item) =>
        <img key={item} src={`${prefix}/api/runs/${run.run}/media/image?${new URLSearchParams({ name, n: String(value.n), item: String(item) })}`} alt={`${name} of ${run.label} at ${axisText(axis, placeOf(value))}${count > 1 ? `, image ${item + 1} of ${count}` : ""}`}
          onLoad={(event) => event.currentTarget.classList.toggle("tiny", event.currentTarget.naturalWidth < 200)} />)}</div>
        <figcaption><Who run={run} value={value} axis={axis} />{count > MOST_IMAGES && <small class="quiet"> {MOST_IMAGES} of {count}</small>}</figcaption></figure>;
    })}</div></>;
}

function Tables({ files, name, runs, lists, axis }: Shown) {
  const at = atParam();
  files.current = { csv: () => {
    const frames = runs.map((run) => ({ run, value: valueFor(lists.get(run.run)!.values, at) })).filter(({ value }) => value?.rows);
    const columns = [...new Set(frames.flatMap(({ value }) => value!.columns!))];
    saveRows(name, ["run", axis, ...columns], frames.flatMap(({ run, value }) => value!.rows!.map((row) => [run.label, placeOf(value!), ...columns.map((one) => row[value!.columns!.indexOf(one)] ?? "")])));
  } };
  return <><Steps steps={allSteps([...lists.values()].map((one) => one.values))} axis={axis} name={name} />
    {runs.map((run) => {
      const value = valueFor(lists.get(run.run)!.values, at);
      if (!value?.rows) return value ? <p key={run.run} class="quiet">{value.error ?? value.text}</p> : null;
      return <figure key={run.run} class="frame"><figcaption><Who run={run} value={value} axis={axis} /></figcaption>
        <table><thead><tr>{value.columns!.map((one, i) => <th key={i} class={typeof value.rows![0]?.[i] === "number" ? "number" : ""}>{one}</th>)}</tr></thead><tbody>{value.rows.map((row, i) => <tr key={i}>{row.map((cell, k) => <td key={k} class={typeof cell === "number" ? "number" : ""}>{cellText(cell)}</td>)}</tr>)}</tbody></table>
        {value.truncated && <small class="quiet">The rest is left out.</small>}</figure>;
    })}</>;
}

/** Texts and other values as a table, the newest first. */
function Texts({ files, name, runs, lists, axis }: Shown) {
  const rows = runs.flatMap((run) => lists.get(run.run)!.values.map((value) => ({ run, value }))).sort((a, b) => placeOf(b.value) - placeOf(a.value));
  files.current = { csv: () => saveRows(name, [axis, "run", name, "verdict"], rows.map(({ run, value }) => [placeOf(value), run.label, value.error ?? value.text ?? "", value.verdict ?? "recorded"])) };
  const left = [...lists.values()].reduce((sum, one) => sum + one.total - one.values.length, 0);
  return <><table class="texts"><thead><tr><th class="number">{axis}</th>{runs.length > 1 && <th>run</th>}<th>value</th></tr></thead><tbody>{rows.slice(0, 500).map(({ run, value }) => <tr key={`${run.run} ${value.n}`}>
    <td class="number quiet">{axis === "step" || !/^(time|relative)$/.test(axis) ? cellText(placeOf(value)) : axisText(axis, placeOf(value))}</td>{runs.length > 1 && <th scope="row"><Swatch color={run.color} />{run.label}</th>}
    <td class={value.kind === "text" ? "" : "json"}>{value.error ?? value.text ?? `${value.images} images`}{value.truncated ? "…" : ""}<Verdict verdict={value.verdict} /></td></tr>)}</tbody></table>
    {left > 0 && <p class="quiet">{cellText(left)} more lie between these; zoom in to see them.</p>}</>;
}

function Histogram({ files, name, runs, lists, axis, range, count }: Shown & { range: [number, number] | null; count: number }) {
  const run = runs.find((one) => one.run === param("of")) ?? runs[0]!;
  const window = range ? { from: range[0], to: range[1] } : {};
  const { answer, error } = useAnswer((stop) => get<Histograms>(`/api/runs/${run.run}/media/histogram`, { name, x: axis, ...window }, stop), JSON.stringify([name, run.run, axis, range, count]));
  const rows = (answer?.rows ?? []).filter((row) => row.counts.length);
  const picked = valueFor(rows, atParam());
  const edges = answer?.edges ?? [];
  const figures = picked && [axisText(axis, placeOf(picked)), `${cellText(Math.round(picked.size))} values`, picked.mean === undefined ? "" : `mean ${short(picked.mean, 4)}`, picked.std === undefined ? "" : `std ${short(picked.std, 4)}`,
    picked.low === undefined ? "" : `${short(picked.low, 4)} to ${short(picked.high!, 4)}`, picked.odd ? `${cellText(picked.odd)} not finite` : ""].filter(Boolean).join(" · ");
  const canvas = useCanvas((ctx, width, height) => drawRidges(ctx, width, height, { rows, edges, picked, color: run.color, axis }), [answer, picked?.n, run.color, isDark.value]);
  files.current = {
    png: () => { if (canvas.current) saveCanvas(`${name} of ${run.label}`, canvas.current, figures ?? ""); },
    csv: () => saveRows(name, [axis, "from", "to", "count"], rows.flatMap((row) => row.counts.map((n, k): Cell[] => [placeOf(row), edges[k]!, edges[k + 1]!, n]))),
  };
  const wrong = answer?.rows.find((row) => row.error)?.error;
  return <div class="histogram">
    <div class="bar">{runs.length > 1 && <Choice label="run" value={run.run} of={runs.map((one): [string, string] => [one.run, one.label])} onChange={(value) => set({ of: value === runs[0]!.run ? "" : value })} />}
      <Steps steps={allSteps([rows.length ? rows : lists.get(run.run)!.values])} axis={axis} name={name} /></div>
    {error ? <Failure error={error} /> : null}
    <canvas ref={canvas} role="img" aria-label={`Histograms of ${name} of ${run.label} over ${rows.length} steps. ${figures ?? ""}`} />
    <p class="quiet">{figures}{wrong ? <span class="failure"> {wrong}</span> : null}</p>
  </div>;
}

interface Ridges { rows: HistogramRow[]; edges: number[]; picked: HistogramRow | undefined; color: string; axis: string }

/** One ridge for each step, the newest in front, and the chosen one strong. */
function drawRidges(ctx: CanvasRenderingContext2D, width: number, height: number, { rows, edges, picked, color, axis }: Ridges): void {
  const css = getComputedStyle(ctx.canvas);
  if (!rows.length || edges.length < 2) return;
  const [left, right, bottom] = [10, 58, 20];
  const most = Math.max(...rows.map((row) => Math.max(...row.counts)), 1e-300);
  const tall = rows.length > 1 ? (height - bottom) * 0.45 : height - bottom - 8;
  const base = (i: number) => (rows.length > 1 ? tall + 6 + (i / (rows.length - 1)) * (height - bottom - tall - 6) : height - bottom);
  const bins = edges.length - 1;
  const px = (k: number) => left + ((k + 0.5) / bins) * (width - left - right);
  const ridge = (row: HistogramRow, i: number, isPicked: boolean) => {
    ctx.beginPath();
    ctx.moveTo(left, base(i));
    row.counts.forEach((n, k) => ctx.lineTo(px(k), base(i) - (n / most) * tall));
    ctx.lineTo(width - right, base(i));
    ctx.fillStyle = css.getPropertyValue("--paper"); ctx.globalAlpha = isPicked ? 0.4 : 0.75; ctx.fill();
    ctx.fillStyle = color; ctx.globalAlpha = isPicked ? 0.55 : 0.12 + 0.3 * ((i + 1) / rows.length); ctx.fill();
    ctx.strokeStyle = isPicked ? css.color : color; ctx.globalAlpha = isPicked ? 1 : 0.8; ctx.lineWidth = isPicked ? 2 : 1; ctx.stroke();
    ctx.globalAlpha = 1;
  };
  rows.forEach((row, i) => ridge(row, i, false));
  const at = rows.indexOf(picked!);
  if (at >= 0) ridge(rows[at]!, at, true);
  ctx.fillStyle = css.getPropertyValue("--quiet");
  ctx.textAlign = "left";
  const label = (i: number) => { const place = placeOf(rows[i]!); ctx.fillText(axis === "relative" ? durationText(place) : axis === "time" ? new Date(place * 1000).toLocaleTimeString() : short(place, 4), width - right + 6, base(i) + 3); };
  const marks = Math.min(rows.length, Math.max(2, Math.floor((height - bottom - tall) / 16)));
  new Set(Array.from({ length: marks }, (_, k) => Math.round((k / Math.max(marks - 1, 1)) * (rows.length - 1)))).forEach(label);
  ctx.textAlign = "center";
  for (let k = 0; k <= 4; k++) {
    const place = edges[0]! + (k / 4) * (edges[bins]! - edges[0]!);
    ctx.textAlign = k === 0 ? "left" : k === 4 ? "right" : "center";
    ctx.fillText(short(place, 3), left + (k / 4) * (width - left - right), height - 5);
  }
}
