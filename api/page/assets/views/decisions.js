// What did the service decide about the plans, and why?

import { h } from "../lib/dom.js";
import { filterBar, filtered } from "../lib/filter.js";
import { cost, rate } from "../lib/format.js";
import { PATHS } from "../lib/model.js";
import { link } from "../lib/route.js";
import { badge, nothing, pipelineLink, planLink, section, source, time } from "../parts/parts.js";
import { table } from "../parts/table.js";

export const title = () => "Decisions";

export const needs = () => [{ path: PATHS.decisions }, { path: PATHS.target }];

export function render(live, route, again) {
  const all = live.get(PATHS.decisions) ?? [];
  const one = route.query.id;
  const of = { text: (d) => `${d.pipeline} ${d.decision} ${d.reason} ${d.plan ?? ""} ${d.id}`, kind: (d) => d.decision };
  const found = filtered(all, route.query, of);
  const rows = one ? [...found.filter((d) => d.id === one), ...found.filter((d) => d.id !== one)] : found;
  const columns = [
    {
      name: "When",
      cell: (d) => h("a", { href: link("decisions", null, { id: d.id }), title: "Permanent link" }, time(d.made_at)),
    },
    { name: "Pipeline", cell: (d) => pipelineLink(d.pipeline) },
    { name: "Decision", cell: (d) => badge(d.decision) },
    { name: "Planned for", isNumber: true, cell: (d) => rate(d.demand_qps), title: "the load seen, times the headroom" },
    { name: "Reason", cell: (d) => h("span", { class: "reason" }, d.reason) },
    { name: "Costs", cell: costs, title: "of the plan in force, of the new one, and of the change" },
    { name: "Plan", cell: (d) => (d.plan ? planLink(d.plan) : "–") },
  ];
  return h(
    "div",
    { class: "view" },
    h("h1", null, "Decisions"),
    section(
      "list",
      "Rounds of replanning",
      filterBar(route, {
        label: "Decisions",
        kinds: ["applied", "kept", "advised", "failed"],
        shown: found.length,
        total: all.length,
      }),
      source("The newest thousand decisions of the replanning loop", live.answers.get(PATHS.decisions)?.at),
      rows.length
        ? table({
            caption: "Decisions, the newest first",
            columns,
            rows,
            key: (d) => d.id,
            mark: (d) => (d.id === one ? "marked" : null),
            onChange: again,
          })
        : nothing(all.length ? "No decision has these words." : "Nothing was decided yet: no pipeline is replanned."),
    ),
  );
}

function costs(decision) {
  const of = decision.costs;
  return of ? `${cost(of.in_force_per_hour)} → ${cost(of.new_per_hour)}, change ${cost(of.change_per_hour)}` : "–";
}
