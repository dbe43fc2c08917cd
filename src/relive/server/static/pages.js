// Shows whatever the address says, from the API. Everything from outside is set as text, never as HTML.
import { chart, short } from "/static/chart.js";

const REFRESH_MS = 1000, ROWS = 50;
const main = document.getElementById("main"), state = document.getElementById("state");

async function api(path, query = {}) {
  const asked = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== undefined));
  const answer = await fetch(`${path}?${asked}`, { headers: { Accept: "application/json" } });
  if (answer.status === 401) { location.href = "/login"; throw new Error("a token is needed"); }
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error);
  return content;
}

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value); else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const when = (us) => (us ? new Date(us / 1000).toLocaleString() : "");
const pairs = (object) => Object.entries(object).map(([name, value]) => `${name}=${short(value)}`).join(" ");
const MEANINGS = {
  unverified: "replayed, and nothing shows that it is right",
  contradicted: "replayed, and the record differs",
};
const counts = (verdicts) => Object.entries(verdicts).map(([verdict, count]) => `${count} ${verdict}`).join(", ");
const mark = (verdict) => (MEANINGS[verdict] ? make("span", { class: "marked", title: `${verdict}: ${MEANINGS[verdict]}` }, " ?") : null);
const runLink = (run) => make("a", { href: `/runs/${run}`, class: "id" }, run.slice(0, 8));

function table(headings, rows, numbers = []) {
  const head = make("tr", {}, ...headings.map((text) => make("th", numbers.includes(text) ? { class: "number" } : {}, text)));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((cell, i) =>
    cell instanceof Element && cell.tagName === "TD" ? cell : make("td", numbers.includes(headings[i]) ? { class: "number" } : {}, cell ?? ""))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
}

const facts = (object) => make("dl", {}, ...Object.entries(object).filter(([, value]) => value !== null && value !== undefined && value !== "")
  .flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, short(value))]));

// --- runs ---------------------------------------------------------------------------------------------------------

async function runsPage() {
  const search = make("input", { type: "search", placeholder: "id, name, script, lr=0.1, tag", "aria-label": "Search" });
  const outcome = make("select", { "aria-label": "Outcome" }, ...["", "running", "finished", "failed", "interrupted", "pruned", "killed"].map((one) => make("option", { value: one }, one || "any outcome")));
  const place = make("div"), count = make("span", { class: "quiet" }), newer = make("button", {}, "Newer"), older = make("button", {}, "Older");
  let offset = 0;
  const show = async () => {
    const found = await api("/api/runs", { search: search.value, outcome: outcome.value, limit: ROWS, offset });
    count.textContent = `${found.total} runs`;
    newer.disabled = offset === 0;
    older.disabled = offset + ROWS >= found.total;
    place.replaceChildren(table(["run", "when", "script", "args", "outcome", "last values"], found.runs.map((run) => [
      runLink(run.run), when(run.started_us), run.name ? `${run.filename} (${run.name})` : run.filename, pairs(run.args),
      make("span", { class: run.outcome }, run.outcome), make("span", {}, ...Object.entries(run.last).slice(0, 6).flatMap(([name, value]) => [`${name}=${short(value)}`, mark(run.marked[name]), " "]).filter((part) => part !== null)),
    ])));
  };
  const again = () => { offset = 0; return show(); };
  search.addEventListener("input", again);
  outcome.addEventListener("change", again);
  newer.addEventListener("click", () => { offset = Math.max(0, offset - ROWS); show(); });
  older.addEventListener("click", () => { offset += ROWS; show(); });
  main.replaceChildren(make("h1", {}, "Runs"), make("div", { class: "tools" }, search, outcome, newer, older, count), place);
  return show;
}

// --- one run ------------------------------------------------------------------------------------------------------

