// One run: what it was, what it logged, and everything that it depends on.

import { useEffect, useMemo, useState } from "preact/hooks";
import { get } from "../api";
import { onChange } from "../events";
import { Bytes, Command, Empty, Facts, Failure, Outcome, PAGE, Pager, pageStart, RunLink, useAnswer, Value, Verdict } from "../parts/basics";
import { ChartGrid, ChartTools, chartTerms } from "../parts/chartgrid";
import { DiffView, type DiffFile } from "../parts/diff";
import { PALETTE } from "../pure/colors";
import { bytesText, cellText, durationText, lastCell, whenText, type Cell } from "../pure/format";
import { hrefOf, param, set } from "../state";
import { Artifacts, Console, Remembered } from "./remains";

interface Metric { name: string; count: number; last: Cell; lowest: number | null; highest: number | null; last_us: number; loops: string[]; verdict: string }
interface Replay { replay: number; names: string[]; verdict: string; verdicts: Record<string, Record<string, number>>; causes: string[]; resume: string; by: string | null }
export interface RunAnswer {
  record: {
    run: string; name: string; project: string; started_us: number; ended_us: number | null; outcome: string; error: { type: string; message: string; place?: string; traceback?: string } | null;
    filename: string; parent: string | null; world_size: number; ranks: number[]; tags: Record<string, Cell>; incomplete: string[]; warnings: string[];
    config: { args: Record<string, { value: Cell; default: Cell; origin: string }>; argv: string[] }; code: Record<string, Cell>; data: { version: string | null; declared: Record<string, Record<string, Cell>> };
    environment: Record<string, Cell>; artifacts: { name: string; kind: string; size_bytes: number; digest: string }[];
  };
  metrics: Metric[]; total: number; totals: Record<string, number>; replays: Replay[]; traceback?: string;
}

const TABS: [string, string][] = [["", "Overview"], ["charts", "Charts"], ["config", "Config"], ["code", "Code"], ["data", "Data"], ["environment", "Environment"], ["checkpoints", "Checkpoints"], ["console", "Console"], ["ranks", "Ranks"], ["artifacts", "Artifacts"]];

export function RunPage({ run }: { run: string }) {
  const { answer, error, again } = useAnswer((stop) => get<RunAnswer>(`/api/runs/${run}`, {}, stop), run);
  useEffect(() => onChange((change) => { if (change.kind === "reset" || run in change.runs) again(); }), [run]);
  const tab = param("tab");
  if (error && !answer) return <Empty title="This run can't be shown"><Failure error={error} /><a href={hrefOf("/")}>all runs</a></Empty>;
  if (!answer) return <div class="loading page" role="status" aria-label="Loading" />;
  const { record } = answer;
  return <article class="page">
    <header class="title">
      <h1>{record.name || record.run}</h1><Outcome outcome={record.outcome} />
      <span class="quiet">{record.name ? `${record.run} · ` : ""}{record.filename} · {whenText(record.started_us)}{record.ended_us ? ` · ${durationText((record.ended_us - record.started_us) / 1e6)}` : ""}</span>
      <span class="grow" /><a class="button" href={hrefOf("/ask", { runs: run })}>ask: add a column</a>
    </header>
    <nav class="tabs" aria-label="Parts of the run">{TABS.map(([key, text]) => <a key={key} href={hrefOf(`/runs/${run}`, key ? { tab: key } : {})} aria-current={tab === key ? "page" : undefined}>{text}</a>)}</nav>
    <Tab run={run} tab={tab} answer={answer} />
  </article>;
}

function Tab({ run, tab, answer }: { run: string; tab: string; answer: RunAnswer }) {
  if (tab === "charts") return <Charts run={run} answer={answer} />;
  if (tab === "config") return <Config run={run} />;
  if (tab === "code") return <Code run={run} answer={answer} />;
  if (tab === "data") return <Data run={run} answer={answer} />;
  if (tab === "environment") return <Environment run={run} answer={answer} />;
  if (tab === "checkpoints") return <Checkpoints run={run} />;
  if (tab === "console") return <Console run={run} answer={answer} />;
  if (tab === "ranks") return <Ranks run={run} answer={answer} />;
  if (tab === "artifacts") return <Artifacts run={run} />;
  return <Overview run={run} answer={answer} />;
}

