// Requests to the server. Everything that comes back is data; nothing of it is ever HTML.

import { signal } from "@preact/signals";
import { prefix } from "./state";
import type { Cell } from "./pure/format";
import type { Curve } from "./pure/curves";
import type { Column } from "./pure/where";
import { numberOf } from "./pure/format";

export class ApiError extends Error {
  constructor(readonly status: number, message: string, readonly detail: Record<string, unknown> = {}) { super(message); }
}

/** What the server last failed with; shown in the header. */
export const trouble = signal("");

export function toLogin(): void {
  const next = location.pathname + location.search;
  location.href = `${prefix}/login?next=${encodeURIComponent(next)}`;
}

async function request<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  let answer: Response;
  const headers: Record<string, string> = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  try {
    answer = await fetch(`${prefix}${path}`, { method, headers, body: body === undefined ? null : JSON.stringify(body), signal: signal ?? null });
  } catch (error) {
    if ((error as Error).name !== "AbortError") trouble.value = "The server does not answer. The page tries again.";
    throw error;
  }
  trouble.value = "";
  if (answer.status === 401) { toLogin(); throw new ApiError(401, "a token is needed"); }
  const content = await answer.json().catch((error: unknown) => {
    if (answer.ok) { // cut off on its way: half an answer is none
      if ((error as Error).name !== "AbortError") trouble.value = "The server's answer was cut off. The page tries again.";
      throw error;
    }
    return { error: `the server answered with ${answer.status}` };
  }) as Record<string, unknown>;
  if (!answer.ok) throw new ApiError(answer.status, String(content.error ?? answer.status), content);
  return content as T;
}

const query = (values: Record<string, string | number | undefined>) => {
  const kept = Object.entries(values).filter(([, value]) => value !== undefined && value !== "").map(([key, value]) => [key, String(value)]);
  return kept.length ? `?${new URLSearchParams(kept as string[][])}` : "";
};

export const get = <T>(path: string, values: Record<string, string | number | undefined> = {}, signal?: AbortSignal) => request<T>("GET", path + query(values), undefined, signal);
export const post = <T>(path: string, body: unknown, signal?: AbortSignal) => request<T>("POST", path, body, signal);
export const put = <T>(path: string, body: unknown) => request<T>("PUT", path, body);
export const remove = <T>(path: string) => request<T>("DELETE", path);

// --- tables and curves ---------------------------------------------------------------------------------------------------

export interface Row {
  run: string; name: string; started_us: number; live: boolean; outcome: string; incomplete: string[]; ranks: number;
  cells: Record<string, Cell>; verdicts: Record<string, string>;
}
export interface Table {
  total: number; matching?: number; all: number; columns: { name: string; kind: string; type: string }[]; rows: Row[];
  groups: { values: Cell[]; count: number; runs: string[] }[];
}
export interface TableQuery {
  where?: string; columns?: string[]; sort?: { column: string; descending: boolean }[]; group?: string[]; offset?: number; limit?: number; runs?: string[]; first?: string[];
}

export const table = (asked: TableQuery, signal?: AbortSignal) => post<Table>("/api/table", { ...asked, where: asked.where || null }, signal);
export const columns = async (limit = 1000) => (await get<{ columns: Column[] }>("/api/columns", { limit })).columns;

export interface SeriesQuery { runs: string[]; names: string[]; x: string; from?: number; to?: number; pixels: number; all_ranks?: boolean; envelopes?: boolean }
interface WireCurve extends Omit<Curve, "x" | "last" | "low" | "high"> { x: number[]; last: unknown[]; low: unknown[]; high: unknown[] }

const numbers = (cells: unknown[]) => Float64Array.from(cells, (cell) => numberOf(cell) ?? NaN);

export async function series(asked: SeriesQuery, signal?: AbortSignal): Promise<Curve[]> {
  const found = await post<{ series: WireCurve[] }>("/api/series", asked, signal);
  return found.series.map((one) => ({
    ...one, x: Float64Array.from(one.x), last: numbers(one.last),
    low: one.low.length ? numbers(one.low) : null, high: one.high.length ? numbers(one.high) : null,
  }));
}

// --- who is here -----------------------------------------------------------------------------------------------------------

export interface Session { name: string; scopes: string[]; can_ask: boolean; home: string; version: string }
export const session = signal<Session | null>(null);

export async function loadSession(): Promise<void> {
  try { session.value = await get<Session>("/api/session"); } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 404) throw error;
  }
}

export const may = (scope: string) => {
  const scopes = session.value?.scopes;
  return !scopes || scopes.includes(scope) || scopes.includes("admin");
};
