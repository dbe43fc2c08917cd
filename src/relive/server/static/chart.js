// A line with the band between lowest and highest, as SVG. The server has thinned it out already.
const NS = "http://www.w3.org/2000/svg";
const WIDTH = 400, HEIGHT = 160, LEFT = 54, BOTTOM = 16;

function element(name, attributes, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export function short(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return typeof value === "string" ? value : JSON.stringify(value);
  return Number.isInteger(value) && Math.abs(value) < 1e7 ? String(value) : value.toPrecision(5).replace(/\.?0+($|e)/, "$1");
}

export function chart(series) {
  const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  svg.append(element("title", {}, `${series.name}: ${series.count} values`));
  const there = series.at.map((_, i) => i).filter((i) => series.lowest[i] !== null);
  if (!there.length) return svg;
  let low = Math.min(...there.map((i) => series.lowest[i])), high = Math.max(...there.map((i) => series.highest[i]));
  if (low === high) { low -= Math.abs(low) || 1; high += Math.abs(high) || 1; }
  const last = Math.max(1, series.count - 1);
  const x = (i) => (LEFT + (WIDTH - LEFT - 4) * (series.at[i] / last)).toFixed(2);
  const y = (value) => (4 + (HEIGHT - BOTTOM - 8) * (1 - (value - low) / (high - low))).toFixed(2);
  const up = there.map((i) => `${x(i)},${y(series.highest[i])}`);
  const down = there.map((i) => `${x(i)},${y(series.lowest[i])}`).reverse();
  svg.append(element("polygon", { class: "band", points: [...up, ...down].join(" ") }));
  const shown = there.filter((i) => series.last[i] !== null);
  svg.append(element("polyline", { class: "trace", points: shown.map((i) => `${x(i)},${y(series.last[i])}`).join(" ") }));
  svg.append(element("text", { x: 0, y: 12 }, short(high)), element("text", { x: 0, y: HEIGHT - BOTTOM }, short(low)));
  svg.append(element("text", { x: LEFT, y: HEIGHT - 2 }, "0"));
  svg.append(element("text", { x: WIDTH - 4, y: HEIGHT - 2, "text-anchor": "end" }, short(series.count - 1)));
  return svg;
}
