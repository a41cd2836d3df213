// How does one pipeline do: its graph, its numbers over time, its plan, and the plan that would come next?

import { h } from "../lib/dom.js";
import { accuracy, clock, cost, ms, number, percent, rate } from "../lib/format.js";
import { HOLDS_PATH, JUDGED_S, PATHS, fleetNeeds, pipelinePath, pipelineStatuses, placed, planNeed } from "../lib/model.js";
import { link, replaceQuery } from "../lib/route.js";
import { WINDOWS, timeline, timelineNeeds } from "../lib/timeline.js";
import { taskFacts, traffic } from "../lib/traffic.js";
import { chart } from "../parts/chart.js";
import { graph } from "../parts/graph.js";
import { holdControl } from "../parts/holds.js";
import { badge, factList, nothing, planLink, replanWord, section, source, time } from "../parts/parts.js";
import { table } from "../parts/table.js";
import { newestDecisions, proposedPlan, versus } from "./pipeline-plans.js";

export const title = (route) => route.name ?? "Pipeline";

const windowOf = (route) => {
  const asked = Number(route.query.window);
  return WINDOWS.some(([seconds]) => seconds === asked) ? asked : 900;
};

export function needs(live, route) {
  const proposed = proposedPlan(live, route.name);
  return [
    ...fleetNeeds(live),
    { path: pipelinePath(route.name), every: 20_000 },
    { path: HOLDS_PATH },
    ...timelineNeeds(live, route.name, windowOf(route)),
    ...(proposed ? [planNeed(live, proposed.id)] : []),
  ];
}

export function render(live, route, again) {
  const name = route.name ?? "";
  const status = pipelineStatuses(live).find((p) => p.name === name);
  if (!status) {
    const isKnown = live.get(PATHS.pipelines);
    const text = isKnown ? `There is no pipeline “${name}”.` : "Loading";
    return h(
      "div",
      { class: "view" },
      h("h1", null, name),
      h("p", null, text, " ", h("a", { href: link("fleet") }, "All pipelines")),
    );
  }
  const spec = status.plan?.spec ?? status.spec;
  return h(
    "div",
    { class: "view" },
    h("h1", null, name, " ", badge(status.promise)),
    promise(status),
    facts(live, status),
    section("graph", "Tasks", spec ? tasks(live, status, spec) : nothing("Loading")),
    section("time", "Over time", overTime(live, route, status, again)),
    section("plans", "Plan in force and next plan", versus(live, status)),
    section("hold", "Hold", holdControl(live, name, again)),
    section("decisions", "Newest decisions", newestDecisions(live, name)),
    h(
      "p",
      null,
      h("a", { href: link("what-if", name) }, "What if"),
      " · ",
      h("a", { href: link("profiles", name) }, `Profiles of ${name}`),
      " · ",
      h("a", { href: link("events", null, { q: name }) }, "Events"),
      " · ",
      h("a", { href: pipelinePath(name) }, "Specification (JSON)"),
    ),
  );
}

function promise(status) {
  if (!status.slo) return null;
  return h(
    "p",
    { class: "lead" },
    `${percent(status.promised)} of requests within ${number(status.slo)} ms. `,
    `Replanned: ${replanWord(status.replan)}.`,
  );
}

function facts(live, status) {
  const plan = status.plan;
  const target = live.get(PATHS.target);
  const minute = "From the agents' reports of the last minute.";
  const isBroken = status.promise === "broken";
  return factList([
    {
      name: "In time",
      value: percent(status.inTime),
      note: `last ${JUDGED_S} s`,
      level: isBroken ? "bad" : null,
      title: minute,
    },
    {
      name: "Load",
      value: rate(status.offered),
      title: minute,
      note: status.planned === null ? `last ${JUDGED_S} s` : `planned for ${rate(status.planned)}`,
    },
    { name: "Accuracy", value: accuracy(status.accuracy), note: "as planned", title: "From the plan in force." },
    { name: "Cost", value: cost(status.cost), note: "as planned", title: "From the plan in force, at its prices." },
    {
      name: "Replicas",
      value: plan ? `${status.ready} of ${status.replicas}` : "–",
      note: "ready",
      title: "Of the target; from the agents' acknowledgements.",
    },
    {
      name: "Plan",
      value: plan ? planLink(plan.document.id) : "none",
      title: "The plan in force.",
      note: plan && target?.committed_at ? `target of ${clock(target.committed_at)}` : replanWord(status.replan),
    },
  ]);
}

function tasks(live, status, spec) {
  const plan = status.plan;
  const part = plan?.part ?? null;
  const estimate = plan?.document.plan.estimate ?? null;
  const { replicas } = placed(live);
  const mine = replicas.filter((replica) => replica.of?.pipeline === status.name && replica.state === "ready");
  const readyOf = (group) =>
    part
      ? mine.filter(
          ({ of }) =>
            of.task === group.task &&
            of.variant === group.variant &&
            of.hardware === group.hardware &&
            of.share === (group.share ?? 1),
        ).length
      : null;
  const qps = part ? part.demand_qps : status.offered;
  const about = part
    ? `Load, times and use at the ${rate(part.demand_qps)} of the plan, from its estimate`
    : "Without a plan";
  return [
    source(about, plan?.document.finished_at ?? null),
    graph({ name: status.name, spec, part, estimate, qps, readyOf }),
    groupTable(status.name, spec, part, estimate, qps, readyOf),
  ];
}

