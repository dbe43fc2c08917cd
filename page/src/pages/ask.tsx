// Ask the past: a column that nobody logged, planned with its price, filled by a click where that is allowed.

import { useEffect, useState } from "preact/hooks";
import { ApiError, get, post, remove, session, table } from "../api";
import { onChange } from "../events";
import { Command, Copy, Empty, Failure, RunLink, Tick, useAnswer, useTyped, Verdict } from "../parts/basics";
import { cellText, durationText } from "../pure/format";
import { fromList, toList } from "../pure/params";
import { hrefOf, param, set } from "../state";
import { Source } from "./run";

interface PlanRow { run: string; version: string; lands: string; confidence: number | string; depth: string; iterations: number | string; how: string; checkpoints: number | string; predicted_s: number | null; patch: string; guess?: boolean; notes?: string[] }
interface Plan { plan: string; rows: PlanRow[]; total_s: number | null; refused: { run: string; why: string }[]; names?: string[] }
interface Question { id?: string; question?: string; state: string; done: number; of: number; took_s: number | null; predicted_s?: number | null; values: number; verdicts: Record<string, unknown>; errors: string[]; names?: string[]; refused?: { run: string; why: string }[]; runs?: { run: string; values: number; verdict: string | null; took_s?: number | null }[] }

export function Ask() {
  const runs = toList(param("runs"));
  const [statement, setStatement] = useTyped(param("statement"), (value) => set({ statement: value }, "replace"));
  const [names, setNames] = useTyped(param("name"), (value) => set({ name: value }, "replace"));
  const place = { file: param("file"), line: Number(param("line")) || 0 };
  const setPlace = (next: { file: string; line: number }) => set({ file: next.file, line: next.line ? String(next.line) : "" });
  const [plan, setPlan] = useState<Plan | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const question = param("question");
  const where = param("where");
  const chosen = useAnswer((stop) => table(runs.length ? { runs, columns: ["filename"], limit: 100 } : { where, columns: ["filename"], limit: 100 }, stop), JSON.stringify([runs, where]));
  const isAllowed = session.value?.can_ask === true;

  const what = () => ({ ...(runs.length ? { runs } : where ? { where } : {}), ...(statement.trim() ? { statement, ...(place.file ? { file: place.file, line: place.line, ...(chosen.answer?.rows[0] ? { source: chosen.answer.rows[0].run } : {}) } : {}) } : {}), ...(names.trim() ? { names: names.split(/[\s,]+/).filter(Boolean) } : {}) });
  const makePlan = async (event: Event) => {
    event.preventDefault();
    setBusy(true); setError(null); setPlan(null);
    try { setPlan(await post<Plan>("/api/ask/plan", what())); } catch (problem) { setError(problem); }
    setBusy(false);
  };
  const start = async (guesses: boolean) => {
    if (!plan) return;
    try { const begun = await post<{ question: string }>(`/api/ask/${plan.plan}/start`, guesses ? { guesses: true } : {}); setPlan(null); set({ question: begun.question }); } catch (problem) { setError(problem); }
  };
  const column = names.trim().split(/[\s,]+/)[0] || /relive\.log\(\s*["']([^"']+)/.exec(statement)?.[1] || "NAME";
  const condition = runs.length ? `run in (${runs.slice(0, 20).map((run) => `'${run}'`).join(", ")})` : where;
  const command = `relive replay ${column}${condition ? ` "${condition}"` : ""}`;
  return <article class="page">
    <header class="title"><h1>Ask the past</h1><span class="quiet">a column that nobody logged, for {runs.length ? (runs.length === 1 ? "one run" : `${runs.length} runs`) : where ? `the runs where ${where}` : "all runs"}</span></header>
    <div class="columns">
      <form onSubmit={makePlan}>
        <h2>What should have been logged?</h2>
        <label class="field"><span>a statement</span><textarea rows={3} spellcheck={false} placeholder={'relive.log("grad_norm", float(grad.norm()))'} value={statement} onInput={(event) => setStatement(event.currentTarget.value)} /></label>
        {statement.trim() && <p class={place.line ? "" : "notice"}>{place.line ? <>before line {place.line} of {place.file} <button type="button" class="small" onClick={() => setPlace({ file: "", line: 0 })}>another place</button></> : "Click its place in the code."}</p>}
        <p class="quiet">or</p>
        <label class="field"><span>names that the working tree logs already</span><input type="text" placeholder="grad_norm f1" value={names} onInput={(event) => setNames(event.currentTarget.value)} /></label>
        {isAllowed ? <p><button class="primary" disabled={isBusy || (!names.trim() && !(statement.trim() && place.line))}>{isBusy ? "planning…" : "plan it"}</button></p>
          : <div class="notice"><p>Replay runs code of the project, so it is started where the project is. Add the statement to the working tree, and run:</p><Command text={command} /><p class="quiet">Add <code>--explain</code> for the plan and its price. <code>relive ui</code> on that machine offers it here, by a click.</p></div>}
        {error ? (error instanceof ApiError && error.status === 403 ? <div class="notice"><p>{error.message}</p>{((error.detail.commands as string[] | undefined) ?? [command]).map((text) => <Command key={text} text={text} />)}</div> : <Failure error={error} />) : null}
        {question && <Progress id={question} column={column} runs={runs} />}
        <Questions current={question} onOpen={(id) => set({ question: id })} />
      </form>
      <section aria-label="Code">{statement.trim() && chosen.answer?.rows[0] ? <Place run={chosen.answer.rows[0].run} script={cellText(chosen.answer.rows[0].cells.filename)} place={place} onPick={setPlace} /> : chosen.answer && <><h2>Runs</h2>{chosen.answer.rows.length ? <ul class="packages">{chosen.answer.rows.map((row) => <li key={row.run}><RunLink run={row.run} name={row.name} /></li>)}</ul> : <Empty title="No runs" />}</>}</section>
    </div>
    {plan && <PlanView plan={plan} onStart={start} />}
  </article>;
}

function Place({ run, script, place, onPick }: { run: string; script: string; place: { file: string; line: number }; onPick: (place: { file: string; line: number }) => void }) {
  const code = useAnswer((stop) => get<{ files: { path: string }[] }>(`/api/runs/${run}/code`, {}, stop), run);
  const files = (code.answer?.files ?? []).map((one) => one.path).filter((one) => one.endsWith(".py"));
  const file = place.file || files.find((one) => one === script || one.endsWith(`/${script}`)) || files[0] || "";
  const text = useAnswer((stop) => (file ? get<{ text: string; truncated: boolean }>(`/api/runs/${run}/code`, { path: file }, stop) : Promise.resolve(null)), `${run}|${file}`);
  if (code.error) return <Failure error={code.error} />;
  return <><h2>Where? <small class="quiet">in the version of run {run.slice(0, 8)}</small></h2>
    <div class="tools"><label class="choice"><span>file</span><select value={file} onChange={(event) => onPick({ file: event.currentTarget.value, line: 0 })}>{files.map((one) => <option key={one}>{one}</option>)}</select></label></div>
    {text.answer && <Source text={text.answer.text} truncated={text.answer.truncated} label={file} picked={place.line} onPick={(line) => onPick({ file, line })} />}</>;
}

function PlanView({ plan, onStart }: { plan: Plan; onStart: (guesses: boolean) => void }) {
  const [guesses, setGuesses] = useState(false);
  const doubtful = plan.rows.filter((row) => row.guess).length;
  return <section class="plan" aria-label="Plan"><h2>The plan <small class="quiet">{plan.rows.length} {plan.rows.length === 1 ? "run" : "runs"} · about {durationText(plan.total_s)}</small></h2>
    {plan.rows.length > 0 && <p><button type="button" class="primary" onClick={() => onStart(guesses)}>replay {plan.rows.length} {plan.rows.length === 1 ? "run" : "runs"}, about {durationText(plan.total_s)}</button>{doubtful > 0 && <Tick label={`also the ${doubtful} where the place is a guess`} checked={guesses} onChange={setGuesses} />}</p>}
    <div class="scroll" tabIndex={0} role="region" aria-label="Plan"><table><thead><tr><th>run</th><th>lands at</th><th class="number">confidence</th><th>depth</th><th class="number">iterations</th><th>how</th><th class="number">checkpoints</th><th class="number">price</th><th>patch</th></tr></thead>
      <tbody>{plan.rows.map((row) => <tr key={row.run}><th scope="row"><RunLink run={row.run} /></th><td>{row.lands}</td><td class="number">{typeof row.confidence === "number" ? `${Math.round(row.confidence * 100)} %` : row.confidence}</td><td>{row.depth}</td><td class="number">{String(row.iterations)}</td><td>{row.how}</td><td class="number">{String(row.checkpoints)}</td><td class="number">{durationText(row.predicted_s)}</td><td>{row.patch ? <details><summary>show</summary><pre class="console">{row.patch}</pre><Copy text={row.patch} /></details> : null}</td></tr>)}</tbody></table></div>
    {plan.refused.length > 0 && <><h3>Not possible</h3><ul class="plain">{plan.refused.map((one) => <li key={one.run}><RunLink run={one.run} />: {one.why}</li>)}</ul></>}
  </section>;
}

function Progress({ id, column, runs }: { id: string; column: string; runs: string[] }) {
  const { answer, error, again } = useAnswer((stop) => get<Question>(`/api/ask/questions/${id}`, {}, stop), id);
  useEffect(() => {
    const stop = onChange((change) => { if (change.kind === "question" || change.kind === "runs" || change.kind === "reset") again(); });
    const timer = setInterval(() => { if (!answer || !/done|finished|failed|stopped/.test(answer.state)) again(); }, 1000);
    return () => { stop(); clearInterval(timer); };
  }, [id, answer?.state]);
  if (error) return <Failure error={error} />;
  if (!answer) return <div class="loading" role="status" aria-label="Loading" />;
  const isOver = /done|finished|failed|stopped|ended/.test(answer.state);
  return <section class="progress" aria-label="Progress"><p><b>{answer.state}</b>: {answer.done} of {answer.of} iterations{answer.took_s ? `, ${durationText(answer.took_s)}` : ""}{answer.predicted_s && !isOver ? ` of about ${durationText(answer.predicted_s)}` : ""}{answer.values ? ` · ${answer.values} values` : ""}</p>
    <progress max={Math.max(answer.of, 1)} value={answer.done} aria-label="Iterations replayed" />
    <p>{verdictCounts(answer.verdicts).map(([verdict, count]) => <span key={verdict} class="tag">{count} {verdict}<Verdict verdict={verdict} /></span>)}</p>
    {(answer.errors ?? []).map((one, i) => <pre key={i} class="console">{one}</pre>)}
    {(answer.refused ?? []).map((one) => <p key={one.run} class="failure"><RunLink run={one.run} />: {one.why}</p>)}
    {(answer.runs ?? []).length > 0 && <ul class="plain">{answer.runs!.map((one) => <li key={one.run}><RunLink run={one.run} />: {one.values} values{one.verdict ? <> · {one.verdict}<Verdict verdict={one.verdict} /></> : null}</li>)}</ul>}
    <p class="bar">{!isOver && <button type="button" onClick={async () => { await remove(`/api/ask/questions/${id}`); again(); }}>stop</button>}
      <a class="button" href={hrefOf("/", { cols: fromList([`metric:${column}`]), ...(runs.length ? { top: "0", show: fromList(runs) } : {}), find: column })}>see the values</a></p>
  </section>;
}

/** Counts by verdict, also where they are given for each name. */
function verdictCounts(verdicts: Record<string, unknown>): [string, number][] {
  const found = new Map<string, number>();
  const add = (key: string, value: unknown) => {
    if (typeof value === "number") found.set(key, (found.get(key) ?? 0) + value);
    else if (value && typeof value === "object") for (const [inner, count] of Object.entries(value)) add(inner, count);
  };
  for (const [key, value] of Object.entries(verdicts ?? {})) add(key, value);
  return [...found];
}

function Questions({ current, onOpen }: { current: string; onOpen: (id: string) => void }) {
  const { answer, again } = useAnswer((stop) => (session.value?.can_ask ? get<{ questions: (Question & { question?: string })[] }>("/api/ask/questions", {}, stop) : Promise.resolve({ questions: [] })), `questions ${current} ${session.value?.can_ask ?? false}`);
  useEffect(() => onChange((change) => { if (change.kind !== "points") again(); }), []);
  const others = (answer?.questions ?? []).filter((one) => String(one.id ?? one.question ?? "") !== current); // that one is above
  if (!others.length) return null;
  return <><h2>Earlier questions</h2><ul class="plain">{others.map((one) => { const id = String(one.id ?? one.question ?? ""); return <li key={id}><button type="button" class="small" onClick={() => onOpen(id)}>{(one.names ?? [id]).join(", ")}</button> <span class="quiet">{one.state}, {one.done} of {one.of}</span></li>; })}</ul></>;
}
