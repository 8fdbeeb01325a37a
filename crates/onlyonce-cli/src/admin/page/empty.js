// What to do while there is nothing to see.
import { h } from "./dom.js";

export function emptyHint(listen) {
  const line = `curl -i ${listen}/charges -H 'Idempotency-Key: my-first-key' -H 'Content-Type: application/json' -d '{"amount":100}'`;
  const copy = h("button", { type: "button", onclick: () => copied(copy, line) }, "Copy");
  return h("section", { class: "panel wide empty" },
    h("h2", {}, "Nothing has come through yet"),
    h("p", {}, "Send a request with a key, then the same line again: the second gets the first answer, and is counted here."),
    h("div", { class: "command" }, h("code", { tabindex: "0" }, line), copy));
}

async function copied(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select it by hand";
  }
}
