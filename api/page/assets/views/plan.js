// What is in one plan, what does it promise, and why is it so?

import { allows } from "../lib/access.js";
import { h } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { PATHS, planNeed, planPath } from "../lib/model.js";
import { link } from "../lib/route.js";
import { changeButton } from "../parts/change.js";
import { badge, nothing, pipelineLink, section, source, time } from "../parts/parts.js";
import { planContent, planFacts } from "../parts/plan.js";

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
    plan ? planFacts(plan) : null,
    document.state === "succeeded" && !isInForce && allows(live, "apply") ? deploy(live, document, again) : null,
    document.error ? section("error", "Why it failed", h("p", null, document.error)) : null,
    plan ? planContent(document, pipelineLink) : null,
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
