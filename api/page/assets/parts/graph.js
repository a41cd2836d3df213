// How is a pipeline drawn? Tasks as boxes with their variants, edges with their load; the colour says how busy a task is.

import { h } from "../lib/dom.js";
import { number, percent, rate } from "../lib/format.js";
import { layered } from "../lib/layout.js";
import { taskFacts, traffic } from "../lib/traffic.js";
import { level } from "./parts.js";

const SIZE = { width: 208, gapX: 92, gapY: 26 };
/** Rows of a box besides its variants: title, times, bar. */
const BOX = { top: 44, row: 17, bottom: 42, rowsMax: 5 };
const PAD = 12;
const EDGE_WIDTH = { min: 1.2, max: 6 };

/**
 * The graph of a pipeline under a plan.
 * @param {{name: string, spec: any, part: any, estimate: any, qps: number, readyOf: Function}} of
 */
export function graph({ name, spec, part, estimate, qps, readyOf }) {
  const facts = new Map(spec.tasks.map((task) => [task.name, taskFacts(task.name, part, estimate, name)]));
  const rows = Math.min(BOX.rowsMax, Math.max(1, ...[...facts.values()].map((fact) => fact.groups.length)));
  const size = { ...SIZE, height: BOX.top + rows * BOX.row + BOX.bottom };
  const flow = traffic(spec, part, qps);
  const plan = layered(
    spec.tasks.map((task) => task.name),
    spec.edges ?? [],
    size,
  );
  const most = Math.max(1e-9, ...flow.edges.map((edge) => edge.qps));
  const edges = plan.edges.map((edge) => {
    const load = flow.edges.find((e) => e.from === edge.from && e.to === edge.to)?.qps ?? 0;
    return edgeOf(edge, load, load / most, size);
  });
  const nodes = spec.tasks.map((task) =>
    node(task.name, plan.nodes.get(task.name), facts.get(task.name), flow.rates.get(task.name) ?? 0, size, readyOf),
  );
  const words = spec.tasks.map((task) => `${task.name}: ${rate(flow.rates.get(task.name) ?? 0)}`).join("; ");
  const box = `${-PAD} ${-PAD} ${plan.width + 2 * PAD} ${plan.height + 2 * PAD}`;
  const drawing = h(
    "svg",
    {
      viewBox: box,
      width: plan.width + 2 * PAD,
      height: plan.height + 2 * PAD,
      role: "img",
      "aria-label": `Graph of ${name}. ${words}. The table below has the same figures.`,
    },
    edges,
    nodes,
  );
  return h("div", { class: "graph", tabindex: "0", role: "group", "aria-label": "Task graph" }, drawing, scale());
}

function edgeOf(edge, load, weight, size) {
  const half = size.width / 2;
  const points = edge.points.map((point, at) => {
    const shift = at === 0 ? half : at === edge.points.length - 1 ? -half - 7 : 0;
    return { x: point.x + shift, y: point.y };
  });
  const path = points.slice(1).reduce((text, to, at) => {
    const from = points[at];
    const middle = (from.x + to.x) / 2;
    return `${text} C ${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`;
  }, `M ${points[0].x} ${points[0].y}`);
  const end = points.at(-1);
  const at = points[0].x + (points[1].x - points[0].x) / 2;
  const y = (points[0].y + points[1].y) / 2;
  const width = EDGE_WIDTH.min + (EDGE_WIDTH.max - EDGE_WIDTH.min) * weight;
  return h(
    "g",
    { "data-key": `${edge.from}>${edge.to}` },
    h("path", { class: "edge", d: path, "stroke-width": width.toFixed(1) }),
    h("path", { class: "arrow", d: `M ${end.x + 7} ${end.y} l -10 -6 v 12 z` }),
    h("text", { class: "edge-label", x: at, y: y - 6, "text-anchor": "middle" }, rate(load)),
  );
}

