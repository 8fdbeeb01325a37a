// Settle, release, forget or erase one operation.
import { kept, post } from "./api.js";
import { answerFields, reasonFields } from "./answer.js";
import { dialog } from "./dialog.js";
import { h } from "./dom.js";
import { announce } from "./notice.js";

export const DONE = { settle: "Settled", release: "Released", forget: "Forgotten", erase: "Erased" };
export const TITLES = { settle: "Settle", release: "Release", forget: "Forget", erase: "Erase" };

export function actionDialog({ action, op, force, isAudited, done }) {
  const answer = action === "settle" ? answerFields() : null;
  const reason = reasonFields(kept, isAudited);
  const forced = force ? forceBox() : null;
  dialog({
    title: `${TITLES[action]} this operation`,
    danger: action !== "settle", wide: action === "settle",
    children: [h("p", {}, h("code", { class: "key-whole" }, op.key)), h("p", { class: "promise" }, op.actions[action].promise),
      answer?.element, forced?.element, reason.element],
    confirm: TITLES[action],
    async act() {
      // Only what was looked at is changed: after a change by somebody else it must be looked at again.
      const seen = op.revision ? { revision: op.revision } : {};
      await post(`operations/${encodeURIComponent(op.id)}/${action}`, { ...answer?.value(), ...forced?.value(), ...reason.value(), ...seen });
      announce(`${DONE[action]}.`);
      await done();
      return true;
    },
  });
}

/** An early release needs somebody who knows that the first attempt can no longer arrive. */
export function forceBox() {
  const box = h("input", { type: "checkbox", id: "a-force", required: true });
  const element = h("label", { class: "choice" }, box, h("span", {}, "Release it now. I know that the first attempt can no longer reach the upstream."));
  return { element, value: () => ({ force: box.checked }) };
}
