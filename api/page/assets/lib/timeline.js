// How do load, attainment, accuracy and cost of a pipeline change over time, and when did its plan change?

import { PATHS, costOf, pipelinePath, planPath } from "./model.js";

/** Windows that a reader can choose, in seconds. */
export const WINDOWS = [
  [300, "5 min"],
  [900, "15 min"],
  [3600, "1 h"],
  [21_600, "6 h"],
  [86_400, "24 h"],
];
/** Points of a chart, about. */
const POINTS = 180;
/** Seconds that are read in each round; older ones are read seldom. */
const FRESH_S = 60;
/** The newest seconds, of which agents still report. */
const OPEN_S = 2;
/** Most former plans that are read. */
const PLANS_MAX = 60;

/** Rows by second, by pipeline. @type {Map<string, Map<number, any>>} */
const known = new Map();

const path = (name, seconds) => `${pipelinePath(name)}/arrivals?seconds=${seconds}`;

/** What the charts need. */
export function timelineNeeds(live, name, window) {
  const whole = Math.max(60_000, (window * 1000) / 12);
  const former = changes(live, name, window)
    .map((change) => change.plan)
    .filter(Boolean)
    .slice(-PLANS_MAX);
  const generation = live.get(PATHS.target)?.generation;
  const isOld = live.get(PATHS.history)?.[0]?.generation !== generation;
  return [
    { path: path(name, window), every: whole },
    { path: path(name, FRESH_S) },
    { path: PATHS.history, every: isOld ? undefined : Infinity },
    { path: PATHS.plans, every: 10_000 },
    ...former.map((id) => ({ path: planPath(id), every: Infinity })),
  ];
}

/** The seconds of a window, as far as they were read. */
function rows(live, name, window) {
  if (!known.has(name)) known.set(name, new Map());
  const bySecond = known.get(name);
  for (const seconds of [window, FRESH_S]) {
    const answer = live.answers.get(path(name, seconds));
    if (!answer || answer.isMerged) continue;
    for (const row of answer.value ?? []) bySecond.set(row.second, row);
    answer.isMerged = true;
  }
  const oldest = Date.now() / 1000 - WINDOWS.at(-1)[0];
  for (const second of bySecond.keys()) if (second < oldest) bySecond.delete(second);
  return bySecond;
}

/**
 * Changes of a pipeline's plan in the window, the oldest first; the first one may be older than the window.
 * @returns {{at: number, plan: string|null, reason: string, generation: number}[]} `at` is Unix time
 */
export function changes(live, name, window) {
  const of = new Map((live.get(PATHS.plans) ?? []).map((plan) => [plan.id, plan.pipelines ?? []]));
  const from = Date.now() / 1000 - window;
  const found = [];
  let before;
  for (const target of [...(live.get(PATHS.history) ?? [])].reverse()) {
    const plan = target.plans.find((id) => of.get(id)?.includes(name)) ?? null;
    if (plan !== before && !(plan === null && before === undefined)) {
      const at = new Date(target.committed_at).getTime() / 1000;
      found.push({ at, plan, reason: target.reason, generation: target.generation });
    }
    before = plan;
  }
  const first = found.findLastIndex((change) => change.at <= from);
  return found.slice(Math.max(0, first));
}

/**
 * The points of the charts.
 * @returns {{times: number[], offered: (number|null)[], planned: (number|null)[], attainment: (number|null)[],
 *   accuracy: (number|null)[], cost: (number|null)[], marks: any[], step: number}}
 */
export function timeline(live, name, window) {
  const step = Math.max(1, Math.ceil(window / POINTS));
  const now = Math.floor(Date.now() / 1000);
  const end = Math.floor((now - OPEN_S) / step) * step;
  const begin = end - Math.floor(window / step) * step;
  const bins = new Map();
  for (const row of rows(live, name, window).values()) {
    if (row.second < begin || row.second >= end) continue;
    const at = begin + Math.floor((row.second - begin) / step) * step;
    const bin = bins.get(at) ?? { offered: 0, ok: 0, over: 0 };
    bin.offered += row.offered;
    bin.ok += row.ok;
    bin.over += row.ok + row.late + row.dropped + row.failed;
    bins.set(at, bin);
  }
  const marks = changes(live, name, window).map((change) => ({ ...change, ...planned(live, name, change.plan) }));
  const series = { times: [], offered: [], planned: [], attainment: [], accuracy: [], cost: [], marks, step };
  for (let at = begin; at < end; at += step) {
    const bin = bins.get(at);
    const plan = marks.findLast((mark) => mark.at <= at + step / 2);
    series.times.push(at);
    series.offered.push(bin ? bin.offered / step : 0);
    series.attainment.push(bin && bin.over ? (100 * bin.ok) / bin.over : null);
    series.planned.push(plan?.qps ?? null);
    series.accuracy.push(plan?.accuracy ?? null);
    series.cost.push(plan?.cost ?? null);
  }
  return series;
}

function planned(live, name, id) {
  const document = id ? live.get(planPath(id)) : null;
  const part = document?.plan?.pipelines?.find((p) => p.name === name);
  if (!part) return { qps: null, accuracy: null, cost: null, replicas: null };
  const replicas = part.assignments.reduce((sum, group) => sum + group.replicas, 0);
  return { qps: part.demand_qps, accuracy: part.accuracy, cost: costOf(document.problem, part), replicas };
}
