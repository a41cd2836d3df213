// How are two replays shown? Their classes over one axis of time, a slider over events, and their differences.

import { h } from "../lib/dom.js";
import { accuracy, clock, cost, ms, number, percent, rate, signed } from "../lib/format.js";
import { CLASSES, differences, inOrder, loadEvents, neighbour, replicaEvents, seriesOf, windowAt } from "../lib/replay.js";
import { replaceQuery } from "../lib/route.js";
import { classChart } from "./classes.js";
import { badge, meter, nothing, planLink, section, source } from "./parts.js";
import { table } from "./table.js";

const FORMATS = {
  attainment: percent,
  p50_ms: ms,
  p99_ms: ms,
  accuracy,
  cost,
};

/** The moment to which a reader drags the slider now; null if nobody does. */
let dragged = null;

/**
 * @param {{route: any, sides: any[], recorded: any[], again: Function}} of each side has `key`, `name`, `plan` (null: a
 *   plan file), `policy`, `scaler`, the document of its simulation or why there is none, and `cancel` if the reader may
 *   cancel it
 */
export function replayResult({ route, sides, recorded, again }) {
  const found = sides.map((side) => ({ ...side, series: seriesOf(side.document?.result, route.name) }));
  const complete = found.filter((side) => side.series);
  const [first] = complete;
  const events = first
    ? inOrder(recorded, loadEvents(first.series), ...complete.map((side) => replicaEvents(side.series, side.key)))
    : [];
  const at = first ? momentOf(route, first.series) : 0;
  const shown = { route, complete, events, at, again };
  const boxes = found.map((side) => sideBox(side, shown));
  return [
    section("answer", "Both replays", h("div", { class: "two" }, boxes)),
    first ? section("moment", "Moment by moment", scrubber(shown), eventTable(shown)) : null,
    first ? section("totals", "Totals", totals(route, found)) : null,
  ];
}

/** The moment of the address, within the load. */
function momentOf(route, series) {
  const last = series.times.at(-1) ?? 0;
  return Math.min(last, Math.max(0, dragged ?? (Number(route.query.at) || 0)));
}

function sideBox(side, shown) {
  const heading = h(
    "h3",
    null,
    `${side.name}: `,
    side.plan ? planLink(side.plan) : "a plan file",
    side.policy ? `, late queries: ${side.policy}` : null,
    side.scaler === "plan" ? null : `, scaler: ${side.scaler}`,
    " ",
    side.document ? badge(side.document.state) : null,
  );
  return h("div", { "data-key": side.key }, heading, sideState(side), side.series ? sideChart(side, shown) : null);
}

/** What a reader waits for, or why there is nothing to wait for. */
function sideState(side) {
  const { document } = side;
  if (!document) return h("div", { "aria-live": "polite" }, nothing(side.refusal ?? "Loading"));
  const isOpen = ["queued", "running"].includes(document.state);
  const share = document.progress ? document.progress.ready / document.progress.total : 0;
  const label = `Cancel ${side.name.toLowerCase()}`;
  const stop = h("button", { type: "button", onclick: side.cancel, "aria-label": label }, "Cancel");
  const over = h(
    "div",
    { "aria-live": "polite" },
    document.error ? h("p", { class: "refusal" }, document.error) : null,
    document.state === "cancelled" ? nothing("It was cancelled and has no result.") : null,
    document.state === "done" && !side.series ? nothing("This simulation was made without a series over time.") : null,
  );
  return [isOpen ? h("p", null, meter(share), " ", side.cancel ? stop : null) : null, over];
}

function sideChart(side, { route, complete, events, at }) {
  const most = Math.max(1, ...complete.flatMap((other) => other.series.arrived)) * 1.05;
  const shown = events.filter((event) => event.side === "load" || event.side === "recorded" || event.side === side.key);
  const begin = Number(route.query.from) > 0 ? Number(route.query.from) : null;
  return classChart({
    key: `replay:${side.key}:${side.document.id}:${most}`,
    label: `${side.name}, requests over time. The tables below have the figures`,
    series: side.series,
    most,
    marks: [...shown.map((event) => ({ at: event.at, text: event.what })), { at, text: "this moment", isNow: true }],
    begin,
    syncKey: "replay",
  });
}

