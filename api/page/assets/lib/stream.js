// Which resources have changed, by the service's stream of events?
//
// While the stream flows, the page reads the target, its history, decisions and holds only after an event about them.

import { authorization } from "./access.js";

const STREAM_PATH = "v1/events/stream";
/** Rest after a stream has ended or could not be opened. */
const RETRY_MS = 5_000;
/** Without a sign of life for so long, the stream counts as broken. The service sends one every ten seconds. */
const SILENCE_MAX_MS = 25_000;
/** Rest before a resource is read again without an event. */
export const REST_WITH_STREAM_MS = 30_000;

/** The resources that an event of each kind changes. */
const CHANGES = {
  target: ["v1/target", "v1/target/history"],
  decision: ["v1/decisions"],
  hold: ["v1/holds"],
  release: ["v1/holds"],
};

/** Every path that only changes with an event. */
export const EVENT_DRIVEN = new Set(Object.values(CHANGES).flat());

/** The kinds of the events in a part of a stream. */
export function kindsIn(text) {
  return [...text.matchAll(/^event: (\w+)$/gm)].map((match) => match[1]);
}

/**
 * Follows the stream for ever.
 * @param {{opened: () => void, changed: (paths: string[]) => void, closed: () => void}} on
 */
export async function followEvents(on) {
  for (;;) {
    const ends = new AbortController();
    try {
      const headers = { accept: "text/event-stream", ...authorization() };
      const response = await fetch(STREAM_PATH, { headers, signal: ends.signal });
      if (response.ok) await readEvents(response.body.getReader(), on, ends);
    } catch {
      // The answers that are read anyway say whether the service is there.
    }
    on.closed();
    await new Promise((done) => setTimeout(done, RETRY_MS));
  }
}

async function readEvents(reader, on, ends) {
  const decoder = new TextDecoder();
  on.opened();
  let rest = "";
  for (;;) {
    const silence = setTimeout(() => ends.abort(), SILENCE_MAX_MS);
    const { value, done } = await reader.read();
    clearTimeout(silence);
    if (done) return;
    const text = rest + decoder.decode(value, { stream: true });
    const end = text.lastIndexOf("\n\n") + 2;
    rest = end > 1 ? text.slice(end) : text;
    const paths = kindsIn(end > 1 ? text.slice(0, end) : "").flatMap((kind) => CHANGES[kind] ?? []);
    if (paths.length) on.changed(paths);
  }
}
