/** The preferences that a browser remembers between visits: theme, refresh interval, virtual host, columns, chart ranges, folded sections. */

const KEY = 'fluffle.prefs';

function all() {
  try {
    const value = JSON.parse(window.localStorage.getItem(KEY) ?? '{}');
    return value && typeof value === 'object' ? value : {};
  } catch {
    return {}; // the storage is refused, or damaged: the defaults hold
  }
}

/** The value kept under a name, else `fallback`. */
export function pref(name, fallback) {
  const value = all()[name];
  return value === undefined ? fallback : value;
}

/** Keeps a JSON value; undefined forgets it. */
export function setPref(name, value) {
  const values = all();
  if (value === undefined) delete values[name];
  else values[name] = value;
  try {
    window.localStorage.setItem(KEY, JSON.stringify(values));
  } catch {
    // Storage is full or refused: the value lasts as long as the page.
  }
}
