// Small parts that every page uses.

import { useEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { ApiError } from "../api";
import { bytesText, cellText, exactText, type Cell } from "../pure/format";
import { hrefOf, param, set } from "../state";

export const MEANINGS: Record<string, string> = {
  proven: "replayed, and proven right by the recorded state",
  reproduced: "replayed; recorded values around it agree",
  unverified: "replayed, and nothing shows that it is right",
  contradicted: "replayed, and the record differs",
};

/** The sign behind a replayed value; those less than reproduced are marked. */
export function Verdict({ verdict }: { verdict: string | undefined }) {
  if (!verdict || verdict === "recorded") return null;
  const isBad = verdict === "unverified" || verdict === "contradicted";
  return <span class={`verdict ${verdict}`} title={`${verdict}: ${MEANINGS[verdict] ?? ""}`}>{isBad ? (verdict === "contradicted" ? "✗" : "?") : "↺"}<span class="unseen"> {verdict}</span></span>;
}

export function Value({ cell, verdict, isQuoted }: { cell: Cell | undefined; verdict?: string | undefined; isQuoted?: boolean }) {
  if (cell === "" && isQuoted) return <span class="quiet" title="an empty text">""</span>;
  const text = cellText(cell);
  const all = exactText(cell);
  return <span title={all !== text ? all : undefined}>{text}<Verdict verdict={verdict} /></span>;
}

export function Outcome({ outcome }: { outcome: string }) {
  return <span class={`outcome ${outcome}`}><i aria-hidden="true" />{outcome}</span>;
}

export const RunLink = ({ run, name, tab }: { run: string; name?: string | undefined; tab?: string }) =>
  <a href={hrefOf(`/runs/${run}`, tab ? { tab } : {})} class="run">{name || run.slice(0, 8)}</a>;

export const Empty = ({ title, children }: { title: string; children?: ComponentChildren }) =>
  <div class="empty"><h2>{title}</h2>{children}</div>;

export function Failure({ error }: { error: unknown }) {
  const isMissing = error instanceof ApiError && error.status === 404 && /no such route/.test(error.message);
  if (isMissing) return <p class="quiet">Not available on this server.</p>;
  return <p class="failure" role="alert">{error instanceof Error ? error.message : String(error)}</p>;
}

/** What a request answers, its failure, or neither yet. Keeps the old answer until the next one is here. */
export function useAnswer<T>(ask: (signal: AbortSignal) => Promise<T>, key: string): { answer: T | null; error: unknown; again: () => void } {
  const [state, setState] = useState<{ answer: T | null; error: unknown; key: string }>({ answer: null, error: null, key: "" });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    ask(stop.signal).then((answer) => setState({ answer, error: null, key }), (error: unknown) => {
      if ((error as Error).name !== "AbortError") setState((old) => ({ answer: old.key === key ? old.answer : null, error, key }));
    });
    return () => stop.abort();
  }, [key, turn]);
  return { answer: state.answer, error: state.error, again: () => setTurn((n) => n + 1) };
}

export const PAGE = 500; // rows of a table at a time

/** Where a page of a table begins, as the address says. */
export const pageStart = (name: string): number => Math.max(0, Math.floor(Number(param(name)) || 0));

/** Which rows of a long table are shown, and the way to the others; nothing if all are. */
export function Pager({ what, total, name }: { what: string; total: number | undefined; name: string }) {
  const from = pageStart(name);
  if (!total || (total <= PAGE && !from)) return null;
  const go = (to: number) => set({ [name]: to > 0 ? String(to) : "" });
  return <div class="bar pager" role="group" aria-label={`Pages of ${what}`}><span class="count" role="status">{what} {cellText(Math.min(from + 1, total))} to {cellText(Math.min(from + PAGE, total))} of {cellText(total)}</span>
    <button type="button" disabled={!from} onClick={() => go(from - PAGE)}>earlier</button><button type="button" disabled={from + PAGE >= total} onClick={() => go(from + PAGE)}>later</button></div>;
}

export function Facts({ of }: { of: [string, ComponentChildren][] }) {
  return <dl class="facts">{of.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
}

export const Bytes = ({ of }: { of: number | null | undefined }) => (of === null || of === undefined ? null : <span title={`${of} bytes`}>{bytesText(of)}</span>);

export function Copy({ text, label }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try { await navigator.clipboard.writeText(text); } catch { // without a secure context there is no clipboard
      const area = document.createElement("textarea");
      area.value = text; document.body.append(area); area.select(); document.execCommand("copy"); area.remove();
    }
    setDone(true); setTimeout(() => setDone(false), 1500);
  };
  return <button type="button" class="small" onClick={copy} aria-live="polite">{done ? "copied" : label ?? "copy"}</button>;
}

export const Command = ({ text }: { text: string }) => <div class="command"><code>{text}</code><Copy text={text} /></div>;

/** A button that opens a small panel; Escape and a click elsewhere close it. */
export function Menu({ label, title, children, align }: { label: ComponentChildren; title: string; children: (close: () => void) => ComponentChildren; align?: "right" }) {
  const [isOpen, setOpen] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!isOpen) return;
    const outside = (event: Event) => { if (!place.current?.contains(event.target as Node)) setOpen(false); };
    const escape = (event: KeyboardEvent) => { if (event.key === "Escape") { setOpen(false); button.current?.focus(); } };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("keydown", escape);
    return () => { document.removeEventListener("pointerdown", outside); document.removeEventListener("keydown", escape); };
  }, [isOpen]);
  return <div class="menu" ref={place}>
    <button type="button" ref={button} aria-expanded={isOpen} aria-label={typeof label === "string" && label.length < 2 ? title : undefined} title={title} onClick={() => setOpen(!isOpen)}>{label}</button>
    {isOpen && <div class={`panel ${align ?? ""}`} role="group" aria-label={title}>{children(() => { setOpen(false); button.current?.focus(); })}</div>}
  </div>;
}

export function Choice<T extends string>({ label, value, of, onChange }: { label: string; value: T; of: readonly (readonly [T, string])[]; onChange: (value: T) => void }) {
  return <label class="choice"><span>{label}</span><select value={value} onChange={(event) => onChange(event.currentTarget.value as T)}>
    {of.map(([key, text]) => <option key={key} value={key}>{text}</option>)}</select></label>;
}

export function Tick({ label, checked, onChange, title }: { label: string; checked: boolean; onChange: (on: boolean) => void; title?: string }) {
  return <label class="tick" title={title}><input type="checkbox" checked={checked} onChange={(event) => onChange(event.currentTarget.checked)} />{label}</label>;
}

/** Text that is wanted a moment after the last key. */
export function useTyped(value: string, told: (value: string) => void, wait = 250): [string, (value: string) => void] {
  const [text, setText] = useState(value);
  const sent = useRef(value);
  useEffect(() => { if (value !== sent.current) { sent.current = value; setText(value); } }, [value]);
  useEffect(() => {
    if (text === sent.current) return;
    const timer = setTimeout(() => { sent.current = text; told(text); }, wait);
    return () => clearTimeout(timer);
  }, [text]);
  return [text, setText];
}
