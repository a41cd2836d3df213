// How fast, how accurate and how dear is each variant, as it was measured?

import { h } from "../lib/dom.js";
import { accuracy, ago, ms, number, percent, rate } from "../lib/format.js";
import { PATHS, pipelinePath } from "../lib/model.js";
import { chart } from "../parts/chart.js";
import { badge, nothing, pipelineTabs, section, source } from "../parts/parts.js";
import { dominated, scatter } from "../parts/scatter.js";
import { table } from "../parts/table.js";

const SECONDS_PER_HOUR = 3600;
const MILLION = 1e6;

export const title = (route) => (route.name ? `Profiles of ${route.name}` : "Profiles");

const chosen = (live, route) => route.name ?? (live.get(PATHS.pipelines) ?? []).find((p) => p.profiled)?.name ?? null;
const path = (name) => `${pipelinePath(name)}/profiles`;

export function needs(live, route) {
  const name = chosen(live, route);
  const own = name
    ? [
        { path: path(name), every: 20_000 },
        { path: pipelinePath(name), every: 20_000 },
      ]
    : [];
  return [{ path: PATHS.target }, { path: PATHS.pipelines }, { path: PATHS.hardware, every: 10_000 }, ...own];
}

export function render(live, route, again) {
  const name = chosen(live, route);
  const listed = live.get(PATHS.pipelines) ?? [];
  const heading = [
    h("h1", null, name ? `Profiles of ${name}` : "Profiles"),
    pipelineTabs("profiles", listed.map((p) => p.name), name),
  ];
  if (!name)
    return h("div", { class: "view" }, heading, nothing("No pipeline was measured. `apportion profile` measures one."));
  const set = live.get(path(name));
  if (!set) {
    const refusal = live.answers.get(path(name))?.refusal;
    return h(
      "div",
      { class: "view" },
      heading,
      nothing(refusal ? `Nothing was measured of ${name}: ${refusal}` : "Loading"),
    );
  }
  const tasks = [...new Set(set.rows.map((row) => row.task))];
  return h(
    "div",
    { class: "view" },
    heading,
    source("As it was measured and registered", live.answers.get(path(name)).at),
    tasks.map((task) => taskSection(live, name, set, task, again)),
    h("p", null, h("a", { href: path(name) }, "Profiles (JSON)")),
  );
}

/** Rows of one variant on one device type, by rising batch. */
function curves(set, task) {
  const found = new Map();
  for (const row of set.rows.filter((r) => r.task === task)) {
    const share = row.share ?? 1;
    const device = share < 1 ? `${share * 8}/8 of ${row.hardware}` : row.hardware;
    const key = `${row.variant} · ${device}`;
    if (!found.has(key))
      found.set(key, { key, variant: row.variant, hardware: device, type: row.hardware, share, rows: [] });
    found.get(key).rows.push(row);
  }
  found.forEach((curve) => curve.rows.sort((a, b) => a.batch - b.batch));
  return [...found.values()];
}

function accuracyOf(live, set, name, task, variant) {
  const measured = set.variants?.find((v) => v.task === task && v.variant === variant)?.accuracy;
  if (measured !== null && measured !== undefined) return measured;
  const spec = live.get(pipelinePath(name))?.tasks?.find((t) => t.name === task);
  return spec?.variants.find((v) => v.name === variant)?.accuracy ?? null;
}

function taskSection(live, name, set, task, again) {
  const all = curves(set, task);
  const prices = new Map((live.get(PATHS.hardware) ?? []).map((type) => [type.name, type.price_per_hour]));
  const points = dominated(
    all.flatMap((curve) => point(curve, prices.get(curve.type) ?? 1, accuracyOf(live, set, name, task, curve.variant))),
  );
  const batches = [...new Set(all.flatMap((curve) => curve.rows.map((row) => row.batch)))].sort((a, b) => a - b);
  const at = (curve, batch) => curve.rows.find((row) => row.batch === batch)?.latency_ms ?? null;
  const data = [batches, ...all.map((curve) => batches.map((batch) => at(curve, batch)))];
  return section(
    `task-${task}`,
    task,
    h(
      "div",
      { class: "two" },
      h(
        "div",
        { class: "chart-box" },
        h("h3", null, "Latency by batch (ms)"),
        chart({
          key: `${name}/${task}`,
          label: `Latency by batch of ${task}`,
          data,
          isTime: false,
          xLabel: "batch",
          places: data[0],
          series: all.map((curve) => ({ name: curve.key, isPoints: true })),
          unit: "",
        }),
      ),
      h(
        "div",
        null,
        h("h3", null, "Accuracy over cost"),
        points.length
          ? scatter({ label: `Accuracy over cost of the variants of ${task}`, points })
          : nothing("No accuracy was measured."),
      ),
    ),
    variants(points, task, again),
    latencies(all, task, again),
  );
}

