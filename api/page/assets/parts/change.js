// What does a change of the target load, keep and unload, and how is one carried out?
//
// A change is shown before it can be carried out: the reader asks for the dry run, looks at it, and confirms.

import { send } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { cost, count, number } from "../lib/format.js";
import { PATHS } from "../lib/model.js";
import { table } from "./table.js";

/**
 * A change that a reader looks at.
 * @typedef {Object} Asked
 * @property {number} generation the target that it replaces
 * @property {any} dryRun what would change; null before the answer
 * @property {string} refusal why the service refused; empty if it did not
 * @property {string} done what was done; empty before
 */

/** The changes that readers have asked for, by key. @type {Map<string, Asked>} */
const asked = new Map();

/**
 * A button that shows what a change would do, and then a button that carries it out.
 * @param {{live: any, again: Function, key: string, name: string, method: string, path: string, body: any}} change
 */
export function changeButton(change) {
  const { live, again, key, name } = change;
  const generation = live.get(PATHS.target)?.generation ?? 0;
  const now = asked.get(key);
  const ask = async () => {
    asked.set(key, { generation, dryRun: null, refusal: "", done: "" });
    again();
    const answer = await sent(change, generation, "?dry_run=true");
    asked.set(key, { generation, dryRun: answer.value, refusal: answer.refusal ?? "", done: "" });
    again();
  };
  const carryOut = async () => {
    const answer = await sent(change, now.generation, "");
    const done = answer.value ? `Done: target ${answer.value.generation} is in force.` : "";
    asked.set(key, { ...now, dryRun: answer.value ? null : now.dryRun, refusal: answer.refusal ?? "", done });
    live.now();
    again();
  };
  const leave = () => {
    asked.delete(key);
    again();
  };
  const isOld = now && !now.done && now.generation !== generation;
  return h(
    "div",
    { class: "change", "data-key": `change-${key}` },
    h("button", { type: "button", onclick: ask, disabled: Boolean(now && !now.dryRun && !now.refusal && !now.done) }, name),
    h(
      "div",
      { "aria-live": "polite" },
      now?.refusal ? h("p", { class: "refusal" }, now.refusal) : null,
      now?.done ? h("p", { class: "fine" }, now.done) : null,
      now?.dryRun ? changeTables(now.dryRun) : null,
      isOld ? h("p", { class: "refusal" }, "Another target came into force meanwhile. Ask again.") : null,
      now?.dryRun
        ? h(
            "p",
            { class: "actions" },
            now.dryRun.changed && !now.dryRun.shortages.length && !isOld
              ? h("button", { type: "button", class: "sure", onclick: carryOut }, "Yes, do this")
              : null,
            h("button", { type: "button", onclick: leave }, "Leave it"),
          )
        : null,
    ),
  );
}

function sent({ method, path, body }, generation, query) {
  return send(`${path}${query}`, body, { method, headers: { "if-match": `"${generation}"` } });
}

/** Tasks and replicas of a change. */
export function changeTables(change) {
  if (!change.changed) return h("p", null, "Nothing would change.");
  const seconds = (value) => (value === null ? "–" : `${number(value)} s`);
  const flow = (value) => (value === null ? "–" : number(value));
  const columns = [
    { name: "Task", cell: (t) => `${t.pipeline}/${t.task}` },
    { name: "Kept", isNumber: true, cell: (t) => t.kept },
    { name: "Loaded", isNumber: true, cell: (t) => t.loaded },
    { name: "Unloaded", isNumber: true, cell: (t) => t.unloaded },
    { name: "Capacity before", isNumber: true, cell: (t) => flow(t.capacity_before_qps), title: "queries per second" },
    {
      name: "Meanwhile",
      isNumber: true,
      cell: (t) => flow(t.capacity_meanwhile_qps),
      title: "while the new replicas load",
    },
    { name: "After", isNumber: true, cell: (t) => flow(t.capacity_after_qps) },
    { name: "Planned load", isNumber: true, cell: (t) => flow(t.planned_qps) },
    { name: "Loads for", isNumber: true, cell: (t) => seconds(t.load_s) },
    {
      name: "Too small for",
      isNumber: true,
      cell: (t) => seconds(t.short_s),
      title: "with less capacity than planned load",
    },
  ];
  const moved = change.replicas.filter((replica) => replica.fate !== "kept");
  const replicaColumns = [
    { name: "Replica", isNumber: true, cell: (r) => String(r.replica) },
    { name: "Fate", cell: (r) => r.fate },
    { name: "Task", cell: (r) => `${r.pipeline}/${r.task}` },
    { name: "Variant", cell: (r) => r.variant },
    { name: "Type", cell: (r) => r.hardware },
    { name: "Agent", isNumber: true, cell: (r) => r.agent },
    { name: "Device", isNumber: true, cell: (r) => r.device },
  ];
  return [
    h("p", null, `Cost ${cost(change.cost_per_hour_before)} → ${cost(change.cost_per_hour_after)}.`),
    change.shortages.map((shortage) => h("p", { class: "refusal" }, shortage)),
    table({ caption: "Change of each task", columns, rows: change.tasks, key: (t) => `${t.pipeline}/${t.task}` }),
    h(
      "details",
      null,
      h("summary", null, count(moved.length, "replica")),
      table({ caption: "Replicas that come and go", columns: replicaColumns, rows: moved, key: (r) => String(r.replica) }),
    ),
  ];
}
