// One operation: what became of it, what can be done about it, and its history.
import { get } from "./api.js";
import { actionDialog } from "./actions.js";
import { fill, h, icon } from "./dom.js";
import { bytes, count, plural, serverNow, state, timer, timestamp } from "./format.js";
import { problemNotice } from "./notice.js";
import { link } from "./router.js";
import { timeline } from "./timeline.js";

export function show({ rest: [id = ""], summary, refresh }) {
  const element = h("article", { class: "operation", "aria-busy": "true" }, h("p", { class: "quiet" }, "Loading…"));
  let shown = null, again = null, isLeft = false;

  async function load() {
    clearTimeout(again);
    try {
      const op = await get(`operations/${encodeURIComponent(id)}`);
      draw(op);
      follow(op);
    } catch (problem) {
      shown = null;
      fill(element, h("h1", {}, "This operation cannot be shown"), problemNotice(problem),
        problem.status === 404 && h("p", {}, h("a", { href: link("events", { id }) }, "Look for it in the events"), " · ",
          h("a", { href: "#/operations" }, "All operations")));
    }
    element.removeAttribute("aria-busy");
  }

  /** What it says, and what may be done, changes with the clock alone until it is completed. */
  function follow(op) {
    clearTimeout(again);
    if (isLeft || op.state === "completed") return;
    const allowed = Date.parse(op.actions.release.allowed_at ?? 0) - serverNow();
    const wait = allowed > 0 ? Math.min(FOLLOW_MS, allowed + 100) : FOLLOW_MS;
    again = setTimeout(() => (document.hidden ? follow(op) : load()), wait);
  }

  function draw(op) {
    const version = JSON.stringify([op, summary()?.writable]);
    if (version === shown) return;
    shown = version;
    const focused = element.contains(document.activeElement) ? document.activeElement.id : "";
    fill(element, verdict(op), facts(op), h("div", { class: "columns" },
      h("div", { class: "stack" }, h("section", { class: "panel" }, h("h2", {}, "Actions"), actions(op, summary(), refresh)), answer(op)),
      h("section", { class: "panel" }, h("h2", {}, "History"), timeline(op.events))));
    if (focused) document.getElementById(focused)?.focus();
    told = op;
  }

  let told = null;
  const leave = () => { isLeft = true; clearTimeout(again); };
  return { title: "Operation", element, load, leave, summary: () => { if (told) draw(told); }, concerns: (event) => event.id === id, pace: 400 };
}

const FOLLOW_MS = 5000;

function verdict(op) {
  return h("header", { class: "verdict", "data-state": op.state },
    h("p", { class: "verdict-state" }, state(op.state), h("span", { class: "quiet" }, op.route)),
    h("h1", {}, op.verdict),
    h("p", { class: "verdict-key" }, h("span", { class: "quiet" }, "Key "), h("code", { class: "key-whole" }, op.key)),
    op.checks?.length > 0 && h("div", { class: "checks" }, h("h2", {}, "Check before you decide"),
      h("ol", {}, op.checks.map((check) => h("li", {}, check)))));
}

function facts(op) {
  const rows = [
    ["Id", h("code", {}, op.id)],
    ["Principal", h("a", { href: link("operations", { principal: op.principal }), title: op.principal }, h("code", {}, `${op.principal.slice(0, 16)}…`))],
    ["Attempt", count(op.attempt)],
    ["First claimed", [timestamp(op.first_claimed_at, true), ", ", timer(op.first_claimed_at)]],
    op.state === "running" && ["Lease", timer(op.lease_until, "until")],
    op.unknown_since && ["Unknown since", [timestamp(op.unknown_since, true), ", ", timer(op.unknown_since)]],
    op.settled_by && ["Settled by", SETTLED_BY[op.settled_by] ?? op.settled_by],
    op.replays !== null && op.replays !== undefined && ["Replayed", plural(op.replays, "time")],
    op.expires_at && ["Key is kept until", [timestamp(op.expires_at), ", ", timer(op.expires_at, "in")]],
  ];
  return h("dl", { class: "facts wide" }, rows.filter(Boolean).map(([word, value]) => h("div", {}, h("dt", {}, word), h("dd", {}, value))));
}

const SETTLED_BY = { owner: "the answer of the service", policy: "the route's policy", reconcile: "asking the service", operator: "an operator" };

const ACTIONS = [["settle", "Settle…", "primary"], ["release", "Release…", "danger"], ["forget", "Forget…", "danger"], ["erase", "Erase…", "danger"]];

function actions(op, summary, refresh) {
  return h("ul", { class: "actions" }, ACTIONS.map(([name, word, kind]) => {
    const rule = op.actions[name];
    const mayForce = name === "release" && !rule.allowed && rule.force === true;
    const why = summary && !summary.writable ? "This token may look, not change. Use the operator's token." :
      rule.allowed || mayForce ? null : rule.why_not ?? "Its state does not allow it.";
    const button = h("button", { type: "button", id: `act-${name}`, class: why ? "" : kind, disabled: why !== null,
      "aria-describedby": `why-${name}`, onclick: () => actionDialog({ action: name, op, force: mayForce, isAudited: summary?.audit !== null, done: refresh }) }, word);
    return h("li", {}, button, h("div", { id: `why-${name}` }, h("p", {}, rule.promise),
      why && h("p", { class: "why-not" }, icon("refused"), h("span", {}, why)),
      mayForce && h("p", { class: "why-not" }, icon("refused"), h("span", {}, `${rule.why_not ?? "It is too early."} You can force it if you know that it cannot.`)),
      rule.allowed_at && !rule.allowed && h("p", { class: "quiet" }, "Allowed without force ", timer(rule.allowed_at, "in"), ", at ", timestamp(rule.allowed_at))));
  }));
}

function answer(op) {
  const kept = op.response;
  if (!kept) return null;
  return h("section", { class: "panel answer" }, h("h2", {}, "The answer that every retry gets"),
    h("p", { class: "status-line" }, h("b", { class: "number" }, String(kept.status)), h("span", { class: "quiet" }, op.body_bytes === null || op.body_bytes === undefined ? "" : bytes(op.body_bytes))),
    kept.headers?.length > 0 && h("dl", { class: "headers" }, kept.headers.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    body(kept));
}

function body(kept) {
  if (kept.not_kept === "location") return h("p", {}, "Status and Location were kept. A retry gets what is at the Location now, never a second execution.");
  if (kept.not_kept) return h("p", {}, `The body was not kept (${kept.not_kept}). A retry gets 410, never a second execution.`);
  if (kept.body !== null && kept.body !== undefined) {
    const cut = kept.body.length > BODY_CHARS_MAX;
    return [h("pre", { class: "body", tabindex: "0", "aria-label": "Body" }, kept.body.slice(0, BODY_CHARS_MAX)),
      cut && h("p", { class: "quiet" }, `Only the first ${count(BODY_CHARS_MAX)} characters are shown.`)];
  }
  if (kept.body_base64) return [h("p", { class: "quiet" }, "The body is not text. In base64:"),
    h("pre", { class: "body", tabindex: "0", "aria-label": "Body in base64" }, kept.body_base64.slice(0, BODY_CHARS_MAX))];
  return h("p", { class: "quiet" }, "The body is empty.");
}

const BODY_CHARS_MAX = 100_000;