/** A slider over the windows, buttons that go to events, and the figures of the moment. */
function scrubber({ route, complete, events, at, again }) {
  const { times, windowS } = complete[0].series;
  const go = (moment) => {
    dragged = null;
    replaceQuery(route, { at: moment });
  };
  const drag = (moment) => {
    dragged = moment;
    again();
  };
  const step = (direction) => {
    const event = neighbour(events, at, direction);
    return h(
      "button",
      { type: "button", disabled: !event, onclick: () => go(event.at) },
      direction < 0 ? "Event before" : "Next event",
    );
  };
  return [
    source(`Each moment is ${number(windowS)} s of arrivals. A request counts at its arrival`),
    h(
      "div",
      { class: "scrubber" },
      step(-1),
      h("input", {
        type: "range",
        name: "at",
        min: 0,
        max: times.at(-1) ?? 0,
        step: windowS,
        value: String(at),
        "aria-label": "Moment",
        "aria-valuetext": momentText(route, at),
        oninput: (event) => drag(Number(event.target.value)),
        onchange: (event) => go(event.target.value),
      }),
      step(1),
    ),
    momentTable(route, complete, at),
  ];
}

function momentText(route, at) {
  const from = Number(route.query.from);
  return from > 0 ? clock((from + at) * 1000) : `second ${number(at)}`;
}

function momentTable(route, complete, at) {
  const columns = [
    { name: "Side", cell: (side) => side.name },
    {
      name: "Load",
      isNumber: true,
      cell: ({ series }) => rate(series.arrived[windowAt(series, at)] / series.windowS),
    },
    ...CLASSES.map((of) => ({
      name: of.name,
      isNumber: true,
      cell: ({ series }) => number(series.classes[of.key][windowAt(series, at)]),
    })),
    {
      name: "Replicas",
      isNumber: true,
      title: "that serve, mean",
      cell: ({ series }) => number(series.replicas[windowAt(series, at)] ?? null),
    },
  ];
  return [
    h("h3", null, `At ${momentText(route, at)}`),
    table({ caption: "Requests of this moment", columns, rows: complete, key: (side) => side.key }),
  ];
}

function eventTable({ route, events, again }) {
  if (!events.length) return nothing("The load and the replicas do not change.");
  const columns = [
    {
      name: "When",
      cell: (event) =>
        h(
          "button",
          { type: "button", class: "quiet", onclick: () => replaceQuery(route, { at: event.at }) },
          momentText(route, event.at),
        ),
    },
    { name: "Side", cell: (event) => ({ load: "both", recorded: "recorded" })[event.side] ?? event.side },
    { name: "Event", cell: (event) => event.what },
  ];
  return h(
    "details",
    { open: events.length < 10 },
    h("summary", null, `Events (${events.length})`),
    table({
      caption: "Changes of load, replicas and plans",
      columns,
      rows: events,
      key: (event) => `${event.at} ${event.side} ${event.what}`,
      onChange: again,
    }),
  );
}

function totals(route, sides) {
  const result = (key) => sides.find((side) => side.key === key)?.document?.result ?? null;
  const rows = differences(result("left"), result("right"), route.name);
  const text = (row, value) => (FORMATS[row.key] ?? number)(value);
  const columns = [
    { name: "Figure", cell: (row) => row.name },
    { name: "Left", isNumber: true, cell: (row) => text(row, row.left) },
    { name: "Right", isNumber: true, cell: (row) => text(row, row.right) },
    { name: "Difference", isNumber: true, cell: difference },
  ];
  return [
    source("Of the whole load. On a fallback: in time, but by a variant that is not the most accurate of its task"),
    h("div", { class: "narrow" }, table({ caption: "Figures of both replays", columns, rows, key: (row) => row.key })),
  ];
}

function difference(row) {
  if (row.left === null || row.right === null) return "–";
  const change = row.right - row.left;
  const text = signed(change);
  if (text === "same" || row.isMoreBetter === null) return text;
  const isBetter = change > 0 === row.isMoreBetter;
  return h("span", { class: isBetter ? "more" : "less" }, `${text} (${isBetter ? "better" : "worse"})`);
}
