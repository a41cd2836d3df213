// How are the classes of requests drawn over time? Stacked: the height of all colours is the number of requests.

import { number } from "../lib/format.js";
import { h } from "../lib/dom.js";
import { CLASSES, total } from "../lib/replay.js";
import { chart } from "./chart.js";

/** How many requests each class has, in words. */
export function classWords(series) {
  return CLASSES.map(({ key, name }) => `${number(total(series.classes[key]))} ${name}`).join(", ");
}

/**
 * @param {{key: string, label: string, series: any, most?: number, marks?: {at: number, text: string}[],
 *   begin?: number|null, syncKey?: string}} of `most` is the upper end of the axis, so that two charts have the same;
 *   `begin` is the Unix time of the load's start, if it was recorded; charts with one `syncKey` show their cursors together
 */
export function classChart({ key, label, series, most = null, marks = [], begin = null, syncKey }) {
  const shift = begin ?? 0;
  return h(
    "div",
    { class: "chart-box" },
    chart({
      key,
      label: `${label}: ${classWords(series)}`,
      data: [series.times.map((at) => at + shift), ...CLASSES.map((of) => series.classes[of.key])],
      series: CLASSES,
      isTime: begin !== null,
      isStacked: true,
      xLabel: "second",
      range: [0, most],
      marks: marks.map((mark) => ({ ...mark, at: mark.at + shift })),
      syncKey,
    }),
  );
}
