/** What the page of federation computes: URIs without passwords, parameters from a form, and the neighbours of this cluster. */

import { plural } from './format.js';

const DOWNSTREAM = /^federation: (.*) -> (.+?)(?::.*)?$/s;
const NUMBERS = ['prefetch-count', 'reconnect-delay', 'max-hops', 'expires', 'message-ttl'];
const TEXTS = ['exchange', 'queue', 'consumer-tag', 'ha-policy', 'ack-mode', 'resource-cleanup-mode'];
const TICKS = ['trust-user-id', 'bind-nowait'];

/** A URI as it may be shown: the password is replaced, parameters are left out. */
export function shownUri(uri) {
  return String(uri).replace(/:\/\/([^@:/?#]*):[^@/?#]*@/, '://$1:******@').replace(/\?.*$/s, '');
}

/** The URIs of an upstream, as they may be shown. */
export function shownUris(value) {
  const uris = value?.uri ?? [];
  return (Array.isArray(uris) ? uris : [uris]).map(shownUri);
}

/** The cluster that a queue here waits for, or null: it is no queue of a link elsewhere. */
export function downstreamOf(queue) {
  return DOWNSTREAM.exec(queue)?.[2] ?? null;
}

/**
 * The nodes of the drawing.
 *
 * @param {object[]} links rows of /api/federation-links
 * @param {object[]} queues rows of /api/queues: name, consumers, messages
 * @returns {{up: object[], down: object[]}} each `{name, role, text}`; roles as in ring.js
 */
export function neighbours(links, queues) {
  const up = new Map();
  for (const link of links) {
    const known = up.get(link.upstream) ?? { name: link.upstream, uri: link.uri, running: 0, all: 0 };
    known.all += 1;
    known.running += link.status === 'running';
    up.set(link.upstream, known);
  }
  const down = new Map();
  for (const queue of queues) {
    const name = downstreamOf(queue.name);
    if (name === null) continue;
    const known = down.get(name) ?? { name, running: 0, all: 0, waiting: 0 };
    known.all += 1;
    known.running += queue.consumers > 0;
    known.waiting += queue.messages ?? 0;
    down.set(name, known);
  }
  const byName = (one, other) => (one.name < other.name ? -1 : 1);
  return {
    up: [...up.values()].sort(byName).map((one) => ({ ...one, role: roleOf(one), text: `${one.running} of ${plural(one.all, 'link')} ${one.all === 1 ? 'runs' : 'run'}` })),
    down: [...down.values()].sort(byName).map((one) => ({ ...one, role: roleOf(one), text: one.waiting ? `${plural(one.waiting, 'message')} wait` : `takes from ${plural(one.all, 'exchange')}` })),
  };
}

function roleOf({ running, all }) {
  if (running === all) return 'synced';
  return running ? 'behind' : 'down';
}

/** The value of the parameter that a form's values mean. */
export function upstreamOf(values) {
  const uris = values.uri.split(/\s+/).filter(Boolean);
  const value = { uri: uris.length === 1 ? uris[0] : uris };
  for (const key of NUMBERS) if (values[key] !== '') value[key] = Number(values[key]);
  for (const key of TEXTS) if (values[key] !== '') value[key] = values[key];
  for (const key of TICKS) if (values[key] !== '') value[key] = values[key] === 'true';
  return value;
}
