// What do the service's documents say about the fleet? Each function here is pure: documents in, facts out.
//
// The rules for a promise are those of `apportion status`.

/** Seconds over which a promise is judged. */
export const JUDGED_S = 60;
/** Share of requests in time, in percent, if a pipeline does not say it. */
const PERCENTILE = 99;
const NEVER = Infinity;
const SLOW_MS = 10_000;

export const PATHS = {
  target: "v1/target",
  agents: "v1/agents",
  hardware: "v1/hardware",
  pipelines: "v1/pipelines",
  loads: `v1/arrivals?seconds=${JUDGED_S}`,
  decisions: "v1/decisions",
  history: "v1/target/history",
  plans: "v1/plans",
  ready: "readyz",
};

/** The holds that keep rounds of replanning from deploying. */
export const HOLDS_PATH = "v1/holds";

export const planPath = (id) => `v1/plans/${id}`;
export const pipelinePath = (name) => `v1/pipelines/${encodeURIComponent(name)}`;

const OPEN = new Set(["queued", "solving"]);

/** Whether a plan still waits or is being solved. */
export const isOpen = (plan) => OPEN.has(plan.state);

/** The need for a plan: one that is over never changes. */
export function planNeed(live, id) {
  const known = live.get(planPath(id));
  return { path: planPath(id), every: known && !isOpen(known) ? NEVER : undefined };
}

/** What most views need. */
export function fleetNeeds(live) {
  const plans = (live.get(PATHS.target)?.plans ?? []).map((id) => planNeed(live, id));
  return [
    { path: PATHS.target },
    { path: PATHS.agents },
    { path: PATHS.pipelines },
    { path: PATHS.loads },
    { path: PATHS.decisions },
    { path: PATHS.hardware, every: SLOW_MS },
    { path: PATHS.ready, every: SLOW_MS },
    ...plans,
  ];
}

/** Needs for the specs of pipelines, read again when their version rises: it is their entity tag. */
export function specNeeds(live) {
  return (live.get(PATHS.pipelines) ?? []).map(({ name, version }) => {
    const path = pipelinePath(name);
    return { path, every: live.answers.get(path)?.tag === `"${version}"` ? NEVER : undefined };
  });
}

/**
 * The parts of the plans in force, by pipeline.
 * @returns {Map<string, {document: any, part: any, spec: any, cost: number}>}
 */
export function plansInForce(live) {
  const found = new Map();
  for (const id of live.get(PATHS.target)?.plans ?? []) {
    const document = live.get(planPath(id));
    for (const part of document?.plan?.pipelines ?? []) found.set(part.name, partOf(document, part));
  }
  return found;
}

/** A pipeline's part of a plan with its spec and its cost. */
export function partOf(document, part) {
  const spec = (document.problem?.pipelines ?? []).find((p) => p.name === part.name) ?? null;
  return { document, part, spec, cost: costOf(document.problem, part) };
}

/** Price per hour of a pipeline's replicas under a plan, at the prices of the plan's problem. */
export function costOf(problem, part) {
  const prices = new Map((problem?.hardware ?? []).map((type) => [type.name, type.price_per_hour ?? 1]));
  const price = (group) => (prices.get(group.hardware) ?? 1) * (group.share ?? 1) * group.replicas;
  return part.assignments.reduce((sum, group) => sum + price(group), 0);
}

/** Replicas of a part of a plan. */
export const replicasOf = (part) => part.assignments.reduce((sum, group) => sum + group.replicas, 0);

/** What was placed last, and the answers from which it was made: an answer that changes is another object. */
let lastPlaced = { target: null, agents: null, value: null };

/**
 * The replicas of the target with what agents say about them: all, by pipeline, and by agent.
 * @returns {{replicas: any[], byPipeline: Map<string, any[]>, byAgent: Map<number, any[]>}}
 */
export function placed(live) {
  const [target, agents] = [live.answers.get(PATHS.target), live.answers.get(PATHS.agents)];
  if (!lastPlaced.value || lastPlaced.target !== target || lastPlaced.agents !== agents) {
    lastPlaced = { target, agents, value: place(target?.value, agents?.value ?? []) };
  }
  return lastPlaced.value;
}

