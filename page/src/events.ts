// Changes as the server tells them. A hidden page closes its stream: a browser allows few connections to one server.

import { signal } from "@preact/signals";
import { prefix } from "./state";

export interface Change { kind: string; runs: Record<string, Record<string, unknown>> }
type Listener = (change: Change) => void;

const KINDS = ["runs", "points", "ended", "reset", "question"];
const listeners = new Set<Listener>();
export const isConnected = signal(false);
let source: EventSource | null = null;
let wasOpen = false;

export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => { listeners.delete(listener); };
}

const tell = (change: Change) => { for (const listener of [...listeners]) listener(change); };

function open(): void {
  if (source || document.hidden) return;
  source = new EventSource(`${prefix}/api/events`);
  source.onopen = () => {
    isConnected.value = true;
    if (wasOpen) tell({ kind: "reset", runs: {} }); // what happened meanwhile is not known
    wasOpen = true;
  };
  source.onerror = () => { isConnected.value = false; };
  for (const kind of KINDS) source.addEventListener(kind, (event) => tell(JSON.parse((event as MessageEvent<string>).data) as Change));
}

function close(): void {
  source?.close();
  source = null;
  isConnected.value = false;
}

export function startEvents(): void {
  open();
  document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else open(); });
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
}
