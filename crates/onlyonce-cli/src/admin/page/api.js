// The admin API. A problem document becomes a `Problem`; a 401 asks for the token and tries again.

const BASE = new URL("api/v1/", document.baseURI);
const TIMEOUT_MS = 30_000;
const TOKEN = "onlyonce-token";

export class Problem extends Error {
  constructor({ title, detail, status, code }) {
    super(detail ? `${title}: ${detail}` : title);
    Object.assign(this, { title, detail, status, code });
  }
}

/** Kept for this tab only, and in memory where the browser keeps nothing. */
let remembered = null;
export const token = {
  get: () => kept((storage) => storage.getItem(TOKEN)) ?? remembered,
  set(value) {
    remembered = value;
    kept((storage) => (value === null ? storage.removeItem(TOKEN) : storage.setItem(TOKEN, value)));
  },
};

export function kept(use) {
  try { return use(sessionStorage); } catch { return undefined; }
}

let askForToken = () => Promise.reject(new Problem({ title: "A token is needed", status: 401 }));
export const onUnauthorized = (ask) => { askForToken = ask; };

export const get = (path, params) => send("GET", path, { params, read: (answer) => answer.json() });
export const getText = (path, params) => send("GET", path, { params, read: (answer) => answer.text() });
export const post = (path, body) => send("POST", path, { body, read: (answer) => answer.json() });

/** An answer whose body is still to be read, for the stream of events. */
export const open = (path, params, signal) => send("GET", path, { params, signal, read: (answer) => answer });

async function send(method, path, { params, body, signal, read }) {
  const url = new URL(path, BASE);
  for (const [name, value] of params ?? []) url.searchParams.append(name, value);
  const silence = method === "POST" && body.dry_run !== true ? IN_DOUBT : UNREACHABLE;
  for (;;) {
    const sent = token.get();
    const answer = await answered(attempt(method, url, sent, body, signal), signal, silence);
    if (answer.ok) return answered(read(answer), signal, silence);
    const problem = await problemOf(answer, silence);
    if (answer.status !== 401) throw problem;
    // Another request may have asked meanwhile.
    if (token.get() === sent) await askForToken(sent === null ? null : problem);
  }
}

function attempt(method, url, sent, body, signal) {
  const headers = { accept: "application/json, text/event-stream, text/csv" };
  if (sent !== null) headers.authorization = `Bearer ${sent}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const init = { method, headers, body: body && JSON.stringify(body), cache: "no-store", credentials: "omit", redirect: "error" };
  return fetch(url, { ...init, signal: signal ?? AbortSignal.timeout(TIMEOUT_MS) });
}

/** No answer, or only the beginning of one, because of a timeout or a broken connection, is a `Problem` too. */
async function answered(promise, signal, silence) {
  try {
    return await promise;
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem({ title: "The gateway does not answer", detail: silence, status: 0 });
  }
}

const UNREACHABLE = "Check that the process runs and that this machine reaches its admin listener.";
/** A change goes on to its end also if the page no longer waits for it. */
const IN_DOUBT = "It is not known whether the change was made. Look before you repeat it.";

/** What is no problem document does not come from the gateway: a proxy between it and this page wrote it. */
async function problemOf(answer, silence) {
  const said = await answer.json().catch(() => ({}));
  const isOurs = typeof said.title === "string";
  const title = isOurs ? said.title : `The answer was ${answer.status}`;
  return new Problem({ title, detail: isOurs ? said.detail : silence, status: answer.status, code: said.code });
}
