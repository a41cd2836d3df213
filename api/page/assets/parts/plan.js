// How is a plan shown, in its view and in a report? Its figures, its pipelines with their groups, and the reasons.

import { figures } from "../lib/compare.js";
import { h } from "../lib/dom.js";
import { accuracy, ago, cost, ms, number, percent, rate } from "../lib/format.js";
import { partOf } from "../lib/model.js";
import { traffic } from "../lib/traffic.js";
import { graph } from "./graph.js";
import { factList, meter, nothing, section, source } from "./parts.js";
import { table } from "./table.js";

/** The figures of a plan: its objective, its cost, and its estimate. */
export function planFacts(plan) {
  const estimate = plan.estimate;
  const judged = estimate?.judged_on;
  if (!estimate) return null;
  const objective = plan.objective ?? {};
  const from = `From the plan's estimate of ${number(estimate.requests)} simulated requests, seed ${estimate.seed}.`;
  return factList([
    {
      name: "Status",
      value: plan.status ?? "–",
      note: objective.gap === null || objective.gap === undefined ? null : `gap ${number(objective.gap)}`,
      title: "Optimal: no better plan exists within the gap.",
    },
    {
      name: "Objective",
      value: number(objective.value),
      note: [objective.mode, objective.step].filter(Boolean).join(", ").replaceAll("_", " "),
    },
    {
      name: "Cost",
      value: cost(plan.cost_per_hour),
      note: plan.replicas === null ? null : `${number(plan.replicas)} replicas`,
    },
    { name: "In time", value: percent(estimate?.attainment), note: judged ? judged.verdict : "estimated", title: from },
    { name: "99th percentile", value: ms(estimate?.p99_ms), note: "estimated", title: from },
    { name: "Accuracy", value: accuracy(estimate?.accuracy), note: "estimated", title: from },
  ]);
}

/**
 * All of a plan below its facts: what is missing, each pipeline, doubtful figures, the reasons, the limits and the rounds.
 * @param {{plan: any, problem?: any}} document without a problem there are no graphs, no loads and no costs of pipelines
 * @param {(pipeline: string) => any} nameOf shows a pipeline's name, perhaps as a link
 */
export function planContent(document, nameOf) {
  const { plan } = document;
  return [
    shortfalls(plan),
    (plan.pipelines ?? []).map((part) => pipeline(document, part, nameOf)),
    warnings(plan),
    why(plan),
    profiles(plan),
    prices(plan),
    rounds(plan),
  ];
}

function shortfalls(plan) {
  const all = plan.explanation?.shortfalls ?? [];
  if (!all.length) return null;
  const columns = [
    { name: "Limit", cell: (s) => s.constraint },
    { name: "Where", cell: (s) => s.where },
    { name: "Asked for", isNumber: true, cell: (s) => number(s.asked) },
    { name: "Best possible", isNumber: true, cell: (s) => number(s.best) },
    {
      name: "A change that helps",
      cell: (s) => (s.relax ? `${s.relax.pointer}: ${number(s.relax.from)} → ${number(s.relax.to)}` : "–"),
    },
  ];
  return section(
    "shortfalls",
    "What is missing",
    table({ caption: "Limits that cannot be met", columns, rows: all, key: (s) => `${s.constraint}${s.where}` }),
  );
}

function warnings(plan) {
  const all = plan.planner?.warnings ?? [];
  if (!all.length) return null;
  return section("warnings", "Doubtful figures", h("ul", null, all.map((warning) => h("li", null, warning))));
}