function node(name, at, fact, qps, size, readyOf) {
  const left = at.x - size.width / 2;
  const top = at.y - size.height / 2;
  const inner = size.width - 20;
  const shown = fact.groups.slice(0, fact.groups.length > BOX.rowsMax ? BOX.rowsMax - 1 : BOX.rowsMax);
  const more = fact.groups.length - shown.length;
  const lines = shown.map((group, i) => groupLine(group, left + 10, top + BOX.top + 12 + i * BOX.row, inner, readyOf));
  const below = top + size.height - BOX.bottom;
  const busy = fact.utilisation;
  return h(
    "g",
    { "data-key": name },
    h("rect", { class: "node", x: left, y: top, width: size.width, height: size.height, rx: 8 }),
    h("path", { class: level(busy), d: headPath(left + 1, top + 1, size.width - 2, 36) }),
    h("text", { class: "title", x: left + 10, y: top + 23 }, name),
    h(
      "text",
      { x: left + size.width - 10, y: top + 23, "text-anchor": "end" },
      busy === null ? "no plan" : `${percent(busy)} busy`,
    ),
    lines,
    more > 0
      ? h("text", { class: "small", x: left + 10, y: top + BOX.top + 12 + shown.length * BOX.row }, `and ${more} more`)
      : null,
    h("text", { class: "small", x: left + 10, y: below + 14 }, timesOf(fact.times)),
    h("text", { class: "small", x: left + 10, y: below + 30 }, `${rate(qps)}${replicaText(fact)}`),
  );
}

const replicaText = (fact) => (fact.replicas ? `, ${fact.replicas} ${fact.replicas === 1 ? "replica" : "replicas"}` : "");

function headPath(x, y, width, height) {
  return `M ${x} ${y + height} v ${7 - height} q 0 -7 7 -7 h ${width - 14} q 7 0 7 7 v ${height - 7} z`;
}

/** One variant: the bar behind it is its share of the task's queries. */
function groupLine(group, x, y, width, readyOf) {
  const share = group.traffic_share ?? 0;
  const ready = readyOf(group);
  const replicas = ready === null || ready === group.replicas ? `${group.replicas} ×` : `${ready}/${group.replicas} ×`;
  const text = `${replicas} ${group.variant} · ${group.hardware} · b${group.batch}`;
  return h(
    "g",
    { "data-key": `${group.variant}/${group.hardware}/${group.share}` },
    h(
      "title",
      null,
      `${group.replicas} replicas of ${group.variant} on ${group.hardware}, batch ${group.batch}, ` +
        `${percent(share)} of the queries, ${percent(group.utilisation)} busy`,
    ),
    h("rect", {
      class: level(group.utilisation),
      x,
      y: y - 12,
      width: Math.max(2, width * share).toFixed(1),
      height: 15,
      rx: 3,
    }),
    h("text", { x: x + 4, y }, text.length > 30 ? `${text.slice(0, 29)}…` : text),
  );
}

function timesOf(times) {
  if (!times) return "no estimate";
  const queue = (times.queueing_ms ?? 0) + (times.batch_wait_ms ?? 0);
  return `waits ${number(round(queue))} ms, runs ${number(round(times.service_ms ?? 0))} ms`;
}

const round = (value) => (value >= 10 ? Math.round(value) : Math.round(value * 10) / 10);

function scale() {
  const steps = [
    ["u-1", "under 25 % busy"],
    ["u-2", "under 50 %"],
    ["u-3", "under 75 %"],
    ["u-4", "under 95 %"],
    ["u-5", "95 % and more"],
  ];
  const swatch = (name) =>
    h("svg", { viewBox: "0 0 16 12", "aria-hidden": "true" }, h("rect", { class: name, width: 16, height: 12, rx: 2 }));
  return h(
    "ul",
    { class: "scale" },
    steps.map(([name, text]) => h("li", null, swatch(name), text)),
  );
}
