// Draws what the demo tells: the way of each request, both ledgers, and what each side came to.

const PACE_MS = matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 240;
const LEDGER_ROWS_MAX = 8;
const lanes = { without: lane("without"), with: lane("with") };
const at = (id) => document.getElementById(id);
const buttons = [...document.querySelectorAll("[data-scene]")];
let current = { order: null, key: null };
let admin = "";

function lane(name) {
  const section = document.getElementById(name);
  const part = (selector) => section.querySelector(selector);
  return { name, ways: part(".ways"), verdict: part(".verdict"), ledger: part(".ledger"), gateway: part(".gateway"), rows: new Map(), charges: [], last: null };
}

function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

function svg(name, attributes = {}, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

// What is paid by hand, through the form or with curl, may be meant twice.
const isOrder = ({ customer }) => customer.startsWith("order-");
const money = (cents) => (cents / 100).toFixed(2);

// The stations, in a picture 600 wide that is stretched to the lane.
const PHONE = 45, GATEWAY = 300, BANK = 555, THERE = 14, BACK = 36;

function row(lane, { tap, word, amount }) {
  const picture = svg("svg", { viewBox: "0 0 600 50", preserveAspectRatio: "none", "aria-hidden": "true" });
  for (const x of lane.gateway ? [PHONE, GATEWAY, BANK] : [PHONE, BANK]) picture.append(svg("line", { class: "life", x1: x, y1: 0, x2: x, y2: 50 }));
  const end = h("p", { class: "end" });
  const item = h("li", {}, h("p", { class: "what" }, h("b", {}, word), h("span", {}, money(amount))), picture, end);
  lane.ways.append(item);
  const made = { picture, end, charged: false, charge: "", note: "" };
  lane.rows.set(tap, made);
  return made;
}

/** An arrow from one station to another; broken ones end in a cross half way. */
function arrow({ picture }, from, to, y, kind, isBroken = false) {
  const end = isBroken ? from + (to - from) * 0.55 : to;
  picture.append(svg("path", { class: `way ${kind}`, d: `M${from} ${y}H${end}` }));
  const back = to > from ? -10 : 10;
  if (isBroken) picture.append(svg("path", { class: "cross", d: `M${end - 7} ${y - 7}L${end + 7} ${y + 7}M${end + 7} ${y - 7}L${end - 7} ${y + 7}` }));
  else picture.append(svg("path", { class: `tip ${kind}`, d: `M${to} ${y}L${to + back} ${y - 5}V${y + 5}Z` }));
}

const STEPS = {
  begun({ order, key }) {
    if (order !== current.order) for (const each of Object.values(lanes)) clear(each);
    current = { order, key };
    say(`Playing ${order}. On the right it has the key ${key}.`);
  },
  sent(event) {
    const side = lanes[event.lane];
    arrow(row(side, event), PHONE, side.gateway ? GATEWAY : BANK, THERE, "");
  },
  charged({ lane, tap, charge }) {
    const side = lanes[lane];
    side.charges.push(charge);
    ledger(side);
    const way = side.rows.get(tap);
    if (!way) return;
    way.charged = true;
    if (side.gateway) arrow(way, GATEWAY, BANK, THERE, "");
    const again = side.charges.filter(({ customer }) => customer === charge.customer).length > 1 && isOrder(charge) ? "again" : "";
    way.picture.append(svg("path", { class: `charge ${again}`, d: `M${BANK} ${THERE}h.01` }));
    way.charge = `The bank has charged ${charge.id}`;
    describe(way);
  },
  answered({ lane, tap, status, what, state, is_replay: isReplay }) {
    const side = lanes[lane], way = side.rows.get(tap);
    if (!way) return;
    const kind = status < 300 ? "good" : "held";
    side.last = state;
    if (!side.gateway) arrow(way, BANK, PHONE, BACK, kind);
    else {
      if (way.charged) arrow(way, BANK, GATEWAY, BACK, status < 300 ? "good" : "bad", status >= 500);
      arrow(way, GATEWAY, PHONE, BACK, kind);
    }
    way.end.textContent = words(status, what, state, isReplay);
  },
  lost({ lane, tap, why }) {
    const side = lanes[lane], way = side.rows.get(tap);
    if (!way) return;
    const isKilled = why.includes("killed");
    if (!side.gateway) arrow(way, BANK, PHONE, BACK, "bad", true);
    else if (isKilled) arrow(way, BANK, GATEWAY, BACK, "bad", true);
    else {
      arrow(way, BANK, GATEWAY, BACK, "good");
      arrow(way, GATEWAY, PHONE, BACK, "bad", true);
    }
    way.note = why;
    describe(way);
  },
  killed() { lanes.with.gateway.classList.add("dead"); lanes.with.gateway.textContent = "killed"; say("The gateway was killed with kill -9. It starts again on the same store."); },
  restarted() { lanes.with.gateway.classList.remove("dead"); lanes.with.gateway.textContent = "Onlyonce"; },
  ended({ trouble }) {
    for (const each of Object.values(lanes)) conclude(each);
    idle(true);
    say(trouble ? `The scene could not be played: ${trouble}` : "Done. Try another.");
  },
  trouble({ why }) { idle(true); say(`Not now: ${why}.`); },
};

/** What is known so far: news of the bank and of the customer may come in either order. */
function describe({ end, charge, note }) {
  end.textContent = [charge, note].filter(Boolean).join("; ");
}

function words(status, what, state, isReplay) {
  if (isReplay) return `${status} ${what}: the answer of the first tap. Nothing was sent to the bank`;
  return {
    "in-progress": `${status}: the first tap is still under way; the app waits and asks again`,
    reused: `${status}: the same key with another request is refused. Nothing was sent to the bank`,
    refused: `${status} ${what}: not charged. Nothing was sent to the bank`,
    unknown: `${status}: it may have been charged, so it is not sent again. Its outcome is unknown`,
  }[state] ?? `${status} ${what ?? ""}: charged`;
}

function conclude(side) {
  const mine = side.charges.filter(({ customer }) => customer === current.order);
  if (mine.length === 0) return;
  const sum = money(mine.reduce((total, { amount }) => total + amount, 0));
  const isUnknown = side.last === "unknown";
  const [kind, text] = mine.length > 1 ? ["bad", `✕ Charged ${mine.length} times for one order: ${sum}`] :
    isUnknown ? ["held", "△ Charged once. Onlyonce cannot know that, so a person decides."] : ["good", `✓ Charged once: ${sum}`];
  side.verdict.className = `verdict ${kind}`;
  side.verdict.textContent = text;
  if (side.gateway) opened(isUnknown);
}

function opened(isOpen) {
  at("open").hidden = !isOpen;
  if (current.key) at("settle").href = `${admin}/#/operations?key=${encodeURIComponent(current.key)}`;
}

function clear(side) {
  side.ways.replaceChildren();
  side.rows.clear();
  side.verdict.textContent = "";
  side.last = null;
  if (side.gateway) opened(false);
}

function ledger(side) {
  const seen = new Set();
  const rows = side.charges.map((charge) => {
    const again = isOrder(charge) && seen.has(charge.customer);
    seen.add(isOrder(charge) ? charge.customer : charge.id);
    return h("tr", again ? { class: "again" } : {}, h("th", { scope: "row" }, charge.id), h("td", {}, charge.customer),
      h("td", {}, again ? "again!" : "once"), h("td", { class: "amount" }, money(charge.amount)));
  });
  const head = h("tr", {}, ...["Charge", "For", "", "Amount"].map((word) => h("th", word === "Amount" ? { scope: "col", class: "amount" } : { scope: "col" }, word || "How often")));
  const count = (value, word) => `${value} ${word}${value === 1 ? "" : "s"}`;
  side.ledger.replaceChildren(h("table", {}, h("thead", {}, head), h("tbody", {}, ...rows.slice(-LEDGER_ROWS_MAX))),
    h("p", { class: "sum" }, `${count(side.charges.length, "charge")} for ${count(seen.size, "order")}`));
}

const say = (text) => { at("status").textContent = text; };

function idle(is) {
  for (const button of buttons) {
    button.disabled = !is;
    if (is) button.removeAttribute("aria-pressed");
  }
}

async function play(button) {
  idle(false);
  button.setAttribute("aria-pressed", "true");
  try {
    const answer = await fetch(`/play/${button.dataset.scene}`, { method: "POST", headers: { "content-type": "application/json" } });
    if (!answer.ok) throw new Error();
  } catch {
    idle(true);
    say("The demo does not answer. Start it again: onlyonce demo");
  }
}

async function load() {
  const state = await (await fetch("/state")).json();
  admin = state.admin;
  at("operator").href = `${admin}/`;
  at("form").href = `${state.gateway}/`;
  for (const side of Object.values(lanes)) {
    side.charges = state.ledgers[side.name];
    ledger(side);
  }
  if (!state.open || lanes.with.rows.size > 0) return;
  current = state.open;
  lanes.with.verdict.className = "verdict held";
  lanes.with.verdict.textContent = `△ The outcome of ${state.open.order} is unknown. A person decides.`;
  opened(true);
}

// Events are drawn one after the other, slowly enough to follow.
const queue = [];
let isDrawing = false;
function draw() {
  const event = queue.shift();
  isDrawing = event !== undefined;
  if (!isDrawing) return;
  STEPS[event.step]?.(event);
  setTimeout(draw, PACE_MS);
}

for (const button of buttons) button.addEventListener("click", () => play(button));
const events = new EventSource("/events");
events.addEventListener("open", () => { idle(true); load(); });
events.addEventListener("message", ({ data }) => { queue.push(JSON.parse(data)); if (!isDrawing) draw(); });
events.addEventListener("error", () => say("The demo does not answer; trying again. Start it with: onlyonce demo"));
