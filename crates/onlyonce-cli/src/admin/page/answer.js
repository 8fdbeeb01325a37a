// The fields of an outcome that an operator gives: it was executed, with this answer; or it failed.
import { h } from "./dom.js";
import { Problem } from "./api.js";

/** Nothing is preset: what is confirmed is what somebody chose and wrote. An answer without a body is confirmed by itself. */
export function answerFields() {
  const status = h("input", { id: "a-status", type: "number", min: "200", max: "599", placeholder: "201" });
  const headers = h("textarea", { id: "a-headers", rows: "2", spellcheck: "false", placeholder: "content-type: application/json" });
  const body = h("textarea", { id: "a-body", rows: "4", spellcheck: "false", placeholder: '{"id":"ch_1"}', oninput: changed });
  const bodyless = h("input", { type: "checkbox", id: "a-bodyless" });
  const confirmed = h("div", { class: "confirmed" }, h("label", { class: "choice" }, bodyless, h("span", {}, "The answer has no body. Every retry gets an empty one.")));
  const details = h("div", { class: "answer-fields" },
    h("div", { class: "field" }, h("label", { for: "a-status" }, "Status"), status),
    h("div", { class: "field grow" }, h("label", { for: "a-headers" }, "Headers, one per line"), headers),
    h("div", { class: "field whole" }, h("label", { for: "a-body" }, "Body, exactly as retries get it"), body), confirmed);
  const choice = (value, text) => h("label", { class: "choice" },
    h("input", { type: "radio", name: "outcome", id: `a-${value}`, value, required: true, onchange: changed }), h("span", {}, text));
  const element = h("fieldset", {}, h("legend", {}, "What happened to it?"),
    choice("done", "It was executed. Every retry gets the answer that you write."), details,
    choice("failed", "It failed, or it never happened and must not happen any more under this key. Every retry gets 502 and is told to use a new key."));
  changed();

  function chosen() { return element.querySelector("input[name=outcome]:checked")?.value; }
  function changed() {
    const isDone = chosen() === "done";
    const isEmpty = body.value === "";
    details.hidden = !isDone;
    status.required = isDone;
    confirmed.hidden = !isEmpty;
    bodyless.required = isDone && isEmpty;
  }
  const value = () => (chosen() === "failed" ? { failed: true } :
    { status: Number(status.value), headers: parsed(headers.value), body: body.value });
  return { element, value };
}

function parsed(text) {
  const headers = {};
  for (const line of text.split("\n").filter((line) => line.trim() !== "")) {
    const at = line.indexOf(":");
    if (at < 1) throw new Problem({ title: "A header has no colon", detail: `write name: value, not ${line}`, status: 400 });
    headers[line.slice(0, at).trim().toLowerCase()] = line.slice(at + 1).trim();
  }
  return headers;
}

/** Why and who, which every change asks for. */
export function reasonFields(kept, isAudited) {
  const reason = h("textarea", { id: "a-reason", rows: "2", required: true, maxlength: "1000", placeholder: "what you checked, and where" });
  const who = h("input", { id: "a-who", maxlength: "100", value: kept((storage) => storage.getItem("onlyonce-who")) ?? "", autocomplete: "off" });
  const element = h("div", { class: "answer-fields" },
    h("div", { class: "field whole" }, h("label", { for: "a-reason" }, isAudited ? "Reason, for the audit trail" : NOT_AUDITED), reason),
    h("div", { class: "field whole" }, h("label", { for: "a-who" }, "Your name (optional)"), who));
  const value = () => {
    const name = who.value.trim();
    kept((storage) => storage.setItem("onlyonce-who", name));
    return name ? { reason: reason.value.trim(), who: name } : { reason: reason.value.trim() };
  };
  return { element, value };
}

const NOT_AUDITED = "Reason (no audit trail is kept: it goes to the gateway's log)";
