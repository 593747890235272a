/** How numbers, times and names are written. Pure: `now` comes in. Values that are missing give `–`, never NaN. */

export const NOTHING = '–';

const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);

/** 1234567 → `1,234,567`. */
export function number(value) {
  return isNumber(value) ? Math.round(value).toLocaleString('en') : NOTHING;
}

/** A value at a chart's axis, with its unit: `1.2k/s`.  @param {'rate'|'count'|'bytes'|'byteRate'|'ms'} kind */
export function axisText(kind, value) {
  if (kind === 'rate') return `${short(value)}/s`;
  return { count: short, bytes, byteRate, ms: milliseconds }[kind](value);
}

/** 1234567 → `1.2M`; for bars, axes and small places. */
export function short(value) {
  if (!isNumber(value)) return NOTHING;
  const size = Math.abs(value);
  for (const [limit, letter] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e4, 'k']]) {
    if (size >= limit) return `${trimmed(value / (letter === 'k' ? 1e3 : limit))}${letter}`;
  }
  return trimmed(value);
}

/** Messages per second: `12/s`, `0.40/s`. */
export function rate(value) {
  if (!isNumber(value)) return NOTHING;
  if (value === 0) return '0/s';
  if (Math.abs(value) < 1) return `${value.toFixed(2)}/s`;
  if (Math.abs(value) < 10) return `${value.toFixed(1)}/s`;
  return `${Math.round(value).toLocaleString('en')}/s`;
}

/** `1.5 MiB`; powers of 1024. */
export function bytes(value) {
  if (!isNumber(value)) return NOTHING;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${Math.round(size)} B` : `${trimmed(size)} ${units[unit]}`;
}

/** `1.5 MiB/s`. */
export function byteRate(value) {
  return isNumber(value) ? `${bytes(value)}/s` : NOTHING;
}

function trimmed(value) {
  const size = Math.abs(value);
  const text = size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

/** 0..1 → `42%`. */
export function percent(value) {
  if (!isNumber(value)) return NOTHING;
  const hundredth = value * 100;
  return `${hundredth > 0 && hundredth < 1 ? '<1' : Math.round(hundredth)}%`;
}

/** `0.64 ms`; for short times. */
export function milliseconds(value) {
  return isNumber(value) ? `${trimmed(value)} ms` : NOTHING;
}

/** Milliseconds → `3d 4h`, `5m 12s`, `0.8s`; the two largest units. */
export function duration(ms) {
  if (!isNumber(ms)) return NOTHING;
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  let left = Math.floor(ms / 1000);
  const parts = [];
  for (const [letter, size] of [['d', 86400], ['h', 3600], ['m', 60], ['s', 1]]) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count || parts.length) parts.push(`${count}${letter}`);
    if (parts.length === 2) break;
  }
  return parts.filter((part, index) => index === 0 || !part.startsWith('0')).join(' ');
}

/** Epoch ms or a text that Date reads → `2026-11-21 09:16:11`, local time. */
export function time(value) {
  const date = dateOf(value);
  if (!date) return NOTHING;
  const two = (n) => String(n).padStart(2, '0');
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${clock(date)}`;
}

/** `09:16:11`. */
export function clock(value) {
  const date = dateOf(value);
  if (!date) return NOTHING;
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((n) => String(n).padStart(2, '0')).join(':');
}

/** The time zone of all times that are shown: `Europe/Berlin (UTC+01:00)`. */
export function zone(date = new Date()) {
  const minutes = -date.getTimezoneOffset();
  const two = (n) => String(n).padStart(2, '0');
  const offset = `UTC${minutes < 0 ? '-' : '+'}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return !name || name === 'UTC' ? (minutes ? offset : 'UTC') : `${name} (${offset})`;
}

/** How long ago: `5m 12s ago`. */
export function ago(value, now) {
  const date = dateOf(value);
  return date ? `${duration(Math.max(0, now - date.getTime()))} ago` : NOTHING;
}

function dateOf(value) {
  if (value === null || value === undefined || value === '') return null;
  const date = value instanceof Date ? value : new Date(value);
  return Number.isNaN(date.getTime()) ? null : date;
}

/** `plural(2, 'queue')` → `2 queues`. */
export function plural(count, noun, many = `${noun}s`) {
  return `${number(count)} ${count === 1 ? noun : many}`;
}

/** The value at a dotted path of an object, as in `message_stats.publish_details.rate`; undefined when a part is missing. */
export function at(object, path) {
  let value = object;
  for (const part of path.split('.')) {
    if (value === null || value === undefined) return undefined;
    value = value[part];
  }
  return value;
}

/** Any JSON value on one line: strings bare, objects as `{a: 1}`. */
export function json(value) {
  if (value === null || value === undefined) return NOTHING;
  if (typeof value === 'object') return JSON.stringify(value);
  return String(value);
}

/** The default exchange has no name. */
export function exchangeName(name) {
  return name === '' ? '(default)' : name;
}

/** `rabbit@host` → `host` when that is enough to tell `nodes` apart, else the whole name. */
export function nodeName(name, nodes = []) {
  const host = String(name).split('@')[1] ?? String(name);
  const first = String(name).split('@')[0];
  const others = nodes.filter((other) => other !== name);
  if (others.length && others.every((other) => other.split('@')[0] !== first)) return first;
  if (others.length && others.every((other) => other.split('@')[1] !== host)) return host;
  return String(name);
}

/** Text cut after `length` characters (not halves of one). */
export function cut(text, length) {
  const characters = [...String(text)];
  return characters.length <= length ? String(text) : `${characters.slice(0, length - 1).join('')}…`;
}
