// Problems and news, as the API tells them.
import { h, icon } from "./dom.js";

/** The API says in its detail what to do: nothing is added to it. */
export function problemNotice({ title, detail, message }) {
  const text = title ? detail : message;
  return h("div", { class: "notice bad", role: "alert" }, icon("bad"), h("div", {},
    h("strong", {}, title ?? "This page has a defect"), text && h("p", {}, sentence(text))));
}

/** Details begin with a small letter and have no full stop. */
const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

/** Tells those who do not see the screen. */
export function announce(text) {
  document.getElementById("announce").textContent = text;
}
