// What is in one plan, what does it promise, and why is it so?

import { allows } from "../lib/access.js";
import { figures } from "../lib/compare.js";
import { h } from "../lib/dom.js";
import { accuracy, cost, ms, number, percent, rate } from "../lib/format.js";
import { PATHS, partOf, planNeed, planPath } from "../lib/model.js";
import { link } from "../lib/route.js";
import { traffic } from "../lib/traffic.js";
import { graph } from "../parts/graph.js";
import { changeButton } from "../parts/change.js";
import { badge, factList, meter, nothing, pipelineLink, section, source, time } from "../parts/parts.js";
import { table } from "../parts/table.js";

export const title = (route) => `Plan ${route.name ?? ""}`;

export const needs = (live, route) => [
  { path: PATHS.target },
  ...(live.get(PATHS.target)?.plans ?? []).map((id) => planNeed(live, id)),
  { path: PATHS.history, every: 10_000 },
  planNeed(live, route.name),
];

export function render(live, route, again) {
  const id = route.name ?? "";
  const document = live.get(planPath(id));
  if (!document) {
    const refusal = live.answers.get(planPath(id))?.refusal;
    return h(
      "div",
      { class: "view" },
      h("h1", null, "Plan"),
      h("p", null, refusal ?? "Loading", " ", h("a", { href: link("plans") }, "All plans")),
    );
  }
  const isInForce = (live.get(PATHS.target)?.plans ?? []).includes(id);
  const plan = document.plan ?? null;
  return h(
    "div",
    { class: "view" },
    h("h1", null, "Plan ", h("span", { class: "id" }, id), " ", badge(isInForce ? "in force" : document.state)),
    origin(live, document),
    plan ? facts(document, plan) : null,
    document.state === "succeeded" && !isInForce && allows(live, "apply") ? deploy(live, document, again) : null,
    document.error ? section("error", "Why it failed", h("p", null, document.error)) : null,
    plan ? shortfalls(plan) : null,
    (plan?.pipelines ?? []).map((part) => pipeline(document, part)),
    plan ? [why(plan), prices(plan), rounds(plan)] : null,
    h("p", null, h("a", { href: planPath(id) }, "Request, problem and plan file (JSON)")),
  );
}

function origin(live, document) {
  const used = (live.get(PATHS.history) ?? [])
    .filter((target) => target.plans.includes(document.id))
    .map((target) => target.generation);
  const targets = used.length ? `In the targets ${Math.min(...used)} to ${Math.max(...used)}. ` : "Never in a target. ";
  return h(
    "p",
    { class: "source" },
    "Asked for ",
    time(document.created_at),
    document.finished_at ? [", over ", time(document.finished_at)] : null,
    ". ",
    targets,
    `Planner ${document.options?.planner ?? "milp"}, at most ${number(document.options?.time_limit_s)} s.`,
  );
}

/** Deploys this plan in the place of the plans in force that have one of its pipelines. */
function deploy(live, document, again) {
  const mine = new Set(document.plan.pipelines.map((part) => part.name));
  const inForce = live.get(PATHS.target)?.plans ?? [];
  const known = inForce.filter((id) => live.get(planPath(id)));
  const others = known.filter((id) => !live.get(planPath(id)).plan.pipelines.every((part) => mine.has(part.name)));
  const mixed = others.filter((id) => live.get(planPath(id)).plan.pipelines.some((part) => mine.has(part.name)));
  if (known.length < inForce.length) return section("deploy", "Deploy", nothing("Loading"));
  if (mixed.length) {
    const text = "A plan in force has a pipeline of this plan and another one. Deploy a plan of all of them instead.";
    return section("deploy", "Deploy", nothing(text));
  }
  const button = changeButton({
    live,
    again,
    key: `deploy-${document.id}`,
    name: "Show what deploying this plan would change",
    method: "PUT",
    path: PATHS.target,
    body: { plans: [...others, document.id] },
  });
  return section("deploy", "Deploy", source("Plans of other pipelines stay as they are"), button);
}

function facts(document, plan) {
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

function pipeline(document, part) {
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
  const summary = `${rate(part.demand_qps)}, accuracy ${accuracy(part.accuracy)}, ${cost(price)}, ${of.replicas} replicas`;
  const interval = (document.plan.estimate?.judged_on?.pipelines ?? []).find((p) => p.pipeline === part.name);
  return section(
    `p-${part.name}`,
    [pipelineLink(part.name), ` at ${summary}`],
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
