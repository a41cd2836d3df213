// Which variants are worth their cost? Accuracy over cost, with a line through those that no other one beats.

import { h } from "../lib/dom.js";
import { number } from "../lib/format.js";

const BOX = { width: 620, height: 300, left: 60, right: 20, top: 30, bottom: 44 };
const TICKS = 4;
/** Width of a letter and height of a line of the names, about. */
const LETTER = 7;
const LINE = 13;

/**
 * Marks the points that another one beats: at most its cost, at least its accuracy, and better in one of them.
 * @param {{cost: number, accuracy: number}[]} points
 */
export function dominated(points) {
  const beats = (a, b) => a.cost <= b.cost && a.accuracy >= b.accuracy && (a.cost < b.cost || a.accuracy > b.accuracy);
  return points.map((point) => ({ ...point, by: points.find((other) => beats(other, point)) ?? null }));
}

/** The plot. `points` come from {@link dominated}. */
export function scatter({ label, points }) {
  const costs = points.map((p) => p.cost);
  const accuracies = points.map((p) => p.accuracy);
  const x = scaleOf(0, Math.max(...costs) * 1.12, BOX.left, BOX.width - BOX.right);
  const spread = Math.max(0.02, Math.max(...accuracies) - Math.min(...accuracies));
  const low = Math.max(0, Math.min(...accuracies) - spread * 0.2);
  const y = scaleOf(low, Math.min(1, Math.max(...accuracies) + spread * 0.2), BOX.height - BOX.bottom, BOX.top);
  const front = points.filter((p) => !p.by).sort((a, b) => a.cost - b.cost);
  const line = front.map((p, i) => `${i ? "L" : "M"} ${x(p.cost).toFixed(1)} ${y(p.accuracy).toFixed(1)}`).join(" ");
  const taken = [];
  const marks = [...front, ...points.filter((p) => p.by)].map((p) => mark(p, x(p.cost), y(p.accuracy), taken));
  return h(
    "div",
    { class: "scatter" },
    h(
      "svg",
      {
        viewBox: `0 0 ${BOX.width} ${BOX.height}`,
        role: "img",
        "aria-label": `${label}. The table below has the same figures.`,
      },
      axes(x, y),
      h("path", { class: "front", d: line }),
      marks,
    ),
  );
}

/** A point with its name: above it if nothing beats it, else below it. */
function mark(point, cx, cy, taken) {
  const name = `${point.variant} · ${point.hardware}`;
  const half = (name.length * LETTER) / 2;
  const x = Math.min(BOX.width - half, Math.max(BOX.left + half, cx));
  const step = point.by ? LINE : -LINE;
  let y = cy + (point.by ? 18 : -10);
  // Names that would lie on one another stand in further lines.
  while (taken.some((t) => Math.abs(t.y - y) < LINE && Math.abs(t.x - x) < t.half + half)) y += step;
  taken.push({ x, y, half });
  return h(
    "g",
    { "data-key": name },
    h(
      "title",
      null,
      `${name}: accuracy ${point.accuracy}, ${number(point.cost)} per million queries at batch ${point.batch}` +
        (point.by ? `; beaten by ${point.by.variant} on ${point.by.hardware}` : ""),
    ),
    h("circle", { class: point.by ? "point dominated" : "point", cx: cx.toFixed(1), cy: cy.toFixed(1), r: 5 }),
    h("text", { class: point.by ? "small" : null, x: x.toFixed(1), y: y.toFixed(1), "text-anchor": "middle" }, name),
  );
}

function scaleOf(from, to, begin, end) {
  const scale = (value) => begin + ((value - from) / (to - from || 1)) * (end - begin);
  scale.ticks = Array.from({ length: TICKS + 1 }, (_, i) => from + ((to - from) * i) / TICKS);
  return scale;
}

function axes(x, y) {
  const bottom = BOX.height - BOX.bottom;
  return h(
    "g",
    null,
    y.ticks.map((value) => [
      h("line", { class: "axis", x1: BOX.left, x2: BOX.width - BOX.right, y1: y(value), y2: y(value) }),
      h("text", { class: "small", x: BOX.left - 8, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(3)),
    ]),
    x.ticks.map((value) =>
      h(
        "text",
        { class: "small", x: x(value), y: bottom + 18, "text-anchor": "middle" },
        number(Number(value.toPrecision(2))),
      ),
    ),
    h(
      "text",
      { class: "small", x: (BOX.left + BOX.width) / 2, y: BOX.height - 6, "text-anchor": "middle" },
      "cost of a million queries",
    ),
    h("text", { class: "small", x: BOX.left, y: 12, "text-anchor": "middle" }, "accuracy"),
  );
}
