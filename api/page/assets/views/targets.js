// Which targets were in force, what did each change, and how does one go back? And who asked for changes?

import { allows } from "../lib/access.js";
import { h } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { HOLDS_PATH, PATHS } from "../lib/model.js";
import { link } from "../lib/route.js";
import { changeButton, changeTables } from "../parts/change.js";
import { holdControl } from "../parts/holds.js";
import { nothing, pipelineLink, planLink, section, source, time } from "../parts/parts.js";
import { table } from "../parts/table.js";

const AUDIT_PATH = "v1/audit";

export const title = () => "Targets";

const diffPath = (route) => {
  const generation = Number(route.query.generation);
  return generation > 1 ? `v1/target/diff?from=${generation - 1}&to=${generation}` : null;
};

export const needs = (live, route) => {
  const diff = diffPath(route);
  return [
    { path: PATHS.target },
    { path: PATHS.history },
    { path: HOLDS_PATH },
    ...(diff ? [{ path: diff, every: Infinity }] : []),
    ...(allows(live, "admin") ? [{ path: AUDIT_PATH, every: 10_000 }] : []),
  ];
};

export function render(live, route, again) {
  return h(
    "div",
    { class: "view" },
    h("h1", null, "Targets"),
    section("holds", "Hold", holds(live, again)),
    wayBack(live, route, again),
    section("history", "Targets so far", history(live, route, again)),
    oneChange(live, route),
    allows(live, "admin") ? section("audit", "Audit", audit(live, again)) : null,
  );
}

function holds(live, again) {
  const ofPipelines = (live.get(HOLDS_PATH) ?? []).filter((hold) => hold.pipeline);
  return [
    holdControl(live, null, again),
    ofPipelines.length
      ? h("p", null, "Also held: ", ofPipelines.map((hold, at) => [at ? ", " : "", pipelineLink(hold.pipeline)]))
      : null,
  ];
}

function history(live, route, again) {
  const rows = live.get(PATHS.history) ?? [];
  if (!rows.length) return nothing("Nothing was deployed yet.");
  const inForce = live.get(PATHS.target)?.generation;
  const mayRollBack = allows(live, "apply");
  const goBack = (target) =>
    target.generation === inForce
      ? "in force"
      : h("a", { href: link("targets", null, { back: target.generation }) }, `Go back to ${target.generation}`);
  const columns = [
    {
      name: "Target",
      isNumber: true,
      cell: (t) => h("a", { href: link("targets", null, { generation: t.generation }) }, number(t.generation)),
    },
    { name: "Since", cell: (t) => time(t.committed_at) },
    { name: "Replicas", isNumber: true, cell: (t) => t.placement?.replicas?.length ?? 0 },
    { name: "Reason", cell: (t) => h("span", { class: "reason" }, t.reason) },
    { name: "Plans", cell: (t) => h("ul", { class: "inline" }, t.plans.map((id) => h("li", null, planLink(id)))) },
    ...(mayRollBack ? [{ name: "Way back", cell: goBack }] : []),
  ];
  return [
    source("The newest thousand targets", live.answers.get(PATHS.history)?.at),
    table({
      caption: "Targets, the newest first",
      columns,
      rows,
      key: (t) => String(t.generation),
      mark: (t) => (String(t.generation) === route.query.generation ? "marked" : null),
      onChange: again,
    }),
  ];
}

/** The way back to the target that the reader has chosen. */
function wayBack(live, route, again) {
  const generation = Number(route.query.back);
  if (!(generation > 0) || !allows(live, "apply")) return null;
  const button = changeButton({
    live,
    again,
    key: `rollback-${generation}`,
    name: "Show what going back would change",
    method: "POST",
    path: "v1/target/rollback",
    body: { generation },
  });
  return section("back", `Go back to target ${generation}`, source("This also holds the fleet for an hour"), button);
}

function oneChange(live, route) {
  const path = diffPath(route);
  if (!path) return null;
  const answer = live.answers.get(path);
  const change = live.get(path);
  const heading = `What target ${route.query.generation} changed`;
  return section("diff", heading, change ? changeTables(change) : nothing(answer?.refusal ?? "Loading"));
}

function audit(live, again) {
  const rows = live.get(AUDIT_PATH) ?? [];
  if (!rows.length) return nothing("Nobody has asked for a change yet.");
  const columns = [
    { name: "When", cell: (e) => time(e.made_at) },
    { name: "Who", cell: (e) => e.who },
    { name: "Request", cell: (e) => `${e.method} ${e.path}` },
    { name: "Status", isNumber: true, cell: (e) => e.status },
  ];
  return [
    source("Requests for changes, refused ones too", live.answers.get(AUDIT_PATH)?.at),
    table({ caption: "Audit, the newest first", columns, rows, key: (e) => e.id, onChange: again }),
  ];
}
