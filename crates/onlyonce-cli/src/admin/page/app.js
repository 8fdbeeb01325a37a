// The frame around the views: navigation by state, search, the live status, and the token.
import { get, onUnauthorized } from "./api.js";
import { fill, h, icon, say } from "./dom.js";
import { count, setClock, tick } from "./format.js";
import { follow } from "./live.js";
import { askForToken } from "./token.js";
import { link, operationLink, parse } from "./router.js";
import { problemNotice } from "./notice.js";
import * as overview from "./overview.js";
import * as list from "./list.js";
import * as operation from "./operation.js";
import * as events from "./events.js";

const VIEWS = { "": overview, operations: list, operation, events };
const SUMMARY_MS = 5000;
const PACE_MS = 2000; // how soon a view is loaded again after an event that concerns it
const REST = 10; // and never more than a tenth of the time

const app = { summary: null, view: null };
const at = (id) => document.getElementById(id);

async function show() {
  const { name, rest, params } = parse(location.hash);
  const view = VIEWS[name] ?? missing;
  app.view?.leave?.();
  app.view = view.show({ rest, params, summary: () => app.summary, refresh });
  fill(at("main"), app.view.element);
  document.title = `${app.view.title} · Onlyonce`;
  if (app.summary) app.view.summary?.(app.summary);
  navigation();
  await app.view.load?.();
}

const missing = {
  show: () => ({ title: "Not found", element: h("section", {}, h("h1", {}, "There is no such view"),
    h("p", {}, h("a", { href: "#/" }, "Back to the overview"))) }),
};

/** Loads the numbers and the view again. */
async function refresh() {
  await Promise.all([loadSummary(), app.view?.load?.()]);
}

async function loadSummary() {
  try {
    app.summary = await get("summary");
    setClock(app.summary.now);
    summaryChanged();
    fill(at("notices"), notices(app.summary));
  } catch (problem) {
    fill(at("notices"), problemNotice(problem));
  }
}

function summaryChanged() {
  navigation();
  app.view?.summary?.(app.summary);
  const { version, listen, store, writable } = app.summary;
  const may = writable ? "you may change operations" : "read-only: this token may look, not change";
  say(at("foot"), `Onlyonce ${version} · serves ${listen} · store ${store.kind} · ${may} · all times are UTC`);
}

function notices({ store, draining }) {
  const found = store.warnings.map((text) => ["unknown", text]);
  if (!store.ready) found.unshift(["bad", STORE_DOWN]);
  if (draining) found.unshift(["pause", "This gateway is shutting down: it takes no new requests, and stops when its running operations have ended."]);
  return found.map(([picture, text]) => h("p", { class: "notice" }, icon(picture), h("span", {}, text)));
}

const STORE_DOWN = "The store does not answer. Requests with a key get 503, or run unprotected on routes with store_down = \"pass\". " +
  "Look for the cause with: onlyonce doctor --config FILE";

const NAVIGATION = [
  ["Overview", "", {}, null],
  ["Unknown", "operations", { state: "unknown" }, (summary) => summary.states.unknown],
  ["Running", "operations", { state: "running" }, (summary) => summary.states.running],
  ["Released", "operations", { state: "released" }, null],
  ["Completed", "operations", { state: "completed" }, null],
  ["All", "operations", {}, (summary) => summary.states.records],
  ["Events", "events", {}, null],
];

function navigation() {
  const nav = at("nav");
  if (nav.children.length === 0) {
    fill(nav, NAVIGATION.map(([word, path, params]) => h("a", { href: link(path, params) },
      params.state && icon(params.state), h("span", {}, word), h("b", { class: "number" }))));
  }
  const here = parse(location.hash);
  NAVIGATION.forEach(([, path, params, number], place) => {
    const entry = nav.children[place];
    const is = here.name === path && (path !== "operations" || (here.params.get("state") ?? "") === (params.state ?? ""));
    if (is) entry.setAttribute("aria-current", "page"); else entry.removeAttribute("aria-current");
    if (number && app.summary) say(entry.lastChild, count(number(app.summary)));
    entry.classList.toggle("calls", params.state === "unknown" && app.summary?.states.unknown > 0);
  });
}

const LIVE = {
  live: ["dot", () => "Live"],
  paused: ["pause", () => "Paused while this tab is hidden"],
  reconnecting: ["replayed", (seconds) => `Reconnecting in ${seconds} s`],
  off: ["bad", () => "Not connected"],
};

let changed = null;
const listener = {
  state(word, detail) {
    const [picture, text] = LIVE[word];
    at("live").dataset.state = word;
    fill(at("live"), icon(picture), h("span", {}, text(detail)));
    if (word === "live") refresh();
  },
  counts(moved) {
    if (!app.summary) return;
    app.summary = { ...app.summary, ...moved };
    if (moved.now) setClock(moved.now);
    summaryChanged();
  },
  operation(event) {
    app.view?.event?.(event);
    if (app.view?.concerns?.(event)) reloadIn(app.view.pace ?? PACE_MS);
  },
  /** So many at once that not all are sent: one of them may concern this view. */
  missed({ missed }) {
    if (app.view?.missed) app.view.missed(missed); else reloadIn(PACE_MS);
  },
};

/** A busy gateway has many events, and a search may be long: an open page must not be a load. */
let loading = 0;
function reloadIn(ms) {
  changed ??= setTimeout(reload, Math.max(ms, loading * REST));
}

async function reload() {
  const began = performance.now();
  await app.view?.load?.();
  loading = performance.now() - began;
  changed = null;
}

async function search(event) {
  event.preventDefault();
  const text = at("find-text").value.trim();
  if (text === "") return;
  const target = await isId(text) ? operationLink(text.toLowerCase()) : link("operations", { key: text });
  if (target === location.hash) refresh(); else location.hash = target;
  at("main").focus();
}

/** A key may look like an id, such as a UUID without hyphens: it is one if there is no operation with this id. */
async function isId(text) {
  if (!/^[0-9a-f]{32}$/i.test(text)) return false;
  try {
    await get(`operations/${text.toLowerCase()}`);
    return true;
  } catch (problem) {
    return problem.status !== 404; // the view of the operation tells what is wrong
  }
}

function shortcut(event) {
  const isTyping = event.target.closest?.("input, textarea, select, dialog");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  at("find-text").focus();
  at("find-text").select();
}

onUnauthorized(askForToken);
at("find").addEventListener("submit", search);
document.addEventListener("keydown", shortcut);
at("skip").addEventListener("click", (event) => { event.preventDefault(); at("main").focus(); });
window.addEventListener("hashchange", () => { show(); at("main").focus(); window.scrollTo(0, 0); });
setInterval(tick, 1000);
setInterval(() => { if (!document.hidden) loadSummary(); }, SUMMARY_MS);
show();
loadSummary();
follow(listener);
