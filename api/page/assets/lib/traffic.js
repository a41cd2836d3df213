// How many queries per second go along each edge under a plan, and what happens at each task?

/** Mean queries that one query of a variant makes at a child task. */
export function fanout(variant, edge) {
  const counts = variant?.fanout_counts?.[edge.to];
  if (counts) return Object.entries(counts).reduce((sum, [n, weight]) => sum + Number(n) * weight, 0);
  return variant?.fanout_to?.[edge.to] ?? (variant?.fanout ?? 1) * (edge.ratio ?? 1);
}

/**
 * The load of tasks and edges at a rate of requests, with the variants of a plan.
 * @param {any} spec the pipeline of the plan's problem
 * @param {any} part the pipeline's part of the plan; null: the first variant of each task
 * @param {number} qps
 */
export function traffic(spec, part, qps) {
  const edges = spec.edges ?? [];
  const rates = new Map(spec.tasks.map((task) => [task.name, 0]));
  const targets = new Set(edges.map((edge) => edge.to));
  spec.tasks.filter((task) => !targets.has(task.name)).forEach((task) => rates.set(task.name, qps));
  const loads = new Map();
  for (const task of ordered(
    spec.tasks.map((t) => t.name),
    edges,
  )) {
    for (const edge of edges.filter((e) => e.from === task)) {
      const load = rates.get(task) * meanFanout(spec, part, edge);
      loads.set(edge, load);
      // At a join only the primary edge makes queries.
      const isJoin = edges.filter((e) => e.to === edge.to).length > 1;
      const isMaking = !isJoin || edge.primary || !edges.some((e) => e.to === edge.to && e.primary);
      if (isMaking) rates.set(edge.to, (rates.get(edge.to) ?? 0) + load);
    }
  }
  return { rates, edges: edges.map((edge) => ({ from: edge.from, to: edge.to, qps: loads.get(edge) ?? 0 })) };
}

function meanFanout(spec, part, edge) {
  const variants = spec.tasks.find((task) => task.name === edge.from)?.variants ?? [];
  const groups = (part?.assignments ?? []).filter((group) => group.task === edge.from && group.traffic_share > 0);
  const share = groups.reduce((sum, group) => sum + group.traffic_share, 0);
  if (!share) return fanout(variants[0], edge);
  const weighted = groups.map(
    (g) =>
      g.traffic_share *
      fanout(
        variants.find((v) => v.name === g.variant),
        edge,
      ),
  );
  return weighted.reduce((a, b) => a + b, 0) / share;
}

/** Tasks so that parents come first. */
function ordered(names, edges) {
  const done = new Set();
  const list = [];
  const visit = (name, depth) => {
    if (done.has(name) || depth > names.length) return;
    done.add(name);
    edges.filter((e) => e.to === name).forEach((e) => visit(e.from, depth + 1));
    list.push(name);
  };
  names.forEach((name) => visit(name, 0));
  return list;
}

/** What a plan does at one task: its groups, and the times that the estimate says. */
export function taskFacts(task, part, estimate, pipeline) {
  const groups = (part?.assignments ?? []).filter((group) => group.task === task);
  const times = (estimate?.tasks ?? []).find((t) => t.pipeline === pipeline && t.task === task) ?? null;
  const replicas = groups.reduce((sum, group) => sum + group.replicas, 0);
  const used = groups.length ? Math.max(...groups.map((group) => group.utilisation ?? 0)) : null;
  return { groups, replicas, utilisation: used, times };
}
