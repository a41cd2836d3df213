// Which load, and which plans and settings, does a reader replay? Each choice goes into the address.

import { h } from "../lib/dom.js";
import { clock, count, short } from "../lib/format.js";
import { replaceQuery } from "../lib/route.js";
import { source } from "./parts.js";

/** Both sides of a replay. */
export const SIDES = [
  { key: "left", name: "Left", isFirst: true },
  { key: "right", name: "Right", isFirst: false },
];
/** Loads that the service has recorded. */
const RECORDED = [
  ["recorded-300", "the last 5 minutes, as recorded"],
  ["recorded-3600", "the last hour, as recorded"],
];
/** Policies for queries that will be late. */
const POLICIES = [
  ["", "as in the plan"],
  ["naive", "none: serve them all"],
  ["last_task", "drop at the last task"],
  ["per_task", "drop at each task"],
  ["reroute", "send to a backup, or drop"],
  ["pard", "drop ahead (PARD)"],
];
/** Scalers of replicas during the run. */
const SCALERS = [
  ["plan", "the plan's ladder, if it has one"],
  ["none", "none"],
  ["tuner", "InferLine's tuner"],
  ["hpa", "Kubernetes' autoscaler"],
  ["ray-serve", "Ray Serve's autoscaler"],
  ["coarse", "coarse-grained tuner"],
];
/** A change of the question takes its answer from the address. */
const WITHOUT_ANSWER = { left: "", right: "", at: "" };

/**
 * The form, or for a reader who may not ask the choices without a button.
 * @param {{route: any, sides: any[], plans: any[], inForce: Set<string>, traces: any[], load: string, mayAsk: boolean,
 *   isAsking: boolean, refusal: string, onAsk: () => void}} of
 */
export function replayForm({ route, sides, plans, inForce, traces, load, mayAsk, isAsking, refusal, onAsk }) {
  if (!mayAsk) {
    const text = "A new replay needs a token with the scope plan. Links to replays can be read without it.";
    return h("p", { class: "note" }, text);
  }
  const submit = (event) => {
    event.preventDefault();
    onAsk();
  };
  const choose = (changes) => replaceQuery(route, { ...WITHOUT_ANSWER, ...changes });
  const loads = [...RECORDED, ...traces.map((trace) => [trace.id, traceText(trace)])];
  const sideBox = (side) =>
    h(
      "fieldset",
      { class: "side", "data-key": side.key },
      h("legend", null, side.name),
      choice("Plan", `${side.key}_plan`, side.plan, planOptions(plans, inForce), choose),
      choice("Late queries", `${side.key}_policy`, side.policy, POLICIES, choose),
      choice("Scaler", `${side.key}_scaler`, side.scaler, SCALERS, choose),
    );
  return [
    source("Both simulations get the same requests at the same moments; nothing is deployed"),
    h(
      "form",
      { onsubmit: submit, "aria-label": "Question" },
      choice("Load", "load", load, loads, (changes) => choose({ ...changes, from: "" })),
      h("div", { class: "two" }, sides.map(sideBox)),
      h(
        "div",
        { class: "actions" },
        h("button", { type: "submit", class: "main", disabled: isAsking }, "Replay"),
        isAsking ? h("span", { role: "status" }, "Asking the service") : null,
      ),
    ),
    h("p", { role: "alert", class: "less" }, refusal),
  ];
}

function choice(name, key, value, options, choose) {
  const option = ([of, text]) => h("option", { value: of, selected: of === value }, text);
  // A value that the list does not have any more, such as a deleted trace, stays in the address.
  const isKnown = options.some(([of]) => of === value);
  const known = isKnown ? options : [...options, [value, `${short(value)} (not in the list)`]];
  return h(
    "label",
    { class: "choice", "data-key": key },
    name,
    h("select", { name: key, onchange: (event) => choose({ [key]: event.target.value }) }, known.map(option)),
  );
}

function planOptions(plans, inForce) {
  const text = (plan) => {
    const state = inForce.has(plan.id) ? "in force" : (plan.options?.planner ?? "milp");
    return `${short(plan.id)}, ${clock(plan.created_at)}, ${state}`;
  };
  return plans.map((plan) => [plan.id, text(plan)]);
}

const traceText = (trace) => `${trace.name}, ${count(trace.rows, "row")}, ${clock(trace.created_at)}`;