function pipeline(document, part, nameOf) {
  const { spec, cost: price } = partOf(document, part);
  const of = figures(document, part);
  const flow = spec ? traffic(spec, part, part.demand_qps) : null;
  const columns = [
    { name: "Task", cell: (g) => g.task },
    { name: "Variant", cell: (g) => g.variant },
    { name: "Type", cell: (g) => (g.share < 1 ? `${g.share * 8}/8 of ${g.hardware}` : g.hardware) },
    { name: "Batch", isNumber: true, cell: (g) => g.batch },
    { name: "Replicas", isNumber: true, cell: (g) => g.replicas },
    { name: "Traffic", isNumber: true, cell: (g) => percent(g.traffic_share), title: "of the task's queries" },
    {
      name: "Load",
      isNumber: true,
      cell: (g) => (flow ? rate((flow.rates.get(g.task) ?? 0) * (g.traffic_share ?? 0)) : "–"),
    },
    {
      name: "Budget",
      isNumber: true,
      cell: (g) => ms(g.latency_budget_ms),
      title: "part of the SLO that a query may spend here",
    },
    { name: "Busy", cell: (g) => meter(g.utilisation ?? 0) },
  ];
  const total = spec ? [cost(price)] : [];
  const summary = [rate(part.demand_qps), `accuracy ${accuracy(part.accuracy)}`, ...total, `${of.replicas} replicas`];
  const interval = (document.plan.estimate?.judged_on?.pipelines ?? []).find((p) => p.pipeline === part.name);
  return section(
    `p-${part.name}`,
    [nameOf(part.name), ` at ${summary.join(", ")}`],
    interval
      ? source(
          `Judged on fresh samples: ${percent(interval.attainment_low)} to ${percent(interval.attainment_high)} in time; ` +
            `${number(interval.percentile)} % are promised: ${interval.verdict}`,
        )
      : null,
    spec
      ? graph({ name: part.name, spec, part, estimate: document.plan.estimate, qps: part.demand_qps, readyOf: () => null })
      : null,
    table({
      caption: `Groups of ${part.name}`,
      columns,
      rows: part.assignments,
      key: (g) => `${g.task}/${g.variant}/${g.hardware}/${g.share}`,
    }),
  );
}

function why(plan) {
  const decisions = plan.explanation?.decisions ?? [];
  if (!decisions.length) return null;
  const alternatives = (decision) =>
    (decision.alternatives ?? []).map((other) => h("li", null, `${other.kind} ${other.to}: ${other.effect}`));
  return section(
    "why",
    "Why it is so",
    h(
      "dl",
      { class: "whys" },
      decisions.map((decision) => [
        h("dt", null, h("strong", null, decision.what)),
        h(
          "dd",
          null,
          decision.why,
          decision.alternatives?.length
            ? h(
                "details",
                null,
                h("summary", null, `Instead (${decision.alternatives.length})`),
                h("ul", null, alternatives(decision)),
              )
            : null,
        ),
      ]),
    ),
  );
}

/** How old and how sure the profiles of the groups are, if anything is known of one of them. */
function profiles(plan) {
  const all = plan.explanation?.profiles ?? [];
  if (!all.some((p) => p.measured_at || typeof p.interval === "number" || typeof p.drift === "number")) return null;
  const columns = [
    { name: "Variant", cell: (p) => `${p.task} ${p.variant}` },
    { name: "Device", cell: (p) => p.hardware },
    { name: "Measured", cell: (p) => (p.measured_at ? ago(p.measured_at) : "–"), title: "the oldest latency of the group" },
    { name: "Interval", isNumber: true, cell: (p) => percent(p.interval), title: "the widest, as a part of its median" },
    { name: "Drift", isNumber: true, cell: (p) => number(p.drift), title: "measured in service over the profile" },
  ];
  return section(
    "profiles",
    "Age and error of its profiles",
    table({
      caption: "Profiles that the plan rests on",
      columns,
      rows: all,
      key: (p) => [p.pipeline, p.task, p.variant, p.hardware, p.share].join("/"),
    }),
  );
}

function prices(plan) {
  const all = plan.explanation?.prices ?? [];
  const binding = plan.explanation?.binding ?? [];
  const columns = [
    { name: "One more", cell: (p) => `${p.unit} of ${p.where}` },
    { name: "Gain", isNumber: true, cell: (p) => number(p.gain) },
    { name: "Buys", cell: (p) => p.effect },
  ];
  if (!all.length && !binding.length) return null;
  const limits = binding.map((b) =>
    h("li", null, `${b.constraint} of ${b.where}: ${number(b.used)} of ${number(b.limit)} used`),
  );
  return section(
    "prices",
    "Limits and prices",
    limits.length ? [h("h3", null, "Limits that bind"), h("ul", null, limits)] : nothing("No limit binds."),
    all.length
      ? table({
          caption: "What one more unit of each resource would gain",
          columns,
          rows: all,
          key: (p) => `${p.where}${p.unit}`,
        })
      : null,
  );
}

function rounds(plan) {
  const all = plan.planner?.rounds ?? [];
  if (all.length < 2) return null;
  const columns = [
    { name: "Round", isNumber: true, cell: (r) => r.round },
    { name: "Replicas", isNumber: true, cell: (r) => number(r.replicas) },
    { name: "In time", isNumber: true, cell: (r) => percent(r.attainment) },
    { name: "99th percentile", isNumber: true, cell: (r) => ms(r.p99_ms) },
  ];
  return section(
    "rounds",
    "Rounds of plan and simulation",
    table({ caption: "Rounds of the check loop", columns, rows: all, key: (r) => String(r.round) }),
  );
}
