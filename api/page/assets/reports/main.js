// What does a report show? Starts the page of an HTML file that `apportion report` wrote.
//
// The file has its result as JSON: `{kind, file, digest, version, result, problem, requests}`. `problem` and `requests`
// are null if they were not given. Nothing is loaded, and every text is data.

import { h, morph, startIslands } from "../lib/dom.js";
import { comparison } from "./comparison.js";
import { frontier } from "./frontier.js";
import { plan, scalingPlan } from "./plan.js";
import { simulation } from "./simulation.js";

const KINDS = {
  plan: { title: "Plan", render: plan },
  scaling_plan: { title: "Plan of a scaling problem", render: scalingPlan },
  simulation: { title: "Simulation", render: simulation },
  comparison: { title: "Comparison of planners", render: comparison },
  frontier: { title: "Frontier", render: frontier },
};

const given = JSON.parse(document.getElementById("result").textContent);
const main = document.getElementById("main");
const name = given.file.split("/").at(-1);

function draw() {
  const { title, render } = KINDS[given.kind];
  const content = h(
    "div",
    { class: "view" },
    h("h1", null, `${title}: ${name}`),
    h(
      "p",
      { class: "source" },
      `Written by apportion ${given.version} from ${given.file} (SHA-256 ${given.digest.slice(0, 16)}).`,
    ),
    render(given, draw),
  );
  if (main.firstElementChild?.nodeName === "DIV") morph(main.firstElementChild, content);
  else main.replaceChildren(content);
  startIslands(main);
  document.title = `${title}: ${name} – Apportion`;
}

draw();
