// The page: which part of it the address means, and what stands around all of them.

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { loadSession, session, trouble } from "./api";
import { isConnected, startEvents } from "./events";
import { Menu } from "./parts/basics";
import { Ask } from "./pages/ask";
import { Compare } from "./pages/compare";
import { Explore } from "./pages/explore";
import { Leaderboard } from "./pages/leaderboard";
import { ModelPage, Models } from "./pages/models";
import { RunPage } from "./pages/run";
import { Workspace } from "./pages/workspace";
import { followLinks, hrefOf, isDark, path, prefix, setTheme, theme } from "./state";
import "./style.css";

const PAGES: [string, string][] = [["/", "Runs"], ["/leaderboard", "Leaderboard"], ["/explore", "Explore"], ["/models", "Models"], ["/ask", "Ask"]];
const KEYS: [string, string][] = [
  ["/", "go to the filter"], ["f", "find charts"], ["t", "table or charts"], ["g then r, l, e, m, a", "go to runs, leaderboard, explore, models, ask"],
  ["↑ ↓", "move in the list of runs"], ["space", "show or hide the run"], ["p", "pin the run"], ["o", "show only the run"], ["Enter", "open the run"],
  ["Alt ← →", "move a column, on its heading"], ["← →", "move the crosshair, on a chart"], ["Shift ← →", "pan"], ["+ − 0", "zoom in, out, show all"],
  ["drag", "zoom into the selection"], ["Shift drag", "pan"], ["Ctrl wheel", "zoom"], ["double click", "show all"], ["?", "this sheet"], ["Esc", "close"],
];

function Page() {
  const [, room = "", name = ""] = path.value.split("/");
  const word = decodeURIComponent(name);
  useEffect(() => { document.title = `${room ? `${word || room} · ` : ""}relive`; }, [room, word]);
  if (room === "runs" && word) return <RunPage key={word} run={word} />;
  if (room === "compare") return <Compare />;
  if (room === "leaderboard") return <Leaderboard />;
  if (room === "explore") return <Explore />;
  if (room === "models" || room === "registry") return word ? <ModelPage key={word} name={word} /> : <Models />;
  if (room === "ask") return <Ask />;
  return <Workspace />;
}

function Sheet({ close }: { close: () => void }) {
  useEffect(() => { (document.getElementById("sheet") as HTMLDialogElement | null)?.showModal(); }, []);
  return <dialog id="sheet" aria-labelledby="sheet-title" onClose={close} onClick={(event) => { if (event.target === event.currentTarget) event.currentTarget.close(); }}>
    <h2 id="sheet-title">Keys</h2>
    <dl class="keys">{KEYS.map(([key, what]) => <div key={key}><dt>{key.split(" ").map((one) => <kbd key={one}>{one}</kbd>)}</dt><dd>{what}</dd></div>)}</dl>
    <form method="dialog"><button>close</button></form>
  </dialog>;
}

function useKeys(open: () => void): void {
  useEffect(() => {
    let before = "";
    const places: Record<string, string> = { r: "/", l: "/leaderboard", e: "/explore", m: "/models", a: "/ask" };
    const onKey = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog")) return;
      const last = before;
      before = event.key;
      if (event.key === "?") { open(); event.preventDefault(); }
      else if (event.key === "/") { document.getElementById("where")?.focus(); event.preventDefault(); }
      else if (event.key === "f") { document.getElementById("find")?.focus(); event.preventDefault(); }
      else if (event.key === "t") document.querySelector<HTMLElement>(".left .bar > button")?.click();
      else if (last === "g" && places[event.key]) document.querySelector<HTMLElement>(`nav a[href="${hrefOf(places[event.key]!)}"]`)?.click();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

function App() {
  const [isSheet, setSheet] = useState(false);
  useKeys(() => setSheet(true));
  useEffect(() => { document.documentElement.dataset.theme = isDark.value ? "dark" : "light"; }, [isDark.value]);
  const here = path.value;
  const isAt = (to: string) => (to === "/" ? here === "/" || here.startsWith("/runs") || here.startsWith("/compare") : here.startsWith(to));
  return <>
    <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>to the content</a>
    <header class="top">
      <a class="brand" href={hrefOf("/")}><svg viewBox="0 0 16 16" aria-hidden="true"><path d="M13 8a5 5 0 1 1-1.6-3.7M13 1.5v3.2h-3.2" fill="none" stroke="currentColor" stroke-width="2" /></svg>relive</a>
      <nav aria-label="Pages">{PAGES.map(([to, text]) => <a key={to} href={hrefOf(to)} aria-current={isAt(to) ? "page" : undefined}>{text}</a>)}</nav>
      <span class="grow" />
      <span class="state" role="status">{trouble.value ? <span class="failure">{trouble.value}</span> : <span class={`pulse ${isConnected.value ? "on" : ""}`} title={isConnected.value ? "Changes appear as they happen" : "Connecting"}><span class="unseen">{isConnected.value ? "live" : "connecting"}</span></span>}</span>
      <button type="button" class="ghost" aria-label="Keys" title="Keys (?)" onClick={() => setSheet(true)}>?</button>
      <Menu label={<><span class="me">{session.value?.name ?? ""}</span> ☰</>} title="You and the look" align="right">{(close) => <div class="list">
        {([["", "as the system"], ["light", "light"], ["dark", "dark"]] as const).map(([key, text]) => <button key={key} type="button" aria-pressed={theme.value === key} onClick={() => { close(); setTheme(key); }}>{text}</button>)}
        <a href={hrefOf("/api/openapi.json")} target="_blank" rel="noreferrer">API</a>
        <form method="post" action={`${prefix}/logout`}><button type="submit">log out</button></form>
        {session.value && <small class="quiet">relive {session.value.version}</small>}
      </div>}</Menu>
    </header>
    <main id="main" tabIndex={-1}><Page /></main>
    {isSheet && <Sheet close={() => setSheet(false)} />}
  </>;
}

document.addEventListener("click", followLinks);
startEvents();
void loadSession().catch(() => {});
render(<App />, document.getElementById("app")!);
