// How does a report show planners side by side?

import { accuracy, cost, ms, number, percent } from "../lib/format.js";
import { badge, section, source } from "../parts/parts.js";
import { table } from "../parts/table.js";

export function comparison({ result }, again) {
  const judged = result.judged_on;
  const columns = [
    { name: "Planner", cell: (row) => row.planner },
    { name: "Status", cell: (row) => badge(row.status) },
    { name: "Verdict", cell: (row) => (row.verdict ? badge(row.verdict) : "–") },
    { name: "In time", isNumber: true, cell: (row) => percent(row.estimate?.attainment) },
    { name: "99th percentile", isNumber: true, cell: (row) => ms(row.estimate?.p99_ms) },
    { name: "Accuracy", isNumber: true, cell: (row) => accuracy(row.estimate?.accuracy) },
    { name: "Cost", isNumber: true, cell: (row) => cost(row.cost_per_hour) },
    { name: "Replicas", isNumber: true, cell: (row) => number(row.replicas) },
    { name: "Time", isNumber: true, cell: (row) => `${number(row.seconds)} s`, title: "the planner's own time" },
    { name: "Stopped", cell: (row) => row.stopped?.replaceAll("_", " ") ?? "–", title: "why it has no proof" },
  ];
  const rows = result.planners;
  const key = (row) => row.planner;
  const planners = table({ caption: "Planners on the same trace", columns, rows, key, onChange: again });
  const samples = judged
    ? `Every plan is judged on the same ${number(judged.samples)} fresh samples, from seed ${judged.first_seed}`
    : "No planner has a plan";
  return section("planners", "Planners", source(samples), planners);
}
