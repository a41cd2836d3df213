// What may this client do, and which token does it show?
//
// The token stays in this tab: it is gone when the tab is closed. No other site can read it.

const KEY = "apportion-token";
/** Scopes, each with what the ones before it allow. */
const SCOPES = ["agent", "read", "plan", "apply", "admin"];

export const ACCESS_PATH = "v1/access";

/** Keeps a token for this tab; empty: forgets it. */
export function keepToken(text) {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

/** The header with the token, if there is one. */
export function authorization() {
  const token = sessionStorage.getItem(KEY);
  return token ? { authorization: `Bearer ${token}` } : {};
}

/** Whether the service lets this client call operations that need a scope. Until it has said so: no. */
export function allows(live, needed) {
  const scope = live.get(ACCESS_PATH)?.scope;
  return SCOPES.indexOf(scope) >= SCOPES.indexOf(needed);
}
