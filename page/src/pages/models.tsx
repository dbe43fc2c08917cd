// Named models: their versions, where their aliases point, and who changed what.

import { useState } from "preact/hooks";
import { get, may, post, put } from "../api";
import { Bytes, Empty, Failure, PAGE, Pager, pageStart, RunLink, useAnswer, Value } from "../parts/basics";
import { cellText, type Cell } from "../pure/format";
import { likelyMetrics } from "../pure/likely";
import { go, hrefOf, param } from "../state";

interface Version { version: number; run: string; aliases: string[]; note?: string; by?: string; data_version?: string | null; code?: { version?: string }; artifact?: { name?: string; size_bytes?: number } | null; is_retired: boolean; time_us?: number; metrics?: Record<string, { last: Cell }> }
interface Model { name: string; aliases: Record<string, number>; versions: Version[]; total: number; history_total?: number; history?: { event: string; time_us: number; by: string; alias?: string; version?: number; before?: number | null; how?: string; note?: string }[] }

export function Models() {
  const { answer, error, again } = useAnswer((stop) => get<{ models: Model[]; total: number }>("/api/registry", { limit: PAGE, offset: pageStart("from"), versions: 1 }, stop), `models|${pageStart("from")}`);
  if (error) return <Empty title="The models can't be shown"><Failure error={error} /></Empty>;
  if (!answer) return <div class="loading page" role="status" aria-label="Loading" />;
  return <article class="page">
    <header class="title"><h1>Models</h1></header>
    {param("promote") && <Promote models={answer.models} done={again} />}
    <Pager what="models" total={answer.total} name="from" />
    {answer.models.length ? <table><thead><tr><th>model</th><th class="number">versions</th><th>aliases</th><th>newest run</th></tr></thead><tbody>{answer.models.map((one) => <tr key={one.name}><th scope="row"><a href={hrefOf(`/models/${encodeURIComponent(one.name)}`)}>{one.name}</a></th><td class="number">{cellText(one.total)}</td><td>{Object.entries(one.aliases).map(([alias, version]) => <span key={alias} class="tag">{alias} → {version}</span>)}</td><td>{one.versions[0] && <RunLink run={one.versions[0].run} />}</td></tr>)}</tbody></table>
      : <Empty title="No models yet"><p>Make a run the first version of one: <code>relive promote RUN NAME</code>, or <b>promote</b> beside an artifact of a run.</p></Empty>}
  </article>;
}

function Promote({ models, done }: { models: Model[]; done: () => void }) {
  const [name, setName] = useState(models[0]?.name ?? "");
  const [alias, setAlias] = useState("");
  const [error, setError] = useState<unknown>(null);
  const run = param("promote");
  if (!may("promote")) return <p class="notice">Your token may not promote; ask for one with the scope <code>promote</code>.</p>;
  const send = async (event: Event) => {
    event.preventDefault();
    try {
      await post(`/api/registry/${encodeURIComponent(name)}`, { run, artifact: param("artifact") || null, aliases: alias ? [alias] : [] });
      done(); go(`/models/${encodeURIComponent(name)}`);
    } catch (problem) { setError(problem); }
  };
  return <form class="tools notice" onSubmit={send}><span>Make run <b>{run.slice(0, 8)}</b>{param("artifact") ? <> with <b>{param("artifact")}</b></> : null} the next version of</span>
    <input type="text" aria-label="Model" required value={name} list="models" onInput={(event) => setName(event.currentTarget.value)} /><datalist id="models">{models.map((one) => <option key={one.name} value={one.name} />)}</datalist>
    <input type="text" aria-label="Alias" placeholder="alias, if any" value={alias} onInput={(event) => setAlias(event.currentTarget.value)} /><button>promote</button>{error ? <Failure error={error} /> : null}</form>;
}

