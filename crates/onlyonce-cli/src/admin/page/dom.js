// Elements without markup: every text from outside becomes a text node.

/** An element; children are elements, texts, or nothing. */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) set(element, key, value);
  element.append(...present(children));
  return element;
}

function set(element, key, value) {
  if (value === undefined || value === null || value === false) return;
  if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
  else if (PROPERTIES.has(key)) element[key] = value;
  else element.setAttribute(key, value === true ? "" : String(value));
}

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "selected"]);

const present = (children) =>
  children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false);

/** Puts these children in place of all others. */
export function fill(element, ...children) {
  element.replaceChildren(...present(children));
  return element;
}

/** Writes a text only if it changed, so that a screen reader is not told the same twice. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Keeps the children whose item did not change, so that focus and selection stay where they are. */
export function keep(parent, items, keyOf, make) {
  const old = new Map([...parent.children].map((child) => [child.dataset.item, child]));
  const children = items.map((item) => {
    const name = keyOf(item);
    const version = JSON.stringify(item);
    const known = old.get(name);
    if (known && known.dataset.version === version) return known;
    const made = make(item);
    made.dataset.item = name;
    made.dataset.version = version;
    if (known?.contains(document.activeElement)) queueMicrotask(() => made.querySelector("a, button")?.focus());
    return made;
  });
  if (children.length !== parent.children.length || children.some((child, at) => parent.children[at] !== child)) {
    parent.replaceChildren(...children);
  }
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

/** A small picture beside a word; never instead of one. */
export function icon(name) {
  const paths = (ICONS[name] ?? ICONS.dot).map((d) => svg("path", { d }));
  return svg("svg", { class: `icon icon-${name}`, viewBox: "0 0 16 16", "aria-hidden": "true" }, ...paths);
}

const ICONS = {
  running: ["M8 2.2a5.8 5.8 0 1 1-5.8 5.8", "M8 4.8V8l2.2 1.6"],
  unknown: ["M8 1.8 14.6 13.6H1.4Z", "M8 6.2v3.4", "M8 11.6v.2"],
  released: ["M6 3.4 2.6 6.8 6 10.2", "M2.8 6.8h6.4a3.6 3.6 0 0 1 0 6.2H7"],
  completed: ["M2.6 8.6 6.2 12.2 13.4 4.2"],
  executed: ["M2.6 8h10", "M9 4.2 12.8 8 9 11.8"],
  replayed: ["M13.2 8A5.2 5.2 0 1 1 11.4 4", "M11.8 1.6v2.8H9"],
  refused: ["M8 2.2a5.8 5.8 0 1 1 0 11.6A5.8 5.8 0 0 1 8 2.2", "M4 12 12 4"],
  person: ["M8 2.4a2.6 2.6 0 1 1 0 5.2 2.6 2.6 0 0 1 0-5.2", "M3 13.6c.6-3 2.6-4.2 5-4.2s4.4 1.2 5 4.2"],
  good: ["M2.6 8.6 6.2 12.2 13.4 4.2"],
  bad: ["M3.6 3.6 12.4 12.4", "M12.4 3.6 3.6 12.4"],
  pause: ["M5.4 3.4v9.2", "M10.6 3.4v9.2"],
  dot: ["M8 6.6a1.4 1.4 0 1 1 0 2.8 1.4 1.4 0 0 1 0-2.8"],
};
