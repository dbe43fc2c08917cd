// The leaderboard: runs ranked by a value, in groups that may be compared, and what was left out.

import { useEffect } from "preact/hooks";
import { get } from "../api";
import { onChange } from "../events";
import { Choice, Empty, Failure, MEANINGS, Outcome, RunLink, Tick, useAnswer, Value } from "../parts/basics";
import { WhereBox, whereError } from "../parts/wherebox";
import { cellText, type Cell } from "../pure/format";
import { isRanking, likelyMetrics } from "../pure/likely";
import { fromList } from "../pure/params";
import { hrefOf, param, set } from "../state";
import { knownColumns, loadColumns } from "./workspace";

interface BoardRun { run: string; place: number | null; value: number | null; note?: string; at: Record<string, Cell> | null; name: string; outcome: string; args: Record<string, Cell>; data_version: string | null }
interface Group { data_version: string | null; reason: string | null; group?: Record<string, Cell>; summary: { count: number; best: number | null; mean: number | null; std: number | null }; runs: BoardRun[]; more?: number }
interface Board { metric: string; by: string; order: string; guard: string[]; groups: Group[]; left_out: number }

export function Leaderboard() {
  useEffect(() => { if (!knownColumns.value.length) void loadColumns(); }, []);
  const known = knownColumns.value;
  const metrics = known.filter((one) => one.kind === "metric" && one.is_number !== false).map((one) => one.name);
  const likely = likelyMetrics(known);
  const metric = param("metric") || (likely[0] && isRanking(likely[0]) ? likely[0] : "");
  const asked = { metric, by: param("by", "last"), order: param("order"), where: param("where"), group: param("group"), across_data: param("across") === "1" ? "1" : "", limit: 200 };
  const { answer, error, again } = useAnswer((stop) => (metric ? get<Board>("/api/leaderboard", asked, stop) : Promise.resolve(null)), JSON.stringify(asked));
  useEffect(() => onChange((change) => { if (change.kind !== "question" && change.kind !== "points") again(); }), []);
  const args = known.filter((one) => one.kind === "arg").map((one) => one.name);
  const options: [string, string][] = [...(metric ? [] : [["", "choose a value"] as [string, string]]), ...metrics.map((one): [string, string] => [one, one])];
  if (metric && !metrics.includes(metric)) options.push([metric, metric]);
  return <article class="page">
    <header class="title"><h1>Leaderboard</h1>{answer && <span class="quiet">{answer.order === "min" ? "lowest" : "highest"} first · {answer.guard.length ? `apart where ${answer.guard.join(", ")} differ${answer.guard.length > 1 ? "" : "s"}` : "across all data"}</span>}</header>
    <div class="tools" role="toolbar" aria-label="Leaderboard">
      <Choice label="value" value={metric} of={options} onChange={(value) => set({ metric: value })} />
      <Choice label="by" value={asked.by} of={[["last", "last value"], ["best", "best value"], ["mean", "mean of the last 10"]]} onChange={(value) => set({ by: value === "last" ? "" : value })} />
      <Choice label="order" value={asked.order} of={[["", "by its name"], ["max", "highest first"], ["min", "lowest first"]]} onChange={(value) => set({ order: value })} />
      <Choice label="group by" value={asked.group} of={[["", "nothing"], ...args.map((one): [string, string] => [one, one])]} onChange={(value) => set({ group: value })} />
      <Tick label="across data" title="Rank runs side by side though their data differs" checked={asked.across_data === "1"} onChange={(on) => set({ across: on ? "1" : "" })} />
      <WhereBox id="board-where" value={asked.where} onChange={(value) => set({ where: value }, "replace")} columns={known} error={asked.where ? whereError(error) : null} />
    </div>
    {error && !(asked.where && whereError(error)) ? <Failure error={error} /> : null}
    {!metric && <Empty title="Rank the runs by a value"><p>{metrics.length ? <>Choose one above, or start with {likely.slice(0, 6).map((one, i) => <span key={one}>{i ? ", " : ""}<a href={hrefOf("/leaderboard", { metric: one })}>{one}</a></span>)}.</> : "No run has logged a value yet."}</p></Empty>}
    {answer && answer.groups.map((group, i) => <BoardGroup key={i} board={answer} group={group} reference={answer.groups[0]!} />)}
    {answer && <p class="quiet">{answer.left_out ? `${answer.left_out} runs are left out: they logged no ${answer.metric}, or no number. ` : ""}{answer.left_out > 0 && <a href={hrefOf("/ask", { name: answer.metric })}>Ask what they would have logged.</a>}</p>}
  </article>;
}

function BoardGroup({ board, group, reference }: { board: Board; group: Group; reference: Group }) {
  const named = Object.entries(group.group ?? {}).map(([name, value]) => `${name} ${cellText(value)}`).join(", ");
  const args = [...new Set(group.runs.flatMap((row) => Object.keys(row.args)))].slice(0, 8);
  const isApart = group !== reference && group.data_version !== reference.data_version;
  return <section class="board">
    <h2>{named || (board.guard.includes("data") ? `data ${group.data_version?.slice(0, 12) ?? "not known"}` : "all runs")} <small class="quiet">{group.summary.count} runs · mean {cellText(group.summary.mean)}{group.summary.std !== null ? ` ± ${cellText(group.summary.std)}` : ""}</small></h2>
    {group.reason && <p class="notice">{group.reason} {isApart && group.runs[0] && reference.runs[0] && <a href={hrefOf(`/runs/${group.runs[0].run}`, { tab: "data", against: reference.runs[0].run })}>what differs</a>}</p>}
    <div class="scroll" tabIndex={0} role="region" aria-label={`Leaderboard of ${board.metric}`}><table><thead><tr><th class="number">place</th><th>run</th><th class="number">{board.metric}</th><th>at</th>{args.map((one) => <th key={one} class={group.runs.some((row) => typeof row.args[one] === "number") ? "number" : ""}>{one}</th>)}<th>outcome</th></tr></thead>
      <tbody>{group.runs.map((row) => <tr key={row.run}><td class="number">{row.place ?? "–"}</td><th scope="row"><RunLink run={row.run} name={row.name} /></th><td class="number"><Value cell={row.value} verdict={row.note && row.note in MEANINGS ? row.note : undefined} />{row.value === null && <span class="quiet">{row.note ?? "none"}</span>}</td><td class="quiet">{Object.entries(row.at ?? {}).map(([loop, n]) => `${loop} ${cellText(n)}`).join(", ")}</td>{args.map((one) => <td key={one} class={typeof row.args[one] === "number" ? "number" : ""}><Value cell={row.args[one]} /></td>)}<td><Outcome outcome={row.outcome} /></td></tr>)}</tbody></table></div>
    <p class="bar">{group.more ? <span class="quiet">and {group.more} more</span> : null}<span class="grow" />{group.runs.length > 1 && <a class="button small" href={hrefOf("/compare", { runs: fromList(group.runs.slice(0, 10).map((row) => row.run)) })}>compare the first {Math.min(group.runs.length, 10)}</a>}<a class="button small" href={hrefOf("/ask", { runs: fromList(group.runs.slice(0, 100).map((row) => row.run)) })}>ask: add a column</a></p>
  </section>;
}