const SOME = 100; // args and values on the overview

function Overview({ run, answer: { record, metrics, total, totals, replays } }: { run: string; answer: RunAnswer }) {
  const args = totals.args ?? Object.keys(record.config.args).length;
  const commands = useAnswer((stop) => get<{ reproduce: string[]; replay: string; restore: string }>(`/api/runs/${run}/commands`, {}, stop), run);
  return <div class="columns overview">
    <section><h2>Run</h2>
      {record.error && <div class="failure" role="alert"><b>{record.error.type}</b>: {record.error.message}{record.error.place ? <div class="quiet">{record.error.place}</div> : null}</div>}
      {record.incomplete.length > 0 && <div class="notice">Incomplete: {record.incomplete.join("; ")}</div>}
      <Facts of={[["started", new Date(record.started_us / 1000).toLocaleString()], ["ended", record.ended_us ? new Date(record.ended_us / 1000).toLocaleString() : null], ["project", record.project],
        ["ranks", record.world_size > 1 ? `${record.ranks.length} of ${record.world_size}` : null], ["parent", record.parent ? <RunLink run={record.parent} /> : null],
        ["code", <a href={hrefOf(`/runs/${run}`, { tab: "code" })}>{String(record.code.version ?? "not recorded").slice(0, 12)}</a>], ["branch", cellText(record.code.user_branch ?? null)],
        ["data", <a href={hrefOf(`/runs/${run}`, { tab: "data" })}>{record.data.version?.slice(0, 12) ?? "none seen or declared"}</a>], ...Object.entries(record.tags).map(([key, value]): [string, string] => [`tag ${key}`, cellText(value)])]} />
      <h2>Args</h2>
      <Facts of={Object.entries(record.config.args).slice(0, SOME).map(([name, arg]) => [name, <Value cell={arg.value} isQuoted />])} />
      {args > SOME && <p class="quiet">and {cellText(args - SOME)} more; <a href={hrefOf(`/runs/${run}`, { tab: "config" })}>all args</a></p>}
      {!Object.keys(record.config.args).length && <p class="quiet">none; <code>relive.arg("lr", 0.1)</code> records one</p>}
    </section>
    <section><h2>Values</h2>
      {metrics.length ? <div class="scroll" tabIndex={0} role="region" aria-label="Values"><table><thead><tr><th>name</th><th class="number">last</th><th class="number">lowest</th><th class="number">highest</th><th class="number">values</th><th>in</th></tr></thead>
        <tbody>{metrics.slice(0, SOME).map((one) => <tr key={one.name}><th scope="row"><a href={hrefOf(`/runs/${run}`, { tab: "charts", find: one.name })}>{one.name}</a></th><td class="number last"><Value cell={lastCell(one.last)} verdict={one.verdict} /></td><td class="number"><Value cell={one.lowest} /></td><td class="number"><Value cell={one.highest} /></td><td class="number">{cellText(one.count)}</td><td class="quiet">{one.loops.join("/")}</td></tr>)}</tbody></table>{total > SOME && <p class="quiet">and {cellText(total - SOME)} more; <a href={hrefOf(`/runs/${run}`, { tab: "charts" })}>all charts</a></p>}</div>
        : <p class="quiet">Nothing was logged.</p>}
      {replays.length > 0 && <><h2>Replays</h2><ul class="plain">{replays.map((one) => <li key={one.replay}>replay {one.replay}: {one.names.join(", ")} <Verdict verdict={one.verdict} /> <span class="quiet">{one.by ? `by ${one.by}` : ""} {one.causes.join("; ")}</span></li>)}</ul></>}
      <Remembered run={run} />
      <h2>Commands</h2>
      {commands.answer ? <><h3>run it again</h3>{commands.answer.reproduce.map((text) => <Command key={text} text={text} />)}{commands.answer.replay && <><h3>ask it something</h3><Command text={commands.answer.replay} /></>}</>
        : <><Command text={`relive show ${run}`} /><Command text={`relive replay NAME "run = '${run}'"`} /></>}
    </section>
  </div>;
}

