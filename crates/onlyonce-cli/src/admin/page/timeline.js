// Events of one operation, or of all of them.
import { h, icon } from "./dom.js";
import { clock, day, plural, span } from "./format.js";
import { operationLink } from "./router.js";

const KINDS = {
  claimed: ["running", "Claimed", () => "an attempt began"],
  executed: ["executed", "Executed", ({ status }) => (status ? `the upstream answered ${status}` : "the upstream answered")],
  replayed: ["replayed", "Replayed", ({ status }) => `a retry got the stored answer${status ? ` ${status}` : ""}`],
  mismatched: ["refused", "Refused", () => "the same key came with another request (422)"],
  refused_in_flight: ["refused", "Refused", () => "a retry came while the first request was running (409)"],
  fenced: ["refused", "Fenced off", () => "an earlier attempt ended late, and its result was refused"],
  unknown: ["unknown", "Unknown", () => "no complete answer came back: it may have been executed"],
  reconciled: ["completed", "Reconciled", ({ status }) => `the service was asked, and told the outcome${status ? `: ${status}` : ""}`],
  settled: ["completed", "Settled", ({ who, status }) => `by ${who ? "an operator" : "the route's policy"}${status ? `, with the answer ${status}` : ""}`],
  released: ["released", "Released", ({ who }) => (who ? "by an operator: the next request with this key executes it" : "it was not executed: the key can be used again")],
  forgotten: ["released", "Forgotten", () => "by an operator: the next request with this key is a new operation"],
  erased: ["completed", "Erased", () => "by an operator: answer and key text are gone, the outcome is kept"],
  expired: ["dot", "Expired", () => "its time to live ended, and the record was deleted"],
  dropped: ["dot", "Dropped", ({ count }) => `${plural(count ?? 0, "entry", "entries")} of the audit trail, because its queue was full`],
};
export const KIND_NAMES = Object.keys(KINDS);

export function timeline(events) {
  if (events.length === 0) return h("p", { class: "nothing" }, "No events are known: the audit trail is off, and this process has not handled the operation since it started.");
  return [events[0].kind !== "claimed" && h("p", { class: "quiet" }, "Earlier events are not shown."),
    h("ol", { class: "timeline" }, events.map((event, at) => entry(event, events[at - 1])))];
}

/** One event; `before` is the one that it is timed against. */
export function entry(event, before, { withLink = false } = {}) {
  const [picture, word, sentence] = KINDS[event.kind] ?? ["dot", event.kind, () => ""];
  const gap = before ? Date.parse(event.at) - Date.parse(before.at) : null;
  return h("li", { "data-kind": event.kind },
    h("span", { class: "mark" }, icon(picture)),
    h("div", {},
      h("p", { class: "what" }, h("strong", {}, word), ": ", sentence(event), event.attempt > 1 && h("span", { class: "quiet" }, ` · attempt ${event.attempt}`)),
      (event.who || event.why) && h("p", { class: "who" }, icon("person"), h("span", {}, h("b", {}, event.who ?? "someone"), event.why && `: ${event.why}`)),
      event.ids && h("p", { class: "ids" }, Object.entries(event.ids).map(([name, value]) => h("code", {}, `${name} = ${value}`))),
      withLink && event.id && h("p", { class: "quiet" }, h("a", { href: operationLink(event.id) }, h("code", {}, event.id)), ` ${event.route ?? ""}`),
      h("p", { class: "when" }, h("time", { datetime: event.at, title: `${day(event.at)} ${clock(event.at, true)} UTC` }, `${day(event.at)} ${clock(event.at, true)}`),
        gap !== null && gap >= 0 && h("span", {}, ` · ${gap < 1000 ? `${gap} ms` : span(gap)} later`),
        event.seq !== null && event.seq !== undefined && h("span", {}, ` · audit entry ${event.seq}`))));
}
