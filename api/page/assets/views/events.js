// What has happened, and why? The list can be searched, and each event has an address.

import { h } from "../lib/dom.js";
import { eventNeeds, events } from "../lib/events.js";
import { filterBar, filtered } from "../lib/filter.js";
import { PATHS } from "../lib/model.js";
import { link } from "../lib/route.js";
import { badge, nothing, section, source, time } from "../parts/parts.js";
import { table } from "../parts/table.js";

export const title = () => "Events";

export const needs = (live) => eventNeeds(live);

export function render(live, route, again) {
  const all = events(live);
  const one = route.query.id;
  const found = filtered(all, route.query, { text: (e) => `${e.what} ${e.why} ${e.kind}`, kind: (e) => e.kind });
  // The event that the address names is shown, however old it is.
  const rows = one ? [...found.filter((e) => e.id === one), ...found.filter((e) => e.id !== one)] : found;
  const columns = [
    {
      name: "When",
      cell: (e) => h("a", { href: link("events", null, { id: e.id }), title: "Permanent link" }, time(e.at)),
    },
    { name: "Kind", cell: (e) => badge(e.kind) },
    {
      name: "What",
      cell: (e) => (e.about ? h("a", { href: link(e.about.view, e.about.name, e.about.query) }, e.what) : e.what),
    },
    { name: "Why", cell: (e) => h("span", { class: "reason" }, e.why) },
  ];
  const mark = (e) => (e.id === one ? "marked" : null);
  const kinds = ["target", "plan", "decision", "failure", "agent"];
  return h(
    "div",
    { class: "view" },
    h("h1", null, "Events"),
    section(
      "list",
      "What happened",
      filterBar(route, { label: "Events", kinds, shown: found.length, total: all.length }),
      source(
        "Targets, plans, agents, and decisions other than to keep a plan: the newest thousand of each",
        live.answers.get(PATHS.target)?.at,
      ),
      rows.length
        ? table({ caption: "Events, the newest first", columns, rows, key: (e) => e.id, mark, onChange: again })
        : nothing("No event has these words."),
    ),
  );
}
