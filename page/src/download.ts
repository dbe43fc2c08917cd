// A chart as a file: PNG as it is seen, SVG as curves, CSV as numbers.

import type { Chart } from "./chart";
import { toCsv } from "./pure/files";
import { short } from "./pure/format";

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
