// What a run left: what it printed, its artifacts with previews, and the calls that it did not have to compute.

import { useEffect } from "preact/hooks";
import { get, may } from "../api";
import { onChange } from "../events";
import { Bytes, Choice, Empty, Failure, PAGE, Pager, pageStart, RunLink, useAnswer } from "../parts/basics";
import { cellText, durationText, type Cell } from "../pure/format";
import { hrefOf, param, prefix, set } from "../state";
import type { RunAnswer } from "./run";

// --- console -----------------------------------------------------------------------------------------------------------------

const LINES = 1000;
interface Printed { lines: { n: number; time: number; stream: string; text: string; open?: boolean }[]; total: number; printed: number; omitted: { from: number; lines: number }[]; truncated: boolean }

export function Console({ run, answer: { record, traceback } }: { run: string; answer: RunAnswer }) {
  const rank = param("rank");
  const from = param("from") === "" ? null : Math.max(0, Number(param("from")) || 0);
  const found = useAnswer(async (stop) => {
    const ask = (offset: number) => get<Printed>(`/api/runs/${run}/console`, { offset, limit: LINES, ...(rank ? { rank } : {}) }, stop);
    const first = await ask(from ?? 0);
    // Without a choice the end is shown, which is what one looks for.
    const end = Math.floor(Math.max(first.total - 1, 0) / LINES) * LINES;
    return from === null && end > 0 ? { ...(await ask(end)), offset: end } : { ...first, offset: from ?? 0 };
  }, `${run}|${rank}|${from}`);
  const isLive = record.outcome === "running";
  useEffect(() => onChange((change) => { if (run in change.runs) found.again(); }), [run]);
  useEffect(() => { // what is printed without a value being logged is no event
    const timer = isLive ? setInterval(() => { if (!document.hidden) found.again(); }, 3000) : 0;
    return () => clearInterval(timer);
  }, [run, isLive]);
  const trace = traceback ?? record.error?.traceback;
  const { answer } = found;
  const ranks = record.ranks.length > 1 ? record.ranks : [];
  const gap = new Map((answer?.omitted ?? []).map((one) => [one.from + one.lines, one.lines]));
  return <section>
    {trace && <><h2>Traceback</h2><pre class="console trace" tabIndex={0}>{trace}</pre></>}
    <div class="bar">{trace && <h2>Output</h2>}
      {ranks.length > 0 && <Choice label="rank" value={rank || "0"} of={ranks.map((one): [string, string] => [String(one), String(one)])} onChange={(value) => set({ rank: value === "0" ? "" : value, from: "" })} />}
      {answer && answer.lines.length > 0 && <><span class="count">{answer.total > LINES ? `lines ${cellText(answer.offset + 1)} to ${cellText(Math.min(answer.offset + LINES, answer.total))} of ${cellText(answer.total)}` : `${cellText(answer.total)} lines`}{answer.printed > answer.total ? `, ${cellText(answer.printed)} were printed` : ""}</span><span class="grow" />
        {answer.total > LINES && <><button type="button" disabled={!answer.offset} onClick={() => set({ from: String(Math.max(0, answer.offset - LINES)) })}>earlier</button><button type="button" disabled={answer.offset + LINES >= answer.total} onClick={() => set({ from: String(answer.offset + LINES) })}>later</button></>}</>}</div>
    {found.error ? <Failure error={found.error} /> : answer && (answer.lines.length ? <pre class="console" tabIndex={0} aria-label="Output">{answer.lines.map((line) => <span key={line.n} class={`${line.stream} ${line.open ? "open" : ""}`} title={`${new Date(line.time * 1000).toLocaleString()}, ${line.stream === "err" ? "stderr" : "stdout"}`}>{gap.has(line.n) ? <em>{`… ${cellText(gap.get(line.n)!)} lines were not kept …\n`}</em> : null}{line.text.replace(/\n?$/, "\n")}</span>)}</pre>
      : <p class="quiet">{record.outcome === "running" ? "Nothing was printed yet." : "The run printed nothing, or its output was not recorded (the setting console)."}</p>)}
  </section>;
}

// --- artifacts ---------------------------------------------------------------------------------------------------------------

interface Artifact { name: string; bytes: number; kind: string; preview: string; files: { path: string; bytes: number | null; preview: string }[] }

