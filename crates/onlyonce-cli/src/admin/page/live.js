// The stream of events. `EventSource` cannot send the token, so the stream is read by hand.
import { open, Problem } from "./api.js";

const PAUSE_MS_MIN = 1000;
const PAUSE_MS_MAX = 15_000;
const SILENCE_MS_MAX = 40_000; // a heartbeat comes every 15 s
const EVENT_CHARS_MAX = 1 << 20;
const EVENTS_A_SECOND = 40; // more than a person reads; all events of a busy gateway would slow it down

/** Reads while the tab is seen. `listener` has `state(word, detail)`, `counts(data)`, `operation(event)` and `missed({ missed })`. */
export function follow(listener) {
  let stop = null;
  const resume = () => {
    stop?.abort();
    stop = new AbortController();
    run(listener, stop.signal);
  };
  const pause = () => {
    stop?.abort();
    listener.state("paused");
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? pause() : resume()));
  if (document.hidden) pause(); else resume();
}

async function run(listener, signal) {
  let pause = PAUSE_MS_MIN;
  while (!signal.aborted) {
    try {
      const answer = await open("events", [["rate", EVENTS_A_SECOND]], signal);
      listener.state("live");
      pause = PAUSE_MS_MIN;
      await read(answer.body, listener, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status === 401) return listener.state("off");
    }
    if (signal.aborted) return;
    listener.state("reconnecting", Math.round(pause / 1000));
    await sleep(pause, signal);
    pause = Math.min(pause * 2, PAUSE_MS_MAX);
  }
}

async function read(body, listener, signal) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  while (!signal.aborted) {
    const { value, done } = await within(reader.read(), SILENCE_MS_MAX);
    if (done) return;
    const blocks = (left + value).split(/\r?\n\r?\n/);
    left = blocks.pop();
    if (left.length > EVENT_CHARS_MAX) throw new Error("an event is too long");
    for (const block of blocks) deliver(block, listener);
  }
}

function deliver(block, listener) {
  let kind = "message";
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    if (line.startsWith("event:")) kind = line.slice(6).trim();
    if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
  }
  if (data.length > 0) listener[kind]?.(JSON.parse(data.join("\n")));
}

function within(promise, ms) {
  let timer;
  const silence = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error("silence")), ms); });
  return Promise.race([promise, silence]).finally(() => clearTimeout(timer));
}

function sleep(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