/** A variant at its cheapest batch. */
function point(curve, price, accuracyValue) {
  if (accuracyValue === null) return [];
  const perQuery = (row) => (row.latency_ms / row.batch / 1000 / SECONDS_PER_HOUR) * price * curve.share;
  const best = curve.rows.reduce((a, b) => (perQuery(b) < perQuery(a) ? b : a));
  return [
    {
      ...curve,
      accuracy: accuracyValue,
      cost: perQuery(best) * MILLION,
      batch: best.batch,
      qps: (best.batch / best.latency_ms) * 1000,
    },
  ];
}

function variants(points, task, again) {
  if (!points.length) return null;
  const columns = [
    { name: "Variant", cell: (p) => p.variant },
    { name: "Device", cell: (p) => p.hardware },
    { name: "Accuracy", isNumber: true, cell: (p) => accuracy(p.accuracy) },
    {
      name: "Cost of a million",
      isNumber: true,
      cell: (p) => number(p.cost),
      title: "queries, on a device that is always busy",
    },
    { name: "At batch", isNumber: true, cell: (p) => p.batch, title: "the batch with the least cost" },
    { name: "Throughput", isNumber: true, cell: (p) => rate(p.qps), title: "of one replica at that batch" },
    {
      name: "Verdict",
      cell: (p) =>
        p.by
          ? [badge("dominated"), h("span", { class: "note" }, ` ${p.by.variant} on ${p.by.hardware} is no worse in both`)]
          : badge("best"),
    },
  ];
  const rows = [...points].sort((a, b) => a.cost - b.cost);
  return table({ caption: `Variants of ${task} by cost`, columns, rows, key: (p) => p.key, onChange: again });
}

/** Width of the interval of a median, as a part of it. */
function interval(row) {
  const { median_low_ms: low, median_high_ms: high } = row.measured ?? {};
  return typeof low === "number" && typeof high === "number" ? percent((high - low) / row.latency_ms) : "–";
}

/** When a row was measured, and by which agent on which device. */
function provenance(row) {
  const { at, agent, device } = row.measured ?? {};
  const where = [agent, device].filter(Boolean).join(", ");
  return at ? [ago(at), where ? h("span", { class: "note" }, ` ${where}`) : null] : "–";
}

/** The column of rows on a share of a device. */
const INTERFERENCE = {
  name: "Interference",
  isNumber: true,
  cell: (row) => (typeof row.measured?.interference === "number" ? number(row.measured.interference) : "–"),
  title: "time of a batch beside neighbours on the device, over its time alone",
};

function latencies(all, task, again) {
  const rows = all.flatMap((curve) => curve.rows.map((row) => ({ ...row, key: curve.key, device: curve.hardware })));
  const columns = [
    { name: "Variant", cell: (row) => row.variant },
    { name: "Device", cell: (row) => row.device },
    { name: "Batch", isNumber: true, cell: (row) => row.batch },
    { name: "Median", isNumber: true, cell: (row) => ms(row.latency_ms) },
    { name: "99th percentile", isNumber: true, cell: (row) => ms(row.p99_ms ?? null) },
    { name: "Throughput", isNumber: true, cell: (row) => rate((row.batch / row.latency_ms) * 1000) },
    { name: "Interval", isNumber: true, cell: interval, title: "where the median is with 95 %, as a part of it" },
    {
      name: "Noise",
      isNumber: true,
      cell: (row) => (typeof row.measured?.noise === "number" ? percent(row.measured.noise) : "–"),
      title: "of the machine meanwhile: above 10 % is noisy",
    },
    ...(rows.some((row) => (row.share ?? 1) < 1) ? [INTERFERENCE] : []),
    { name: "Measured", cell: provenance },
  ];
  return h(
    "details",
    null,
    h("summary", null, `All ${rows.length} measurements`),
    table({ caption: `Measurements of ${task}`, columns, rows, key: (row) => `${row.key}/${row.batch}`, onChange: again }),
  );
}
