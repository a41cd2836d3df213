// What runs, is the promise kept, and what is wrong? The first view.

import { h } from "../lib/dom.js";
import { accuracy, ago, clock, cost, count, number, percent, rate } from "../lib/format.js";
import { findings } from "../lib/health.js";
import { PATHS, agentRows, devicesByType, fleetNeeds, pipelineStatuses, plansInForce, specNeeds } from "../lib/model.js";
import { link } from "../lib/route.js";
import { badge, factList, meter, nothing, pipelineLink, replanWord, section, source, time } from "../parts/parts.js";
import { table } from "../parts/table.js";

export const title = () => "Fleet";

export const needs = (live) => [...fleetNeeds(live), ...specNeeds(live)];

export function render(live, route, again) {
  const statuses = pipelineStatuses(live);
  return h(
    "div",
    { class: "view" },
    h("h1", null, "Fleet"),
    wrong(live),
    facts(live, statuses),
    section("pipelines", "Pipelines", pipelines(live, statuses, again)),
    section("devices", "Devices", devices(live)),
    section("agents", "Agents", agents(live, route, again)),
  );
}

function wrong(live) {
  const found = findings(live);
  const line = (finding) =>
    h(
      "li",
      { class: finding.level, "data-key": finding.what },
      h("a", { href: finding.address }, finding.what),
      h("span", { class: "note" }, finding.why),
    );
  const all = found.length
    ? h("ul", { class: "findings" }, found.map(line))
    : h("p", { class: "fine" }, "Nothing is wrong.");
  return h(
    "section",
    { "aria-labelledby": "wrong", class: found.length ? "wrong some" : "wrong", "data-key": "wrong" },
    h("h2", { id: "wrong" }, found.length ? `${count(found.length, "thing")} to look at` : "State"),
    h("div", { "aria-live": "polite" }, all),
  );
}

function facts(live, statuses) {
  const target = live.get(PATHS.target);
  const types = devicesByType(live);
  const sum = (key) => types.reduce((all, type) => all + type[key], 0);
  const [devices, used, added] = [sum("devices"), sum("used"), sum("added")];
  const deployed = statuses.filter((p) => p.plan);
  const kept = deployed.filter((p) => p.promise === "kept" || p.promise === "idle").length;
  const documents = new Map([...plansInForce(live).values()].map(({ document }) => [document.id, document]));
  const price = [...documents.values()].reduce((sum, document) => sum + (document.plan?.cost_per_hour ?? 0), 0);
  const agents = live.get(PATHS.agents) ?? [];
  const here = agents.filter((agent) => agent.state === "live").length;
  const since = target?.committed_at;
  return factList([
    {
      name: "Promises kept",
      value: `${kept} of ${deployed.length}`,
      note: "last minute",
      level: kept < deployed.length ? "bad" : null,
      title: "Pipelines with a plan in force whose requests were in time, or that had none. From the agents' reports.",
    },
    {
      name: "Cost",
      value: cost(deployed.length ? price : null),
      note: "as planned",
      title: "Price of the devices of all plans in force. From the plans.",
    },
    {
      name: "Devices in use",
      value: `${used} of ${devices}`,
      note: added ? `by the target, ${added} more replicas for the load` : `${devices - used} idle`,
      title: "Devices of live agents with a replica of the target. From the target and the agents' registrations.",
    },
    {
      name: "Agents",
      value: `${here} live`,
      note: agents.length > here ? `${agents.length - here} lost or left` : "all",
      title: "Agents by their heartbeats.",
    },
    {
      name: "Target",
      value: number(target?.generation),
      note: since ? `since ${clock(since)}` : "nothing is deployed",
      title: since ? `${target.reason}; ${ago(since)}` : null,
    },
  ]);
}