function groupTable(name, spec, part, estimate, qps, readyOf) {
  const flow = traffic(spec, part, qps);
  const rows = spec.tasks.flatMap((task) => {
    const fact = taskFacts(task.name, part, estimate, name);
    return fact.groups.map((group) => ({
      task: task.name,
      group,
      fact,
      load: flow.rates.get(task.name) * (group.traffic_share ?? 0),
    }));
  });
  const columns = [
    { name: "Task", cell: (row) => row.task },
    { name: "Variant", cell: (row) => row.group.variant },
    {
      name: "Device",
      cell: (row) => (row.group.share < 1 ? `${row.group.share * 8}/8 of ${row.group.hardware}` : row.group.hardware),
    },
    { name: "Batch", isNumber: true, cell: (row) => row.group.batch, title: "most queries that run together" },
    {
      name: "Replicas",
      isNumber: true,
      cell: (row) => `${readyOf(row.group)} of ${row.group.replicas}`,
      title: "ready, of the plan's",
    },
    { name: "Traffic", isNumber: true, cell: (row) => percent(row.group.traffic_share), title: "of the task's queries" },
    { name: "Load", isNumber: true, cell: (row) => rate(row.load), title: "queries per second under the plan" },
    { name: "Busy", isNumber: true, cell: (row) => percent(row.group.utilisation), title: "load over capacity" },
    {
      name: "Queueing",
      isNumber: true,
      title: "mean, from the plan's estimate",
      cell: (row) => ms(row.fact.times && row.fact.times.queueing_ms + row.fact.times.batch_wait_ms),
    },
    {
      name: "Execution",
      isNumber: true,
      title: "mean, from the plan's estimate",
      cell: (row) => ms(row.fact.times?.service_ms ?? null),
    },
  ];
  if (!rows.length) return null;
  const key = ({ task, group }) => `${task}/${group.variant}/${group.hardware}/${group.share}`;
  return h(
    "details",
    null,
    h("summary", null, "The same as a table"),
    table({ caption: "Groups of the plan in force", columns, rows, key }),
  );
}

function overTime(live, route, status, again) {
  const window = windowOf(route);
  const series = timeline(live, status.name, window);
  const choose = WINDOWS.map(([seconds, text]) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(seconds === window),
        onclick: () => replaceQuery(route, { window: seconds }),
      },
      text,
    ),
  );
  const marks = series.marks.map((mark) => ({ at: mark.at, text: mark.reason }));
  const lowest = Math.min(...series.attainment.filter((value) => value !== null), status.promised * 100);
  const key = `${status.name}:${window}`;
  const box = (heading, props) =>
    h(
      "div",
      { class: "chart-box" },
      h("h3", null, heading),
      chart({ ...props, key: `${key}:${heading}`, label: `${heading} of ${status.name}`, marks }),
    );
  const promised = series.times.map(() => status.promised * 100);
  return [
    h("div", { class: "choices", role: "group", "aria-label": "Length of the charts" }, choose),
    source(`Means over ${series.step} s from the agents' reports; accuracy and cost as planned. Dotted lines: a new plan`),
    h(
      "div",
      { class: "charts" },
      box("Load (requests/s)", {
        data: [series.times, series.offered, series.planned],
        series: [{ name: "offered" }, { name: "planned for", isStep: true }],
      }),
      box("In time (%)", {
        data: [series.times, series.attainment, promised],
        range: [Math.max(0, Math.floor(lowest / 10) * 10 - 1), 100.5],
        series: [{ name: "in time" }, { name: "promised", isStep: true }],
        unit: " %",
      }),
      box("Accuracy", {
        data: [series.times, series.accuracy],
        range: [null, 1],
        series: [{ name: "as planned", isStep: true }],
      }),
      box("Cost per hour", { data: [series.times, series.cost], series: [{ name: "as planned", isStep: true }] }),
    ),
    planChanges(series.marks, again),
  ];
}

function planChanges(marks, again) {
  if (!marks.length) return nothing("The plan did not change.");
  const columns = [
    { name: "Since", cell: (mark) => time(mark.at * 1000) },
    { name: "Plan", cell: (mark) => (mark.plan ? planLink(mark.plan) : "none") },
    {
      name: "Target",
      isNumber: true,
      cell: (mark) => h("a", { href: link("events", null, { id: `target-${mark.generation}` }) }, mark.generation),
    },
    { name: "Planned for", isNumber: true, cell: (mark) => (mark.qps === null ? "–" : rate(mark.qps)) },
    { name: "Replicas", isNumber: true, cell: (mark) => number(mark.replicas) },
    { name: "Accuracy", isNumber: true, cell: (mark) => accuracy(mark.accuracy) },
    { name: "Cost", isNumber: true, cell: (mark) => cost(mark.cost) },
    { name: "Reason", cell: (mark) => mark.reason },
  ];
  return h(
    "details",
    null,
    h("summary", null, `Changes of the plan (${marks.length})`),
    table({
      caption: "Changes of the plan, the newest first",
      columns,
      rows: [...marks].reverse(),
      key: (m) => String(m.generation),
      onChange: again,
    }),
  );
}
