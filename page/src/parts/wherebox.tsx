// The filter: a where clause as on the command line, with completion, and its error under the place where it is.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api";
import { complete, wordAt, type Column, type Completion } from "../pure/where";
import { useTyped } from "./basics";

export interface WhereError { message: string; position: number | null; length: number; suggestion: string | null }

/** The error of a where clause with its place, if a request failed because of one. */
export function whereError(error: unknown): WhereError | null {
  if (!(error instanceof ApiError) || (error.status !== 422 && error.status !== 400)) return null;
  const { position, length, suggestion } = error.detail as { position?: number | null; length?: number; suggestion?: string | null };
  return { message: error.message, position: position ?? null, length: length ?? 0, suggestion: suggestion ?? null };
}

export function WhereBox({ value, onChange, columns, error, id = "where" }: { value: string; onChange: (value: string) => void; columns: Column[]; error: WhereError | null; id?: string }) {
  const [text, setText] = useTyped(value, onChange, 350);
  const [options, setOptions] = useState<Completion[]>([]);
  const [at, setAt] = useState(0);
  const input = useRef<HTMLInputElement>(null);
  const suggest = () => {
    const caret = input.current?.selectionStart ?? 0;
    const found = complete(input.current?.value ?? "", caret, columns);
    setOptions(found); setAt(0);
  };
  const take = (option: Completion) => {
    const caret = input.current?.selectionStart ?? text.length;
    const { start } = wordAt(text, caret);
    const next = text.slice(0, start) + option.insert + text.slice(caret);
    setText(next); setOptions([]);
    const place = start + option.insert.length;
    requestAnimationFrame(() => { input.current?.focus(); input.current?.setSelectionRange(place, place); });
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Escape") { setOptions([]); return; }
    if (event.key === "Enter" && !options.length) { onChange(text); return; }
    if (!options.length) { if (event.key === "ArrowDown") { suggest(); event.preventDefault(); } return; }
    if (event.key === "ArrowDown") { setAt((at + 1) % options.length); event.preventDefault(); }
    if (event.key === "ArrowUp") { setAt((at + options.length - 1) % options.length); event.preventDefault(); }
    if (event.key === "Enter" || event.key === "Tab") { take(options[at]!); event.preventDefault(); }
  };
  useEffect(() => { if (document.activeElement === input.current && text) suggest(); }, [columns.length]);
  const replace = (error: WhereError) => {
    const start = error.position ?? 0;
    const next = text.slice(0, start) + error.suggestion! + text.slice(start + error.length);
    setText(next); onChange(next);
  };
  const shown = error && value === text ? error : null;
  return <div class="where">
    <input ref={input} id={id} type="text" role="combobox" aria-label="Filter: a where clause" aria-expanded={options.length > 0} aria-controls={`${id}-options`} aria-autocomplete="list"
      aria-activedescendant={options.length ? `${id}-${at}` : undefined} aria-invalid={shown ? "true" : undefined} aria-describedby={shown ? `${id}-error` : undefined}
      spellcheck={false} autocomplete="off" placeholder={'where: lr < 0.1 and "val/acc" > 0.9'} value={text}
      onInput={(event) => { setText(event.currentTarget.value); suggest(); }} onKeyDown={onKey} onBlur={() => setTimeout(() => setOptions([]), 150)} />
    {text && <button type="button" class="clear" aria-label="Clear the filter" onClick={() => { setText(""); onChange(""); input.current?.focus(); }}>×</button>}
    <ul id={`${id}-options`} role="listbox" aria-label="Completions" class="options" hidden={!options.length}>
      {options.map((option, i) => <li key={option.text} id={`${id}-${i}`} role="option" aria-selected={i === at} onPointerDown={(event) => { event.preventDefault(); take(option); }}>{option.text}<small>{option.kind}</small></li>)}
    </ul>
    {shown && <div class="wrong" id={`${id}-error`} role="alert">
      {shown.position !== null && <code aria-hidden="true">{text.slice(0, shown.position)}<mark>{text.slice(shown.position, shown.position + Math.max(shown.length, 1)) || " "}</mark>{text.slice(shown.position + Math.max(shown.length, 1))}</code>}
      <span>{shown.message}</span>
      {shown.suggestion && shown.position !== null && <button type="button" class="small" onClick={() => replace(shown)}>use {shown.suggestion}</button>}
    </div>}
  </div>;
}