function Charts({ run, answer }: { run: string; answer: RunAnswer }) {
  const loops = [...new Set(answer.metrics.flatMap((one) => one.loops))];
  const view = useMemo(() => [{ run, label: answer.record.name || run.slice(0, 8), color: PALETTE[0]!, live: answer.record.outcome === "running" }], [run]);
  const terms = useMemo(() => chartTerms(false), [param("x"), param("smooth"), param("logx"), param("logy"), param("zoom"), param("ranks")]);
  const names = answer.metrics.map((one) => one.name).join("\n");
  const metrics = useMemo(() => answer.metrics.map((one) => ({ name: one.name })), [names]);
  return <><ChartTools loops={loops} isGrouped={false} hasRanks={answer.record.world_size > 1} count={metrics.length} /><ChartGrid metrics={metrics} runs={view} terms={terms} /></>;
}

interface Changed { name: string; here: Cell; there: Cell }

function Against({ what }: { what: string }) {
  const [text, setText] = useState(param("against"));
  useEffect(() => setText(param("against")), [param("against")]);
  return <form class="tools" onSubmit={(event) => { event.preventDefault(); set({ against: text }); }}>
    <label class="choice"><span>compare {what} with run</span><input type="text" value={text} placeholder="id, its beginning, or a name" onInput={(event) => setText(event.currentTarget.value)} /></label>
    <button>compare</button>{param("against") && <button type="button" onClick={() => { setText(""); set({ against: "" }); }}>clear</button>}
  </form>;
}

const ChangedTable = ({ changed, against }: { changed: Changed[]; against: string }) => (changed.length
  ? <div class="scroll" tabIndex={0} role="region" aria-label="Differences"><table><thead><tr><th>name</th><th>here</th><th>{against}</th></tr></thead><tbody>{changed.map((one) => <tr key={one.name}><th scope="row">{one.name}</th><td class="added"><Value cell={one.here} isQuoted /></td><td class="removed"><Value cell={one.there} isQuoted /></td></tr>)}</tbody></table></div>
  : <p class="quiet">No difference.</p>);

interface ConfigAnswer { args: RunAnswer["record"]["config"]["args"]; total: number; argv: string[] }

function Config({ run }: { run: string }) {
  const against = param("against");
  const [from, since] = [pageStart("from"), pageStart("since")];
  const found = useAnswer((stop) => get<ConfigAnswer>(`/api/runs/${run}/config`, { limit: PAGE, offset: from }, stop), `${run}|${from}`);
  const commands = useAnswer((stop) => get<{ reproduce: string[] }>(`/api/runs/${run}/commands`, {}, stop), run);
  const diff = useAnswer((stop) => (against ? get<{ changed: Changed[]; changed_total: number }>(`/api/runs/${run}/config`, { against, limit: PAGE, offset: since }, stop) : Promise.resolve(null)), `${run}|${against}|${since}`);
  return <section><Against what="config" />
    {against !== "" && (diff.error ? <Failure error={diff.error} /> : diff.answer && <><h2>Differences</h2><ChangedTable changed={diff.answer.changed ?? []} against={against} /><Pager what="differences" total={diff.answer.changed_total} name="since" /></>)}
    {found.error ? <Failure error={found.error} /> : null}
    {found.answer && <><h2>Args</h2>
    {!found.answer.total && <p class="quiet">none; <code>relive.arg("lr", 0.1)</code> records one</p>}
    <Pager what="args" total={found.answer.total} name="from" />
    <div class="scroll" tabIndex={0} role="region" aria-label="Args"><table><thead><tr><th>name</th><th>value</th><th>default</th><th>from</th></tr></thead><tbody>{Object.entries(found.answer.args).map(([name, arg]) => <tr key={name}><th scope="row">{name}</th><td><Value cell={arg.value} isQuoted /></td><td class="quiet"><Value cell={arg.default} isQuoted /></td><td class="quiet">{arg.origin}</td></tr>)}</tbody></table></div>
    <h2>Command line</h2><Command text={commands.answer?.reproduce.at(-1) ?? found.answer.argv.join(" ")} /></>}
  </section>;
}

