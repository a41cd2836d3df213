// How are rows shown? A table with headers, a caption, a filter by words, and a limit that a click lifts.

import { h } from "../lib/dom.js";
import { count } from "../lib/format.js";

/** Rows that are shown before a click shows all. */
const ROWS_MAX = 100;
/** Tables of which all rows are shown, by their captions. */
const isWhole = new Set();

/**
 * @typedef {Object} Column
 * @property {string} name
 * @property {(row: any) => any} cell text, number or nodes
 * @property {boolean} [isNumber]
 * @property {string} [title] what the numbers are and where they come from
 */

/**
 * @param {{caption: string, columns: Column[], rows: any[], key: (row: any) => string, mark?: (row: any) => string|null,
 *   onChange?: () => void}} of the first column is each row's header
 */
export function table({ caption, columns, rows, key, mark, onChange }) {
  const shown = isWhole.has(caption) ? rows : rows.slice(0, ROWS_MAX);
  const head = columns.map((column) =>
    h("th", { scope: "col", class: column.isNumber ? "number" : null, title: column.title ?? null }, column.name),
  );
  const cell = (column, row, at) =>
    h(
      at === 0 ? "th" : "td",
      { scope: at === 0 ? "row" : null, class: column.isNumber ? "number" : null, "data-name": column.name },
      column.cell(row),
    );
  const body = shown.map((row) =>
    h(
      "tr",
      { "data-key": key(row), id: mark?.(row) ? "marked" : null, class: mark?.(row) ?? null },
      columns.map((column, at) => cell(column, row, at)),
    ),
  );
  const rest = rows.length - shown.length;
  const all = () => {
    isWhole.add(caption);
    onChange?.();
  };
  return h(
    "div",
    { class: "table", tabindex: "0", role: "group", "aria-label": caption },
    h("table", null, h("caption", null, caption), h("thead", null, h("tr", null, head)), h("tbody", null, body)),
    rest > 0 ? h("button", { type: "button", onclick: all }, `Show ${count(rest, "more row")}`) : null,
  );
}
