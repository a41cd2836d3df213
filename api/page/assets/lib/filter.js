// Which rows does a reader want to see? A box for words and a choice of kinds, both kept in the address.

import { h } from "./dom.js";
import { count } from "./format.js";
import { replaceQuery } from "./route.js";

/**
 * The rows that have every word of the query, and the kind.
 * @param {any[]} rows
 * @param {Object<string, string>} query `q` has words, `kind` a kind
 * @param {{text: (row: any) => string, kind: (row: any) => string}} of
 */
export function filtered(rows, query, of) {
  const words = (query.q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((row) => {
    if (query.kind && of.kind(row) !== query.kind) return false;
    const text = of.text(row).toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

/** The box and the choice, with how many rows are left. */
export function filterBar(route, { label, kinds, shown, total }) {
  const set = (key) => (event) => replaceQuery(route, { [key]: event.target.value, id: "" });
  const option = (value, text) => h("option", { value, selected: (route.query.kind ?? "") === value }, text);
  return h(
    "form",
    { class: "filter", role: "search", "aria-label": label, onsubmit: (event) => event.preventDefault() },
    h("label", null, "Search ", h("input", { type: "search", value: route.query.q ?? "", oninput: set("q"), name: "q" })),
    kinds.length
      ? h(
          "label",
          null,
          "Show ",
          h(
            "select",
            { onchange: set("kind"), name: "kind" },
            option("", "all"),
            kinds.map((kind) => option(kind, kind)),
          ),
        )
      : null,
    h(
      "span",
      { class: "note", role: "status" },
      shown === total ? count(total, "row") : `${shown} of ${count(total, "row")}`,
    ),
  );
}
