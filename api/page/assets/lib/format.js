// How are numbers and times written?

const plain = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A number with four significant digits; a dash if there is none. */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return Math.abs(value) >= 10_000 ? whole.format(value) : plain.format(value);
}

/** A share from 0 to 1 in percent. */
export function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  // 99.96 % is not 100 %: a promise of 99.97 % would look kept.
  const value = share >= 0.99 && share < 1 ? Math.floor(share * 10_000) / 100 : Math.round(share * 1000) / 10;
  return `${value} %`;
}

/** Requests or queries per second. */
export const rate = (qps) => `${number(qps)}/s`;

/** A time in milliseconds. */
export const ms = (value) => (value === null || value === undefined ? "–" : `${number(value)} ms`);

/** A price per hour. */
export const cost = (perHour) => (perHour === null || perHour === undefined ? "–" : `${perHour.toFixed(2)}/h`);

/** An accuracy from 0 to 1. */
export const accuracy = (value) => (value === null || value === undefined ? "–" : value.toFixed(3));

/** A difference with its sign; nothing if it is zero. */
export function signed(value, digits = 4) {
  const rounded = Number(value.toFixed(digits));
  if (rounded === 0) return "same";
  return rounded > 0 ? `+${plain.format(rounded)}` : `−${plain.format(-rounded)}`;
}

const clockFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dayFormat = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** A moment: the time of day, and the date if it was not today. */
export function clock(time) {
  const at = new Date(time);
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? clockFormat.format(at) : `${dayFormat.format(at)} ${clockFormat.format(at)}`;
}

/** A length of time in its largest unit. */
export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172_800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86_400)} days`;
}

/** How long ago a moment was. */
export const ago = (time) => `${span((Date.now() - new Date(time).getTime()) / 1000)} ago`;

/** `1 replica`, `2 replicas`. */
export const count = (n, noun) => `${number(n)} ${noun}${n === 1 ? "" : "s"}`;

/** The first digits of an identifier that differ soon: identifiers begin with their time. */
export const short = (id) => `${id.slice(0, 8)}…${id.slice(-4)}`;
