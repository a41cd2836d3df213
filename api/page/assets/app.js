// Which view is on the screen, and what does it need? Starts the page.

import { ACCESS_PATH, keepToken } from "./lib/access.js";
import { Live } from "./lib/api.js";
import { h, morph, startIslands } from "./lib/dom.js";
import { clock } from "./lib/format.js";
import { findings } from "./lib/health.js";
import { PATHS } from "./lib/model.js";
import { link, parse } from "./lib/route.js";
import { startTour, tourNeeds } from "./parts/tour.js";
import * as decisions from "./views/decisions.js";
import * as events from "./views/events.js";
import * as fleet from "./views/fleet.js";
import * as pipeline from "./views/pipeline.js";
import * as plan from "./views/plan.js";
import * as plans from "./views/plans.js";
import * as profiles from "./views/profiles.js";
import * as replay from "./views/replay.js";
import * as targets from "./views/targets.js";
import * as whatIf from "./views/what-if.js";

const VIEWS = { fleet, pipeline, plans, plan, events, decisions, targets, profiles, "what-if": whatIf, replay };
/** The views that the navigation names, and those that count as one of them. */
const NAVIGATION = [
  ["fleet", "Fleet"],
  ["plans", "Plans"],
  ["events", "Events"],
  ["decisions", "Decisions"],
  ["targets", "Targets"],
  ["profiles", "Profiles"],
  ["what-if", "What if"],
  ["replay", "Replay"],
];
const BELOW = { pipeline: "fleet", plan: "plans" };

const main = document.getElementById("main");
let route = parse(location.hash);
const live = new Live(drawRound);
const drawTour = startTour(live, watch);
/** Longest time without drawing: lines such as "as of" say when answers were read, even if those have not changed. */
const REDRAW_MS = 10_000;
/** How often the page asks what it may do. */
const ACCESS_MS = 60_000;
let drawnAt = 0;

function view() {
  return VIEWS[route.view] ?? null;
}

/** After a round of reading. Equal answers are drawn seldom. */
function drawRound(isChanged) {
  if (isChanged || Date.now() - drawnAt > REDRAW_MS) draw();
  else drawConnection();
}

function draw() {
  drawnAt = Date.now();
  drawConnection();
  drawNavigation();
  drawTour();
  const shown = view();
  const isEmpty = !live.answers.size;
  if (isEmpty && shown) return;
  const content = live.isLocked ? tokenForm() : (shown?.render(live, route, draw) ?? noView());
  if (main.firstElementChild && main.childNodes.length === 1) morph(main.firstElementChild, content);
  else main.replaceChildren(content);
  startIslands(main);
  const name = shown?.title(route) ?? "Not here";
  const wrong = findings(live).filter((finding) => finding.level === "bad").length;
  document.title = `${wrong ? `(${wrong}) ` : ""}${name} – Apportion`;
}

/** The service asks for a token. It is kept for this tab alone. */
function tokenForm() {
  const open = (event) => {
    event.preventDefault();
    keepToken(String(new FormData(event.target).get("token")).trim());
    live.answers.clear();
    live.now();
  };
  return h(
    "div",
    { class: "view", "data-key": "token" },
    h("h1", null, "Token"),
    h("p", null, "This service asks for a token, such as one of ", h("code", null, "apportion token create"), "."),
    h(
      "form",
      { class: "form", onsubmit: open },
      h(
        "label",
        { for: "token" },
        "Token ",
        h("input", { id: "token", name: "token", type: "password", "data-own": true, required: true }),
      ),
      h("button", { type: "submit" }, "Open"),
    ),
  );
}

function noView() {
  return h(
    "div",
    { class: "view" },
    h("h1", null, "Not here"),
    h("p", null, `There is no view “${route.view}”. `, h("a", { href: link("fleet") }, "Look at the fleet.")),
  );
}

function drawConnection() {
  const since = live.lostSince;
  const text = since
    ? `Connection lost since ${clock(since)}; trying again`
    : live.answers.size
      ? `Live, ${clock(live.answers.get(PATHS.target)?.at ?? new Date())}`
      : "Connecting";
  const line = document.getElementById("connection");
  line.className = since ? "connection lost" : "connection";
  // The time alone is not worth an announcement.
  if (line.dataset.state !== String(Boolean(since))) {
    line.dataset.state = String(Boolean(since));
    line.replaceChildren(h("span", null, since ? text : "Live"), h("span", { "aria-hidden": "true" }));
  }
  line.lastChild.textContent = since ? "" : text.replace("Live", "");
  main.classList.toggle("stale", Boolean(since));
}

function drawNavigation() {
  const current = BELOW[route.view] ?? route.view;
  const item = ([name, text]) =>
    h("li", { "data-key": name }, h("a", { href: link(name), "aria-current": name === current ? "page" : null }, text));
  const list = h("ul", null, NAVIGATION.map(item));
  const nav = document.getElementById("nav");
  if (nav.firstElementChild) morph(nav.firstElementChild, list);
  else nav.append(list);
}

/** Sets what is read: for the view, for the tour, and for the buttons. */
function watch() {
  const access = { path: ACCESS_PATH, every: ACCESS_MS };
  live.watch((known) => [access, ...tourNeeds(), ...(view()?.needs(known, route) ?? [])]);
}

/** Follows the address: another view begins at its top, with the focus on its content. */
function follow() {
  const before = route;
  route = parse(location.hash);
  watch();
  draw();
  // A view without a name chooses one itself.
  const isOther = before.view !== route.view || (before.name !== null && before.name !== route.name);
  if (isOther) {
    window.scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
  if (route.query.id || route.query.agent) document.getElementById("marked")?.scrollIntoView({ block: "center" });
}

window.addEventListener("hashchange", follow);
// The link to skip to the content is no view.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.getElementById("service").textContent = `Service at ${location.host}.`;
follow();
