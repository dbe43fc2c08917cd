// The list of runs: only the rows that are seen exist, so that ten thousand scroll as ten do.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { table, ApiError, type Row, type Table, type TableQuery } from "../api";
import { onChange } from "../events";
import { PALETTE } from "../pure/colors";
import { durationText, whenText, type Cell } from "../pure/format";
import { hrefOf } from "../state";
import { Menu, Value } from "./basics";
import { whereError, type WhereError } from "./wherebox";

export const ROW = 30;
const PAGE = 200;
const REST_MS = 70; // the list rests where it was not moved for so long

export const COLUMN_NAMES: Record<string, string> = { tstamp: "started", took_s: "took", data_version: "data", version: "code" };
export const columnTitle = (key: string) => COLUMN_NAMES[key] ?? key.replace(/^(arg|metric|tag|run|env):/, "");

export function CellOf({ row, column }: { row: Row; column: string }) {
  const cell = row.cells[column];
  if ((column === "tstamp" || column === "ended") && typeof cell === "number") return <span title={new Date(cell / 1000).toISOString()}>{whenText(cell)}</span>;
  if (column === "took_s" && typeof cell === "number") return <span title={`${cell} s`}>{durationText(cell)}</span>;
  if ((column === "version" || column === "data_version" || column === "head") && typeof cell === "string") return <span title={cell}>{cell.slice(0, 8)}</span>;
  return <Value cell={cell as Cell} verdict={row.verdicts[column]} />;
}

export interface Listed { of: string; rows: (Row | undefined)[]; total: number; all: number; error: WhereError | null; failure: string; first: Table | null }

/** The rows of a query, asked for as they come into view, and asked for again when runs change. */
export function useRows(query: TableQuery, visible: [number, number]): Listed {
  const key = JSON.stringify(query);
  const [state, setState] = useState<{ key: string; pages: Map<number, Row[]>; total: number; all: number; error: WhereError | null; failure: string; first: Table | null }>({ key: "", pages: new Map(), total: 0, all: 0, error: null, failure: "", first: null });
  const [turn, setTurn] = useState(0);
  const asked = useRef(new Map<string, { turn: number; stop: AbortController }>());
  const current = useRef(key); // what comes late for another query, and what was asked for it, counts no more
  const [from, to] = [Math.floor(visible[0] / PAGE), Math.floor(Math.max(visible[1] - 1, 0) / PAGE)];
  const ask = (page: number) => {
    const id = `${key}|${page}`;
    const stop = new AbortController();
    asked.current.set(id, { turn, stop });
    table({ ...query, offset: page * PAGE, limit: PAGE }, stop.signal).then((found) => setState((old) => {
      if (current.current !== key) return old;
      const pages = new Map(old.key === key ? old.pages : []);
      pages.set(page, found.rows);
      return { key, pages, total: found.total, all: found.all, error: null, failure: "", first: found };
    }), (error: unknown) => {
      if (asked.current.get(id)?.stop === stop) asked.current.delete(id);
      if (current.current !== key) return;
      if (error instanceof ApiError) setState((old) => ({ ...old, error: whereError(error) ?? { message: error.message, position: null, length: 0, suggestion: null }, failure: error.message }));
    });
  };
  // What is only passed by is not asked for, and what was asked for and passed is given up: where one stops is next.
  useEffect(() => {
    const isNew = current.current !== key;
    current.current = key;
    for (const [id, { stop }] of asked.current) {
      const page = Number(id.slice(id.lastIndexOf("|") + 1));
      if (isNew || page < from || page > to) stop.abort(); // nothing happens to those that are answered
    }
    if (isNew) asked.current.clear();
    const timer = setTimeout(() => {
      for (let page = from; page <= to; page++) if ((page * PAGE < state.total || page === from || isNew) && asked.current.get(`${key}|${page}`)?.turn !== turn) ask(page);
    }, isNew || !state.key ? 0 : REST_MS);
    return () => clearTimeout(timer);
  }, [key, turn, from, to, Math.ceil(state.total / PAGE)]);
  useEffect(() => {
    let timer = 0;
    const stop = onChange((change) => {
      if (change.kind === "question" || timer) return;
      timer = window.setTimeout(() => { timer = 0; setTurn((n) => n + 1); }, change.kind === "points" ? 2000 : 300);
    });
    return () => { stop(); clearTimeout(timer); };
  }, []);
  const rows = useMemo(() => { const out: (Row | undefined)[] = []; for (const [page, found] of state.pages) found.forEach((row, i) => { out[page * PAGE + i] = row; }); return out; }, [state.pages]);
  return { of: state.key, rows, total: state.total, all: state.all, error: state.error, failure: state.failure, first: state.first };
}

