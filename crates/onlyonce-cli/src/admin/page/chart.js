// Plots by uPlot. Series differ by their dashes as well as by their colours, and the legend says the numbers.
import { fill, h, svg } from "./dom.js";

/* global uPlot */

const HEIGHT = 190;
const SPAN_SECONDS = 600;
const LINE_MIN = 4; // fewer points are shown as points, because a line of them would hardly be seen

/**
 * `series`: [{ name, colour: CSS variable, dash, href }]; `word` writes a value.
 * Returns `{ element, draw(times, columns), leave() }`.
 */
export function chart({ label, series, word }) {
  const frame = h("div", { class: "plot", role: "img", "aria-label": label });
  const legend = h("ul", { class: "legend" }, series.map(legendEntry));
  let plot = null, data = null;

  const draw = (times, columns) => {
    data = [times, ...columns];
    const last = columns.map((column) => column.at(-1) ?? null);
    last.forEach((value, at) => { legend.children[at].querySelector("b").textContent = word(value); });
    frame.setAttribute("aria-label", `${label} Now: ${series.map(({ name }, at) => `${name} ${word(last[at])}`).join(", ")}.`);
    if (plot) plot.setData(data); else build();
  };

  const build = () => {
    plot?.destroy();
    plot = null;
    const width = frame.clientWidth;
    if (!data || width === 0) return;
    fill(frame);
    plot = new uPlot(options(frame, width, series, word), data, frame);
  };

  const sizes = new ResizeObserver(() => {
    if (plot && plot.width !== frame.clientWidth) plot.setSize({ width: frame.clientWidth, height: HEIGHT });
    else if (!plot) build();
  });
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const leave = () => { sizes.disconnect(); scheme.removeEventListener("change", build); plot?.destroy(); plot = null; data = null; };
  sizes.observe(frame);
  scheme.addEventListener("change", build);
  return { element: h("div", { class: "chart" }, frame, legend), draw, leave };
}

function legendEntry({ name, colour, dash, href }) {
  const line = svg("line", { x1: 0, y1: 5, x2: 26, y2: 5, "stroke-width": 2.5, "stroke-dasharray": (dash ?? []).join(" ") });
  const sample = svg("svg", { class: `sample ${colour}`, viewBox: "0 0 26 10", "aria-hidden": "true" }, line);
  const text = [sample, h("span", {}, name), h("b", { class: "number" }, "–")];
  return h("li", {}, href ? h("a", { href }, text) : text);
}

function options(frame, width, series, word) {
  const css = getComputedStyle(frame);
  const ink = css.getPropertyValue("--quiet"), grid = css.getPropertyValue("--line");
  const font = `11px ${css.fontFamily}`;
  const axis = { stroke: ink, font, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
  return {
    width, height: HEIGHT, legend: { show: false }, cursor: { y: false, points: { size: 6 } }, padding: [10, 18, 0, 0],
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    scales: { x: { range: (_, low, high) => [Math.min(low ?? 0, (high ?? 0) - SPAN_SECONDS), high ?? 0] }, y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] } },
    axes: [
      { ...axis, grid: { show: false }, values: (_, times) => times.map((time) => new Date(time * 1000).toISOString().slice(11, 16)), space: 60, size: 26 },
      { ...axis, size: 52, values: (_, values) => values.map(word), space: 34 },
    ],
    series: [{}, ...series.map(({ colour, dash }) => ({
      stroke: css.getPropertyValue(`--${colour}`), width: 1.8, dash, points: { show: (u) => u.data[0].length < LINE_MIN, size: 5 }, spanGaps: false,
    }))],
  };
}
