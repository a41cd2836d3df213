// How does a report show a plan file?

import { h } from "../lib/dom.js";
import { cost, number, signed } from "../lib/format.js";
import { badge, factList, section } from "../parts/parts.js";
import { planContent, planFacts } from "../parts/plan.js";
import { table } from "../parts/table.js";

/** A plan for pipelines: the same as in the view of a plan. */
export function plan({ result, problem }) {
  return [planFacts(result) ?? bareFacts(result), planContent({ plan: result, problem }, (name) => name)];
}

/** The plan of a scaling problem: one row for each variant. */
export function scalingPlan({ result }) {
  const columns = [
    { name: "Application", cell: (row) => row.application },
    { name: "Variant", cell: (row) => row.variant },
    { name: "Replicas", isNumber: true, cell: (row) => number(row.running) },
    { name: "Change", isNumber: true, cell: (row) => signed(row.delta) },
  ];
  const key = (row) => `${row.application}/${row.variant}`;
  const groups = table({ caption: "Replicas of each variant", columns, rows: result.scaling, key });
  return [bareFacts(result), section("variants", "Variants", groups)];
}

/** The figures of a plan without an estimate. */
function bareFacts(result) {
  const objective = result.objective ?? {};
  return factList([
    { name: "Status", value: result.status ? badge(result.status) : "–" },
    { name: "Objective", value: number(objective.value), note: objective.mode?.replaceAll("_", " ") },
    { name: "Cost", value: cost(result.cost_per_hour) },
    { name: "Replicas", value: number(result.replicas) },
  ]);
}