export interface RunListProps {
  query: TableQuery; columns: string[]; sort: string; onSort: (column: string) => void; onListed: (listed: Listed) => void;
  isShown: (run: string, position: number) => boolean; onToggle: (run: string, position: number) => void; colorOf: (run: string, position: number) => string;
  pins: Set<string>; onPin: (run: string) => void; onColor: (run: string, color: number) => void; onOnly: (run: string) => void; onMove: (column: string, by: number) => void; hovered: (run: string | null) => void;
}

export function RunList(props: RunListProps) {
  const { query, columns, sort } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const [focus, setFocus] = useState(0);
  const focused = useRef<string | null>(null); // the run that has the focus, which follows it when rows move
  const isPinning = useRef(false); // a run was pinned or unpinned, and the list with it in its new place is not here yet
  const first = Math.max(0, Math.floor(top / ROW) - 8);
  const last = Math.ceil((top + height) / ROW) + 8;
  const listed = useRows(query, [first, last]);
  useEffect(() => { props.onListed(listed); }, [listed.rows, listed.total, listed.error]);
  useEffect(() => {
    const sized = new ResizeObserver(() => { if (scroller.current) setHeight(scroller.current.clientHeight); });
    if (scroller.current) sized.observe(scroller.current);
    return () => sized.disconnect();
  }, []);
  useEffect(() => {
    const at = focused.current === null ? -1 : listed.rows.findIndex((row) => row?.run === focused.current);
    if (at >= 0) setFocus(at);
    if (!isPinning.current || listed.of !== JSON.stringify(query)) return;
    isPinning.current = false;
    reveal(at >= 0 ? at : focus);
    scroller.current?.focus({ preventScroll: true }); // its row may be another one now
  }, [listed.rows]);
  const key = JSON.stringify({ ...query, first: [] }); // runs that are pinned move, and the focus stays with its run
  useEffect(() => { focused.current = null; scroller.current?.scrollTo({ top: 0 }); setTop(0); setFocus(0); }, [key]);
  const body = useRef<HTMLDivElement>(null);
  useEffect(() => { if (body.current) body.current.style.height = `${listed.total * ROW}px`; }, [listed.total]);

  const reveal = (at: number) => {
    const node = scroller.current;
    if (node && (at * ROW < node.scrollTop || (at + 2) * ROW > node.scrollTop + node.clientHeight)) node.scrollTop = at * ROW - node.clientHeight / 2;
  };
  const pin = (run: string) => { focused.current = run; isPinning.current = true; props.onPin(run); };

  const onKey = (event: KeyboardEvent) => {
    if ((event.target as HTMLElement).tagName === "BUTTON" && event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const step: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9 };
    const by = step[event.key];
    const row = listed.rows[focus];
    if (by !== undefined) {
      const next = Math.min(Math.max(focus + by, 0), Math.max(listed.total - 1, 0));
      setFocus(next);
      focused.current = listed.rows[next]?.run ?? null;
      reveal(next);
      event.preventDefault();
    } else if (event.key === " " && row) { props.onToggle(row.run, focus); event.preventDefault(); }
    else if (event.key === "p" && row) pin(row.run);
    else if (event.key === "o" && row) props.onOnly(row.run);
    else if (event.key === "Enter" && row) { document.getElementById(`open-${row.run}`)?.click(); event.preventDefault(); }
  };

  const types = new Map((listed.first?.columns ?? []).map((one) => [one.name, one.type]));
  const shown: number[] = [];
  for (let i = first; i < Math.min(last, listed.total); i++) shown.push(i);
  const sorted = sort.replace(/^-/, "");
  return <div class="runs" role="grid" aria-label="Runs" aria-rowcount={listed.total + 1} aria-colcount={columns.length + 1} tabIndex={0} onKeyDown={onKey} aria-activedescendant={listed.total ? `row-${focus}` : undefined} ref={scroller} onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
    <div class="head" role="row" aria-rowindex={1}>
      <div class="who" role="columnheader">run</div>
      {columns.map((column, i) => <div key={column} class={types.get(column) === "number" && column !== "tstamp" && column !== "took_s" ? "number" : ""} role="columnheader" aria-sort={sorted === column ? (sort.startsWith("-") ? "descending" : "ascending") : "none"}>
        <button type="button" class="sort" draggable onClick={() => props.onSort(column)} title={`Sort by ${column}; drag to move the column, or Alt with an arrow key`}
          onDragStart={(event) => event.dataTransfer?.setData("text/plain", String(i))} onDragOver={(event) => event.preventDefault()}
          onDrop={(event) => { const from = Number(event.dataTransfer?.getData("text/plain")); if (Number.isInteger(from)) props.onMove(columns[from]!, i - from); event.preventDefault(); }}
          onKeyDown={(event) => { if (event.altKey && (event.key === "ArrowLeft" || event.key === "ArrowRight")) { props.onMove(column, event.key === "ArrowLeft" ? -1 : 1); event.preventDefault(); } }}>
          <span>{columnTitle(column)}</span>{sorted === column && <i aria-hidden="true">{sort.startsWith("-") ? "↓" : "↑"}</i>}</button></div>)}
    </div>
    <div class="body" role="presentation" ref={body}>{shown.map((i) => {
      const row = listed.rows[i];
      const place = (node: HTMLDivElement | null) => { if (node) node.style.transform = `translateY(${i * ROW}px)`; };
      if (!row) return <div key={`empty-${i}`} class="row waiting" role="row" aria-rowindex={i + 2} ref={place}><div class="who" role="gridcell">…</div></div>;
      const isShown = props.isShown(row.run, i);
      const isPinned = props.pins.has(row.run);
      return <div key={row.run} id={`row-${i}`} class={`row ${i === focus ? "focus" : ""} ${isShown ? "shown" : ""} ${isPinned && !props.pins.has(listed.rows[i + 1]?.run ?? "") ? "last-pinned" : ""}`} role="row" aria-rowindex={i + 2} aria-selected={isShown} ref={place}
        onMouseEnter={() => props.hovered(row.run)} onMouseLeave={() => props.hovered(null)}>
        <div class="who" role="gridcell">
          <button type="button" tabIndex={-1} class="eye" role="checkbox" aria-checked={isShown} aria-label={`Show ${row.name || row.run} in charts`} onClick={() => { setFocus(i); focused.current = row.run; props.onToggle(row.run, i); }}>
            <i ref={(node) => { if (node) { const color = props.colorOf(row.run, i); node.style.background = isShown ? color : ""; node.style.borderColor = color; } }} /></button>
          <a id={`open-${row.run}`} tabIndex={-1} href={hrefOf(`/runs/${row.run}`)} title={row.run}>{row.name || row.run.slice(0, 8)}</a>
          {row.live && <span class="live" title="It is running now"><span class="unseen">live</span></span>}
          {row.outcome !== "finished" && !row.live && <span class={`dot ${row.outcome}`} title={row.outcome}><span class="unseen">{row.outcome}</span></span>}
          {row.incomplete.length > 0 && <span class="verdict unverified" title={row.incomplete.join("; ")}>!</span>}
          {isPinned && <span class="pinned" title="Pinned">◆<span class="unseen"> pinned</span></span>}
          <Menu label="⋯" title={`More for ${row.name || row.run.slice(0, 8)}`}>{(close) => <div class="list">
            <button type="button" onClick={() => { close(); pin(row.run); }}>{isPinned ? "unpin" : "pin to the top"} <kbd>p</kbd></button>
            <button type="button" onClick={() => { close(); props.onOnly(row.run); }}>show only this <kbd>o</kbd></button>
            <a href={hrefOf("/ask", { runs: row.run })}>ask: add a column</a>
            <div class="swatches" role="group" aria-label="Colour">{PALETTE.map((color, n) => <button key={color} type="button" aria-label={`Colour ${n + 1}`} onClick={() => { close(); props.onColor(row.run, n); }} ref={(node) => { if (node) node.style.background = color; }} />)}</div>
          </div>}</Menu>
        </div>
        {columns.map((column) => <div key={column} role="gridcell" class={typeof row.cells[column] === "number" && column !== "tstamp" && column !== "took_s" ? "number" : ""}><CellOf row={row} column={column} /></div>)}
      </div>;
    })}</div>
  </div>;
}
