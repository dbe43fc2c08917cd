// The workspace: the runs at the left, their charts at the right, every control in the address.

import { signal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { ApiError, columns as askColumns, get, session, table, trouble, type Row, type TableQuery } from "../api";
import { onChange } from "../events";
import { Choice, Empty, Menu, Tick, useAnswer } from "../parts/basics";
import { ChartGrid, ChartTools, chartTerms } from "../parts/chartgrid";
import type { RunView } from "../parts/chartcard";
import { columnTitle, RunList, type Listed } from "../parts/runlist";
import { WhereBox } from "../parts/wherebox";
import { assignColors, hash, PALETTE } from "../pure/colors";
import { cellText } from "../pure/format";
import { likelyArgs, likelyMetrics } from "../pure/likely";
import { fromList, toList } from "../pure/params";
import type { Column } from "../pure/where";
import { hrefOf, param, set } from "../state";

const TOP = 10;
const MOST = 1000;
export const hovered = signal<string | null>(null);

export const knownColumns = signal<Column[]>([]);
/** Learns the columns; where that fails, those of before stay, and the header has said what is wrong. */
export async function loadColumns(): Promise<void> {
  try { knownColumns.value = await askColumns(); } catch (error) { if (error instanceof ApiError) trouble.value = error.message; }
}

/** The columns that are shown unless others were picked: what differs between people's runs most often. */
function usualColumns(known: Column[]): string[] {
  const args = likelyArgs(known).slice(0, 4).map((one) => `arg:${one}`);
  return [...likelyMetrics(known).slice(0, 2).map((one) => `metric:${one}`), ...args, "tstamp", "took_s"];
}

/** The first rows of the list, if it has them all; the same array while they say the same of their runs. */
function useListedRows(listed: Listed | null, query: TableQuery, top: number): Row[] | null {
  const isThere = listed !== null && listed.first !== null && listed.of === JSON.stringify(query);
  const found = isThere ? listed.rows.slice(0, Math.min(top, listed.total)) : [];
  const isWhole = isThere && found.length === Math.min(top, listed.total) && found.every(Boolean);
  const said = isWhole ? JSON.stringify((found as Row[]).map((row) => [row.run, row.name, row.live])) : "";
  return useMemo(() => (isWhole ? found as Row[] : null), [said, isWhole]);
}

/** Those of the list where it has them, so that no request precedes that for the curves; else those that are asked for. */
function useFirstRows(listed: Row[] | null, ask: (stop: AbortSignal) => Promise<{ rows: Row[] }>, key: string): { answer: { rows: Row[] } | null } {
  const asked = useAnswer((stop) => (listed ? Promise.resolve({ rows: listed }) : ask(stop)), listed ? "" : key);
  const ofList = useMemo(() => (listed ? { rows: listed } : null), [listed]);
  return { answer: ofList ?? asked.answer };
}

function useShown(listed: Listed | null, query: TableQuery, sort: { column: string; descending: boolean }[]): { views: RunView[]; rows: Row[]; isShown: (run: string, position: number) => boolean; toggle: (run: string, position: number) => void; color: (run: string, position: number) => string } {
  const where = param("where");
  const top = Math.min(Number(param("top", String(TOP))) || 0, MOST);
  const show = toList(param("show")); const hide = new Set(toList(param("hide"))); const pins = toList(param("pins"));
  const group = param("group");
  const chosen = new Map(toList(param("colors")).map((one) => { const at = one.lastIndexOf(":"); return [one.slice(0, at), Number(one.slice(at + 1))] as const; }));
  const [turn, setTurn] = useState(0);
  useEffect(() => onChange((change) => { if (change.kind !== "points" && change.kind !== "question") setTurn((n) => n + 1); }), []);
  const columns = group ? [group] : [];
  const listedRows = useListedRows(listed, query, top);
  const first = useFirstRows(group ? null : listedRows, (stop) => (top ? table({ where, sort, columns, limit: top, first: pins }, stop) : Promise.resolve({ rows: [] as Row[] })), JSON.stringify([where, sort, top, group, pins, turn]));
  const extra = [...new Set([...pins, ...show])];
  const rest = useAnswer((stop) => (extra.length ? table({ columns, runs: extra, limit: MOST }, stop) : Promise.resolve({ rows: [] as Row[] })), JSON.stringify([extra, group, turn]));
  const auto = new Set((first.answer?.rows ?? []).map((row) => row.run));
  const isShown = (run: string) => (auto.has(run) && !hide.has(run)) || show.includes(run) || (pins.includes(run) && !hide.has(run));
  const toggle = (run: string) => {
    if (isShown(run)) {
      if (auto.has(run) || pins.includes(run)) hide.add(run);
      set({ show: fromList(show.filter((one) => one !== run)), hide: fromList([...hide]) });
    } else if (hide.delete(run)) set({ hide: fromList([...hide]) });
    else set({ show: fromList([...show, run]) });
  };
  const rows = useMemo(() => {
    const byRun = new Map([...(rest.answer?.rows ?? []), ...(first.answer?.rows ?? [])].map((row) => [row.run, row]));
    const order = [...pins, ...(first.answer?.rows ?? []).map((row) => row.run), ...show];
    return [...new Set(order)].filter((run) => byRun.has(run) && isShown(run)).map((run) => byRun.get(run)!);
  }, [first.answer, rest.answer, param("hide"), param("show"), param("pins")]);
  const colors = useMemo(() => assignColors([...new Map([...(rest.answer?.rows ?? []), ...(first.answer?.rows ?? [])].map((row) => [row.run, row])).values()], chosen), [first.answer, rest.answer, param("colors")]);
  const groups = useMemo(() => [...new Set(rows.map((row) => cellText(row.cells[group] ?? null)))], [rows, group]);
  const groupOf = useMemo(() => new Map(rows.map((row) => [row.run, groups.indexOf(cellText(row.cells[group] ?? null))])), [rows, group]);
  const color = (run: string) => (group && groupOf.has(run) ? PALETTE[groupOf.get(run)! % PALETTE.length]! : colors.get(run) ?? PALETTE[hash(run) % PALETTE.length]!);
  const views = useMemo(() => rows.map((row): RunView => {
    const value = group ? cellText(row.cells[group] ?? null) : undefined;
    return { run: row.run, label: row.name || row.run.slice(0, 8), color: group ? PALETTE[groups.indexOf(value!) % PALETTE.length]! : color(row.run), live: row.live, ...(group ? { group: `${columnTitle(group)} ${value || "none"}` } : {}), isStrong: hovered.value === row.run };
  }), [rows, group, param("colors"), hovered.value]);
  return { views, rows, isShown, toggle, color };
}

export function Workspace() {
  const [listed, setListed] = useState<Listed | null>(null);
  const known = knownColumns.value;
  useEffect(() => { void loadColumns(); return onChange((change) => { if (change.kind !== "points") void loadColumns(); }); }, []);
  const columns = param("cols") ? toList(param("cols")) : usualColumns(known);
  const sortText = param("sort");
  const sort = sortText ? [{ column: sortText.replace(/^-/, ""), descending: sortText.startsWith("-") }] : [];
  const where = param("where");
  const pins = toList(param("pins"));
  const query = useMemo(() => ({ where, columns, sort, ...(pins.length ? { first: pins } : {}) }), [where, columns.join("\n"), sortText, pins.join()]);
  const { views, rows, isShown, toggle, color } = useShown(listed, query, sort);
  const metrics = useMemo(() => known.filter((one) => one.kind === "metric"), [known]);
  const firstRun = views[0]?.run ?? "";
  const described = useAnswer((stop) => (firstRun ? get<{ metrics: { loops: string[] }[]; record: { world_size: number } }>(`/api/runs/${firstRun}`, {}, stop) : Promise.resolve(null)), firstRun);
  const loops = [...new Set((described.answer?.metrics ?? []).flatMap((one) => one.loops))];
  const isGrouped = param("group") !== "";
  const terms = useMemo(() => chartTerms(isGrouped), [param("x"), param("smooth"), param("logx"), param("logy"), param("zoom"), param("ranks"), param("band"), isGrouped]);
  const onSort = (column: string) => set({ sort: sortText === `-${column}` ? column : sortText === column ? "" : `-${column}` });
  const onMove = (column: string, by: number) => {
    const next = columns.filter((one) => one !== column);
    next.splice(Math.min(Math.max(columns.indexOf(column) + by, 0), next.length), 0, column);
    set({ cols: fromList(next) });
  };
  const onColor = (run: string, n: number) => set({ colors: fromList([...toList(param("colors")).filter((one) => !one.startsWith(`${run}:`)), `${run}:${n}`]) });
  const onPin = (run: string) => set({ pins: fromList(pins.includes(run) ? pins.filter((one) => one !== run) : [...pins, run]) });
  const isEmpty = listed !== null && listed.first !== null && listed.all === 0;
  useEffect(() => (isEmpty ? onChange(() => setListed(null)) : undefined), [isEmpty]);
  if (isEmpty) return <Welcome />;
  const total = listed?.total ?? 0;
  const matching = listed?.first?.matching ?? total;
  const top = Math.min(Number(param("top", String(TOP))) || 0, MOST);
  return <div class={`workspace ${param("view")}`}>
    <aside class="left" aria-label="Runs">
      <WhereBox value={where} onChange={(value) => set({ where: value }, "replace")} columns={known} error={listed?.error ?? null} />
      <div class="bar">
        <span class="count" role="status">{matching === (listed?.all ?? 0) ? `${matching} runs` : `${matching} of ${listed?.all ?? 0} runs`}{total > matching ? ` and ${total - matching} pinned` : ""}, {views.length} shown</span>
        <span class="grow" />
        <Menu label="show ▾" title="Which runs are shown in charts">{(close) => <div class="list">
          {[5, 10, 25, 100].filter((n) => n <= Math.max(total, 10)).map((n) => <button key={n} type="button" aria-pressed={top === n} onClick={() => { close(); set({ top: n === TOP ? "" : String(n), hide: "" }); }}>the first {n}</button>)}
          <button type="button" onClick={() => { close(); set({ top: String(Math.min(total, MOST)), hide: "", show: "" }); }}>all {Math.min(total, MOST)}</button>
          <button type="button" onClick={() => { close(); set({ top: "0", hide: "", show: "", pins: "" }); }}>none</button>
        </div>}</Menu>
        <ColumnPicker known={known} columns={columns} onMove={onMove} />
        <button type="button" aria-pressed={param("view") === "table"} title="The table over the whole width" onClick={() => set({ view: param("view") === "table" ? "" : "table" })}>{param("view") === "table" ? "charts" : "table"}</button>
      </div>
      <RunList query={query} columns={columns} sort={sortText} onSort={onSort} onListed={setListed} isShown={isShown} onToggle={toggle} colorOf={color} pins={new Set(pins)} onPin={onPin} onColor={onColor}
        onOnly={(run) => set({ top: "0", hide: "", show: run, pins: "" })} onMove={onMove} hovered={(run) => { hovered.value = run; }} />
      <div class="bar foot">
        <GroupChoice known={known} />
        <span class="grow" />
        <a class="button" aria-disabled={rows.length < 2} href={hrefOf("/compare", { runs: fromList(rows.slice(0, 20).map((row) => row.run)) })}>compare</a>
        <a class="button" href={hrefOf("/ask", { runs: fromList(rows.slice(0, 100).map((row) => row.run)) })}>ask</a>
      </div>
    </aside>
    {param("view") !== "table" && <div class="right">
      <ChartTools loops={loops} isGrouped={isGrouped} hasRanks={(described.answer?.record.world_size ?? 1) > 1 || param("ranks") === "1"} count={metrics.length} />
      {isGrouped && <Legend views={views} />}
      {listed?.first ? <ChartGrid metrics={metrics} runs={views} terms={terms} /> : <div class="loading" role="status" aria-label="Loading" />}
    </div>}
  </div>;
}

function Legend({ views }: { views: RunView[] }) {
  const groups = new Map<string, { color: string; count: number }>();
  for (const view of views) { const old = groups.get(view.group ?? ""); groups.set(view.group ?? "", { color: view.color, count: (old?.count ?? 0) + 1 }); }
  return <ul class="legend" aria-label="Groups">{[...groups].map(([name, { color, count }]) => <li key={name}><i ref={(node) => { if (node) node.style.background = color; }} />{name} <small>{count} runs</small></li>)}</ul>;
}

function GroupChoice({ known }: { known: Column[] }) {
  const options: [string, string][] = [["", "no groups"], ...known.filter((one) => one.kind === "arg" || one.kind === "tag").map((one): [string, string] => [`${one.kind}:${one.name}`, one.name])];
  const group = param("group");
  if (group && !options.some(([key]) => key === group)) options.push([group, group]);
  return <Choice label="group by" value={group} of={options} onChange={(value) => set({ group: value })} />;
}

export function ColumnPicker({ known, columns, onMove }: { known: Column[]; columns: string[]; onMove: (column: string, by: number) => void }) {
  const [find, setFind] = useState("");
  const plain = (one: Column) => (one.kind === "run" ? one.name : `${one.kind}:${one.name}`);
  const word = find.toLowerCase();
  const found = known.filter((one) => one.name.toLowerCase().includes(word)).slice(0, 200);
  const pick = (key: string, on: boolean) => set({ cols: fromList(on ? [...columns, key] : columns.filter((one) => one !== key)) });
  return <Menu label="columns ▾" title="Pick and order columns">{() => <div class="picker">
    <ol aria-label="Shown columns">{columns.map((one, i) => <li key={one}><span>{columnTitle(one)}</span>
      <button type="button" class="small" aria-label={`Move ${columnTitle(one)} up`} disabled={i === 0} onClick={() => onMove(one, -1)}>↑</button>
      <button type="button" class="small" aria-label={`Move ${columnTitle(one)} down`} disabled={i === columns.length - 1} onClick={() => onMove(one, 1)}>↓</button>
      <button type="button" class="small" aria-label={`Remove ${columnTitle(one)}`} onClick={() => pick(one, false)}>×</button></li>)}</ol>
    <input type="search" aria-label="Find columns" placeholder="find columns" value={find} onInput={(event) => setFind(event.currentTarget.value)} />
    <div class="names">{found.map((one) => <div key={plain(one)}><Tick label={one.name} checked={columns.includes(plain(one))} onChange={(on) => pick(plain(one), on)} /><small>{one.kind}</small>
      {one.kind === "metric" && ["min", "max"].map((word) => { const key = `${word}(${one.name})`; return <button key={key} type="button" class="small ghost" aria-pressed={columns.includes(key)} aria-label={`${word} of ${one.name}`} onClick={() => pick(key, !columns.includes(key))}>{word}</button>; })}</div>)}</div>
    <button type="button" class="small" onClick={() => set({ cols: "" })}>usual columns</button>
  </div>}</Menu>;
}

function Welcome() {
  return <Empty title="No runs yet">
    <p>Record one by running a script; this page shows it as it goes.</p>
    <pre><code>{"import relive\n\nlr = relive.arg(\"lr\", 1e-3)\nfor epoch in relive.loop(\"epoch\", range(10)):\n    relive.log(\"loss\", train(lr))"}</code></pre>
    <p>or, without a change to the script: <code>relive run train.py</code></p>
    {session.value?.home && <p class="quiet">This server shows {session.value.home}.</p>}
  </Empty>;
}
