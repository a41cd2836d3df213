// How are the service's resources read, again and again, and how is a lost connection noticed and healed?

import { ACCESS_PATH, authorization } from "./access.js";
import { EVENT_DRIVEN, REST_WITH_STREAM_MS, followEvents } from "./stream.js";

/** Rest between two rounds while the page is on the screen, in milliseconds. */
const ROUND_MS = 2_000;
/** The same while the page is hidden. */
const HIDDEN_ROUND_MS = 30_000;
/** Rest for each thousand characters of the last answer: large documents are read less often. */
const REST_PER_KB_MS = 15;
/** Longest rest after failures. */
const BACKOFF_MAX_MS = 30_000;
/** Longest wait for an answer. */
const ANSWER_MAX_MS = 15_000;
/** Most answers that are kept. */
const ANSWERS_MAX = 2_000;
/** Requests at a time. */
const PARALLEL_MAX = 6;
/** Lists that are read to their end. Of the others the page shows the first answer. */
const WHOLE_LISTS = new Set(["v1/agents", "v1/arrivals", "v1/hardware", "v1/holds", "v1/pipelines"]);

/**
 * @typedef {Object} Answer
 * @property {any} value the document; null if there is none
 * @property {string} text
 * @property {string|null} tag its entity tag
 * @property {Date} at when it was read
 * @property {string|null} refusal why there is none
 *
 * @typedef {Object} Need
 * @property {string} path below the service's address
 * @property {number} [every] rest before it is read again, in milliseconds; Infinity: it never changes
 */

/**
 * Sends a document as JSON, or a text as it is; null: none.
 * @param {string} path
 * @param {any} document
 * @param {{method?: string, headers?: Object<string, string>}} [options] POST by default
 * @returns {Promise<{value: any, refusal: string|null}>}
 */
export async function send(path, document, { method = "POST", headers = {} } = {}) {
  try {
    const response = await fetch(path, {
      method,
      headers: { "content-type": "application/json", ...authorization(), ...headers },
      body: document === null ? undefined : typeof document === "string" ? document : JSON.stringify(document),
      signal: AbortSignal.timeout(ANSWER_MAX_MS),
    });
    const value = parsed(await response.text());
    const places = (value?.errors ?? []).map((error) => `${error.pointer}: ${error.detail}`);
    const refusal = response.ok ? null : [value?.detail ?? `status ${response.status}`, ...places].join("; ");
    return { value: response.ok ? value : null, refusal };
  } catch (error) {
    return { value: null, refusal: `The service does not answer: ${error.message}` };
  }
}

/** Reads what the view needs, and says when something has changed. */
export class Live {
  /** @param {(isChanged: boolean) => void} onChange is told after each round whether an answer has changed */
  constructor(onChange) {
    /** @type {Map<string, Answer>} */
    this.answers = new Map();
    /** Since when the service does not answer. @type {Date|null} */
    this.lostSince = null;
    this.failures = 0;
    /** Whether the service asks for another token. */
    this.isLocked = false;
    this.onChange = onChange;
    this.needs = () => [];
    this.timer = null;
    this.isRunning = false;
    /** Whether the stream of events flows, and the paths that have changed since they were read. */
    this.isStreaming = false;
    /** @type {Set<string>} */
    this.changed = new Set();
    followEvents({
      opened: () => this.forgetEvents(true),
      closed: () => this.forgetEvents(false),
      changed: (paths) => {
        paths.forEach((path) => this.changed.add(path));
        this.now();
      },
    });
    document.addEventListener("visibilitychange", () => document.hidden || this.now());
    window.addEventListener("online", () => this.now());
  }

  /** The answer of a path, if it was read. */
  get(path) {
    return this.answers.get(path)?.value ?? null;
  }

  /** After the stream has begun or ended, everything is read once. */
  forgetEvents(isStreaming) {
    this.isStreaming = isStreaming;
    EVENT_DRIVEN.forEach((path) => this.changed.add(path));
  }

  /** Sets what is read: `needs(read)` may depend on what was read already. */
  watch(needs) {
    this.needs = needs;
    this.now();
  }

  /** Reads at once. */
  now() {
    clearTimeout(this.timer);
    this.timer = null;
    if (this.isRunning) this.isAsked = true;
    else this.round();
  }

