// How times, numbers and states are written. Times are UTC, as in the logs and the audit trail.
import { h, icon } from "./dom.js";

let ahead = 0; // how far the server's clock is ahead of this browser's, in ms

export function setClock(now) {
  ahead = Date.parse(now) - Date.now();
}

export const serverNow = () => Date.now() + ahead;

const COUNT = new Intl.NumberFormat("en-US");
export const count = (value) => (value === null || value === undefined ? "–" : COUNT.format(value));
export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value >= 100 ? count(Math.round(value)) : value.toFixed(value >= 10 ? 1 : 2).replace(/\.?0+$/, "");
}

export function millis(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 ms";
  if (value >= 1000) return `${(value / 1000).toFixed(value >= 10_000 ? 0 : 1)} s`;
  return `${value >= 100 ? Math.round(value) : Number(value.toFixed(value >= 10 ? 1 : 2))} ms`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1024) return `${value} B`;
  return value < 1 << 20 ? `${(value / 1024).toFixed(1)} KiB` : `${(value / (1 << 20)).toFixed(1)} MiB`;
}

/** A length of time in its two largest units: "2 d 3 h", "4 min 10 s". */
export function span(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const parts = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];
  const at = parts.findIndex(([, size]) => seconds >= size);
  if (at < 0) return "0 s";
  const [unit, size] = parts[at];
  const [next, nextSize] = parts[at + 1] ?? [];
  const rest = next ? Math.floor((seconds % size) / nextSize) : 0;
  return `${Math.floor(seconds / size)} ${unit}${rest && at < 3 ? ` ${rest} ${next}` : ""}`;
}

const pad = (value, length = 2) => String(value).padStart(length, "0");

export function clock(time, withMillis = false) {
  const at = new Date(time);
  const text = `${pad(at.getUTCHours())}:${pad(at.getUTCMinutes())}:${pad(at.getUTCSeconds())}`;
  return withMillis ? `${text}.${pad(at.getUTCMilliseconds(), 3)}` : text;
}

export const day = (time) => new Date(time).toISOString().slice(0, 10);

/** "14:02:07", with the day where it is not today's. */
export function moment(time, withMillis = false) {
  const today = day(new Date(serverNow()));
  return day(time) === today ? clock(time, withMillis) : `${day(time)} ${clock(time, withMillis)}`;
}

const wordsOf = {
  ago: (ms) => `${span(ms)} ago`,
  since: (ms) => span(ms),
  until: (ms) => (ms < 0 ? `${span(-ms)} left` : `ended ${span(ms)} ago`),
  in: (ms) => (ms < 0 ? `in ${span(-ms)}` : "now"),
};

/** A time that goes on counting: see `tick`. */
export function timer(time, way = "ago") {
  if (!time) return h("span", { class: "none" }, "–");
  const text = wordsOf[way](serverNow() - Date.parse(time));
  return h("time", { datetime: time, title: `${day(time)} ${clock(time, true)} UTC`, "data-way": way }, text);
}

export function tick() {
  for (const time of document.querySelectorAll("time[data-way]")) {
    const text = wordsOf[time.dataset.way](serverNow() - Date.parse(time.dateTime));
    if (time.textContent !== text) time.textContent = text;
  }
}

export function timestamp(time, withMillis = false) {
  if (!time) return h("span", { class: "none" }, "–");
  return h("time", { datetime: time, title: `${day(time)} ${clock(time, true)} UTC` }, moment(time, withMillis));
}

export const STATES = ["unknown", "running", "released", "completed"];

export function state(name) {
  return h("span", { class: `state state-${STATES.includes(name) ? name : "other"}` }, icon(name), name);
}

/** A status in words that a tired reader takes in: "201", "502". */
export const status = (value) => (value === null || value === undefined ? "–" : String(value));
