// How is the tour of a demo shown? A panel above the content: the present step, the next one, and buttons.
//
// The address of the page begins the tour with `?tour=demo`. A closed tour can be started again from the foot of the page.

import { h, morph } from "../lib/dom.js";
import { span } from "../lib/format.js";
import { STEPS, demoLoad, secondsLeft, stepAt } from "../lib/tour.js";

const TRACES_PATH = "v1/traces";
/** In this tab: whether the reader has closed the tour. */
const KEY = "apportion-tour";
const CLOSED = "closed";
/** Rest between two looks at the clock. */
const CLOCK_MS = 1_000;

const isOffered = new URLSearchParams(location.search).get("tour") === "demo";
let isOpen = isOffered && sessionStorage.getItem(KEY) !== CLOSED;
/** The step that the reader has chosen; null: that of the demo. */
let chosen = null;

/** What the tour needs. */
export const tourNeeds = () => (isOpen ? [{ path: TRACES_PATH }] : []);

/**
 * Draws the tour now and with the clock.
 * @param {any} live
 * @param {() => void} onOpen is called when the tour begins to need something
 */
export function startTour(live, onOpen) {
  if (!isOffered) return () => {};
  const draw = () => drawTour(live, { draw, onOpen });
  setInterval(() => isOpen && draw(), CLOCK_MS);
  return draw;
}

function drawTour(live, { draw, onOpen }) {
  const open = () => {
    [isOpen, chosen] = [true, null];
    sessionStorage.removeItem(KEY);
    onOpen();
    draw();
    document.getElementById("tour-title")?.focus();
  };
  const close = () => {
    isOpen = false;
    sessionStorage.setItem(KEY, CLOSED);
    draw();
    document.querySelector("#tour-again button")?.focus();
  };
  const choose = (step) => {
    chosen = step;
    draw();
  };
  show("tour", isOpen && !live.isLocked ? panel(demoLoad(live.get(TRACES_PATH)), { choose, close }) : null);
  show("tour-again", isOpen ? null : h("button", { type: "button", class: "quiet", onclick: open }, "Start the tour"));
}

/** Puts content into a place of the page, or empties it. */
function show(id, content) {
  const place = document.getElementById(id);
  if (!content) place.replaceChildren();
  else if (place.firstElementChild) morph(place.firstElementChild, content);
  else place.append(content);
}

function panel(load, { choose, close }) {
  const now = Date.now() / 1000;
  const present = stepAt(load, now);
  const at = chosen ?? present;
  const step = STEPS[at];
  const next = STEPS[at + 1];
  const left = secondsLeft(load, at, now);
  const links = step.places(load).map(([text, href], place) => [place ? " · " : null, h("a", { href }, text)]);
  const button = (text, onclick, disabled = false) =>
    h("button", { type: "button", onclick, disabled, "data-key": text }, text);
  const when = left === null || at !== present ? null : ` in ${span(left)}`;
  const onKey = (event) => {
    if (event.key === "Escape") close();
  };
  return h(
    "section",
    { class: "tour", "aria-labelledby": "tour-title", onkeydown: onKey },
    h(
      "div",
      { "aria-live": "polite" },
      h("h2", { id: "tour-title", tabindex: "-1" }, `Tour, ${at + 1} of ${STEPS.length}: ${step.title}`),
      h("p", null, h("strong", null, at === present ? "Watch now: " : "Watch: "), step.watch),
      h("p", null, h("strong", null, "Why: "), step.why),
    ),
    next ? h("p", { class: "next" }, `Next: ${next.title}`, h("span", { "aria-hidden": "true" }, when)) : null,
    h("p", null, links),
    // Always the same buttons, so that none loses the focus.
    h(
      "p",
      { class: "actions" },
      button("Step before", () => choose(at - 1), at === 0),
      button("Next step", () => choose(at + 1), !next),
      button("Follow the demo", () => choose(null)),
      button("Close the tour", close),
    ),
  );
}
