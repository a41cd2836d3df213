// Which holds keep rounds of replanning from deploying, and how are they set and released?

import { send } from "../lib/api.js";
import { allows } from "../lib/access.js";
import { h } from "../lib/dom.js";
import { HOLDS_PATH, pipelinePath } from "../lib/model.js";
import { time } from "./parts.js";

/** How long a hold may last: seconds and words. */
const LENGTHS = [
  [3_600, "for an hour"],
  [86_400, "for a day"],
  [0, "until it is released"],
];

/** Why the service refused the last hold; empty if it did not. */
let refusal = "";

const pathOf = (pipeline) => (pipeline ? `${pipelinePath(pipeline)}/hold` : "v1/hold");

/** The hold on a pipeline or, for null, on the fleet; null if there is none. */
export const holdOn = (live, pipeline) => (live.get(HOLDS_PATH) ?? []).find((hold) => hold.pipeline === pipeline) ?? null;

/**
 * The hold in force with a button that releases it, or a form that sets one.
 * @param {any} live
 * @param {string|null} pipeline null: the whole fleet
 * @param {Function} again
 */
export function holdControl(live, pipeline, again) {
  const hold = holdOn(live, pipeline);
  const mayChange = allows(live, "apply");
  const over = async (answer) => {
    refusal = answer.refusal ?? "";
    live.now();
    again();
  };
  const said = refusal && mayChange ? h("p", { class: "refusal" }, refusal) : null;
  if (hold) {
    const release = async () => over(await send(pathOf(pipeline), null, { method: "DELETE" }));
    return [
      h(
        "p",
        { class: "held" },
        h("strong", null, "Held"),
        hold.until ? [" until ", time(hold.until)] : " until it is released",
        ` by ${hold.made_by}: ${hold.reason}`,
      ),
      mayChange ? h("button", { type: "button", onclick: release }, "Release the hold") : null,
      said,
    ];
  }
  if (!mayChange) return h("p", { class: "note" }, "Not held: rounds of replanning may deploy.");
  const set = async (event) => {
    event.preventDefault();
    const fields = new FormData(event.target);
    const seconds = Number(fields.get("length"));
    const body = { reason: String(fields.get("reason")), ...(seconds ? { for_s: seconds } : {}) };
    await over(await send(pathOf(pipeline), body, { method: "PUT" }));
  };
  const id = `hold-${pipeline ?? ""}`;
  return [
    h("p", { class: "note" }, "Not held: rounds of replanning may deploy. Under a hold they only advise."),
    h(
      "form",
      { class: "form", onsubmit: set },
      h(
        "label",
        { for: `${id}-reason` },
        "Reason ",
        h("input", { id: `${id}-reason`, name: "reason", "data-own": true, required: true, maxlength: 500 }),
      ),
      h(
        "label",
        { for: `${id}-length` },
        "Hold ",
        h(
          "select",
          { id: `${id}-length`, name: "length", "data-own": true },
          LENGTHS.map(([seconds, words]) => h("option", { value: seconds }, words)),
        ),
      ),
      h("button", { type: "submit" }, pipeline ? `Hold ${pipeline}` : "Hold the fleet"),
    ),
    said,
  ];
}
