// How would a load have gone under another plan or setting? Two simulations of the same load, side by side.
//
// The address has the question and the two simulations, so it is a permanent link. Nothing is deployed.

import { allows } from "../lib/access.js";
import { send } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { PATHS, pipelinePath, planNeed, plansInForce } from "../lib/model.js";
import { SERIES_WINDOWS, traceCsv } from "../lib/replay.js";
import { replaceQuery } from "../lib/route.js";
import { changes } from "../lib/timeline.js";
import { nothing, pipelineTabs, section } from "../parts/parts.js";
import { SIDES, replayForm } from "../parts/replay-form.js";
import { replayResult } from "../parts/replay-result.js";

const TRACES_PATH = "v1/traces";
const SIMULATIONS_PATH = "v1/simulations";
const simulationPath = (id) => `${SIMULATIONS_PATH}/${id}`;
/** Loads that are recorded by the service itself: seconds and words. */
const RECORDED = { "recorded-300": 300, "recorded-3600": 3600 };
/** The newest seconds, of which agents still report. */
const OPEN_S = 3;

/** Why the service refused the last replay; empty if it did not. */
let refusal = "";
let isAsking = false;

export const title = (route) => (route.name ? `Replay: ${route.name}` : "Replay");

const chosen = (live, route) => route.name ?? (live.get(PATHS.pipelines) ?? [])[0]?.name ?? null;

/** A simulation that runs is read again and again; one that is over never changes. */
function simulationNeed(live, id) {
  const state = live.get(simulationPath(id))?.state;
  const isOver = state && !["queued", "running"].includes(state);
  return { path: simulationPath(id), every: isOver ? Infinity : undefined };
}

export function needs(live, route) {
  const asked = SIDES.map((side) => route.query[side.key]).filter(Boolean);
  const plans = SIDES.map((side) => sideOf(live, route, side).plan).filter(Boolean);
  return [
    { path: PATHS.target },
    { path: PATHS.pipelines },
    { path: PATHS.plans, every: 10_000 },
    { path: PATHS.history, every: 10_000 },
    { path: TRACES_PATH, every: 10_000 },
    ...(live.get(PATHS.target)?.plans ?? []).map((id) => planNeed(live, id)),
    ...[...new Set(plans)].map((id) => planNeed(live, id)),
    ...asked.map((id) => simulationNeed(live, id)),
  ];
}

/** The plans that can be replayed, the newest first. */
function candidates(live, name) {
  const all = live.get(PATHS.plans) ?? [];
  return all.filter((plan) => plan.state === "succeeded" && (plan.pipelines ?? []).includes(name));
}

/** The settings of one side: those of the address, or else the plan in force on the left and the newest other one. */
function sideOf(live, route, side) {
  const name = chosen(live, route);
  const plans = candidates(live, name);
  const inForce = plansInForce(live).get(name)?.document.id ?? plans[0]?.id ?? "";
  const other = plans.find((plan) => plan.id !== inForce)?.id ?? inForce;
  return {
    plan: route.query[`${side.key}_plan`] ?? (side.isFirst ? inForce : other),
    policy: route.query[`${side.key}_policy`] ?? "",
    scaler: route.query[`${side.key}_scaler`] ?? "plan",
  };
}

export function render(live, route, again) {
  const name = chosen(live, route);
  const listed = live.get(PATHS.pipelines) ?? [];
  const heading = [
    h("h1", null, name ? `Replay: ${name}` : "Replay"),
    pipelineTabs("replay", listed.map((p) => p.name), name),
  ];
  const plans = candidates(live, name);
  if (!plans.length) {
    const isKnown = live.get(PATHS.pipelines) && live.get(PATHS.plans);
    const text = isKnown ? "There is no plan to replay a load through. Ask for a plan first." : "Loading";
    return h("div", { class: "view" }, heading, nothing(text));
  }
  const asked = { ...route, name };
  const sides = SIDES.map((side) => ({ ...side, ...sideOf(live, route, side) }));
  const question = replayForm({
    route: asked,
    sides,
    plans,
    inForce: new Set(live.get(PATHS.target)?.plans ?? []),
    traces: live.get(TRACES_PATH) ?? [],
    load: loadOf(live, route),
    mayAsk: allows(live, "plan"),
    isAsking,
    refusal,
    onAsk: () => ask(live, asked, sides, again),
  });
  return h("div", { class: "view" }, heading, section("question", "Question", question), answer(live, asked, sides, again));
}

