// Which plans were asked for, and what became of them?

import { h } from "../lib/dom.js";
import { filterBar, filtered } from "../lib/filter.js";
import { span } from "../lib/format.js";
import { PATHS } from "../lib/model.js";
import { badge, nothing, pipelineLink, planLink, section, source, time } from "../parts/parts.js";
import { table } from "../parts/table.js";

export const title = () => "Plans";

export const needs = () => [{ path: PATHS.plans }, { path: PATHS.target }];

const STATES = ["in force", "succeeded", "infeasible", "failed", "cancelled", "solving", "queued"];

export function render(live, route, again) {
  const inForce = new Set(live.get(PATHS.target)?.plans ?? []);
  const all = (live.get(PATHS.plans) ?? []).map((plan) => ({
    ...plan,
    shown: inForce.has(plan.id) ? "in force" : plan.state,
  }));
  const of = {
    text: (p) =>
      `${p.id} ${(p.pipelines ?? []).join(" ")} ${p.shown} ${p.state} ${p.options?.planner ?? ""} ${p.error ?? ""}`,
    kind: (p) => p.shown,
  };
  const rows = filtered(all, route.query, of);
  const columns = [
    { name: "Plan", cell: (p) => planLink(p.id) },
    { name: "State", cell: (p) => badge(p.shown) },
    {
      name: "Pipelines",
      cell: (p) =>
        h(
          "ul",
          { class: "inline" },
          (p.pipelines ?? []).map((name) => h("li", null, pipelineLink(name))),
        ),
    },
    { name: "Planner", cell: (p) => p.options?.planner ?? "milp" },
    { name: "Asked for", cell: (p) => time(p.created_at) },
    { name: "Took", isNumber: true, title: "from the start of the search to its end", cell: took },
    {
      name: "Note",
      cell: (p) =>
        p.error ?? (p.progress ? `best so far ${p.progress.value ?? "none"}, bound ${p.progress.bound ?? "none"}` : ""),
    },
  ];
  return h(
    "div",
    { class: "view" },
    h("h1", null, "Plans"),
    section(
      "list",
      "Plans that were asked for",
      filterBar(route, { label: "Plans", kinds: STATES, shown: rows.length, total: all.length }),
      source(
        "The newest thousand plans, asked for by clients and by rounds of replanning",
        live.answers.get(PATHS.plans)?.at,
      ),
      rows.length
        ? table({ caption: "Plans, the newest first", columns, rows, key: (p) => p.id, onChange: again })
        : nothing(all.length ? "No plan has these words." : "No plan was asked for yet."),
    ),
  );
}

function took(plan) {
  if (!plan.started_at) return "–";
  const end = plan.finished_at ? new Date(plan.finished_at) : new Date();
  const seconds = (end.getTime() - new Date(plan.started_at).getTime()) / 1000;
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : span(seconds);
}
