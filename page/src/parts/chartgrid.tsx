// Charts in sections by the first part of their names, and the controls that all of them share.

import { useMemo } from "preact/hooks";
import type { Column } from "../pure/where";
import { fromList, fromRange, toList, toRange } from "../pure/params";
import { param, set } from "../state";
import { Choice, Empty, Tick, useTyped } from "./basics";
import { ChartCard, type ChartTerms, type RunView } from "./chartcard";

export function chartTerms(isGrouped: boolean): ChartTerms {
  const weight = Number(param("smooth", "0"));
  return {
    x: param("x", "step"), smoothing: Number.isFinite(weight) ? Math.min(Math.max(weight, 0), 0.999) : 0, logX: param("logx") === "1", logY: param("logy") === "1",
    range: toRange(param("zoom")), ranks: param("ranks") === "1", band: isGrouped ? ((param("band", "std") || "std") as "std" | "range") : "",
  };
}

export function ChartTools({ loops, isGrouped, hasRanks, count }: { loops: string[]; isGrouped: boolean; hasRanks: boolean; count: number }) {
  const [find, setFind] = useTyped(param("find"), (value) => set({ find: value }, "replace"), 150);
  const weight = Number(param("smooth", "0")) || 0;
  const axes: [string, string][] = [["step", "step"], ...loops.filter((one) => one !== "step").map((one): [string, string] => [one, `loop ${one}`]), ["relative", "relative time"], ["time", "wall time"]];
  const x = param("x", "step");
  if (!axes.some(([key]) => key === x)) axes.push([x, x]);
  return <div class="tools" role="toolbar" aria-label="Charts">
    <input type="search" id="find" aria-label="Find charts" placeholder={`find in ${count} charts`} value={find} onInput={(event) => setFind(event.currentTarget.value)} />
    <Choice label="x" value={x} of={axes} onChange={(value) => set({ x: value === "step" ? "" : value, zoom: "" })} />
    <label class="choice slider"><span>smooth</span><input type="range" min="0" max="0.99" step="0.01" value={weight} aria-label="Smoothing" aria-valuetext={weight ? String(weight) : "none"}
      onInput={(event) => set({ smooth: Number(event.currentTarget.value) ? event.currentTarget.value : "" }, "replace")} /><output>{weight || "0"}</output></label>
    <Tick label="log x" checked={param("logx") === "1"} onChange={(on) => set({ logx: on ? "1" : "", zoom: "" })} />
    <Tick label="log y" checked={param("logy") === "1"} onChange={(on) => set({ logy: on ? "1" : "" })} />
    {hasRanks && <Tick label="ranks" title="All ranks as a fan" checked={param("ranks") === "1"} onChange={(on) => set({ ranks: on ? "1" : "" })} />}
    {isGrouped && <Choice label="band" value={(param("band", "std") || "std") as "std" | "range"} of={[["std", "mean ± std"], ["range", "min – max"]]} onChange={(value) => set({ band: value === "std" ? "" : value })} />}
    <Choice label="size" value={(param("size", "m") || "m") as "s" | "m" | "l"} of={[["s", "small"], ["m", "medium"], ["l", "large"]]} onChange={(value) => set({ size: value === "m" ? "" : value })} />
    {param("zoom") && <button type="button" onClick={() => set({ zoom: "" })}>reset zoom</button>}
  </div>;
}

// What people look at first comes first.
const place = (section: string) => { const at = ["train", "val", "valid", "validation", "eval", "test"].indexOf(section.toLowerCase()); return /^(system|sys|gpu|cpu|perf)$/i.test(section) ? 20 : at < 0 ? 10 : at; };

export function ChartGrid({ metrics, runs, terms, size = param("size", "m") || "m" }: { metrics: Pick<Column, "name">[]; runs: RunView[]; terms: ChartTerms; size?: string }) {
  const find = param("find").toLowerCase();
  const closed = new Set(toList(param("closed")));
  const logged = new Set(toList(param("logs")));
  const sections = useMemo(() => {
    const found = new Map<string, string[]>();
    for (const { name } of metrics) {
      if (find && !name.toLowerCase().includes(find)) continue;
      const key = name.includes("/") ? name.slice(0, name.indexOf("/")) : "";
      found.set(key, [...(found.get(key) ?? []), name]);
    }
    return [...found].sort(([a], [b]) => place(a) - place(b) || (a < b ? -1 : 1));
  }, [metrics, find]);
  const toggle = (key: string) => { if (closed.has(key)) closed.delete(key); else closed.add(key); set({ closed: fromList([...closed]) }); };
  const zoom = (range: [number, number] | null) => set({ zoom: fromRange(range) }, param("zoom") && range ? "replace" : "push");
  const logY = (name: string) => () => { if (!logged.delete(name)) logged.add(name); set({ logs: fromList([...logged]) }); };
  if (!metrics.length) return <Empty title="No values yet"><p>Log some with <code>relive.log("loss", value)</code>; charts appear by themselves.</p></Empty>;
  if (!sections.length) return <Empty title="No chart has that in its name"><button type="button" onClick={() => set({ find: "" })}>show all</button></Empty>;
  if (!runs.length) return <Empty title="No runs are shown"><p>Tick some in the list of runs.</p></Empty>;
  return <div class={`grid size-${size}`}>{sections.map(([key, names]) => {
    const isOpen = !closed.has(key);
    return <section key={key} class="section" aria-label={key || "charts"}>
      <h2><button type="button" aria-expanded={isOpen} onClick={() => toggle(key)}><i aria-hidden="true">{isOpen ? "▾" : "▸"}</i>{key || "charts"} <small>{names.length}</small></button></h2>
      {isOpen && <div class="cards">{names.map((name) => <ChartCard key={name} name={name} runs={runs} terms={logged.has(name) ? { ...terms, logY: !terms.logY } : terms} onZoom={zoom} onLogY={logY(name)} isLarge={size === "l"} />)}</div>}
    </section>;
  })}</div>;
}
