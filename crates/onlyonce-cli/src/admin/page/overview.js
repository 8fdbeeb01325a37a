// The first view: does anything wait for a person, does it work, what does it do.
import { get } from "./api.js";
import { chart } from "./chart.js";
import { fill, h, icon, say } from "./dom.js";
import { count, millis, plural, rate, timer } from "./format.js";
import { problemNotice } from "./notice.js";
import { link, operationLink } from "./router.js";
import { keyCell, routeCell, table } from "./table.js";
import { emptyHint } from "./empty.js";

const SHOWN = 8;
const ASKED = 200;
const DUPLICATES = { kind: "replayed,refused_in_flight,mismatched" };

export function show({ summary }) {
  const tiles = TILES.map(makeTile);
  const trouble = h("div");
  const empty = h("div");
  const rates = chart({ label: "Requests per second over the last ten minutes.", series: RATES, word: rate });
  const delays = chart({ label: "Latency, the 95th percentile over the last ten minutes.", series: DELAYS, word: millis });
  const latency = latencyTable();
  const store = h("dl", { class: "facts" });
  const waiting = waitingTable(), running = runningTable(), hot = hotTable(), rekeying = rekeyingTable(), routes = routeTable();

  const rekeyingPanel = panel("wide", "New keys for retries", h("span", { class: "quiet" }, "since start"),
    h("p", { class: "quiet" }, "These callers sent the same request under another key within a minute. Their clients may make a new key for each retry, and nothing protects such a retry. Nothing was refused for it: two equal orders may both be meant."), rekeying.element);

  const element = h("div", { class: "overview" },
    h("h1", { class: "hidden" }, "Overview"), trouble, empty,
    h("div", { class: "tiles" }, tiles.map((tile) => tile.element)),
    panel("wide", "Waiting for a person", h("a", { href: link("operations", { state: "unknown" }) }, "All unknown"),
      h("p", { class: "quiet" }, "Sent, and no complete answer came back. Retries get 409 until somebody settles or releases the operation. Oldest first."), waiting.element),
    panel("wide", "Requests per second", null, rates.element),
    h("div", { class: "stack" },
      panel("", "Running now", h("a", { href: link("operations", { state: "running" }) }, "All running"), running.element),
      panel("", "Latency", null, latency.element, delays.element)),
    h("div", { class: "stack" },
      panel("", "Hot keys", h("span", { class: "quiet" }, "most repeated, last 10 minutes"), hot.element),
      panel("", "Store", null, store)),
    rekeyingPanel,
    panel("wide", "Routes", h("span", { class: "quiet" }, "since start"), routes.element));

  function told(summary) {
    tiles.forEach((tile) => tile.draw(summary));
    fill(empty, isNew(summary) && emptyHint(summary.listen));
    const { times, step_seconds: step } = summary.series;
    const perSecond = (column) => column.map((value) => (value === null ? null : value / step));
    rates.draw(times, RATES.map(({ column }) => perSecond(summary.series[column])));
    const delayed = DELAYS.map(({ column }) => summary.series[column]);
    delays.element.hidden = delayed.every((column) => column.every((value) => value === null));
    delays.draw(times, delayed);
    latency.draw(summary.latency_ms);
    fill(store, storeFacts(summary));
    hot.rows(summary.hot_keys);
    rekeyingPanel.hidden = summary.rekeying_callers.length === 0;
    rekeying.rows(summary.rekeying_callers);
    routes.rows(summary.routes.filter((route) => ROUTE_COUNTS.some((name) => route[name] > 0)));
  }

  async function load() {
    try {
      const [unknown, runs] = await Promise.all([listed("unknown"), listed("running")]);
      waiting.rows(oldest(unknown.operations, "unknown_since"));
      running.rows(oldest(runs.operations, "first_claimed_at"));
      fill(trouble);
    } catch (problem) {
      fill(trouble, problemNotice(problem));
    }
  }

  const relevant = new Set(["claimed", "executed", "unknown", "settled", "released", "reconciled"]);
  return { title: "Overview", element, load, summary: told, concerns: (event) => relevant.has(event.kind), leave() { rates.leave(); delays.leave(); } };
}

const listed = (state) => get("operations", [["state", state], ["limit", ASKED]]);
const oldest = (operations, by) =>
  [...operations].sort((a, b) => Date.parse(a[by] ?? 0) - Date.parse(b[by] ?? 0)).slice(0, SHOWN);
const isNew = ({ counts, states }) => states.records === 0 && (counts.executed ?? 0) === 0;

const RATES = [
  { name: "fresh", column: "executed", colour: "fresh", href: link("operations", { state: "completed" }) },
  { name: "replayed", column: "replayed", colour: "replay", dash: [8, 4], href: link("events", { kind: "replayed" }) },
  { name: "refused", column: "refused", colour: "refuse", dash: [2, 3], href: link("events", { kind: "refused_in_flight,mismatched" }) },
  { name: "retries of unknown", column: "unknown", colour: "unsure", dash: [10, 3, 2, 3], href: link("operations", { state: "unknown" }) },
];
const DELAYS = [
  { name: "store", column: "store_p95_ms", colour: "replay" },
  { name: "upstream", column: "upstream_p95_ms", colour: "fresh", dash: [8, 4] },
];

