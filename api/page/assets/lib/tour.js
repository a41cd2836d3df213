// Where is a demo now, and what is worth a look? The demo stores its load as a trace when it begins to play it.

import { link } from "./route.js";

/** Name of the trace of a demo's load: it says the length in seconds and the pipeline. */
const LOAD_NAME = /^demo-(\d+)s-of-(.+)$/;

/**
 * @typedef {Object} DemoLoad
 * @property {string} trace identifier of the trace
 * @property {number} begin Unix time
 * @property {number} seconds
 * @property {string} pipeline
 */

/** The load of the newest demo; null if none has begun to play. @returns {DemoLoad|null} */
export function demoLoad(traces) {
  for (const trace of traces ?? []) {
    const found = LOAD_NAME.exec(trace.name);
    if (found) {
      const begin = new Date(trace.created_at).getTime() / 1000;
      return { trace: trace.id, begin, seconds: Number(found[1]), pipeline: found[2] };
    }
  }
  return null;
}

const pipelineAt = (load) => (load ? link("pipeline", load.pipeline, { window: 300 }) : link("fleet"));

/**
 * The steps of the tour. `end` is the part of the load at which a step ends; `places` are links, the first one to watch.
 * @type {{title: string, watch: string, why: string, end: number, places: (load: DemoLoad|null) => [string, string][]}[]}
 */
export const STEPS = [
  {
    title: "The demo prepares",
    watch: "Agents join, one row each in the table of agents. A pipeline appears, and its promise is still without a plan.",
    why:
      "A plan needs measured times, so the variants are measured first. The load is fitted to this machine's free part.",
    end: 0,
    places: () => [["Look at the agents", link("fleet")]],
  },
  {
    title: "A steady load",
    watch: "In the chart of the load, the line stays below the dashed line of the plan. Nearly all requests are in time.",
    why: "The plan was made for this load. It uses the most accurate variants that keep the promise.",
    end: 1 / 3,
    places: (load) => [["Look at the pipeline", pipelineAt(load)]],
  },
  {
    title: "The load doubles",
    watch: "The load rises above the dashed line. Queues grow, and some requests are late or dropped.",
    why:
      "The devices cannot serve twice the load with the accurate variants. Agents use spare capacity until a plan comes.",
    end: 1 / 2,
    places: (load) => [["Look at the load", pipelineAt(load)]],
  },
  {
    title: "Another plan comes",
    watch:
      "A dotted line marks a new plan. Its variants are cheaper, the accuracy falls a little, and requests are in time.",
    why: "A round of replanning runs every 10 seconds. Its decision names the load that it saw, and the reason.",
    end: 2 / 3,
    places: (load) => [
      ["Look at the new plan", pipelineAt(load)],
      ["Read the decision", link("decisions")],
    ],
  },
  {
    title: "The load falls back",
    watch: "The load halves. After a while the accurate variants come back, and the accuracy rises.",
    why: "The service waits before it gives devices back, so that a short pause of the load changes nothing.",
    end: 1,
    places: (load) => [["Look at the pipeline", pipelineAt(load)]],
  },
  {
    title: "Looking back",
    watch:
      "The load is over. The events have each target with its reason. The load can be replayed under another plan.",
    why: "A replay needs no devices: the simulator runs the same policies as the agents.",
    end: Infinity,
    places: (load) => [
      ["Read the events", link("events")],
      ["Replay the load", load ? link("replay", load.pipeline, { load: load.trace }) : link("replay")],
    ],
  },
];

/** The step of the demo at a Unix time. */
export function stepAt(load, now) {
  if (!load) return 0;
  const share = (now - load.begin) / load.seconds;
  return STEPS.findIndex((step) => share < step.end);
}

/** Seconds until the next step; null if no time is known for it. */
export function secondsLeft(load, step, now) {
  const { end } = STEPS[step];
  return load && Number.isFinite(end) ? Math.max(0, Math.ceil(load.begin + end * load.seconds - now)) : null;
}