export function Artifacts({ run }: { run: string }) {
  const from = pageStart("from");
  const found = useAnswer((stop) => get<{ artifacts: Artifact[]; total: number }>(`/api/runs/${run}/artifacts`, { limit: PAGE, offset: from }, stop), `${run}|${from}`);
  if (found.error) return <Failure error={found.error} />;
  if (!found.answer) return <div class="loading" role="status" aria-label="Loading" />;
  if (!found.answer.artifacts.length) return <Empty title="No artifacts"><p>Keep one with <code>relive.artifact(model, name="weights")</code>.</p></Empty>;
  const address = (name: string, more: Record<string, string>) => `${prefix}/api/runs/${run}/artifacts/${name.split("/").map(encodeURIComponent).join("/")}?${new URLSearchParams(more)}`;
  return <section class="artifacts"><Pager what="artifacts" total={found.answer.total} name="from" />{found.answer.artifacts.map((one) => <div key={one.name} class="card">
    <header><h3>{one.name}</h3><small class="quiet">{one.kind} · <Bytes of={one.bytes} /></small><span class="grow" />{one.kind !== "folder" && <a class="button small" href={address(one.name, { download: "1" })} download aria-label={`Download ${one.name}`}>download</a>}
      {may("promote") && <a class="button small" href={hrefOf("/models", { promote: run, artifact: one.name })}>promote</a>}</header>
    {one.kind === "folder" ? <ul class="plain folder">{one.files.map((file) => <li key={file.path}><details><summary>{file.path} <small class="quiet"><Bytes of={file.bytes} /></small></summary>
      <a class="button small" href={address(one.name, { file: file.path, download: "1" })} download aria-label={`Download ${file.path}`}>download</a><Preview kind={file.preview} name={file.path} address={(more) => address(one.name, { file: file.path, ...more })} /></details></li>)}</ul>
      : <Preview kind={one.preview} name={one.name} address={(more) => address(one.name, more)} />}
  </div>)}</section>;
}

interface Previewed { kind: string; text?: string; columns?: string[]; rows?: string[][]; truncated: boolean }

function Preview({ kind, name, address }: { kind: string; name: string; address: (more: Record<string, string>) => string }) {
  if (kind === "image") return <img src={address({})} alt={name} loading="lazy" />;
  return kind === "text" || kind === "table" ? <Beginning address={address({ preview: "1" })} name={name} /> : null;
}

function Beginning({ address, name }: { address: string; name: string }) {
  const { answer, error } = useAnswer((stop) => get<Previewed>(address.slice(prefix.length), {}, stop), address);
  if (error) return <Failure error={error} />;
  if (!answer) return <div class="loading" role="status" aria-label="Loading" />;
  const rest = answer.truncated && <p class="quiet">The rest is in the download.</p>;
  if (answer.kind !== "table") return <><pre class="console" tabIndex={0}>{answer.text}</pre>{rest}</>;
  return <><div class="scroll preview" tabIndex={0} role="region" aria-label={`Beginning of ${name}`}><table><thead><tr>{answer.columns!.map((one, i) => <th key={i}>{one}</th>)}</tr></thead><tbody>{answer.rows!.map((row, i) => <tr key={i}>{row.map((cell, k) => <td key={k}>{cell}</td>)}</tr>)}</tbody></table></div>{rest}</>;
}

// --- memo --------------------------------------------------------------------------------------------------------------------

interface Memo { entries: { function: string; key: string; outcome: string; from: Cell; saved_s: number | null; took_s: number | null }[]; total: number; saved_s: number }

export function Remembered({ run }: { run: string }) {
  const { answer } = useAnswer((stop) => get<Memo>(`/api/runs/${run}/memo`, { limit: 200 }, stop), run);
  if (!answer?.entries.length) return null;
  const sourceOf = (from: Cell) => (typeof from === "string" && /^[0-9a-f]{12}$/.test(from) ? <> from <RunLink run={from} /></> : null);
  return <><h2>Remembered calls <small class="quiet">{answer.saved_s ? `${durationText(answer.saved_s)} saved` : ""}</small></h2>
    <table><thead><tr><th>function</th><th>outcome</th><th class="number">time</th></tr></thead><tbody>{answer.entries.map((one, i) => <tr key={i}><th scope="row">{one.function}</th>
      <td>{one.outcome === "hit" ? <>reused{sourceOf(one.from)}</> : one.outcome === "miss" ? "computed" : one.outcome}</td><td class="number">{one.outcome === "hit" ? (one.saved_s === null ? "" : `${durationText(one.saved_s)} saved`) : durationText(one.took_s)}</td></tr>)}</tbody></table>
    {answer.total > answer.entries.length && <p class="quiet">and {cellText(answer.total - answer.entries.length)} more</p>}</>;
}
