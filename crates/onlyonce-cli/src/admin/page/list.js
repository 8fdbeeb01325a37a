// Operations by filter. The filters are in the address; one action can be done on all operations that match.
import { get, getText } from "./api.js";
import { bulkDialog } from "./bulk.js";
import { fill, h, say } from "./dom.js";
import { count, plural, state, STATES, status, timer, timestamp } from "./format.js";
import { announce, problemNotice } from "./notice.js";
import { link } from "./router.js";
import { keyCell, routeCell, table } from "./table.js";

const PAGE = 50;
const ROWS_MAX = 1000;
const SEARCHES_MAX = 20; // one search may take several requests, because each is bounded
export const FILTERS = ["state", "route", "key", "key_prefix", "principal", "older"];

export function show({ params, summary, refresh }) {
  const filter = FILTERS.filter((name) => params.get(name)).map((name) => [name, params.get(name)]);
  const heading = h("h1", {}, title(filter));
  const found = h("p", { class: "found", role: "status" }), trouble = h("div"), hint = h("div");
  const form = filterForm(params, summary);
  const rows = operationTable();
  const more = h("button", { type: "button", hidden: true, onclick: () => page(next) }, "Show more");
  const act = h("button", { type: "button", class: "primary", onclick: () => bulkDialog({ filter, isAudited: summary()?.audit !== null, done: refresh }) }, "Act on all that match…");
  const actHint = h("span", { class: "quiet", id: "act-hint" });
  const csv = h("button", { type: "button", onclick: () => download(filter, trouble) }, "Download CSV");
  const element = h("div", { class: "list" }, heading, form,
    h("div", { class: "bar" }, found, h("span", { class: "space" }), csv, act, actHint), trouble, hint, rows.element, more);

  let operations = [], next = null, isTruncated = false, turn = 0;

  async function load() {
    const wanted = Math.max(PAGE, operations.length);
    operations = [];
    next = null;
    await page(null, wanted);
  }

  /** Goes on until a page is full, nothing is left, or the bound is met. */
  async function page(from, wanted = PAGE) {
    const mine = ++turn;
    more.disabled = true;
    let read = from === null ? [] : operations, cursor = from, searched = 0;
    const enough = read.length + wanted;
    try {
      for (let asked = 0; asked < SEARCHES_MAX && read.length < enough; asked += 1) {
        const limit = Math.min(200, enough - read.length);
        const answer = await get("operations", [...filter, ["limit", limit], ...(cursor ? [["after", cursor]] : [])]);
        if (mine !== turn) return;
        read = [...read, ...answer.operations];
        searched += answer.searched ?? 0;
        cursor = answer.next;
        isTruncated = answer.truncated === true;
        if (!cursor) break;
      }
      fill(trouble);
    } catch (problem) {
      if (mine === turn) fill(trouble, problemNotice(problem));
    }
    if (mine !== turn) return;
    [operations, next] = [read, cursor];
    draw(searched);
  }

  function draw(searched) {
    rows.rows(operations);
    more.hidden = !next || operations.length >= ROWS_MAX;
    more.disabled = false;
    const text = next ? `The first ${plural(operations.length, "operation")}; there are more.` : `${plural(operations.length, "operation")}.`;
    say(found, searched > operations.length ? `${text} ${count(searched)} records searched.` : text);
    announce(found.textContent);
    fill(hint, operations.length === 0 && params.get("key") && prefixHint(params.get("key")),
      isTruncated && h("p", { class: "quiet" }, "There are more operations with this key than are listed."),
      operations.length >= ROWS_MAX && h("p", { class: "quiet" }, `Only ${count(ROWS_MAX)} rows are shown. Narrow the filter, or download the CSV.`));
    told(summary());
  }

  function told(summary) {
    const why = !summary ? "" : !summary.writable ? "This token may look, not change." : operations.length === 0 ? "Nothing matches." : "";
    act.disabled = why !== "" || !summary;
    say(actHint, why);
    if (why) act.setAttribute("aria-describedby", "act-hint"); else act.removeAttribute("aria-describedby");
  }

  return { title: title(filter), element, load, summary: told, concerns: () => operations.length <= 200 };
}

