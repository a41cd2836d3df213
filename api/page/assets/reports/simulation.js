// How does a report show a simulated run?

import { accuracy, cost, ms, number, percent } from "../lib/format.js";
import { seriesOf } from "../lib/replay.js";
import { classChart } from "../parts/classes.js";
import { factList, meter, section, source } from "../parts/parts.js";
import { table } from "../parts/table.js";
import { requestSections } from "./requests.js";

export function simulation({ result, requests }) {
  return [
    facts(result),
    requests ? requestSections(requests) : series(result),
    result.pipelines?.length ? section("pipelines", "Pipelines", pipelines(result.pipelines)) : null,
    tasks(result),
    result.replay ? changes(result.replay) : null,
  ];
}

function facts(result) {
  return factList([
    { name: "Requests", value: number(result.requests), note: `seed ${result.seed ?? "–"}` },
    { name: "In time", value: percent(result.attainment) },
    { name: "Median", value: ms(result.p50_ms) },
    { name: "99th percentile", value: ms(result.p99_ms) },
    { name: "Accuracy", value: accuracy(result.accuracy), note: "of answered requests" },
    { name: "Cost", value: cost(result.cost_per_hour) },
  ]);
}

/** The requests of each pipeline over time, if the simulation counted them. */
function series(result) {
  return (result.series?.pipelines ?? []).map(({ name }) =>
    section(
      `series-${name}`,
      `Requests of ${name} over time`,
      source(`By the time of their arrival, in windows of ${number(result.series.window_s)} s`),
      classChart({ key: `series-${name}`, label: `Requests of ${name} over time`, series: seriesOf(result, name) }),
    ),
  );
}

function pipelines(rows) {
  const columns = [
    { name: "Pipeline", cell: (row) => row.name },
    { name: "Requests", isNumber: true, cell: (row) => number(row.requests) },
    { name: "In time", isNumber: true, cell: (row) => percent(row.attainment) },
    { name: "Late", isNumber: true, cell: (row) => number(row.late) },
    { name: "Dropped", isNumber: true, cell: (row) => number(row.dropped) },
    { name: "Failed", isNumber: true, cell: (row) => number(row.failed) },
    { name: "Median", isNumber: true, cell: (row) => ms(row.p50_ms) },
    { name: "99th percentile", isNumber: true, cell: (row) => ms(row.p99_ms) },
    { name: "Accuracy", isNumber: true, cell: (row) => accuracy(row.accuracy) },
  ];
  return table({ caption: "Requests of each pipeline", columns, rows, key: (row) => row.name });
}

function tasks(result) {
  const rows = result.pipelines?.length ? result.pipelines.flatMap((row) => row.tasks ?? []) : (result.tasks ?? []);
  if (!rows.length) return null;
  const columns = [
    { name: "Task", cell: (row) => `${row.pipeline}/${row.task}` },
    { name: "Queries", isNumber: true, cell: (row) => number(row.queries) },
    { name: "In the queue", isNumber: true, cell: (row) => ms(row.queueing_ms), title: "mean, until a batch takes it" },
    { name: "In the batch", isNumber: true, cell: (row) => ms(row.batch_wait_ms), title: "mean, until the batch starts" },
    { name: "Wait, 99th percentile", isNumber: true, cell: (row) => ms(row.waiting_p99_ms) },
    { name: "Runs", isNumber: true, cell: (row) => ms(row.service_ms), title: "mean time of the batch" },
    { name: "Batch", isNumber: true, cell: (row) => number(row.batch), title: "mean" },
    { name: "Busy", cell: (row) => meter(row.utilisation ?? 0) },
  ];
  const key = (row) => `${row.pipeline}/${row.task}`;
  return section("tasks", "Tasks", table({ caption: "Times of queries at each task", columns, rows, key }));
}

function changes(replay) {
  return section(
    "changes",
    "Changes during the run",
    source("Replicas that load or finish their queries cost too"),
    factList([
      { name: "Changes of replicas", value: number(replay.changes) },
      { name: "Cost of the run", value: number(replay.cost), note: cost(replay.cost_per_hour) },
      { name: "Busy", value: percent(replay.utilisation) },
      { name: "Device time without a result", value: percent(replay.invalid_rate), title: "of requests not in time" },
    ]),
  );
}