/** The load of the address, or else the newest trace, or else the last five minutes. */
function loadOf(live, route) {
  return route.query.load ?? live.get(TRACES_PATH)?.[0]?.id ?? "recorded-300";
}

/** Stores a recorded load if one is asked for, asks for both simulations, and puts them into the address. */
async function ask(live, route, sides, again) {
  [isAsking, refusal] = [true, ""];
  again();
  const asked = await asking(live, route, sides);
  isAsking = false;
  if (asked.refusal) {
    refusal = asked.refusal;
    again();
  } else replaceQuery(route, { ...asked.changes, at: "" });
}

async function asking(live, route, sides) {
  const load = loadOf(live, route);
  const seconds = RECORDED[load];
  const stored = seconds ? await storeRecorded(live, route.name, seconds) : { trace: load, from: route.query.from };
  if (stored.refusal) return stored;
  const made = {};
  for (const side of sides) {
    const { value, refusal: why } = await send(SIMULATIONS_PATH, {
      plan: side.plan,
      traces: { [route.name]: stored.trace },
      autoscaler: side.scaler,
      series_windows: SERIES_WINDOWS,
      ...(side.policy ? { policy: side.policy } : {}),
    });
    if (!value) return { refusal: `${side.name}: ${why}` };
    made[side.key] = value.id;
    Object.assign(made, { [`${side.key}_plan`]: side.plan, [`${side.key}_policy`]: side.policy });
    made[`${side.key}_scaler`] = side.scaler;
  }
  return { changes: { ...made, load: stored.trace, from: stored.from ?? "" } };
}

/** Uploads the arrivals that agents have reported as a trace. */
async function storeRecorded(live, name, seconds) {
  const from = Math.floor(Date.now() / 1000) - OPEN_S - seconds;
  const path = `${pipelinePath(name)}/arrivals?seconds=${seconds + 2 * OPEN_S}`;
  await live.read(path);
  const rows = live.get(path);
  if (!rows) return { refusal: live.answers.get(path)?.refusal ?? "The service does not answer" };
  const known = rows.filter((row) => row.second >= from && row.second < from + seconds);
  if (!known.length) return { refusal: `Agents have reported no requests of ${name} in the last ${seconds} s` };
  const label = `${name} recorded ${new Date(from * 1000).toISOString()}`.slice(-128);
  const query = `?name=${encodeURIComponent(label)}`;
  const headers = { "content-type": "text/csv" };
  const { value, refusal: why } = await send(`${TRACES_PATH}${query}`, traceCsv(known, from, seconds), { headers });
  return value ? { trace: value.id, from } : { refusal: why };
}

function answer(live, route, sides, again) {
  const asked = sides.filter((side) => route.query[side.key]);
  if (!asked.length) {
    const text = "Choose a load and two plans or settings. Both replays stand here side by side.";
    return section("answer", "Answer", h("div", { "aria-live": "polite" }, nothing(text)));
  }
  const found = asked.map((side) => {
    const id = route.query[side.key];
    const answered = live.answers.get(simulationPath(id));
    return {
      ...side,
      ...settingsOf(answered?.value?.request),
      document: answered?.value ?? null,
      refusal: answered?.refusal ?? null,
      cancel: allows(live, "plan") ? () => cancel(live, id, again) : null,
    };
  });
  return replayResult({ route, sides: found, recorded: recordedEvents(live, route, found), again });
}

/** The plan and the settings with which a simulation was made, whatever the address says. */
function settingsOf(request) {
  if (!request) return {};
  return { plan: request.plan ?? null, policy: request.policy ?? "", scaler: request.autoscaler ?? "plan" };
}

async function cancel(live, id, again) {
  const { refusal: why } = await send(`${simulationPath(id)}/cancel`, null);
  refusal = why ?? "";
  await live.read(simulationPath(id));
  again();
}

/** The plans that came into force while the load was recorded. */
function recordedEvents(live, route, sides) {
  const from = Number(route.query.from);
  if (!(from > 0)) return [];
  const series = sides.map((side) => side.document?.result?.series).find(Boolean);
  const seconds = (series?.window_s ?? 0) * (series?.pipelines?.[0]?.arrived.length ?? 0);
  const all = changes(live, route.name, Date.now() / 1000 - from);
  return all
    .filter((change) => change.at >= from && change.at < from + seconds)
    .map((change) => ({ at: change.at - from, side: "recorded", what: `target ${change.generation}: ${change.reason}` }));
}
