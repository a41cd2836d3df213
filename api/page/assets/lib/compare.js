// What differs between two plans of one pipeline?

import { costOf, replicasOf } from "./model.js";

const keyOf = (group) => [group.task, group.variant, group.hardware, group.share ?? 1].join("/");

/**
 * One row for each group of either plan.
 * @param {any|null} before the pipeline's part of the first plan
 * @param {any|null} after of the second
 */
export function groupDifferences(before, after) {
  const rows = new Map();
  const put = (part, side) =>
    (part?.assignments ?? []).forEach((group) => {
      const key = keyOf(group);
      rows.set(key, {
        ...(rows.get(key) ?? {
          key,
          task: group.task,
          variant: group.variant,
          hardware: group.hardware,
          share: group.share ?? 1,
        }),
        [side]: group,
      });
    });
  put(before, "before");
  put(after, "after");
  return [...rows.values()]
    .map((row) => ({ ...row, change: (row.after?.replicas ?? 0) - (row.before?.replicas ?? 0) }))
    .sort((a, b) => a.task.localeCompare(b.task) || a.variant.localeCompare(b.variant));
}

/** The figures of a plan for a pipeline. */
export function figures(document, part) {
  if (!part) return null;
  const judged = (document.plan?.estimate?.judged_on?.pipelines ?? []).find((p) => p.pipeline === part.name);
  const isAlone = document.plan?.pipelines?.length === 1;
  return {
    demand: part.demand_qps,
    replicas: replicasOf(part),
    cost: costOf(document.problem, part),
    accuracy: part.accuracy,
    // The estimate of a plan for several pipelines counts all requests together.
    attainment: judged?.attainment ?? (isAlone ? document.plan?.estimate?.attainment : null) ?? null,
    p99: isAlone ? (document.plan?.estimate?.p99_ms ?? null) : null,
  };
}

/** The reasons that a plan gives for the groups of a pipeline, by group. */
export function reasons(document, pipeline) {
  const all = document?.plan?.explanation?.decisions ?? [];
  return all.filter((decision) => decision.what.startsWith(`${pipeline}/`));
}
