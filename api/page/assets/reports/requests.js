// How are the requests of a run shown? Their classes over time, and the share that took longer than each time.

import { h } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { chart } from "../parts/chart.js";
import { section, source } from "../parts/parts.js";

/** In the order of the stack, from below. */
const CLASSES = [
  { name: "in time", colour: "--series-2" },
  { name: "late", colour: "--series-3" },
  { name: "dropped", colour: "--series-5" },
  { name: "failed", colour: "--series-6" },
];

/**
 * @param {{total: number, answered: number, median_ms: number|null, window_s: number, start_s: number[], ok: number[],
 *   late: number[], dropped: number[], failed: number[], latency_ms: number[], slower: number[]}} requests
 */
export function requestSections(requests) {
  return [classes(requests), tail(requests)];
}

/** Stacked: the height of all colours together is the number of requests that arrived. */
function classes({ total, window_s, start_s, ok, late, dropped, failed }) {
  const all = [ok, late, dropped, failed].map((counts) => counts.reduce((a, b) => a + b, 0));
  const words = CLASSES.map(({ name }, at) => `${number(all[at])} ${name}`).join(", ");
  return section(
    "classes",
    "Requests over time",
    source(`${number(total)} requests by the time of their arrival, in windows of ${number(window_s)} s: ${words}`),
    h(
      "div",
      { class: "chart-box" },
      chart({
        key: "classes",
        label: `Requests over time: ${words}`,
        data: [start_s, ok, late, dropped, failed],
        series: CLASSES,
        isTime: false,
        isStacked: true,
        xLabel: "second",
      }),
    ),
  );
}

function tail({ answered, median_ms, latency_ms, slower }) {
  if (!latency_ms.length) return null;
  return section(
    "tail",
    "Tail of the latency",
    source(
      `The curve is the share of ${number(answered)} answered requests that took longer than a time. ` +
        `Half of them took at most ${number(median_ms)} ms`,
    ),
    h(
      "div",
      { class: "chart-box" },
      chart({
        key: "tail",
        label: "Share of the answered requests that took longer than each time",
        data: [latency_ms, slower.map((share) => share * 100)],
        series: [{ name: "slower" }],
        unit: " %",
        isTime: false,
        isLog: true,
        xLabel: "latency in ms",
      }),
    ),
  );
}
