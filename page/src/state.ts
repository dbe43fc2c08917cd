// Where the page is, and the state of its controls: all of it in the address.

import { computed, signal } from "@preact/signals";
import { parse, write, type Params } from "./pure/params";

/** The prefix under which the server is reached, as <base href> says: "" or "/team". */
export const prefix = new URL(document.baseURI).pathname.replace(/\/$/, "");

const read = () => ({ path: decodeURI(location.pathname).slice(prefix.length) || "/", params: parse(location.search) });
const here = signal(read());

export const path = computed(() => here.value.path);
export const params = computed(() => here.value.params);

addEventListener("popstate", () => { typed = ""; here.value = read(); });

export const hrefOf = (to: string, query: Params = {}) => `${prefix}${to}${write(query)}`;

/** Goes to another page. */
export function go(to: string, query: Params = {}): void {
  typed = "";
  history.pushState(null, "", hrefOf(to, query));
  here.value = read();
  scrollTo(0, 0);
}

let typed = ""; // which controls were typed in or dragged last, while nothing else was done since

/** Changes controls. Back undoes each choice; what is typed or dragged without a pause for another control is one choice. */
export function set(change: Params, how: "push" | "replace" = "push"): void {
  const next = write({ ...here.value.params, ...change });
  if (next === write(here.value.params)) return;
  const to = `${location.pathname}${next}`;
  const controls = how === "replace" ? Object.keys(change).sort().join() : "";
  if (controls && controls === typed) history.replaceState(null, "", to); else history.pushState(null, "", to);
  typed = controls;
  here.value = read();
}

export const param = (name: string, otherwise = ""): string => here.value.params[name] ?? otherwise;

/** Follows links within the page without loading it anew. */
export function followLinks(event: MouseEvent): void {
  const link = (event.target as Element | null)?.closest?.("a");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  const inside = link.pathname.slice(prefix.length);
  if (!link.pathname.startsWith(prefix) || inside.startsWith("/api/") || inside.startsWith("/login") || inside.startsWith("/static/")) return;
  event.preventDefault();
  typed = "";
  history.pushState(null, "", link.href);
  here.value = read();
  scrollTo(0, 0);
}

// --- preferences of the viewer, not of the view -------------------------------------------------------------------------

export const theme = signal<"" | "light" | "dark">((localStorage.getItem("relive.theme") ?? "") as "" | "light" | "dark");
const system = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(system.matches);
system.addEventListener("change", () => { systemDark.value = system.matches; });
export const isDark = computed(() => (theme.value ? theme.value === "dark" : systemDark.value));

export function setTheme(to: "" | "light" | "dark"): void {
  theme.value = to;
  localStorage.setItem("relive.theme", to);
}
