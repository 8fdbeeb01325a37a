// One modal dialog: Escape closes it, Enter confirms, focus returns to where it was.
import { fill, h } from "./dom.js";
import { problemNotice } from "./notice.js";

/**
 * `act` does the work and tells whether the dialog may close; what it throws is shown inside.
 * Returns handles for a dialog whose steps change.
 */
export function dialog({ title, children, confirm, act, danger = false, cancelled = () => {}, wide = false }) {
  const body = h("div", { class: "dialog-body" }, children);
  const trouble = h("div", { class: "dialog-trouble" });
  const button = h("button", { type: "submit", class: danger ? "danger" : "primary" }, confirm);
  const cancel = h("button", { type: "button", onclick: () => close() }, "Cancel");
  let done = false;
  const form = h("form", { method: "dialog", onsubmit: submit }, h("h2", { id: "dialog-title" }, title), body, trouble,
    h("div", { class: "dialog-buttons" }, cancel, button));
  const element = h("dialog", { "aria-labelledby": "dialog-title", class: wide ? "wide" : "" }, form);
  element.addEventListener("close", () => {
    element.remove();
    // What had the focus may be gone or disabled now.
    if (document.activeElement === document.body) document.getElementById("main").focus();
    if (!done) cancelled();
  });

  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    fill(trouble);
    try {
      done = await act();
      if (done) close();
    } catch (problem) {
      fill(trouble, problemNotice(problem));
    }
    if (!done) button.disabled = false;
  }

  function close() { element.close(); }

  document.body.append(element);
  element.showModal();
  (body.querySelector("[autofocus]") ?? body.querySelector("input, textarea, select"))?.focus();
  return { body, button, cancel, trouble, close, element };
}
