// Which plan would come next for a pipeline, how does it differ from the one in force, and why?

import { figures, groupDifferences, reasons } from "../lib/compare.js";
import { h } from "../lib/dom.js";
import { accuracy, ago, cost, ms, number, percent, rate, signed } from "../lib/format.js";
import { PATHS, partOf, planPath } from "../lib/model.js";
import { link } from "../lib/route.js";
import { badge, nothing, planLink, source, time } from "../parts/parts.js";
import { table } from "../parts/table.js";

/** Decisions shown beside a pipeline. */
const DECISIONS_SHOWN = 6;

/** The newest plan for the pipeline that was made after the one in force; null if there is none. */
export function proposedPlan(live, name) {
  const inForce = new Set(live.get(PATHS.target)?.plans ?? []);
  for (const plan of live.get(PATHS.plans) ?? []) {
    if (!(plan.pipelines ?? []).includes(name)) continue;
    // The list has the newest first: what follows is older than the plan in force.
    if (inForce.has(plan.id)) return null;
    if (plan.state === "succeeded") return plan;
  }
  return null;
}

/** Both plans side by side, with their differences and reasons. */
export function versus(live, status) {
  const now = status.plan;
  const found = proposedPlan(live, status.name);
  const document = found ? live.get(planPath(found.id)) : null;
  const part = document?.plan?.pipelines?.find((p) => p.name === status.name) ?? null;
  const next = part ? partOf(document, part) : null;
  if (!now && !next) return nothing("There is no plan for this pipeline.");
  const heading = next
    ? [
        h(
          "p",
          null,
          "In force: ",
          now ? planLink(now.document.id) : "nothing",
          ". Next: ",
          planLink(document.id),
          `, made ${ago(document.finished_at ?? document.created_at)} and not in force.`,
        ),
      ]
    : [h("p", null, "No newer plan than the one in force, ", planLink(now.document.id), ".")];
  return [...heading, totals(now, next), differences(now, next), whys(now, next, status.name)];
}

/** The figures of two plans, with their differences. */
export function totals(now, next) {
  const before = now ? figures(now.document, now.part) : null;
  const after = next ? figures(next.document, next.part) : null;
  const row = (name, key, text, isMoreBetter) => ({
    name,
    before: before?.[key] ?? null,
    after: after?.[key] ?? null,
    text,
    isMoreBetter,
  });
  const rows = [
    row("Planned for", "demand", rate, null),
    row("Cost", "cost", cost, false),
    row("Replicas", "replicas", number, false),
    row("Accuracy", "accuracy", accuracy, true),
    row("In time, estimated", "attainment", percent, true),
    row("99th percentile, estimated", "p99", ms, false),
  ];
  const columns = [
    { name: "Figure", cell: (r) => r.name },
    { name: "In force", isNumber: true, cell: (r) => r.text(r.before) },
    ...(next
      ? [
          { name: "Next", isNumber: true, cell: (r) => r.text(r.after) },
          { name: "Difference", isNumber: true, cell: difference },
        ]
      : []),
  ];
  return h("div", { class: "narrow" }, table({ caption: "Figures of the plans", columns, rows, key: (r) => r.name }));
}

function difference(row) {
  if (row.before === null || row.after === null) return "–";
  const change = row.after - row.before;
  const text = signed(change, 4);
  if (text === "same" || row.isMoreBetter === null) return text;
  const isBetter = change > 0 === row.isMoreBetter;
  return h("span", { class: isBetter ? "more" : "less" }, `${text} (${isBetter ? "better" : "worse"})`);
}

function differences(now, next) {
  return next && now ? [h("h3", null, "Groups"), groupTable(now, next)] : null;
}

/** The groups of two plans side by side. */
export function groupTable(now, next) {
  const rows = groupDifferences(now.part, next.part);
  const side = (group) => (group ? `${group.replicas} × batch ${group.batch}` : "–");
  const columns = [
    { name: "Task", cell: (row) => row.task },
    { name: "Variant", cell: (row) => row.variant },
    { name: "Type", cell: (row) => row.hardware },
    { name: "In force", isNumber: true, cell: (row) => side(row.before) },
    { name: "Next", isNumber: true, cell: (row) => side(row.after) },
    { name: "Replicas", isNumber: true, cell: (row) => signed(row.change) },
    {
      name: "Traffic",
      isNumber: true,
      cell: (row) => `${percent(row.before?.traffic_share ?? 0)} → ${percent(row.after?.traffic_share ?? 0)}`,
    },
  ];
  return table({ caption: "Differences between the groups of both plans", columns, rows, key: (row) => row.key });
}

function whys(now, next, name) {
  const of = next ?? now;
  const all = reasons(of.document, name);
  if (!all.length) return null;
  const line = (decision) =>
    h("li", { "data-key": decision.what }, h("strong", null, decision.what.slice(name.length + 1)), ": ", decision.why);
  return [
    h("h3", null, next ? "Why the next plan is as it is" : "Why it is as it is"),
    h("ul", null, all.map(line)),
    h("p", null, h("a", { href: link("plan", of.document.id) }, "Alternatives, limits and prices of one more unit")),
  ];
}

/** The newest decisions of the replanning loop about a pipeline. */
export function newestDecisions(live, name) {
  const rows = (live.get(PATHS.decisions) ?? []).filter((d) => d.pipeline === name).slice(0, DECISIONS_SHOWN);
  if (!rows.length)
    return nothing("The service has decided nothing about this pipeline: it is not replanned, or nothing has come yet.");
  const columns = [
    { name: "When", cell: (d) => time(d.made_at) },
    { name: "Decision", cell: (d) => badge(d.decision) },
    { name: "Planned for", isNumber: true, cell: (d) => rate(d.demand_qps) },
    { name: "Reason", cell: (d) => h("span", { class: "reason" }, d.reason) },
    { name: "Plan", cell: (d) => (d.plan ? planLink(d.plan) : "–") },
  ];
  return [
    source("Each round of replanning, with its reason", live.answers.get(PATHS.decisions)?.at),
    table({ caption: "Newest decisions", columns, rows, key: (d) => d.id }),
    h("p", null, h("a", { href: link("decisions", null, { q: name }) }, "All decisions of this pipeline")),
  ];
}