function title(filter) {
  const words = filter.map(([name, value]) => (name === "state" ? value.replaceAll(",", ", ") : `${WORDS[name]} ${value}`));
  return words.length === 0 ? "All operations" : `Operations: ${words.join(", ")}`;
}
const WORDS = { route: "route", key: "key", key_prefix: "key begins with", principal: "principal", older: "older than" };

const prefixHint = (key) => h("p", {}, "No operation has exactly this key. ",
  h("a", { href: link("operations", { key_prefix: key }) }, "Search for keys that begin with it"), " (this reads every record), or ",
  h("a", { href: link("events", { key }) }, "look in the events"), ": the audit trail remembers keys that have expired.");

function filterForm(params, summary) {
  const states = (params.get("state") ?? "").split(",");
  const boxes = STATES.map((name) => h("label", { class: "check" },
    h("input", { type: "checkbox", name: "state", value: name, checked: states.includes(name) }), state(name)));
  const routes = h("datalist", { id: "routes" }, (summary()?.routes ?? []).map(({ route }) => h("option", { value: route })));
  const isPrefix = params.has("key_prefix");
  const form = h("form", { class: "filter", onsubmit: (event) => { event.preventDefault(); location.hash = address(form); } },
    h("fieldset", {}, h("legend", {}, "State"), boxes),
    field("Key", h("input", { id: "f-key", name: "text", value: params.get("key") ?? params.get("key_prefix") ?? "", maxlength: "255", spellcheck: "false", autocomplete: "off" })),
    field("Match", h("select", { id: "f-how", name: "how" }, h("option", { value: "key" }, "the whole key"),
      h("option", { value: "key_prefix", selected: isPrefix }, "how it begins"))),
    field("Route", h("input", { id: "f-route", name: "route", list: "routes", value: params.get("route") ?? "", autocomplete: "off" })), routes,
    field("Older than", h("input", { id: "f-older", name: "older", value: params.get("older") ?? "", placeholder: "10m, 2h, 1d", autocomplete: "off" })),
    field("Principal digest", h("input", { id: "f-principal", name: "principal", value: params.get("principal") ?? "", spellcheck: "false", autocomplete: "off" })),
    h("div", { class: "filter-buttons" }, h("button", { type: "submit" }, "Search"), h("a", { href: "#/operations" }, "Clear")));
  return form;
}

const field = (word, input) => h("div", { class: "field" }, h("label", { for: input.id }, word), input);

function address(form) {
  const entered = new FormData(form);
  const state = entered.getAll("state").join(",");
  const text = (name) => entered.get(name).trim();
  return link("operations", { state, [entered.get("how")]: text("text"), route: text("route"), older: text("older"), principal: text("principal") });
}

export function operationTable() {
  return table({
    caption: "Operations", empty: "No operation matches.", rowHead: 1,
    columns: ["State", "Key", "Route", "First claimed", "In this state", { word: "Attempt", numeric: true }, { word: "Answer", numeric: true }, { word: "Replays", numeric: true }],
    keyOf: (op) => op.id,
    row: (op) => [state(op.state), keyCell(op), routeCell(op), timestamp(op.first_claimed_at), since(op), op.attempt, status(op.status), count(op.replays)],
  });
}

function since(op) {
  if (op.state === "unknown") return timer(op.unknown_since, "since");
  if (op.state === "running") return ["lease ", timer(op.lease_until, "until")];
  return op.expires_at ? ["expires ", timer(op.expires_at, "in")] : "–";
}

async function download(filter, trouble) {
  try {
    const text = await getText("operations.csv", filter);
    const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    h("a", { href: address, download: "operations.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  } catch (problem) {
    fill(trouble, problemNotice(problem));
  }
}