function Code({ run, answer: { record } }: { run: string; answer: RunAnswer }) {
  const from = pageStart("from");
  const code = useAnswer((stop) => get<{ version: string | null; parent: string | null; total: number; files: { path: string; bytes: number; status?: string }[] }>(`/api/runs/${run}/code`, { limit: PAGE, offset: from }, stop), `${run}|${from}`);
  const file = param("file");
  const against = param("against", "");
  const named = against === "parent" || against === "head" ? "" : against;
  const [other, setOther] = useState(named);
  useEffect(() => setOther(named), [named]);
  const text = useAnswer((stop) => (file ? get<{ path: string; text: string; is_binary: boolean; truncated: boolean }>(`/api/runs/${run}/code`, { path: file }, stop) : Promise.resolve(null)), `${run}|${file}`);
  const diff = useAnswer((stop) => (against ? get<{ files: DiffFile[]; truncated: boolean }>(`/api/runs/${run}/code/diff`, { against }, stop) : Promise.resolve(null)), `${run}|${against}`);
  return <section>
    <Facts of={[["version", cellText(record.code.version ?? null)], ["HEAD", cellText(record.code.head ?? null)], ["branch", cellText(record.code.user_branch ?? null)], ["changed files", cellText(record.code.dirty ?? null)]]} />
    <form class="tools" onSubmit={(event) => { event.preventDefault(); set({ against: other, file: "" }); }}>
      <span>differences to</span>
      {["parent", "head"].map((one) => <button key={one} type="button" aria-pressed={against === one} onClick={() => set({ against: against === one ? "" : one, file: "" })}>{one === "head" ? "HEAD" : one}</button>)}
      <input type="text" aria-label="Another run" placeholder="another run" value={other} onInput={(event) => setOther(event.currentTarget.value)} /><button>compare</button>
      {against && <button type="button" onClick={() => set({ against: "" })}>files</button>}
    </form>
    {code.error ? <Failure error={code.error} /> : null}
    {against ? (diff.error ? <Failure error={diff.error} /> : diff.answer ? <DiffView files={diff.answer.files} truncated={diff.answer.truncated} /> : <div class="loading" role="status" aria-label="Loading" />)
      : code.answer && <div class="files"><Pager what="files" total={code.answer.total} name="from" /><ul class="plain" aria-label="Files">{code.answer.files.map((one) => <li key={one.path}><a href={hrefOf(`/runs/${run}`, { tab: "code", file: one.path })} aria-current={file === one.path ? "true" : undefined}>{one.path}</a> <small class="quiet"><Bytes of={one.bytes} /> {one.status ?? ""}</small></li>)}</ul>
        <div>{file === "" ? <p class="quiet">Choose a file.</p> : text.error ? <Failure error={text.error} /> : text.answer && (text.answer.is_binary ? <p class="quiet">A binary file.</p> : <Source text={text.answer.text} truncated={text.answer.truncated} label={file} />)}</div></div>}
  </section>;
}

/** Source with line numbers; with `onPick` a line can be chosen. */
export function Source({ text, truncated, label, picked, onPick }: { text: string; truncated?: boolean; label: string; picked?: number; onPick?: (line: number) => void }) {
  return <div class="source" tabIndex={0} role="region" aria-label={label}><ol>{text.replace(/\n$/, "").split("\n").map((line, i) => <li key={i} class={picked === i + 1 ? "picked" : ""}>{onPick ? <button type="button" aria-pressed={picked === i + 1} aria-label={`Line ${i + 1}`} onClick={() => onPick(i + 1)}>{i + 1}</button> : <i>{i + 1}</i>}<code>{line || " "}</code></li>)}</ol>{truncated && <p class="quiet">The rest of the file is left out.</p>}</div>;
}