const TILES = [
  { word: "Unknown", picture: "unknown", to: link("operations", { state: "unknown" }), number: (s) => s.states.unknown,
    below: (s) => (s.oldest.unknown_since ? ["oldest waits for ", timer(s.oldest.unknown_since, "since")] : ["none waiting"]),
    tone: (s) => (s.states.unknown > 0 ? "calls" : "calm") },
  { word: "Running", picture: "running", to: link("operations", { state: "running" }), number: (s) => s.states.running,
    below: (s) => (s.oldest.running_since ? ["oldest for ", timer(s.oldest.running_since, "since")] : ["none running"]) },
  { word: "Duplicates prevented", picture: "replayed", to: link("events", DUPLICATES), number: (s) => s.duplicates_prevented.today,
    below: (s) => [`today · ${count(s.duplicates_prevented.since_start)} since start`] },
  { word: "Executed", picture: "executed", to: link("operations", { state: "completed" }), number: (s) => s.today.executed,
    below: (s) => [`today · ${count(s.counts.executed)} since start`] },
  { word: "Records kept", picture: "completed", to: link("operations"), number: (s) => s.states.records, below: () => ["until their ttl ends"] },
];

function makeTile({ word, picture, to, number, below, tone }) {
  const value = h("b", { class: "number big" }, "–"), small = h("span", { class: "below" });
  const element = h("a", { class: "tile", href: to }, h("span", { class: "word" }, icon(picture), word), value, small);
  let shown = "";
  const draw = (summary) => {
    say(value, count(number(summary)));
    const parts = below(summary);
    const text = parts.map((part) => part.dateTime ?? part).join();
    if (text !== shown) fill(small, parts);
    shown = text;
    element.dataset.tone = tone?.(summary) ?? "calm";
  };
  return { element, draw };
}

function panel(kind, title, beside, ...children) {
  return h("section", { class: `panel ${kind}` }, h("div", { class: "panel-head" }, h("h2", {}, title), beside), children);
}

function waitingTable() {
  return table({
    caption: "Operations whose outcome is unknown, oldest first", empty: "No operation waits for a person.", rowHead: 1,
    columns: ["Unknown for", "Key", "Route", { word: "Attempt", numeric: true }, { word: "", numeric: true }],
    keyOf: (op) => op.id,
    row: (op) => [timer(op.unknown_since, "since"), keyCell(op), routeCell(op), op.attempt,
      h("a", { class: "button small", href: operationLink(op.id), "aria-label": `Look at ${op.key}` }, "Look and settle")],
  });
}

function runningTable() {
  return table({
    caption: "Running operations with their leases", empty: "Nothing is running.",
    columns: ["Key", "Route", "For", "Lease"],
    keyOf: (op) => op.id,
    row: (op) => [keyCell(op), routeCell(op), timer(op.first_claimed_at, "since"), timer(op.lease_until, "until")],
  });
}

function hotTable() {
  return table({
    caption: "Keys that came most often in the last ten minutes", empty: "No key came twice in the last ten minutes.",
    columns: ["Key", "Route", { word: "Times", numeric: true }],
    keyOf: (hot) => hot.id,
    row: (hot) => [keyCell(hot), routeCell(hot), count(hot.count)],
  });
}

function rekeyingTable() {
  return table({
    caption: "Callers that send equal requests under new keys", empty: "None.",
    columns: ["Caller", "Route", { word: "Times", numeric: true }, "Last"],
    keyOf: (caller) => `${caller.route} ${caller.principal}`,
    row: (caller) => [h("a", { href: link("operations", { principal: caller.principal, route: caller.route }), title: caller.principal }, h("code", {}, `${caller.principal.slice(0, 16)}…`)),
      routeCell(caller), count(caller.count), timer(caller.last_at, "since")],
  });
}

const ROUTE_COUNTS = ["executed", "replayed", "in_progress", "reused", "unknown", "unkeyed"];
function routeTable() {
  const words = ["Executed", "Replayed", "In progress", "Key reused", "Retries of unknown", "Without key"];
  return table({
    caption: "Decisions by route since start", empty: "No guarded request came yet.",
    columns: ["Route", ...words.map((word) => ({ word, numeric: true }))],
    keyOf: (route) => route.route,
    row: (route) => [h("a", { href: link("operations", { route: route.route }) }, route.route),
      ...ROUTE_COUNTS.map((name) => count(route[name]))],
  });
}

function latencyTable() {
  const rows = table({
    caption: "Latency since start", empty: "Nothing was measured yet.",
    columns: ["", ...["p50", "p95", "p99", "calls"].map((word) => ({ word, numeric: true }))],
    keyOf: ([word]) => word,
    row: ([word, at]) => [word, millis(at.p50), millis(at.p95), millis(at.p99), count(at.count)],
  });
  const names = [["store", "Store call"], ["upstream", "Upstream"], ["request", "Whole request"]];
  const draw = (latency) => rows.rows(names.filter(([name]) => latency?.[name]).map(([name, word]) => [word, latency[name]]));
  return { element: rows.element, draw };
}

function storeFacts({ store, executing, waiting, audit, counts }) {
  const facts = [
    ["Health", [icon(store.ready ? "good" : "bad"), store.ready ? "answers" : "does not answer"]],
    ["Kind", store.kind],
    ["Promise", store.best_effort ? "best effort: this store may lose records" : "durable"],
    ["Clock", store.clock_ahead_seconds > 0 ? `${plural(store.clock_ahead_seconds, "second")} ahead; the gateway does not follow it` : "agrees"],
    ["Requests now", `${count(executing)} executing, ${count(waiting)} waiting`],
    ["Refused while it was down", plural(counts.store_down ?? 0, "request")],
    ["Late results refused", count(counts.fenced ?? 0)],
    ["Audit trail", audit ? `${plural(audit.entries, "entry", "entries")}, ${count(audit.dropped)} dropped` : "off"],
  ];
  if (store.filter) facts.push(["Filter", `${plural(store.filter.hits, "hit")}, ${count(store.filter.misses)} misses`]);
  return facts.map(([word, value]) => h("div", {}, h("dt", {}, word), h("dd", {}, value)));
}
