// Which view does an address name? Example: `#/plans?state=failed` is the view `plans` with one parameter.

/**
 * @typedef {Object} Route
 * @property {string} view
 * @property {string|null} name what the view is of: a pipeline's name, a plan's identifier
 * @property {Object<string, string>} query
 */

/** @returns {Route} */
export function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const [view, name] = path.split("/");
  const decoded = Object.fromEntries(new URLSearchParams(query ?? ""));
  return { view: view || "fleet", name: name ? decode(name) : null, query: decoded };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The address of a view. Empty parameters are left out. */
export function link(view, name = null, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const tail = kept.length ? `?${new URLSearchParams(kept)}` : "";
  return `#/${view}${name ? `/${encodeURIComponent(name)}` : ""}${tail}`;
}

/** Changes parameters of the present address without a new entry in the history. */
export function replaceQuery(route, changes) {
  const address = link(route.view, route.name, { ...route.query, ...changes });
  history.replaceState(null, "", address);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}
