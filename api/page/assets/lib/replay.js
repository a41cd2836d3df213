// What do two replays of one load show side by side? Classes over time, events, and differences. Each function is pure.

import { number, rate } from "./format.js";

/** Windows of a series that the page asks for: as many as a chart can show apart. */
export const SERIES_WINDOWS = 240;
/** Least change of the load that is an event, as a part of the load before. */
const LOAD_STEP = 0.3;
/** Least change of the load, in standard deviations of a Poisson count beside a mean of such counts: less is chance. */
const LOAD_DEVIATIONS = 4;
/** Most events of one kind. */
const EVENTS_MAX = 60;

/** The classes of requests, in the order of the stack from below. */
export const CLASSES = [
  { key: "accurate", name: "in time", colour: "--series-2" },
  { key: "fallback", name: "on a fallback", colour: "--series-1" },
  { key: "late", name: "late", colour: "--series-3" },
  { key: "dropped", name: "dropped", colour: "--series-5" },
  { key: "failed", name: "failed", colour: "--series-6" },
];

/**
 * The requests of one pipeline over time, by class; null without a series.
 * @param {any} result the result of a simulation
 * @param {string|null} pipeline null: the only one
 * @returns {{times: number[], windowS: number, arrived: number[], replicas: number[],
 *   classes: Object<string, number[]>}|null} times are seconds from the start of the load
 */
export function seriesOf(result, pipeline = null) {
  const all = result?.series?.pipelines ?? [];
  const found = pipeline === null ? all[0] : all.find((one) => one.name === pipeline);
  if (!found) return null;
  const windowS = result.series.window_s;
  return {
    times: found.arrived.map((_, at) => at * windowS),
    windowS,
    arrived: found.arrived,
    replicas: result.series.replicas ?? [],
    classes: {
      accurate: found.ok.map((ok, at) => ok - found.fallback[at]),
      fallback: found.fallback,
      late: found.late,
      dropped: found.dropped,
      failed: found.failed,
    },
  };
}

/** The sum of a list. */
export const total = (list) => list.reduce((sum, value) => sum + value, 0);

/**
 * @typedef {Object} ReplayEvent
 * @property {number} at seconds from the start of the load
 * @property {"load"|"left"|"right"|"recorded"} side
 * @property {string} what
 */

/** Changes of the load: two windows in a row that differ from those before by more than chance. @returns {ReplayEvent[]} */
export function loadEvents({ arrived, windowS }) {
  const found = [];
  let [sum, count] = [0, 0];
  arrived.forEach((value, at) => {
    const before = count ? sum / count : value;
    const deviation = Math.sqrt((before + 1) * (1 + 1 / Math.max(1, count)));
    const least = Math.max(LOAD_STEP * before, LOAD_DEVIATIONS * deviation);
    const next = arrived[at + 1] ?? value;
    if (Math.min(value, next) - before > least || before - Math.max(value, next) > least) {
      found.push({ at: at * windowS, side: "load", what: `load ${rate(before / windowS)} → ${rate(next / windowS)}` });
      [sum, count] = [0, 0];
    }
    sum += value;
    count += 1;
  });
  return found.slice(0, EVENTS_MAX);
}

/** Changes of the number of replicas that serve. @returns {ReplayEvent[]} */
export function replicaEvents({ replicas, windowS }, side) {
  const found = [];
  let before = null;
  replicas.forEach((mean, at) => {
    const now = Math.round(mean);
    if (before !== null && now !== before) {
      found.push({ at: at * windowS, side, what: `${number(before)} → ${number(now)} replicas serve` });
    }
    before = now;
  });
  return found.slice(0, EVENTS_MAX);
}

/** All events in their order; those of one moment in the order of the lists. @returns {ReplayEvent[]} */
export const inOrder = (...lists) => lists.flat().sort((a, b) => a.at - b.at);

/** The event that follows a moment, or the one before it; null if there is none. */
export function neighbour(events, at, direction) {
  const found = direction > 0 ? events.find((event) => event.at > at) : events.findLast((event) => event.at < at);
  return found ?? null;
}

/** The place of the window in which a moment lies. */
export function windowAt(series, at) {
  return Math.min(series.times.length - 1, Math.max(0, Math.floor(at / series.windowS)));
}

/**
 * The figures of two results with their differences.
 * @returns {{name: string, key: string, left: number|null, right: number|null, isMoreBetter: boolean|null}[]}
 */
export function differences(left, right, pipeline) {
  const of = (result) => {
    if (!result) return {};
    const one = result.pipelines?.find((entry) => entry.name === pipeline) ?? result;
    const series = seriesOf(result, pipeline);
    const fallback = series ? total(series.classes.fallback) : null;
    return { ...one, fallback, cost: costOf(result, one), run: result.replay };
  };
  const [a, b] = [of(left), of(right)];
  const row = (name, key, isMoreBetter) => ({ name, key, left: a[key] ?? null, right: b[key] ?? null, isMoreBetter });
  return [
    row("Requests", "requests", null),
    row("In time", "attainment", true),
    row("On a fallback", "fallback", null),
    row("Late", "late", false),
    row("Dropped", "dropped", false),
    row("Failed", "failed", false),
    row("Median", "p50_ms", false),
    row("99th percentile", "p99_ms", false),
    row("Accuracy", "accuracy", true),
    row("Cost", "cost", false),
    {
      name: "Changes of replicas",
      key: "changes",
      left: a.run?.changes ?? (left ? 0 : null),
      right: b.run?.changes ?? (right ? 0 : null),
      isMoreBetter: null,
    },
  ];
}

/** Cost per hour: that of the run if replicas could change, else that of the plan. */
function costOf(result, one) {
  const isAlone = (result.pipelines ?? []).length < 2;
  return (isAlone ? result.replay?.cost_per_hour : null) ?? one.cost_per_hour ?? null;
}

/**
 * Recorded arrivals as a trace in CSV, one row for each second.
 * @param {{second: number, offered: number}[]} rows seconds without requests are left out
 * @param {number} from the first second, Unix time
 * @param {number} seconds
 */
export function traceCsv(rows, from, seconds) {
  const offered = new Map(rows.map((row) => [row.second, row.offered]));
  const lines = Array.from({ length: seconds }, (_, at) => `${at},${offered.get(from + at) ?? 0}`);
  return `second,qps\n${lines.join("\n")}\n`;
}
