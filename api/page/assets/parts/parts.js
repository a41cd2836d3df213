// Which small parts do views share? Facts with their source, badges, bars, sections, and links.

import { h } from "../lib/dom.js";
import { ago, clock, percent, short } from "../lib/format.js";
import { link } from "../lib/route.js";

/** Where a number comes from: a visible line below a heading. */
export function source(text, at = null) {
  return h("p", { class: "source" }, text, at ? [", as of ", time(at)] : null);
}

/** A moment, readable by people and programs. */
export function time(at) {
  const iso = new Date(at).toISOString();
  return h("time", { datetime: iso, title: `${iso}, ${ago(at)}` }, clock(at));
}

/** A section with its heading. */
export function section(id, heading, ...children) {
  return h("section", { "aria-labelledby": id, class: "section", "data-key": id }, h("h2", { id }, heading), ...children);
}

/**
 * Numbers with their names.
 * @param {{name: string, value: any, note?: any, title?: string, level?: string}[]} facts
 */
export function factList(facts) {
  return h(
    "dl",
    { class: "facts" },
    facts.map((fact) =>
      h(
        "div",
        { class: fact.level ? `fact ${fact.level}` : "fact", title: fact.title ?? null },
        h("dt", null, fact.name),
        h(
          "dd",
          null,
          h("span", { class: "value" }, fact.value),
          fact.note ? h("span", { class: "note" }, fact.note) : null,
        ),
      ),
    ),
  );
}

/**
 * Links to the same view of other pipelines; nothing if there is one pipeline at most.
 * @param {string} view the view's name in addresses
 * @param {string[]} names of the pipelines
 * @param {string | null} current the pipeline that is shown
 */
export function pipelineTabs(view, names, current) {
  if (names.length < 2) return null;
  const tab = (name) => {
    const mark = name === current ? "page" : null;
    return h("li", { "data-key": name }, h("a", { href: link(view, name), "aria-current": mark }, name));
  };
  return h("nav", { "aria-label": "Pipelines" }, h("ul", null, names.map(tab)));
}

const LEVELS = {
  kept: "good",
  broken: "bad",
  loading: "warn",
  idle: "quiet",
  "not deployed": "quiet",
  live: "good",
  lost: "bad",
  left: "quiet",
  ready: "good",
  failed: "bad",
  unknown: "warn",
  draining: "quiet",
  succeeded: "good",
  infeasible: "bad",
  queued: "warn",
  solving: "warn",
  running: "warn",
  done: "good",
  cancelled: "quiet",
  applied: "good",
  advised: "warn",
  "in force": "good",
  optimal: "good",
  feasible: "warn",
  holds: "good",
  misses: "bad",
  undecided: "warn",
  target: "good",
  plan: "quiet",
  decision: "quiet",
  failure: "bad",
  agent: "quiet",
  dominated: "quiet",
  best: "good",
};

/** A state as a word; the colour repeats it. */
export function badge(word) {
  return h("span", { class: `badge ${LEVELS[word] ?? "quiet"}` }, word);
}

/** The level of a utilisation from 0 to 1: also the colour of a node. */
export function level(utilisation) {
  if (utilisation === null || utilisation === undefined) return "u-none";
  if (utilisation < 0.25) return "u-1";
  if (utilisation < 0.5) return "u-2";
  if (utilisation < 0.75) return "u-3";
  return utilisation < 0.95 ? "u-4" : "u-5";
}

/** A share as a bar and in words. */
export function meter(share, text = percent(share)) {
  const width = Math.round(Math.min(1, Math.max(0, share)) * 100);
  return h(
    "span",
    { class: "meter" },
    h(
      "svg",
      { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
      h("rect", { class: "track", width: 100, height: 8 }),
      h("rect", { class: `fill ${level(share)}`, width, height: 8 }),
    ),
    h("span", { class: "meter-text" }, text),
  );
}

/** A link to a pipeline. */
export const pipelineLink = (name) => h("a", { href: link("pipeline", name) }, name);

/** A link to a plan. */
export const planLink = (id) => h("a", { href: link("plan", id), class: "id", title: id }, short(id));

/** Text for a list that has no rows. */
export const nothing = (text) => h("p", { class: "nothing" }, text);

/** A word for how a pipeline is replanned. */
export const replanWord = (mode) => ({ off: "by hand", advisory: "advice only", apply: "automatic" })[mode] ?? mode;
