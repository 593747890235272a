/**
 * Requests of the HTTP API. Every path segment goes through `path`; every refusal comes as an `ApiError` whose message can
 * be shown as it is.
 */

import { authorization } from './auth.js';
import { pref } from './prefs.js';

const TIMEOUT_MS = 30_000;

/** A refusal (status ≥ 400) or no answer (status 0). `message` is the server's reason as text. */
export class ApiError extends Error {
  constructor(status, error, reason) {
    super(reasonText(reason) || error || `HTTP ${status}`);
    this.status = status;
    this.error = error;
  }

  /** The request had no answer, or one from a server that can't serve now. */
  get isOutage() {
    return this.status === 0 || this.status === 502 || this.status === 503 || this.status === 504;
  }
}

/** A reason is a string, or a list of texts that belong together. */
export function reasonText(reason) {
  if (Array.isArray(reason)) return reason.map((part) => reasonText(part)).join(': ');
  if (reason && typeof reason === 'object') return JSON.stringify(reason);
  return reason === null || reason === undefined ? '' : String(reason).trim();
}

/** `path('queues', '/', 'a b')` → `queues/%2F/a%20b`. The default exchange ('') is `amq.default`. */
export function path(...segments) {
  return segments.map((part) => encodeURIComponent(part === '' ? 'amq.default' : part)).join('/');
}

/** Reports the outcome of requests to the header: `{ok: true}` or `{ok: false, error}`. */
export const health = new EventTarget();

function tell(ok, error = null) {
  health.dispatchEvent(new CustomEvent('change', { detail: { ok, error, at: Date.now() } }));
}

/** The path with a query; entries that are null or undefined are left out. */
export function withParams(where, params) {
  const entries = Object.entries(params ?? {}).filter(([, value]) => value !== null && value !== undefined);
  if (!entries.length) return where;
  return `${where}${where.includes('?') ? '&' : '?'}${new URLSearchParams(entries)}`;
}

/**
 * Sends a request; returns the value in the JSON of the answer, or null when the answer is empty.
 *
 * @param {string} method
 * @param {string} where path below /api/, of `path`
 * @param {{params?, body?, text?: string, isText?, headers?, signal?: AbortSignal, vhost?: string|null, quiet?}} [options]
 *   body: any JSON value; text: JSON that is text already (numbers stay as they are written). isText: the answer's text is wanted.
 *   vhost: sent as x-vhost; by default the one chosen in the header (`currentVhost`); null: all.
 *   quiet: a request beside the page's own, whose outcome the header does not show.
 * @throws {ApiError} refusal or no answer; an abort by `signal` comes as the usual AbortError
 */
export async function send(method, where, options = {}) {
  const { signal, quiet } = options;
  const body = options.text ?? (options.body === undefined ? undefined : JSON.stringify(options.body));
  const headers = { accept: 'application/json', ...options.headers };
  const auth = headers.authorization ?? authorization();
  if (auth) headers.authorization = auth;
  const vhost = options.vhost === undefined ? currentVhost() : options.vhost;
  if (vhost && method === 'GET') headers['x-vhost'] = vhost;
  if (body !== undefined) headers['content-type'] = 'application/json';
  for (const name of Object.keys(headers)) headers[name] = headerText(headers[name]);
  let response;
  let text;
  try {
    response = await fetch(`api/${withParams(where, options.params)}`, {
      method,
      headers,
      body,
      signal: signal ? AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]) : AbortSignal.timeout(TIMEOUT_MS),
      credentials: 'omit', // no password box of the browser's own
      cache: 'no-store',
    });
    text = await response.text(); // a node may also end in the middle of its answer
  } catch (failure) {
    if (signal?.aborted) throw failure;
    const why = failure.name === 'TimeoutError' ? 'No answer within 30 seconds' : 'The node can’t be reached';
    const error = new ApiError(0, 'unreachable', why);
    if (!quiet) tell(false, error);
    throw error;
  }
  return answered(response, text, Boolean(quiet), Boolean(options.isText));
}

function answered(response, text, quiet, isText) {
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    if (response.ok) throw new ApiError(response.status, 'not_json', 'the answer is not JSON');
  }
  if (response.ok) {
    if (!quiet) tell(true);
    return isText ? text : value;
  }
  const error = new ApiError(response.status, value?.error ?? '', value?.reason ?? response.statusText);
  // Not allowed is `not_authorised`; wrong or missing credentials are `not_authorized` or an empty body.
  if (response.status === 401 && value?.error !== 'not_authorised') {
    document.dispatchEvent(new CustomEvent('fluffle:unauthorized'));
  }
  if (!quiet) tell(!error.isOutage, error.isOutage ? error : null);
  throw error;
}

/** A header's value holds octets: UTF-8. A line end in it can't be sent, it is left out. */
function headerText(text) {
  const octets = Array.from(new TextEncoder().encode(text), (octet) => String.fromCharCode(octet));
  return octets.filter((octet) => !'\r\n\0'.includes(octet)).join('');
}

export const get = (where, options) => send('GET', where, options);
export const put = (where, body = {}, options) => send('PUT', where, { ...options, body });
export const post = (where, body = {}, options) => send('POST', where, { ...options, body });
export const del = (where, options) => send('DELETE', where, options);

/** As `get`, but null where there is no such thing, or the user may not see it, or the server is older than the page. */
export async function getIfAny(where, options) {
  try {
    return await get(where, options);
  } catch (error) {
    if (error instanceof ApiError && (error.status === 404 || error.status === 401 || error.status === 405)) return null;
    throw error;
  }
}

/** The virtual host chosen in the header; null for all. */
export function currentVhost() {
  return pref('vhost', null);
}