export function ModelPage({ name }: { name: string }) {
  const { answer, error, again } = useAnswer((stop) => get<Model>(`/api/registry/${encodeURIComponent(name)}`, { limit: PAGE, offset: pageStart("from") }, stop), `${name}|${pageStart("from")}`);
  const [problem, setProblem] = useState<unknown>(null);
  const change = async (work: () => Promise<unknown>) => { try { await work(); setProblem(null); again(); } catch (failed) { setProblem(failed); } };
  if (error) return <Empty title="This model can't be shown"><Failure error={error} /><a href={hrefOf("/models")}>all models</a></Empty>;
  if (!answer) return <div class="loading page" role="status" aria-label="Loading" />;
  const path = `/api/registry/${encodeURIComponent(name)}`;
  return <article class="page">
    <header class="title"><h1>{answer.name}</h1><span class="quiet"><a href={hrefOf("/models")}>all models</a></span></header>
    {problem ? <Failure error={problem} /> : null}
    <h2>Aliases</h2>
    {Object.keys(answer.aliases).length ? <ul class="plain">{Object.entries(answer.aliases).map(([alias, version]) => <li key={alias}><span class="tag">{alias} → {version}</span> {may("promote") && <button type="button" class="small" onClick={() => change(() => post(`${path}/aliases/${encodeURIComponent(alias)}/rollback`, {}))}>roll back</button>}</li>)}</ul> : <p class="quiet">none</p>}
    {may("promote") && answer.versions.some((one) => !one.is_retired) && <Point model={answer} change={(alias, version) => change(() => put(`${path}/aliases/${encodeURIComponent(alias)}`, { version }))} />}
    <h2>Versions</h2><Pager what="versions" total={answer.total} name="from" />
    <div class="scroll" tabIndex={0} role="region" aria-label="Versions"><table><thead><tr><th class="number">version</th><th>run</th><th>aliases</th><th>artifact</th><th>data</th><th>code</th><th>values</th><th>note</th><th /></tr></thead><tbody>{answer.versions.map((one) => <tr key={one.version} class={one.is_retired ? "quiet" : ""}><td class="number">{one.version}</td><th scope="row"><RunLink run={one.run} /></th><td>{one.aliases.map((alias) => <span key={alias} class="tag">{alias}</span>)}</td><td>{one.artifact?.name} <small class="quiet"><Bytes of={one.artifact?.size_bytes} /></small></td><td class="quiet">{one.data_version?.slice(0, 8)}</td><td class="quiet">{one.code?.version?.slice(0, 8)}</td><td>{bestOf(one.metrics ?? {}).map((key) => <span key={key} class="tag">{key} <Value cell={one.metrics![key]!.last} /></span>)}</td><td>{one.note}</td><td>{may("promote") && !one.is_retired && <button type="button" class="small" onClick={() => change(() => post(`${path}/versions/${one.version}/retire`, {}))}>retire</button>}{one.is_retired && "retired"}</td></tr>)}</tbody></table></div>
    <h2>History</h2><Pager what="changes" total={answer.history_total} name="from" />
    <ul class="plain">{[...(answer.history ?? [])].reverse().map((one, i) => <li key={i}><span class="quiet">{new Date(one.time_us / 1000).toLocaleString()}</span> {toldOf(one)} <span class="quiet">by {one.by}</span> {one.note}</li>)}</ul>
  </article>;
}

/** The values of a version that say how good it is. */
const bestOf = (metrics: Record<string, { last: Cell }>): string[] => likelyMetrics(Object.keys(metrics).map((name) => ({ name, kind: "metric", runs: null, is_number: typeof metrics[name]?.last === "number" }))).slice(0, 3);

function toldOf({ event, alias, version, before, how }: NonNullable<Model["history"]>[number]): string {
  if (event === "version") return `version ${version} was promoted`;
  if (event === "retired") return `version ${version} was retired`;
  return `${alias} ${how === "rollback" ? "went back" : "points"} to version ${version}${before !== undefined && before !== null ? ` instead of ${before}` : ""}`;
}

function Point({ model, change }: { model: Model; change: (alias: string, version: number) => void }) {
  const [alias, setAlias] = useState("");
  const active = model.versions.filter((one) => !one.is_retired);
  const [version, setVersion] = useState(active[0]!.version);
  return <form class="tools" onSubmit={(event) => { event.preventDefault(); change(alias, version); setAlias(""); }}>
    <input type="text" required aria-label="Alias" placeholder="alias" value={alias} onInput={(event) => setAlias(event.currentTarget.value)} /><span>→</span>
    <select aria-label="Version" value={String(version)} onChange={(event) => setVersion(Number(event.currentTarget.value))}>{active.map((one) => <option key={one.version} value={String(one.version)}>version {one.version}</option>)}</select><button>point</button></form>;
}
