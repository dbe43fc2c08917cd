// Runs side by side: what differs between them, and their curves.

import { useMemo } from "preact/hooks";
import { get } from "../api";
import { Empty, Failure, PAGE, Pager, pageStart, RunLink, Tick, useAnswer, Value } from "../parts/basics";
import { ChartGrid, ChartTools, chartTerms } from "../parts/chartgrid";
import { PALETTE } from "../pure/colors";
import { durationText, whenText, type Cell } from "../pure/format";
import { isRanking } from "../pure/likely";
import { toList } from "../pure/params";
import { hrefOf, param, set } from "../state";

interface Side { name: string; values: Cell[]; differs: boolean }
interface MetricSide { name: string; values: ({ last: Cell; min: number | null; max: number | null; count: number; verdict?: string } | null)[]; differs: boolean }
interface Compared { runs: { run: string; name: string; outcome: string; filename: string; version: string; data_version: string | null; took_s: number | null; started_us: number }[]; args: Side[]; metrics: MetricSide[]; totals: Record<string, number>; same: Record<string, boolean> }

/** Whether less is better, by the name; as the leaderboard guesses. */
const isLowBetter = (name: string) => /(^|[^a-z])(loss|losses|errors?|err|r?mse|mae|mape|nll|perplexity|ppl|wer|cer|fid|latency|time|seconds)([^a-z]|$)/i.test(name);

export function Compare() {
  const runs = toList(param("runs"));
  const all = param("all") === "1";
  const { answer, error } = useAnswer((stop) => (runs.length >= 2 ? get<Compared>("/api/compare", { runs: runs.slice(0, 20).join(","), limit: PAGE, offset: pageStart("from") }, stop) : Promise.resolve(null)), `${runs.join()}|${pageStart("from")}`);
  const views = useMemo(() => (answer?.runs ?? []).map((one, i) => ({ run: one.run, label: one.name || one.run.slice(0, 8), color: PALETTE[i % PALETTE.length]! })), [answer]);
  const terms = useMemo(() => chartTerms(false), [param("x"), param("smooth"), param("logx"), param("logy"), param("zoom")]);
  const metrics = useMemo(() => (answer?.metrics ?? []).map((one) => ({ name: one.name })), [answer]);
  if (runs.length < 2) return <Empty title="Nothing to compare yet"><p>Show two runs or more, up to twenty, in the <a href={hrefOf("/")}>workspace</a>, and choose <b>compare</b>.</p></Empty>;
  if (error) return <Empty title="These runs can't be compared"><Failure error={error} /></Empty>;
  if (!answer) return <div class="loading page" role="status" aria-label="Loading" />;
  const shown = <T extends { differs: boolean }>(rows: T[]) => rows.filter((row) => all || row.differs);
  const facts: [string, (one: Compared["runs"][number]) => string][] = [["outcome", (one) => one.outcome], ["script", (one) => one.filename], ["code", (one) => one.version.slice(0, 8)], ["data", (one) => one.data_version?.slice(0, 8) ?? ""], ["took", (one) => durationText(one.took_s)], ["started", (one) => whenText(one.started_us)]];
  const same = Object.entries(answer.same);
  return <article class="page wide">
    <header class="title"><h1>{answer.runs.length} runs side by side</h1>
      <span class="quiet">{same.map(([what, is]) => `${is ? "the same" : "different"} ${what}`).join(" · ")}</span><span class="grow" />
      <Tick label="also what is equal" checked={all} onChange={(on) => set({ all: on ? "1" : "" })} /></header>
    <Pager what="rows" total={Math.max(0, ...Object.values(answer.totals))} name="from" />
    <div class="scroll" tabIndex={0} role="region" aria-label="Comparison"><table class="sides">
      <thead><tr><th>run</th>{answer.runs.map((one, i) => <th key={one.run}><i class="swatch" ref={(node) => { if (node) node.style.background = PALETTE[i % PALETTE.length]!; }} /><RunLink run={one.run} name={one.name} /></th>)}</tr></thead>
      <tbody>{facts.map(([name, of]) => [name, answer.runs.map(of)] as const).filter(([, values]) => all || new Set(values).size > 1).map(([name, values]) => <tr key={name}><th scope="row">{name}</th>{values.map((value, i) => <td key={i}>{value}</td>)}</tr>)}</tbody>
      <tbody><tr class="part"><th scope="rowgroup" colSpan={answer.runs.length + 1}>args</th></tr>{shown(answer.args).map((row) => <tr key={row.name} class={row.differs ? "differs" : ""}><th scope="row">{row.name}</th>{row.values.map((value, i) => <td key={i} class="number"><Value cell={value} /></td>)}</tr>)}{!shown(answer.args).length && <tr><td class="quiet" colSpan={answer.runs.length + 1}>all equal</td></tr>}</tbody>
      <tbody><tr class="part"><th scope="rowgroup" colSpan={answer.runs.length + 1}>last values</th></tr>{shown(answer.metrics).map((row) => { const numbers = row.values.map((one) => (typeof one?.last === "number" ? one.last : NaN)); const high = (isLowBetter(row.name) ? Math.min : Math.max)(...numbers.filter(Number.isFinite)); return <tr key={row.name} class={row.differs ? "differs" : ""}><th scope="row">{row.name}</th>{row.values.map((one, i) => <td key={i} class={`number ${numbers[i] === high && row.differs && (isRanking(row.name) || isLowBetter(row.name)) ? "high" : ""}`}>{one && <Value cell={one.last} verdict={one.verdict} />}</td>)}</tr>; })}</tbody>
    </table></div>
    {answer.runs.length === 2 && <p><a href={hrefOf(`/runs/${answer.runs[0]!.run}`, { tab: "code", against: answer.runs[1]!.run })}>differences of their code</a> · <a href={hrefOf(`/runs/${answer.runs[0]!.run}`, { tab: "data", against: answer.runs[1]!.run })}>of their data</a> · <a href={hrefOf(`/runs/${answer.runs[0]!.run}`, { tab: "environment", against: answer.runs[1]!.run })}>of their environments</a></p>}
    <h2>Curves</h2><ChartTools loops={[]} isGrouped={false} hasRanks={false} count={metrics.length} /><ChartGrid metrics={metrics} runs={views} terms={terms} />
  </article>;
}