function place(target, agents) {
  const placement = target?.placement ?? { groups: [], replicas: [] };
  const known = [...(placement.groups ?? []), ...(placement.offered ?? [])];
  const groups = new Map(known.map((group) => [group.id, group]));
  const states = new Map();
  for (const agent of agents) {
    for (const replica of agent.ack?.replicas ?? []) {
      states.set(replica.replica, { ...replica, isLive: agent.state === "live" });
    }
  }
  const replicas = (placement.replicas ?? []).map((replica) => {
    const said = states.get(replica.id);
    return {
      ...replica,
      of: groups.get(replica.group),
      state: said?.isLive ? said.state : "unknown",
      error: said?.error ?? "",
      slowness: said?.slowness ?? 0,
      isDisturbed: Boolean(said?.isLive && said.interfered),
    };
  });
  return {
    replicas,
    byPipeline: Map.groupBy(replicas, (replica) => replica.of?.pipeline),
    byAgent: Map.groupBy(replicas, (replica) => replica.agent),
  };
}

/**
 * One row for each pipeline.
 * @typedef {Object} PipelineStatus
 * @property {string} name
 * @property {"kept"|"broken"|"loading"|"idle"|"not deployed"} promise
 */
export function pipelineStatuses(live) {
  const loads = new Map((live.get(PATHS.loads) ?? []).map((load) => [load.pipeline, load]));
  const inForce = plansInForce(live);
  const { byPipeline } = placed(live);
  const names = new Map((live.get(PATHS.pipelines) ?? []).map((p) => [p.name, p]));
  for (const name of inForce.keys()) if (!names.has(name)) names.set(name, { name, replan: "off" });
  return [...names.values()].map((listed) => {
    const plan = inForce.get(listed.name) ?? null;
    const spec = live.get(pipelinePath(listed.name)) ?? plan?.spec ?? null;
    const mine = byPipeline.get(listed.name) ?? [];
    return judged(listed, plan, spec, loads.get(listed.name) ?? null, mine);
  });
}

function judged(listed, plan, spec, load, replicas) {
  const over = load ? load.ok + load.late + load.dropped + load.failed : 0;
  const inTime = over > 0 ? load.ok / over : null;
  const promised = (spec?.percentile ?? PERCENTILE) / 100;
  const ready = replicas.filter((replica) => replica.state === "ready").length;
  const promise = !plan
    ? "not deployed"
    : ready < replicas.length
      ? "loading"
      : inTime === null
        ? "idle"
        : inTime >= promised
          ? "kept"
          : "broken";
  return {
    name: listed.name,
    replan: listed.replan,
    isProfiled: listed.profiled,
    plan,
    spec,
    load,
    inTime,
    promised,
    promise,
    ready,
    replicas: replicas.length,
    offered: load ? load.offered / JUDGED_S : 0,
    planned: plan?.part.demand_qps ?? null,
    accuracy: plan?.part.accuracy ?? null,
    cost: plan?.cost ?? null,
    slo: spec?.slo_ms ?? null,
  };
}

/** Devices by type: how many live agents have, and on how many the target has replicas. */
export function devicesByType(live) {
  const types = new Map();
  const row = (name) => {
    if (!types.has(name)) types.set(name, { name, price: null, devices: 0, used: 0, added: 0, lost: 0, agents: 0 });
    return types.get(name);
  };
  for (const type of live.get(PATHS.hardware) ?? []) row(type.name).price = type.price_per_hour;
  for (const agent of agentRows(live)) {
    if (agent.state === "left") continue;
    const type = row(agent.hardware);
    type.agents += 1;
    if (agent.state === "live") {
      type.devices += agent.devices;
      type.used += agent.used;
      type.added += agent.added;
    } else type.lost += agent.devices;
  }
  return [...types.values()].sort((a, b) => a.name.localeCompare(b.name));
}

/** One row for each agent, with the replicas that the target gives it and those that it has added to them. */
export function agentRows(live) {
  const { byAgent } = placed(live);
  return (live.get(PATHS.agents) ?? []).map((agent) => {
    const mine = byAgent.get(agent.number) ?? [];
    const said = agent.state === "live" ? (agent.ack?.replicas ?? []) : [];
    const own = new Set(mine.map((replica) => replica.id));
    const added = said.filter((replica) => !own.has(replica.replica) && replica.state !== "draining").length;
    const ready = mine.filter((replica) => replica.state === "ready").length;
    const used = new Set(mine.map((replica) => replica.device)).size;
    return { ...agent, mine, used, ready, added, runs: countedGroups(mine) };
  });
}

/** `find-l × 2` for each variant of these replicas. */
function countedGroups(replicas) {
  const counts = new Map();
  for (const replica of replicas) {
    const key = `${replica.of?.pipeline ?? "?"}/${replica.of?.variant ?? "?"}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return [...counts].map(([name, count]) => ({ name, count, pipeline: name.split("/")[0] }));
}