async function runPage(run) {
  const place = make("div");
  main.replaceChildren(place);
  let shown = "";
  return async () => {
    const { record, metrics, replays } = await api(`/api/runs/${run}`);
    const now = JSON.stringify([record.outcome, metrics, replays]);
    if (now === shown) return;
    shown = now;
    const series = await Promise.all(metrics.filter((one) => one.lowest !== null && one.count > 1)
      .map((one) => api(`/api/runs/${run}/series`, { name: one.name, points: 400 })));
    const charts = series.map((one) => make("figure", {}, make("figcaption", {}, make("b", {}, one.name),
      make("span", { class: "quiet" }, `${one.count} values${one.nan ? `, ${one.nan} NaN` : ""}`),
      mark(Object.keys(MEANINGS).find((verdict) => one.verdicts[verdict])),
      Object.keys(one.verdicts).length ? make("span", { class: "quiet" }, counts(one.verdicts)) : null), chart(one)));
    const { packages, variables, ...environment } = record.environment;
    const args = Object.fromEntries(Object.entries(record.config.args).map(([name, arg]) => [name, arg.value]));
    const declared = Object.entries(record.data.declared).map(([name, one]) => [name, one.path ?? one.kind, one.digest?.slice(0, 12)]);
    place.replaceChildren(
      make("h1", {}, `run ${run.slice(0, 8)} ${record.name} `, make("span", { class: record.outcome }, record.outcome)),
      facts({ started: when(record.started_us), ended: when(record.ended_us), script: record.filename, project: record.project,
        ranks: record.world_size > 1 ? `${record.ranks.length} of ${record.world_size}` : null,
        error: record.error ? `${record.error.type}: ${record.error.message}` : null, ...record.tags }),
      make("h2", {}, "Config"), facts({ ...args, argv: record.config.argv.join(" ") }),
      make("h2", {}, "Code"), facts({ version: record.code.version, HEAD: record.code.head, branch: record.code.user_branch, changed: record.code.dirty }),
      make("h2", {}, "Data"), facts({ version: record.data.version ?? "none seen or declared" }), declared.length ? table(["name", "what", "digest"], declared) : null,
      make("h2", {}, "Metrics"), make("div", { class: "charts" }, ...charts),
      table(["name", "last", "lowest", "highest", "values", "in"], metrics.map((one) => [one.name, make("span", { title: one.verdict }, short(one.last), mark(one.verdict)), short(one.lowest), short(one.highest), short(one.count), one.loops.join("/")]), ["last", "lowest", "highest", "values"]),
      ...(replays.length ? [make("h2", {}, "Replays"), table(["replay", "values", "why"], replays.map((one) => [short(one.replay),
        Object.entries(one.verdicts).map(([name, found]) => `${name}: ${counts(found)}`).join("; ") || `${one.names.join(", ")}: ${one.verdict}`,
        one.causes.join("; ")]), ["replay"])] : []),
      make("h2", {}, "Environment"), facts({ ...environment, packages: `${Object.keys(packages ?? {}).length} recorded` }),
      make("h2", {}, "Artifacts"), record.artifacts.length ? table(["name", "kind", "bytes", "digest"], record.artifacts.map((one) => [one.name, one.kind, short(one.size_bytes), one.digest.slice(0, 12)]), ["bytes"]) : make("p", { class: "quiet" }, "none"),
    );
  };
}

// --- leaderboard --------------------------------------------------------------------------------------------------

async function boardPage() {
  const asked = new URLSearchParams(location.search);
  const field = (name, tag = "input", ...options) => {
    const made = make(tag, { name, "aria-label": name, placeholder: name }, ...options.map((one) => make("option", {}, one)));
    made.value = asked.get(name) ?? options[0] ?? "";
    return made;
  };
  const fields = [field("metric"), field("by", "select", "last", "best", "mean"), field("where"), field("group")];
  const across = make("input", { type: "checkbox", name: "across_data", value: "1", ...(asked.get("across_data") ? { checked: "" } : {}) });
  const form = make("form", { class: "tools" }, ...fields, make("label", {}, across, " across data"), make("button", {}, "Rank"));
  const place = make("div");
  main.replaceChildren(make("h1", {}, "Leaderboard"), form, place);
  return async () => {
    if (!asked.get("metric")) { place.replaceChildren(make("p", { class: "quiet" }, "Name a metric.")); return; }
    const board = await api("/api/leaderboard", Object.fromEntries(asked));
    place.replaceChildren(...board.groups.flatMap((group) => [
      make("h2", {}, `data ${group.data_version ? group.data_version.slice(0, 12) : "not known"}`, group.reason ? ` — ${group.reason}` : ""),
      table(["place", "run", board.metric, "args"], group.runs.map((row, i) => [short(row.place ?? i + 1), runLink(row.run), short(row.value), pairs(row.args ?? {})]), ["place", board.metric]),
    ]));
  };
}

// --- registry -----------------------------------------------------------------------------------------------------

async function registryPage() {
  const place = make("div");
  main.replaceChildren(make("h1", {}, "Registry"), place);
  return async () => {
    const { models } = await api("/api/registry");
    place.replaceChildren(models.length ? table(["model", "versions", "aliases"], models.map((one) => [
      make("a", { href: `/registry/${encodeURIComponent(one.name)}` }, one.name), short(one.versions.length), pairs(one.aliases)]), ["versions"])
      : make("p", { class: "quiet" }, "No models yet; promote a run with relive promote."));
  };
}

async function modelPage(name) {
  const place = make("div");
  main.replaceChildren(make("h1", {}, name), place);
  return async () => {
    const model = await api(`/api/registry/${encodeURIComponent(name)}`);
    place.replaceChildren(
      table(["version", "run", "aliases", "data", "code", "artifact"], model.versions.map((one) => [short(one.version), runLink(one.run), one.aliases.join(", "),
        one.data_version?.slice(0, 12), one.code?.version?.slice(0, 12), one.artifact?.name]), ["version"]),
      make("h2", {}, "History"),
      table(["when", "event", "version", "alias", "by"], model.history.map((one) => [when(one.time_us), one.event, short(one.version), one.alias, one.by])));
  };
}

// --- which of them ------------------------------------------------------------------------------------------------

function page() {
  const [, room, name] = location.pathname.split("/");
  if (room === "runs") return runPage(name);
  if (room === "leaderboard") return boardPage();
  if (room === "registry") return name ? modelPage(decodeURIComponent(name)) : registryPage();
  return runsPage();
}

async function keepFresh(show) {
  for (;;) {
    try {
      if (!document.hidden) await show();
      state.textContent = "";
      state.className = "";
    } catch (error) {
      state.textContent = error.message;
      state.className = "error";
    }
    await new Promise((resolve) => setTimeout(resolve, REFRESH_MS));
  }
}

keepFresh(await page());
