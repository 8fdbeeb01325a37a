// What happened, newest first: the audit trail where there is one, and the live stream on top of it.
import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { moment, plural, serverNow } from "./format.js";
import { problemNotice } from "./notice.js";
import { link } from "./router.js";
import { entry, KIND_NAMES } from "./timeline.js";

const PAGE = 200;
const LIVE_MAX = 500;
const SHOWN_MAX = 1000;
const PACE_MS = 250; // between two drawings while events come
const WORDS = { refused_in_flight: "refused in flight" };

export function show({ params }) {
  const kinds = (params.get("kind") ?? "").split(",").filter(Boolean);
  const [id, key, route] = ["id", "key", "route"].map((name) => params.get(name) ?? "");
  const rows = h("ol", { class: "timeline" }), about = h("p", { class: "found", role: "status" }), trouble = h("div");
  const more = h("button", { type: "button", hidden: true, onclick: () => read() }, "Search older events");
  const element = h("div", { class: "list" }, h("h1", {}, kinds.length > 0 ? `Events: ${kinds.map(word).join(", ")}` : "Events"), filterForm(kinds, id, key, route), about, trouble, rows, more);
  let past = [], live = [], trail = null, isAudited = true, turn = 0, drawing = null, leftOut = 0;

  const wanted = (event) => (kinds.length === 0 || kinds.includes(event.kind)) && (id === "" || event.id === id) && (route === "" || event.route === route);

  async function load() {
    [past, live] = [[], []];
    trail = backwards([...(id ? [["id", id]] : []), ...(key ? [["key", key]] : [])]);
    await read();
  }

  /** Another page of events, from where the last one ended. */
  async function read() {
    const mine = ++turn;
    more.disabled = true;
    try {
      const found = await trail.read(wanted);
      if (mine !== turn) return;
      past = [...past, ...found];
      live = live.filter((event) => !past.some((told) => isSame(event, told)));
      fill(trouble);
    } catch (problem) {
      if (mine !== turn) return;
      isAudited = problem.code !== "audit_off";
      if (isAudited) fill(trouble, problemNotice(problem));
    }
    more.disabled = false;
    draw();
  }

  function draw() {
    drawing = null;
    const all = [...past, ...live].sort((a, b) => Date.parse(b.at) - Date.parse(a.at)).slice(0, SHOWN_MAX);
    fill(rows, all.map((event) => entry(event, null, { withLink: true })));
    more.hidden = !isAudited || trail.isAtStart() || past.length >= SHOWN_MAX;
    about.textContent = `${plural(all.length, "event")}, newest first, ${isAudited ? trail.words() : "since this page was opened: the audit trail is off"}.` +
      (leftOut > 0 ? ` ${plural(leftOut, "event")} happened too fast to be shown as they happened${isAudited ? ": search by id or key" : ""}.` : "");
  }

  function event(told) {
    if (!wanted(told) || (key && told.key !== key)) return;
    live = [...live, told].slice(-LIVE_MAX);
    drawing ??= setTimeout(draw, PACE_MS);
  }

  function missed(count) {
    leftOut += count;
    drawing ??= setTimeout(draw, PACE_MS);
  }

  return { title: "Events", element, load, event, missed, concerns: () => false };
}

const REQUESTS_MAX = 30; // of one search
const PIECE_MS = 3_600_000;
const PIECE_MS_MIN = 1000;

/**
 * Reads the audit trail from its newest entry on. The API reads from the oldest on, so time is cut into pieces: one with
 * more entries than a page is asked for again as its latest part, and after one that fits the next is longer.
 */
function backwards(filter) {
  let until = null, length = Infinity, isAtStart = false, isCut = false;
  const page = (since, after) => get("audit", [["limit", PAGE], ...filter, ...at("since", since), ...at("until", until), ...(after ? [["after", after]] : [])]);
  const at = (name, time) => (time === null ? [] : [[name, new Date(time).toISOString()]]);

  async function read(wanted) {
    let found = [], asked = 0;
    while (asked < REQUESTS_MAX && found.length < PAGE && !isAtStart) {
      const since = (until ?? serverNow()) - length;
      const from = since > 0 ? since : null;
      let { entries, next } = await page(from, null);
      asked += 1;
      if (next && length > PIECE_MS_MIN) {
        length = length === Infinity ? PIECE_MS : Math.max(length / 8, PIECE_MS_MIN);
        continue;
      }
      for (; next && asked < REQUESTS_MAX; asked += 1) {
        const rest = await page(from, next);
        [entries, next] = [[...entries, ...rest.entries], rest.next];
      }
      isCut ||= Boolean(next);
      found = [...found, ...entries.filter(wanted)];
      [until, isAtStart] = [from, from === null];
      length *= 4;
    }
    return found;
  }

  const reach = () => (isAtStart ? "from the whole audit trail" : until === null ? "from the audit trail" : `from the audit trail since ${moment(until)}`);
  const words = () => `${reach()}, and as they happen${isCut ? "; some are left out, because too many happened at once: search by id or key" : ""}`;
  return { read, words, isAtStart: () => isAtStart };
}

/** What happened while the trail was read may be in it and in the stream, with times that differ a little. */
const isSame = (event, told) => event.id === told.id && event.kind === told.kind && event.attempt === told.attempt &&
  Math.abs(Date.parse(event.at) - Date.parse(told.at)) < 1000;

const word = (kind) => WORDS[kind] ?? kind;

function filterForm(kinds, id, key, route) {
  const field = (label, name, value) => h("div", { class: "field" }, h("label", { for: `e-${name}` }, label),
    h("input", { id: `e-${name}`, name, value, autocomplete: "off", spellcheck: "false" }));
  const form = h("form", { class: "filter", onsubmit: (event) => { event.preventDefault(); location.hash = address(form); } },
    h("fieldset", {}, h("legend", {}, "Kind"), KIND_NAMES.map((kind) => h("label", { class: "check" },
      h("input", { type: "checkbox", name: "kind", value: kind, checked: kinds.includes(kind) }), word(kind)))),
    field("Operation id", "id", id), field("Key", "key", key), field("Route", "route", route),
    h("div", { class: "filter-buttons" }, h("button", { type: "submit" }, "Search"), h("a", { href: "#/events" }, "Clear")));
  return form;
}

function address(form) {
  const entered = new FormData(form);
  const text = (name) => entered.get(name).trim();
  return link("events", { kind: entered.getAll("kind").join(","), id: text("id"), key: text("key"), route: text("route") });
}
