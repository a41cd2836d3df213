// What would the plan be with another demand, SLO, budget or number of devices?
//
// The problem of the plan in force is changed, and the service is asked for a plan of it. Nothing is deployed.

import { allows } from "../lib/access.js";
import { send } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { PATHS, fleetNeeds, isOpen, partOf, planNeed, planPath, plansInForce } from "../lib/model.js";
import { link, replaceQuery } from "../lib/route.js";
import { graph } from "../parts/graph.js";
import { badge, nothing, pipelineTabs, planLink, section, source } from "../parts/parts.js";
import { groupTable, totals } from "./pipeline-plans.js";

/** Limit on the time of one search, in seconds. */
const TIME_LIMIT_S = 20;
/** Why the service refused the last question; empty if it did not. */
let refusal = "";
let isAsking = false;

export const title = (route) => (route.name ? `What if: ${route.name}` : "What if");

const chosen = (live, route) => route.name ?? [...plansInForce(live).keys()][0] ?? null;

export function needs(live, route) {
  return [...fleetNeeds(live), ...(route.query.plan ? [planNeed(live, route.query.plan)] : [])];
}

export function render(live, route, again) {
  const name = chosen(live, route);
  const inForce = plansInForce(live);
  const heading = [
    h("h1", null, name ? `What if: ${name}` : "What if"),
    pipelineTabs("what-if", [...inForce.keys()], name),
  ];
  const now = name ? inForce.get(name) : null;
  if (!now) {
    const text = live.get(PATHS.target)
      ? "Nothing is deployed under this name: a question begins with the plan in force."
      : "Loading";
    return h("div", { class: "view" }, heading, nothing(text));
  }
  return h(
    "div",
    { class: "view" },
    heading,
    section(
      "question",
      "Question",
      allows(live, "plan") ? question({ ...route, name }, name, now, again) : mayNotAsk(),
    ),
    section("answer", "Answer", answer(live, route, name, now)),
  );
}

/**
 * The values that a reader can change: where each stands in the problem.
 * @returns {{key: string, name: string, unit: string, pointer: string, base: number|null, min: number, step: string}[]}
 */
function knobs(problem, name) {
  const at = problem.pipelines.findIndex((p) => p.name === name);
  const pipeline = problem.pipelines[at];
  const devices = problem.hardware.map((type, i) => ({
    key: `devices-${type.name}`,
    name: `Devices of type ${type.name}`,
    unit: "at most",
    pointer: `/hardware/${i}/count`,
    base: type.count ?? null,
    min: 0,
    step: "1",
  }));
  return [
    {
      key: "demand",
      name: "Demand",
      unit: "requests per second",
      pointer: `/pipelines/${at}/demand_qps`,
      base: pipeline.demand_qps,
      min: 0,
      step: "any",
    },
    { key: "slo", name: "SLO", unit: "ms", pointer: `/pipelines/${at}/slo_ms`, base: pipeline.slo_ms, min: 1, step: "any" },
    {
      key: "budget",
      name: "Budget",
      unit: "per hour; empty: no limit",
      pointer: "/objective/budget_per_hour",
      base: problem.objective?.budget_per_hour ?? null,
      min: 0,
      step: "any",
    },
    ...devices,
  ];
}

function question(route, name, now, again) {
  const all = knobs(now.document.problem, name);
  const field = (knob) =>
    h(
      "label",
      { "data-key": knob.key },
      knob.name,
      h("input", {
        type: "number",
        name: knob.key,
        min: knob.min,
        step: knob.step,
        value: route.query[knob.key] ?? shown(knob.base),
      }),
      h("span", { class: "note" }, `${knob.unit}; in force: ${shown(knob.base) || "no limit"}`),
    );
  const submit = (event) => {
    event.preventDefault();
    ask(route, name, now.document.problem, new FormData(event.target), again);
  };
  const double = () => {
    const box = document.querySelector("input[name=demand]");
    box.value = shown(Number(box.value) * 2);
    box.form.requestSubmit();
  };
  return [
    source("Begins with the problem of the plan in force; nothing is deployed", now.document.created_at),
    h(
      "form",
      { onsubmit: submit, "aria-label": "Question" },
      h("div", { class: "form" }, all.map(field)),
      h(
        "div",
        { class: "actions" },
        h("button", { type: "submit", class: "main", disabled: isAsking }, "Plan"),
        h("button", { type: "button", onclick: double }, "Double the demand"),
        h("a", { href: link("what-if", name) }, "Back to the plan in force"),
      ),
    ),
    h("p", { role: "alert", class: "less" }, refusal),
  ];
}

