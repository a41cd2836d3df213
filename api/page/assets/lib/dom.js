// How are elements made, and how is what is on the screen changed into what should be there?
//
// A view makes a whole new tree each time. `morph` changes the old tree into it, and leaves alone what is equal. So the
// focus, the selection and the place of the scroll bar stay.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set([
  "svg",
  "g",
  "path",
  "rect",
  "circle",
  "line",
  "text",
  "tspan",
  "title",
  "desc",
  "defs",
  "marker",
]);

/**
 * Makes an element. Keys that begin with `on` are handlers; null, undefined and false leave an attribute out.
 * @param {string} tag
 * @param {Object<string, any>} [attributes]
 * @param {...any} children texts, numbers, nodes, lists of them, or null
 * @returns {Element}
 */
export function h(tag, attributes, ...children) {
  const isSvg = SVG_TAGS.has(tag);
  const element = isSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element[key] = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/**
 * An element that keeps itself up to date, such as a chart: `create(element, props)` fills it once it is on the screen
 * and returns `{update(props), destroy()}`.
 * @param {Element} element
 * @param {string} key islands with another key are made anew
 * @param {Function} create
 * @param {any} props
 * @returns {Element}
 */
export function island(element, key, create, props) {
  element.island = { key, create, props, running: null };
  return element;
}

/** Starts the islands below an element that is on the screen. */
export function startIslands(root) {
  for (const element of root.querySelectorAll("[data-island]")) {
    const { island } = element;
    if (island && !island.running) island.running = island.create(element, island.props);
  }
}

function stopIslands(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return;
  const all = [node, ...node.querySelectorAll("[data-island]")];
  for (const element of all) {
    element.island?.running?.destroy();
    if (element.island) element.island.running = null;
  }
}

const HANDLERS = ["onclick", "oninput", "onchange", "onkeydown", "onsubmit"];

/** Changes `old` so that it equals `next`, which is used up. Returns the node that is on the screen then. */
export function morph(old, next) {
  if (old.nodeType !== next.nodeType || old.nodeName !== next.nodeName || keyOf(old) !== keyOf(next)) {
    stopIslands(old);
    old.replaceWith(next);
    return next;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
    return old;
  }
  morphAttributes(old, next);
  if (next.island) {
    old.island.props = next.island.props;
    old.island.running?.update(next.island.props);
    return old;
  }
  morphChildren(old, next);
  return old;
}

function keyOf(node) {
  return node.island?.key ?? node.getAttribute?.("data-key") ?? null;
}

function morphAttributes(old, next) {
  for (const { name, value } of [...next.attributes]) {
    if (old.getAttribute(name) !== value && !keeps(old, name)) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && !keeps(old, name)) old.removeAttribute(name);
  }
  for (const name of HANDLERS) {
    if (old[name] !== next[name]) old[name] = next[name];
  }
  const isField = old instanceof HTMLInputElement || old instanceof HTMLSelectElement;
  // A field with `data-own` belongs to the reader.
  const isOwn = old.hasAttribute?.("data-own");
  if (isField && !isOwn && old !== document.activeElement && next.value !== undefined) {
    old.value = next.getAttribute("value") ?? next.value;
  }
}

/** What a reader has opened stays open. */
function keeps(element, name) {
  return name === "open" && element.nodeName === "DETAILS";
}

function morphChildren(old, next) {
  const keyed = new Map();
  for (const child of old.childNodes) {
    const key = keyOf(child);
    if (key !== null) keyed.set(key, child);
  }
  let at = old.firstChild;
  for (const wanted of [...next.childNodes]) {
    const key = keyOf(wanted);
    const known = key === null ? null : keyed.get(key);
    if (known && known !== at) {
      old.insertBefore(known, at);
      morph(known, wanted);
      continue;
    }
    if (!at) {
      old.append(wanted);
      continue;
    }
    if (key === null ? keyOf(at) !== null : !known) {
      old.insertBefore(wanted, at);
      continue;
    }
    at = morph(at, wanted).nextSibling;
  }
  while (at) {
    const rest = at.nextSibling;
    stopIslands(at);
    at.remove();
    at = rest;
  }
}
