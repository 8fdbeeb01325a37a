// One action on all operations that match: first a dry run, then the confirmation, then the result.
import { kept, post } from "./api.js";
import { answerFields, reasonFields } from "./answer.js";
import { DONE, TITLES } from "./actions.js";
import { dialog } from "./dialog.js";
import { fill, h } from "./dom.js";
import { count, plural, state as stateWord } from "./format.js";
import { announce } from "./notice.js";

const TYPED_ABOVE = 20;

export function bulkDialog({ filter, isAudited, done }) {
  const steps = { ask: askStep, sure: sureStep };
  const context = { filter, isAudited, done, request: null };
  const handles = dialog({
    title: "Act on all that match", wide: true, children: [], confirm: "Dry run",
    act: () => context.act(),
  });
  steps.ask(handles, context);
  context.steps = steps;
}

/** What to do, and why. Nothing is changed by the dry run that follows. */
function askStep(handles, context) {
  const answer = answerFields(), reason = reasonFields(kept, context.isAudited);
  const force = h("input", { type: "checkbox", id: "b-force" });
  const forced = h("label", { class: "choice" }, force, h("span", {}, "Also operations whose first attempt may still arrive. I know that none of them can reach the upstream any more."));
  const select = h("select", { id: "b-action", required: true, onchange: changed }, h("option", { value: "" }, "Choose…"),
    ["settle", "release", "forget", "erase"].map((name) => h("option", { value: name }, `${TITLES[name]}: ${MEANS[name]}`)));
  fill(handles.body, matches(context.filter),
    h("div", { class: "field grow" }, h("label", { for: "b-action" }, "Action"), select), answer.element, forced, reason.element,
    h("p", { class: "quiet" }, "First comes a dry run: it counts and shows a sample, and changes nothing."));
  changed();
  handles.button.textContent = "Dry run";
  select.focus();

  function changed() {
    answer.element.hidden = select.value !== "settle";
    answer.element.disabled = select.value !== "settle";
    forced.hidden = select.value !== "release";
  }

  context.act = async () => {
    const action = select.value;
    context.request = { filter: asObject(context.filter), action, ...reason.value(), ...(action === "settle" ? answer.value() : {}), ...(action === "release" ? { force: force.checked } : {}) };
    const told = await post("operations/bulk", { ...context.request, dry_run: true });
    context.steps.sure(handles, context, told);
    return false;
  };
}

const MEANS = {
  release: "the next request with the key is executed", settle: "every retry gets the outcome that you state",
  forget: "the record is deleted, and the next request with the key is executed",
  erase: "answer and key text are removed, and a retry gets 410",
};

function matches(filter) {
  if (filter.length === 0) return h("p", {}, h("strong", {}, "Every operation: there is no filter."));
  return h("p", {}, "All operations with ", filter.map(([name, value], at) => [at > 0 && " and ", h("code", {}, `${name} = ${value}`)]));
}

const asObject = (filter) => Object.fromEntries(filter);

/** What the dry run told. Above a threshold the number must be typed. */
function sureStep(handles, context, told) {
  const willChange = told.matched - told.refused;
  const verb = TITLES[context.request.action];
  const typed = willChange > TYPED_ABOVE ? h("input", { id: "b-typed", inputmode: "numeric", required: true, autocomplete: "off", pattern: String(willChange) }) : null;
  fill(handles.body,
    h("p", { class: "dry", role: "status" }, h("b", { class: "number big" }, count(willChange)), ` of ${plural(told.matched, "matching operation")} will be changed. Nothing was changed yet.`),
    told.has_more && h("p", { class: "wrong" }, "More operations match than one change can take. Repeat it for the rest."),
    told.refused > 0 && refusals(told, "will not be changed"),
    told.sample.length > 0 && [h("h3", {}, told.matched > told.sample.length ? `A sample of ${told.sample.length}` : "These operations"), sample(told.sample)],
    typed && h("div", { class: "field" }, h("label", { for: "b-typed" }, `Type ${willChange} to confirm`), typed));
  handles.button.textContent = willChange === 0 ? "Nothing to do" : `${verb} ${count(willChange)}`;
  handles.button.className = context.request.action === "settle" ? "primary" : "danger";
  handles.button.disabled = willChange === 0;
  handles.button.hidden = willChange === 0;
  (typed ?? handles.button).focus();
  context.act = async () => {
    const seen = told.selection ? { selection: told.selection } : {};
    const end = await post("operations/bulk", { ...context.request, dry_run: false, expect: told.matched, ...seen });
    endStep(handles, context, end);
    await context.done();
    return false;
  };
}

function endStep(handles, context, told) {
  const text = `${DONE[context.request.action]}: ${plural(told.changed, "operation")}.`;
  fill(handles.body, h("p", { class: "dry", role: "status" }, text), told.has_more && h("p", { class: "wrong" }, "More operations match. Repeat it for the rest."),
    told.refused > 0 && refusals(told, "were not changed"));
  announce(text);
  handles.button.hidden = true;
  handles.cancel.textContent = "Close";
  handles.cancel.focus();
}

const refusals = (told, what) => h("div", {}, h("p", {}, `${plural(told.refused, "operation")} ${what}:`),
  h("ul", { class: "refusals" }, told.refusals.map(({ id, why }) => h("li", {}, h("code", {}, id.slice(0, 12)), " ", why))));

const sample = (operations) => h("ul", { class: "sample-list" }, operations.map((op) =>
  h("li", {}, stateWord(op.state), h("code", { class: "key" }, op.key), h("span", { class: "quiet" }, op.route))));