function pipelines(live, statuses, again) {
  if (!statuses.length) return nothing("No pipeline is registered. `apportion deploy` registers, plans and deploys one.");
  const worst = ["broken", "loading", "kept", "idle", "not deployed"];
  const rows = [...statuses].sort((a, b) => worst.indexOf(a.promise) - worst.indexOf(b.promise));
  const columns = [
    { name: "Pipeline", cell: (p) => pipelineLink(p.name) },
    {
      name: "Promise",
      cell: (p) => badge(p.promise),
      title: "kept: as many requests in time as promised, in the last minute",
    },
    {
      name: "In time",
      isNumber: true,
      cell: (p) => percent(p.inTime),
      title: "of the last minute's requests, agents' reports",
    },
    {
      name: "Promised",
      isNumber: true,
      title: "from the registered pipeline",
      cell: (p) => (p.slo ? `${percent(p.promised)} in ${number(p.slo)} ms` : "–"),
    },
    { name: "Load", isNumber: true, cell: (p) => rate(p.offered), title: "requests per second, mean of the last minute" },
    {
      name: "Planned for",
      isNumber: true,
      cell: (p) => (p.planned === null ? "–" : rate(p.planned)),
      title: "from the plan",
    },
    {
      name: "Replicas",
      isNumber: true,
      title: "ready, of the target's",
      cell: (p) => (p.plan ? (p.ready === p.replicas ? p.replicas : `${p.ready} of ${p.replicas}`) : "–"),
    },
    { name: "Accuracy", isNumber: true, cell: (p) => accuracy(p.accuracy), title: "as planned" },
    { name: "Cost", isNumber: true, cell: (p) => cost(p.cost), title: "as planned, at the prices of the plan's problem" },
    { name: "Replanned", cell: (p) => replanWord(p.replan) },
  ];
  return [
    source("Requests of the last minute, as agents reported them", live.answers.get(PATHS.loads)?.at),
    table({ caption: "Pipelines", columns, rows, key: (p) => p.name, onChange: again }),
  ];
}

function devices(live) {
  const rows = devicesByType(live);
  if (!rows.length) return nothing("No agent has joined and no hardware type is registered.");
  const columns = [
    { name: "Type", cell: (t) => t.name },
    { name: "In use", cell: (t) => meter(t.devices ? t.used / t.devices : 0, `${t.used} of ${t.devices}`) },
    {
      name: "Idle",
      isNumber: true,
      cell: (t) => Math.max(0, t.devices - t.used - t.added),
      title: "at least: replicas that were added for the load may share devices",
    },
    {
      name: "Added for the load",
      isNumber: true,
      cell: (t) => t.added,
      title: "replicas that agents have loaded beyond the target, as the load rose",
    },
    { name: "Lost", isNumber: true, cell: (t) => t.lost, title: "devices of agents that do not report" },
    { name: "Agents", isNumber: true, cell: (t) => t.agents },
    { name: "Price", isNumber: true, cell: (t) => (t.price === null ? "–" : cost(t.price)), title: "of one device" },
  ];
  return [
    source("A device is in use if the target has a replica on it", live.get(PATHS.target)?.committed_at),
    table({ caption: "Devices by type", columns, rows, key: (t) => t.name }),
  ];
}

function agents(live, route, again) {
  const order = ["lost", "live", "left"];
  const rows = agentRows(live).sort((a, b) => order.indexOf(a.state) - order.indexOf(b.state) || a.number - b.number);
  if (!rows.length) return nothing("No agent has joined.");
  const generation = live.get(PATHS.target)?.generation;
  const runs = (agent) => {
    const all = agent.runs.map((run) =>
      h("li", null, h("a", { href: link("pipeline", run.pipeline) }, run.name), run.count > 1 ? ` × ${run.count}` : null),
    );
    const added = agent.added ? h("li", { class: "note" }, `${count(agent.added, "more replica")} for the load`) : null;
    return all.length || added ? h("ul", { class: "inline" }, all, added) : "–";
  };
  const columns = [
    { name: "Agent", cell: (agent) => agent.name },
    { name: "State", cell: (agent) => badge(agent.state) },
    { name: "Type", cell: (agent) => agent.hardware },
    { name: "Zone", cell: (agent) => agent.zone ?? "–", title: "Machines of one zone may fail together" },
    {
      name: "Devices",
      isNumber: true,
      cell: (agent) => `${agent.used} of ${agent.devices}`,
      title: "in use by the target",
    },
    { name: "Replicas", cell: runs, title: "of the target, and those that the agent has added as the load rose" },
    { name: "Ready", isNumber: true, cell: (agent) => `${agent.ready} of ${agent.mine.length}` },
    {
      name: "Target",
      isNumber: true,
      title: "that the agent has acknowledged",
      cell: (agent) =>
        agent.ack ? (agent.ack.generation === generation ? generation : `${agent.ack.generation} (old)`) : "–",
    },
    { name: "Heard", cell: (agent) => (agent.state === "live" ? "just now" : time(agent.seen_at)) },
  ];
  const mark = (agent) => (agent.name === route.query.agent ? "marked" : null);
  return [
    source("From registrations, heartbeats and acknowledgements", live.answers.get(PATHS.agents)?.at),
    table({ caption: "Agents", columns, rows, key: (agent) => String(agent.number), mark, onChange: again }),
  ];
}
