// Asks for the token, and keeps it for this tab.
import { Problem, token } from "./api.js";
import { h } from "./dom.js";
import { dialog } from "./dialog.js";

let asking = null;

/** Resolves when a token was entered. Many requests may wait for one answer. */
export function askForToken(refusal) {
  asking ??= ask(refusal).finally(() => { asking = null; });
  return asking;
}

function ask(refusal) {
  return new Promise((resolve, reject) => {
    const field = h("input", { type: "password", id: "token", name: "token", required: true, autocomplete: "off", spellcheck: "false" });
    dialog({
      title: "This gateway asks for a token",
      children: [
        h("p", {}, "It is the value of token (may do everything) or read_token (may look at everything, change nothing) under [admin] in the configuration. ",
          "It is kept for this tab only."),
        refusal && h("p", { class: "wrong", role: "alert" }, "The last token was refused."),
        h("label", { for: "token" }, "Token"), field,
      ],
      confirm: "Use this token",
      async act() { token.set(field.value.trim()); resolve(); return true; },
      cancelled: () => reject(new Problem({ title: "No token", detail: "reload this page to be asked again", status: 401 })),
    });
  });
}
