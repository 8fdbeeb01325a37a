// Tables with real heads, whose unchanged rows stay as they are.
import { h, keep } from "./dom.js";
import { operationLink } from "./router.js";

/** `columns`: words, or `{ word, numeric }`; `row` makes the cells of an item. */
export function table({ caption, columns, keyOf, row, empty, rowHead = 0 }) {
  const heads = columns.map((column) => (typeof column === "string" ? { word: column } : column));
  const head = h("tr", {}, heads.map(({ word, numeric }) =>
    h("th", { scope: "col", class: numeric ? "numeric" : "" }, word || h("span", { class: "hidden" }, "Name or action"))));
  const body = h("tbody");
  const nothing = h("p", { class: "nothing" }, empty);
  const scroll = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "hidden" }, caption), h("thead", {}, head), body));
  const make = (item) => h("tr", {}, row(item).map((cell, at) => {
    const attributes = { class: heads[at].numeric ? "numeric" : "", "data-word": heads[at].word };
    return at === rowHead ? h("th", { scope: "row", ...attributes }, cell) : h("td", attributes, cell);
  }));
  const rows = (items) => {
    keep(body, items, keyOf, make);
    scroll.hidden = items.length === 0;
    nothing.hidden = items.length > 0;
  };
  scroll.hidden = true;
  nothing.hidden = true;
  return { element: h("div", { class: "table" }, scroll, nothing), rows };
}

/** The key as text, which leads to its operation. */
export const keyCell = ({ id, key }) => h("a", { class: "key", href: operationLink(id), title: key }, key || "(empty)");

/** The route on one line where there is room. */
export const routeCell = ({ route }) => h("span", { class: "route" }, route);