function Data({ run, answer: { record } }: { run: string; answer: RunAnswer }) {
  const against = param("against");
  const found = useAnswer((stop) => get<{ total: number; declared: unknown; observed: { path: string; bytes?: number; digest?: string }[]; against?: { run: string; version: string | null; same: boolean; differences: string[]; declared: Changed[] } }>(`/api/runs/${run}/data`, { limit: PAGE, offset: pageStart("from"), ...(against ? { against } : {}) }, stop), `${run}|${against}|${pageStart("from")}`);
  const declared = Object.entries(record.data.declared ?? {});
  return <section><Against what="data" />
    <Facts of={[["version", record.data.version ?? "none seen or declared"]]} />
    {found.error ? <Failure error={found.error} /> : null}
    {against && found.answer?.against && <><h2>Differences to <RunLink run={found.answer.against.run} tab="data" /></h2>
      {found.answer.against.same ? <p class="quiet">Both runs have the same data.</p> : <ul class="plain changes">{found.answer.against.differences.map((one) => <li key={one}>{one}</li>)}</ul>}
      {found.answer.against.declared.length > 0 && <ChangedTable changed={found.answer.against.declared.map((one) => ({ ...one, here: cellText(one.here).slice(0, 16), there: cellText(one.there).slice(0, 16) }))} against={against} />}</>}
    <h2>Declared</h2>{declared.length ? <table><thead><tr><th>name</th><th>what</th><th>digest</th></tr></thead><tbody>{declared.map(([name, one]) => <tr key={name}><th scope="row">{name}</th><td>{cellText(one.path ?? one.kind ?? null)}</td><td class="quiet">{cellText(one.digest ?? null).slice(0, 16)}</td></tr>)}</tbody></table> : <p class="quiet">none; <code>relive.data("train", path)</code> declares some</p>}
    {Array.isArray(found.answer?.observed) && <><h2>Files that the run was seen reading</h2><Pager what="files" total={found.answer.total} name="from" />{found.answer.observed.length ? <div class="scroll" tabIndex={0} role="region" aria-label="Files read"><table><tbody>{found.answer.observed.map((one) => <tr key={one.path}><th scope="row">{one.path}</th><td class="number"><Bytes of={one.bytes} /></td><td class="quiet">{one.digest?.slice(0, 16)}</td></tr>)}</tbody></table></div> : <p class="quiet">none</p>}</>}
  </section>;
}

/** A fact of the environment as people write it: a command with spaces, memory in units, lists with commas. */
function environmentText(name: string, value: Cell): string {
  if (name === "command" && Array.isArray(value)) return value.map((word) => (typeof word === "string" && /\s/.test(word) ? `'${word}'` : cellText(word))).join(" ");
  if (name.endsWith("_bytes") && typeof value === "number") return bytesText(value);
  if (name === "pid") return String(value);
  if (Array.isArray(value)) return value.length ? value.map(cellText).join(", ") : "none";
  return cellText(value);
}

function Environment({ run, answer: { record } }: { run: string; answer: RunAnswer }) {
  const against = param("against");
  const [from, since] = [pageStart("from"), pageStart("since")];
  const found = useAnswer((stop) => get<{ packages: Record<string, string>; total: number }>(`/api/runs/${run}/environment`, { limit: PAGE, offset: from }, stop), `${run}|${from}`);
  const diff = useAnswer((stop) => (against ? get<{ changed: Changed[]; changed_total: number }>(`/api/runs/${run}/environment`, { against, limit: PAGE, offset: since }, stop) : Promise.resolve(null)), `${run}|${against}|${since}`);
  const { packages: _, variables, ...rest } = record.environment as Record<string, Cell> & { packages?: Record<string, Cell>; variables?: Record<string, Cell> };
  const listed = Object.entries(found.answer?.packages ?? {});
  return <section><Against what="the environment" />
    {against !== "" && (diff.error ? <Failure error={diff.error} /> : diff.answer && <><h2>Differences</h2><ChangedTable changed={diff.answer.changed} against={against} /><Pager what="differences" total={diff.answer.changed_total} name="since" /></>)}
    {found.error ? <Failure error={found.error} /> : null}
    <Facts of={Object.entries(rest).filter(([name]) => name !== "variable_names").map(([name, value]) => [name, environmentText(name, value)])} />
    {variables && Object.keys(variables).length > 0 && <><h2>Variables</h2><Facts of={Object.entries(variables).map(([name, value]) => [name, cellText(value)])} /></>}
    {Array.isArray(rest.variable_names) && rest.variable_names.length > 0 && <details class="more"><summary>names of {rest.variable_names.length} more variables</summary><p class="quiet">{rest.variable_names.map(cellText).join(", ")}</p></details>}
    <h2>Packages <small class="quiet">{found.answer ? cellText(found.answer.total) : ""}</small></h2><Pager what="packages" total={found.answer?.total} name="from" /><ul class="packages">{listed.map(([name, version]) => <li key={name}>{name} <span class="quiet">{cellText(version)}</span></li>)}</ul>
  </section>;
}

interface CheckpointRow { loop: string; iteration: number; context?: Record<string, Cell>; time: number; bytes: number; new_bytes: number; objects: string[]; partial: string[] }

