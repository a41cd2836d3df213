// What is wrong at present, the worst first?

import { ago, clock, count, percent } from "./format.js";
import { link } from "./route.js";
import { PATHS, pipelineStatuses, placed } from "./model.js";

/** How long a load failure is news, in milliseconds. */
const NEWS_MS = 600_000;

/**
 * @typedef {Object} Finding
 * @property {"bad"|"warn"} level
 * @property {string} what
 * @property {string} why
 * @property {string} address where to look
 */

/** @returns {Finding[]} */
export function findings(live) {
  const statuses = pipelineStatuses(live);
  const all = [
    ...service(live),
    ...promises(statuses),
    ...agents(live),
    ...replicas(live),
    ...failures(live),
    ...rounds(live),
  ];
  return [...all.filter((f) => f.level === "bad"), ...all.filter((f) => f.level === "warn")];
}

function service(live) {
  const answer = live.answers.get(PATHS.ready);
  if (!answer || answer.value !== null || !answer.refusal) return [];
  return [{ level: "bad", what: "The service is not ready", why: answer.refusal, address: link("fleet") }];
}

function promises(statuses) {
  return statuses.flatMap((p) => {
    const address = link("pipeline", p.name);
    if (p.promise === "broken") {
      const why = `${percent(p.inTime)} of the last minute's requests were in time, ${percent(p.promised)} are promised`;
      return [{ level: "bad", what: `${p.name} does not keep its promise`, why, address }];
    }
    if (p.promise === "loading") {
      const why = `${p.ready} of ${count(p.replicas, "replica")} are ready`;
      return [{ level: "warn", what: `${p.name} is loading`, why, address }];
    }
    return [];
  });
}

function agents(live) {
  const generation = live.get(PATHS.target)?.generation;
  return (live.get(PATHS.agents) ?? []).flatMap((agent) => {
    const address = link("fleet", null, { agent: agent.name });
    if (agent.state === "lost") {
      const why = `last heard ${ago(agent.seen_at)}; it has ${count(agent.devices, "device")} of type ${agent.hardware}`;
      return [{ level: "bad", what: `Agent ${agent.name} is lost`, why, address }];
    }
    const ack = agent.ack;
    if (agent.state === "live" && ack?.error) {
      return [
        { level: "bad", what: `Agent ${agent.name} cannot carry out target ${ack.generation}`, why: ack.error, address },
      ];
    }
    if (agent.state === "live" && ack && generation && ack.generation < generation) {
      const why = `it has target ${ack.generation}, and ${generation} is in force`;
      return [{ level: "warn", what: `Agent ${agent.name} is behind`, why, address }];
    }
    return [];
  });
}

function replicas(live) {
  const { replicas } = placed(live);
  const failed = replicas.filter((replica) => replica.state === "failed");
  const disturbed = replicas.filter((replica) => replica.isDisturbed);
  const found = failed.map((replica) => ({
    level: "bad",
    what: `A replica of ${replica.of?.variant} does not run`,
    why: replica.error || "its agent gives no reason",
    address: link("pipeline", replica.of?.pipeline),
  }));
  const byPipeline = new Map();
  for (const replica of disturbed) {
    const name = replica.of?.pipeline;
    byPipeline.set(name, [...(byPipeline.get(name) ?? []), replica]);
  }
  for (const [name, slow] of byPipeline) {
    const worst = Math.max(...slow.map((replica) => replica.slowness));
    const why = `up to ${worst.toFixed(2)} times the time of the profile, without being overloaded`;
    const verb = slow.length === 1 ? "is" : "are";
    const what = `${count(slow.length, "replica")} of ${name} ${verb} slower than measured`;
    found.push({ level: "warn", what, why, address: link("pipeline", name) });
  }
  return found;
}

function failures(live) {
  return (live.get(PATHS.agents) ?? []).flatMap((agent) => {
    const recent = (agent.load_failures ?? []).filter((f) => Date.now() - new Date(f.at).getTime() < NEWS_MS);
    return recent.map((f) => ({
      level: "warn",
      what: `${f.variant || "A replica"} could not be loaded at ${agent.name}`,
      why: `${f.error} (${clock(f.at)})`,
      address: link("events", null, { q: agent.name }),
    }));
  });
}

/** The newest decision of a pipeline, if it failed. */
function rounds(live) {
  const newest = new Map();
  for (const decision of live.get(PATHS.decisions) ?? []) {
    if (!newest.has(decision.pipeline)) newest.set(decision.pipeline, decision);
  }
  const failed = [...newest.values()].filter((decision) => decision.decision === "failed");
  return failed.map((decision) => ({
    level: "warn",
    what: `The last round of replanning of ${decision.pipeline} failed`,
    why: decision.reason,
    address: link("decisions", null, { id: decision.id }),
  }));
}