/** For readers whose token does not allow to ask for plans. */
const mayNotAsk = () => h("p", { class: "note" }, "A question needs a token with the scope plan.");

const shown = (value) => (value === null || value === undefined ? "" : String(Number(value.toPrecision(6))));

/** The changes that a form asks for, as a JSON Patch (RFC 6902). */
function patchOf(problem, name, value) {
  return knobs(problem, name).flatMap((knob) => {
    const text = value(knob.key);
    if (text === null || text === undefined || text === shown(knob.base)) return [];
    if (text === "") return knob.base === null ? [] : [{ op: "remove", path: knob.pointer }];
    return [{ op: knob.base === null ? "add" : "replace", path: knob.pointer, value: Number(text) }];
  });
}

/** A problem with a patch of plain members. */
function patched(problem, patch) {
  const copy = structuredClone(problem);
  for (const { op, path, value } of patch) {
    const keys = path.slice(1).split("/");
    const last = keys.pop();
    const parent = keys.reduce((node, key) => node[key], copy);
    if (op === "remove") delete parent[last];
    else parent[last] = value;
  }
  return copy;
}

async function ask(route, name, problem, form, again) {
  const patch = patchOf(problem, name, (key) => form.get(key));
  isAsking = true;
  again();
  const { value, refusal: why } = await send(PATHS.plans, { problem: patched(problem, patch), time_limit_s: TIME_LIMIT_S });
  isAsking = false;
  refusal = why ?? "";
  const values = Object.fromEntries(
    knobs(problem, name).map((knob) => [knob.key, form.get(knob.key) === shown(knob.base) ? "" : form.get(knob.key)]),
  );
  if (value) replaceQuery(route, { ...values, plan: value.id });
  else again();
}

function answer(live, route, name, now) {
  const id = route.query.plan;
  if (!id)
    return h(
      "div",
      { "aria-live": "polite" },
      nothing("Change a value and plan. The answer stands here beside the plan in force."),
    );
  const document = live.get(planPath(id));
  if (!document) return nothing(live.answers.get(planPath(id))?.refusal ?? "Loading");
  const part = document.plan?.pipelines?.find((p) => p.name === name) ?? null;
  const patch = patchOf(now.document.problem, name, (key) => route.query[key] ?? null);
  const head = h(
    "div",
    { "aria-live": "polite" },
    h(
      "p",
      null,
      "Plan ",
      planLink(id),
      " ",
      badge(document.state),
      isOpen(document) ? " The service is searching." : null,
      document.error ? ` ${document.error}` : null,
    ),
  );
  const changes = patch.length
    ? h(
        "details",
        null,
        h("summary", null, "The change as a JSON Patch of the problem"),
        h("pre", { tabindex: "0" }, JSON.stringify(patch, null, 2)),
      )
    : null;
  if (!part) return [head, document.plan ? missing(document.plan, id) : null, changes];
  const next = partOf(document, part);
  return [
    head,
    totals(now, next),
    h("h3", null, "Groups"),
    groupTable(now, next),
    next.spec
      ? graph({ name, spec: next.spec, part, estimate: document.plan.estimate, qps: part.demand_qps, readyOf: () => null })
      : null,
    changes,
  ];
}

function missing(plan, id) {
  const all = (plan.explanation?.shortfalls ?? []).map((s) =>
    h(
      "li",
      null,
      `${s.constraint} of ${s.where}`,
      s.relax ? `: ${s.relax.pointer} would have to be ${shown(s.relax.to)}` : null,
    ),
  );
  return [
    h("p", null, "There is no such plan."),
    all.length ? h("ul", null, all) : null,
    h("p", null, h("a", { href: link("plan", id) }, "What is missing")),
  ];
}