function Checkpoints({ run }: { run: string }) {
  const from = pageStart("from");
  const found = useAnswer((stop) => get<{ checkpoints: CheckpointRow[]; total: number; restore: string }>(`/api/runs/${run}/checkpoint-list`, { limit: PAGE, offset: from }, stop), `${run}|${from}`);
  if (found.error) return <Failure error={found.error} />;
  if (!found.answer) return <div class="loading" role="status" aria-label="Loading" />;
  const rows = found.answer.checkpoints;
  if (!rows.length) return <Empty title="No checkpoints"><p>They are taken inside <code>with relive.checkpointing(model=net):</code>, when they are worth their cost.</p></Empty>;
  const seconds = (row: CheckpointRow) => (row.time > 1e14 ? row.time / 1e6 : row.time);
  const first = Math.min(...rows.map(seconds)); const last = Math.max(...rows.map(seconds));
  const most = Math.max(...rows.map((row) => row.bytes), 1);
  return <section>
    <div class="timeline" role="img" aria-label={`${rows.length} checkpoints over ${durationText(last - first)}`}>{rows.map((row, i) => <i key={i} title={`${row.loop} ${row.iteration}: ${bytesText(row.bytes)}, ${row.objects.join(", ")}`} ref={(node) => { if (node) { node.style.left = `${last > first ? ((seconds(row) - first) / (last - first)) * 100 : 50}%`; node.style.height = `${20 + 80 * (row.bytes / most)}%`; } }} />)}</div>
    <p class="scale quiet"><span>{new Date(first * 1000).toLocaleTimeString()}</span><span>{rows.length === 1 ? "one checkpoint" : `${rows.length} checkpoints`}, {bytesText(rows.reduce((sum, row) => sum + row.new_bytes, 0))} stored, the largest is {bytesText(most)}</span><span>{new Date(last * 1000).toLocaleTimeString()}</span></p>
    {found.answer.restore && <><h2>Restore</h2><Command text={found.answer.restore} /></>}
    <Pager what="checkpoints" total={found.answer.total} name="from" />
    <div class="scroll" tabIndex={0} role="region" aria-label="Checkpoints"><table><thead><tr><th>loop</th><th class="number">iteration</th><th>taken</th><th class="number">size</th><th class="number">new</th><th>holds</th><th>partial</th></tr></thead>
      <tbody>{rows.map((row, i) => <tr key={i}><th scope="row">{row.loop}</th><td class="number">{row.iteration}</td><td>{new Date(seconds(row) * 1000).toLocaleTimeString()}</td><td class="number"><Bytes of={row.bytes} /></td><td class="number"><Bytes of={row.new_bytes} /></td><td>{row.objects.join(", ")}</td><td class={row.partial.length ? "warned" : "quiet"}>{row.partial.join(", ") || "–"}</td></tr>)}</tbody></table></div>
  </section>;
}

function Ranks({ run, answer }: { run: string; answer: RunAnswer }) {
  if (answer.record.world_size <= 1) return <Empty title="One rank"><p>This run had a single process. The ranks of torchrun, srun and mpirun launches are shown here as a fan.</p></Empty>;
  const name = param("name") || answer.metrics[0]?.name || "";
  const skew = useAnswer((stop) => (name ? get<{ max_skew: number | null; missing_ranks: number[]; ranks: number[] }>(`/api/runs/${run}/skew`, { name, limit: 0 }, stop) : Promise.resolve(null)), `${run}|${name}`);
  const view = useMemo(() => [{ run, label: answer.record.name || run.slice(0, 8), color: PALETTE[0]! }], [run]);
  const terms = useMemo(() => ({ ...chartTerms(false), ranks: true }), [param("x"), param("smooth"), param("logx"), param("logy"), param("zoom")]);
  return <section>
    <div class="tools"><label class="choice"><span>value</span><select value={name} onChange={(event) => set({ name: event.currentTarget.value })}>{answer.metrics.map((one) => <option key={one.name}>{one.name}</option>)}</select></label></div>
    {skew.answer && <Facts of={[["ranks", skew.answer.ranks.length], ["largest skew", <Value cell={skew.answer.max_skew} />], ["without values", skew.answer.missing_ranks.join(", ")]]} />}
    <ChartGrid metrics={[{ name }]} runs={view} terms={terms} size="l" />
  </section>;
}
