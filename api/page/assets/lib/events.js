// What has happened? Targets, decisions, ends of plans, failures to load, and agents that came or went, in one list.

import { PATHS, isOpen } from "./model.js";

/**
 * @typedef {Object} Event
 * @property {string} id permanent: the same event has the same one tomorrow
 * @property {string} at
 * @property {"target"|"plan"|"decision"|"failure"|"agent"} kind
 * @property {string} what
 * @property {string} why
 * @property {{view: string, name?: string, query?: Object}|null} about
 */

/** Needs of the list. */
export function eventNeeds(live) {
  const isOld = live.get(PATHS.history)?.[0]?.generation !== live.get(PATHS.target)?.generation;
  return [
    { path: PATHS.target },
    { path: PATHS.agents },
    { path: PATHS.decisions },
    { path: PATHS.plans, every: 10_000 },
    { path: PATHS.history, every: isOld ? undefined : Infinity },
  ];
}

/** All events, the newest first. @returns {Event[]} */
export function events(live) {
  const all = [...targets(live), ...plans(live), ...decisions(live), ...agents(live)];
  return all.sort((a, b) => (a.at < b.at ? 1 : a.at > b.at ? -1 : 0));
}

function targets(live) {
  return (live.get(PATHS.history) ?? []).map((target) => {
    const replicas = target.placement?.replicas?.length ?? 0;
    const names = [...new Set((target.placement?.groups ?? []).map((group) => group.pipeline))].sort();
    const of = names.length ? ` of ${names.join(", ")}` : "";
    return {
      id: `target-${target.generation}`,
      at: target.committed_at,
      kind: "target",
      what: `Target ${target.generation}: ${replicas} replicas${of}`,
      why: target.reason,
      about: target.plans.length === 1 ? { view: "plan", name: target.plans[0] } : { view: "plans" },
    };
  });
}

function plans(live) {
  const over = (live.get(PATHS.plans) ?? []).filter((plan) => !isOpen(plan) && plan.finished_at);
  return over.map((plan) => ({
    id: `plan-${plan.id}`,
    at: plan.finished_at,
    kind: "plan",
    what: `Plan for ${(plan.pipelines ?? []).join(", ") || "a problem"}: ${plan.state}`,
    why: plan.error ?? `planner ${plan.options?.planner ?? "milp"}`,
    about: { view: "plan", name: plan.id },
  }));
}

function decisions(live) {
  // That a plan stays is no event; the view of decisions has it.
  const changing = (live.get(PATHS.decisions) ?? []).filter((decision) => decision.decision !== "kept");
  return changing.map((decision) => ({
    id: `decision-${decision.id}`,
    at: decision.made_at,
    kind: "decision",
    what: `${decision.pipeline}: ${decision.decision}`,
    why: decision.reason,
    about: { view: "decisions", query: { id: decision.id } },
  }));
}

function agents(live) {
  return (live.get(PATHS.agents) ?? []).flatMap((agent) => {
    const about = { view: "fleet", query: { agent: agent.name } };
    const found = [
      {
        id: `agent-${agent.number}-${Date.parse(agent.registered_at)}`,
        at: agent.registered_at,
        kind: "agent",
        what: `Agent ${agent.name} registered`,
        why: `${agent.devices} devices of type ${agent.hardware}`,
        about,
      },
    ];
    if (agent.state !== "live") {
      found.push({
        id: `agent-${agent.number}-${agent.state}`,
        at: agent.seen_at,
        kind: "agent",
        what: `Agent ${agent.name} ${agent.state === "lost" ? "was heard for the last time" : "left"}`,
        why: agent.state,
        about,
      });
    }
    const failures = (agent.load_failures ?? []).map((failure) => ({
      id: `failure-${agent.number}-${failure.replica}-${Date.parse(failure.at)}`,
      at: failure.at,
      kind: "failure",
      what: `${agent.name}: ${failure.variant || "a replica"} could not be loaded`,
      why: failure.error,
      about,
    }));
    return [...found, ...failures];
  });
}
