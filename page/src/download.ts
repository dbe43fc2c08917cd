// A chart as a file: PNG as it is seen, SVG as curves, CSV as numbers; and files of what is no curve.

import type { Chart } from "./chart";
import { rowsToCsv, toCsv } from "./pure/files";
import { cellText, short, type Cell } from "./pure/format";

function save(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const fileName = (name: string, ending: string) => `${name.replace(/[^\w.-]+/g, "-").slice(0, 80) || "chart"}.${ending}`;

export function savePng(chart: Chart, name: string): void {
  const source = chart.canvas();
  if (!source) return;
  const scale = devicePixelRatio || 1;
  const lines = chart.lines().slice(0, 12);
  const legend = (lines.length * 16 + 30) * scale;
  const canvas = document.createElement("canvas");
  canvas.width = source.width; canvas.height = source.height + legend;
  const ctx = canvas.getContext("2d")!;
  const css = getComputedStyle(document.body);
  ctx.fillStyle = css.backgroundColor; ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.font = `${13 * scale}px ${css.fontFamily}`; ctx.fillStyle = css.color;
  ctx.fillText(name, 12 * scale, 18 * scale);
  ctx.drawImage(source, 0, 26 * scale);
  lines.forEach((line, i) => {
    const y = source.height + (30 + i * 16 + 8) * scale;
    ctx.fillStyle = line.color; ctx.fillRect(12 * scale, y - 4 * scale, 14 * scale, 3 * scale);
    ctx.fillStyle = css.color; ctx.font = `${11 * scale}px ${css.fontFamily}`; ctx.fillText(line.label, 32 * scale, y);
  });
  canvas.toBlob((blob) => { if (blob) save(fileName(name, "png"), blob); });
}

export function saveCsv(chart: Chart, name: string, x: string): void {
  save(fileName(name, "csv"), new Blob([toCsv(x, chart.lines())], { type: "text/csv" }));
}

/** What a card offers as files, besides curves. */
export interface Files { png?: () => void; csv?: () => void }

export function saveRows(name: string, head: readonly string[], rows: readonly (readonly Cell[])[]): void {
  save(fileName(name, "csv"), new Blob([rowsToCsv(head, rows)], { type: "text/csv" }));
}

/** An empty picture with a title, in the colours of the page; `draw` gets its pixels as those of the page. */
function savePicture(name: string, width: number, height: number, draw: (ctx: CanvasRenderingContext2D, ink: string) => void): void {
  const scale = devicePixelRatio || 1;
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(width * scale); canvas.height = Math.ceil(height * scale);
  const ctx = canvas.getContext("2d")!;
  const css = getComputedStyle(document.body);
  ctx.scale(scale, scale);
  ctx.fillStyle = css.backgroundColor; ctx.fillRect(0, 0, width, height);
  ctx.font = `13px ${css.fontFamily}`; ctx.fillStyle = css.color; ctx.fillText(name, 12, 18);
  ctx.font = `11px ${css.fontFamily}`;
  draw(ctx, css.color);
  canvas.toBlob((blob) => { if (blob) save(fileName(name, "png"), blob); });
}

/** A canvas of the page with its title above and a note below. */
export function saveCanvas(name: string, source: HTMLCanvasElement, note: string): void {
  const [width, height] = [source.clientWidth, source.clientHeight];
  savePicture(name, width, height + 50, (ctx) => { ctx.drawImage(source, 0, 26, width, height); ctx.fillText(note, 12, height + 42); });
}

/** Images in rows, each with its caption, as large as they are, and small ones larger. */
export function saveImages(name: string, images: { node: HTMLImageElement; caption: string }[]): void {
  const there = images.filter(({ node }) => node.complete && node.naturalWidth);
  if (!there.length) return;
  const [wide, tall] = [Math.max(...there.map(({ node }) => node.naturalWidth)), Math.max(...there.map(({ node }) => node.naturalHeight))];
  const times = Math.max(1, Math.floor(160 / Math.max(wide, tall)));
  const cell = [Math.max(wide * times, 160) + 12, tall * times + 28] as const;
  const perRow = Math.max(1, Math.min(there.length, Math.floor(1600 / cell[0])));
  savePicture(name, perRow * cell[0] + 12, Math.ceil(there.length / perRow) * cell[1] + 30, (ctx) => {
    ctx.imageSmoothingEnabled = times < 2;
    there.forEach(({ node, caption }, i) => {
      const [x, y] = [12 + (i % perRow) * cell[0], 30 + Math.floor(i / perRow) * cell[1]];
      ctx.drawImage(node, x, y, node.naturalWidth * times, node.naturalHeight * times);
      ctx.fillText(caption, x, y + tall * times + 14, cell[0] - 12);
    });
  });
}

/** One bar for each run. */
export function saveBars(name: string, rows: { label: string; value: number; color: string }[]): void {
  const finite = rows.map((row) => row.value).filter(Number.isFinite);
  const low = Math.min(0, ...finite);
  const span = Math.max(...finite, low + 1e-300) - low;
  savePicture(name, 640, rows.length * 20 + 40, (ctx, ink) => rows.forEach((row, i) => {
    const y = 34 + i * 20;
    ctx.fillStyle = ink; ctx.fillText(row.label, 12, y + 10, 160); ctx.fillText(cellText(row.value), 540, y + 10, 90);
    ctx.fillStyle = row.color;
    if (Number.isFinite(row.value)) ctx.fillRect(180, y, Math.max(1, ((row.value - low) / span) * 350), 13);
  }));
}

const NS = "http://www.w3.org/2000/svg";

export function saveSvg(chart: Chart, name: string): void {
  const [width, height, left, top, right, bottom] = [800, 400, 64, 30, 16, 30];
  const { x, y, logX, logY } = chart.box;
  const place = (value: number, [low, high]: [number, number], isLog: boolean) => (isLog ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low));
  const toX = (value: number) => left + place(value, x, logX) * (width - left - right);
  const toY = (value: number) => height - bottom - place(value, y, logY) * (height - top - bottom);
  const svg = document.createElementNS(NS, "svg");
  const add = (tag: string, attributes: Record<string, string | number>, text?: string) => {
    const made = document.createElementNS(NS, tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
    if (text !== undefined) made.textContent = text; // names are text, whatever they look like
    svg.appendChild(made);
  };
  const lines = chart.lines();
  const all = height + lines.length * 16;
  svg.setAttribute("xmlns", NS); svg.setAttribute("viewBox", `0 0 ${width} ${all}`); svg.setAttribute("font-family", "system-ui, sans-serif");
  add("rect", { width, height: all, fill: "white" });
  add("text", { x: left, y: 18, "font-size": 14 }, name);
  for (let i = 0; i <= 4; i++) {
    const at = logY ? y[0] * (y[1] / y[0]) ** (i / 4) : y[0] + (y[1] - y[0]) * (i / 4);
    const ax = logX ? x[0] * (x[1] / x[0]) ** (i / 4) : x[0] + (x[1] - x[0]) * (i / 4);
    add("line", { x1: left, x2: width - right, y1: toY(at), y2: toY(at), stroke: "#ddd" });
    add("text", { x: left - 6, y: toY(at) + 4, "font-size": 11, "text-anchor": "end", fill: "#555" }, short(at, 4));
    add("text", { x: toX(ax), y: height - bottom + 18, "font-size": 11, "text-anchor": "middle", fill: "#555" }, short(ax, 4));
  }
  lines.forEach((line, i) => {
    let path = ""; let isDown = false;
    line.x.forEach((at, k) => {
      const value = line.y[k]!;
      if (!Number.isFinite(value) || (logY && value <= 0) || at < x[0] || at > x[1]) { isDown = false; return; }
      path += `${isDown ? "L" : "M"}${toX(at).toFixed(2)} ${toY(value).toFixed(2)}`; isDown = true;
    });
    add("path", { d: path, fill: "none", stroke: line.color, "stroke-width": 1.6 });
    add("rect", { x: left, y: height + i * 16 - 4, width: 14, height: 3, fill: line.color });
    add("text", { x: left + 22, y: height + i * 16, "font-size": 11 }, line.label);
  });
  save(fileName(name, "svg"), new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" }));
}