  async round() {
    this.isRunning = true;
    let isChanged = false;
    const done = new Set();
    // Each pass may find needs that depend on the answers of the one before.
    for (;;) {
      const due = this.needs(this).filter((need) => !done.has(need.path) && this.isDue(need));
      if (!due.length) break;
      due.forEach((need) => done.add(need.path));
      const isFirst = due.some((need) => !this.answers.has(need.path));
      isChanged = (await this.readAll(due)) || isChanged;
      if (this.lostSince) break;
      if (isFirst) this.onChange(isChanged);
    }
    this.isRunning = false;
    this.forget();
    this.onChange(isChanged);
    if (this.isAsked) {
      this.isAsked = false;
      this.round();
      return;
    }
    const rest = document.hidden ? HIDDEN_ROUND_MS : ROUND_MS;
    const backoff = Math.min(BACKOFF_MAX_MS, ROUND_MS * 2 ** Math.max(0, this.failures - 1));
    this.timer = setTimeout(() => this.round(), this.failures ? backoff : rest);
  }

  /** Forgets answers that nothing needs, if there are too many. */
  forget() {
    if (this.answers.size <= ANSWERS_MAX) return;
    const needed = new Set(this.needs(this).map((need) => need.path));
    for (const path of this.answers.keys()) {
      if (!needed.has(path)) this.answers.delete(path);
    }
  }

  isDue(need) {
    const known = this.answers.get(need.path);
    if (!known || this.changed.has(need.path)) return true;
    if (this.isStreaming && EVENT_DRIVEN.has(need.path)) return Date.now() - known.at.getTime() >= REST_WITH_STREAM_MS;
    const rest = Math.max(need.every ?? ROUND_MS, (known.text.length / 1000) * REST_PER_KB_MS);
    // A little early is not late: otherwise a rest of one round would take two.
    return Date.now() - known.at.getTime() >= rest - ROUND_MS / 4;
  }

  async readAll(needs) {
    const queue = [...needs];
    let isChanged = false;
    const worker = async () => {
      for (let need = queue.shift(); need && !this.isGivenUp; need = queue.shift()) {
        isChanged = (await this.read(need.path)) || isChanged;
      }
    };
    this.isGivenUp = false;
    await Promise.all(Array.from({ length: Math.min(PARALLEL_MAX, queue.length) }, worker));
    return isChanged;
  }

  /** Reads one path; returns whether its answer has changed. */
  async read(path) {
    this.changed.delete(path);
    try {
      const { response, texts } = await readPages(path);
      const text = texts.join("\n");
      if (response.status === 401) this.isLocked = true;
      else if (path === ACCESS_PATH && response.ok) this.isLocked = false;
      this.failures = 0;
      this.lostSince = null;
      const known = this.answers.get(path);
      if (known && known.text === text) {
        known.at = new Date();
        return false;
      }
      // Where an answer was refused, the last one says why.
      const value = texts.length > 1 && response.ok ? texts.flatMap(parsed) : parsed(texts.at(-1));
      const refusal = response.ok ? null : (value?.detail ?? `status ${response.status}`);
      const tag = response.headers.get("etag");
      this.answers.set(path, { value: response.ok ? value : null, text, tag, at: new Date(), refusal });
      return true;
    } catch {
      this.changed.add(path);
      this.isGivenUp = true;
      if (!this.lostSince) {
        this.lostSince = new Date();
        this.failures = 0;
      }
      this.failures += 1;
      return false;
    }
  }
}

/**
 * Reads a path, and the further pages of a list that is read to its end.
 * @returns {Promise<{response: Response, texts: string[]}>} the last response, and the text of each
 */
async function readPages(path) {
  const [list] = path.split("?");
  const texts = [];
  for (let page = path; ; ) {
    const response = await fetch(page, {
      signal: AbortSignal.timeout(ANSWER_MAX_MS),
      headers: { accept: "application/json", ...authorization() },
    });
    // A proxy answers 502 and 504 for a service that is gone. 503 is the service's own answer.
    if (response.status === 502 || response.status === 504) throw new Error(`status ${response.status}`);
    texts.push(await response.text());
    const next = response.ok && WHOLE_LISTS.has(list) && nextQuery(response.headers.get("link"));
    if (!next) return { response, texts };
    page = list + next;
  }
}

/** The query of the next page by the header `Link`; null on the last page. */
function nextQuery(link) {
  return link?.match(/^<(\?[^>]*)>; rel="next"/)?.[1] ?? null;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
