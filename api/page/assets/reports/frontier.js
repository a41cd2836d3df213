// How does a report show plans while one value varies? Charts over the value, and a row for each point.

import { h } from "../lib/dom.js";
import { accuracy, cost, number } from "../lib/format.js";
import { chart } from "../parts/chart.js";
import { badge, section, source } from "../parts/parts.js";
import { table } from "../parts/table.js";

const CHARTS = [
  { key: "accuracy", name: "Accuracy", range: [null, 1] },
  { key: "cost_per_hour", name: "Cost per hour" },
  { key: "replicas", name: "Replicas" },
];

export function frontier({ result }, again) {
  const of = result.of ? `${result.sweep} of ${result.of}` : result.sweep;
  const present = result.present === null || result.present === undefined ? "no limit" : number(result.present);
  return [
    section(
      "charts",
      `While ${of} varies`,
      source(`In the problem: ${present}. Each dot is a plan`),
      h("div", { class: "charts" }, CHARTS.map((of) => plot(result, of))),
    ),
    section("points", "Points", points(result, again)),
  ];
}

function plot(result, { key, name, range }) {
  const { present } = result;
  return h(
    "div",
    { class: "chart-box" },
    h("h3", null, name),
    chart({
      key,
      label: `${name} by ${result.sweep}. The table below has the same figures.`,
      data: [result.points.map((point) => point.value), result.points.map((point) => point[key] ?? null)],
      series: [{ name, isPoints: true }],
      range,
      isTime: false,
      xLabel: result.unit ?? result.sweep,
      marks: present === null || present === undefined ? [] : [{ at: present, text: "in the problem" }],
    }),
  );
}

function points(result, again) {
  const columns = [
    { name: result.unit ?? result.sweep, isNumber: true, cell: (point) => number(point.value) },
    { name: "Status", cell: (point) => badge(point.status) },
    { name: "Cost", isNumber: true, cell: (point) => cost(point.cost_per_hour) },
    { name: "Accuracy", isNumber: true, cell: (point) => accuracy(point.accuracy) },
    { name: "Replicas", isNumber: true, cell: (point) => number(point.replicas) },
    { name: "Devices", cell: (point) => devices(point) },
    { name: "Limits", cell: (point) => limits(point) },
  ];
  const key = (point) => String(point.value);
  return table({ caption: "Plan at each value", columns, rows: result.points, key, onChange: again });
}

function devices(point) {
  const counts = Object.entries(point.devices ?? {}).map(([name, count]) => `${count} × ${name}`);
  return counts.join(", ") || "–";
}

/** The limits that the plan uses up, or those that no plan meets. */
function limits(point) {
  const used = (point.binding ?? []).map((limit) => `${limit.constraint} of ${limit.where}`);
  const missed = (point.shortfalls ?? []).map((limit) => {
    const change = limit.relax ? ` (would do: ${limit.relax.pointer} ${number(limit.relax.to)})` : "";
    return `${limit.constraint} of ${limit.where}${change}`;
  });
  return [...used, ...missed].join("; ") || "–";
}
