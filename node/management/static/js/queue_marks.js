/** How a queue is marked in lists and on its page: state, features, mirrors. */

import { cluster } from './cluster.js';
import { h } from './dom.js';
import { json, plural, time } from './format.js';
import { badge, link, state } from './parts.js';

const TONES = { running: 'good', syncing: 'warn', flow: 'warn', terminated: 'warn', down: 'bad', crashed: 'bad', stopped: 'bad', minority: 'bad' };

/** The state as a dot and a word; while mirrors are filled, how far. A queue that does nothing is quiet. */
export function queueState(queue) {
  if (!queue.state) return untold(queue.node);
  if (queue.state === 'syncing') return state(syncText(queue), 'warn', 'Messages are copied to new mirrors; clients go on meanwhile.');
  if (queue.state === 'running' && queue.idle_since) return state('idle', 'quiet', `since ${time(queue.idle_since)}`);
  return state(queue.state, TONES[queue.state] ?? 'quiet');
}

/** A queue without a state: new, or of a node that is down. */
function untold(name) {
  const isDown = cluster.nodes.some((node) => node.name === name && node.running === false);
  return isDown ? state('down', 'bad', `${name} is down, and no mirror could take over`) : state('no news', 'quiet', 'Its node has not told yet how it does');
}

/** `syncing 40%`, of the messages that are copied; without numbers, `syncing`. */
export function syncText(queue) {
  const share = queue.messages > 0 && queue.sync_messages >= 0 ? queue.sync_messages / queue.messages : null;
  return share === null ? 'syncing' : `syncing ${Math.min(100, Math.round(share * 100))}%`;
}

/** The arguments that have a short mark: [argument, mark, meaning]. */
const ARGUMENT_MARKS = [
  ['x-message-ttl', 'TTL', 'Messages expire after, ms'],
  ['x-expires', 'Exp', 'The queue expires when unused for, ms'],
  ['x-max-length', 'Lim', 'Most messages'],
  ['x-max-length-bytes', 'Lim B', 'Most bytes'],
  ['x-overflow', 'Ovfl', 'When it is full'],
  ['x-dead-letter-exchange', 'DLX', 'Dead letters go to the exchange'],
  ['x-dead-letter-routing-key', 'DLK', 'Dead letters get the routing key'],
  ['x-max-priority', 'Pri', 'Highest priority'],
  ['x-max-in-memory-length', 'ML', 'Most messages in memory'],
  ['x-max-in-memory-bytes', 'MLB', 'Most bytes in memory'],
  ['x-single-active-consumer', 'SAC', 'One consumer at a time'],
  ['x-group-header', 'Grp', 'Messages with the same value of this header go to one consumer'],
  ['x-message-deduplication', 'Dedup', 'Drops messages with the id of one that is in it'],
  ['x-queue-mode', (value) => String(value), 'Queue mode'],
  ['x-queue-version', 'Ver', 'Queue version'],
  ['x-queue-master-locator', 'Loc', 'Where its master is put'],
];

/** Short marks of what kind of queue it is; policies as links. */
export function queueFeatures(queue) {
  const table = queue.arguments ?? {};
  const marks = ARGUMENT_MARKS.filter(([name]) => name in table)
    .map(([name, mark, meaning]) => badge(mark instanceof Function ? mark(table[name]) : mark, 'quiet', `${meaning}: ${json(table[name])}`));
  const known = new Set([...ARGUMENT_MARKS.map(([name]) => name), 'x-queue-type']);
  const others = Object.entries(table).filter(([name]) => !known.has(name)).map(([name, value]) => `${name}: ${json(value)}`);
  return h('span.marks', null,
    queue.durable && badge('D', 'quiet', 'Durable: it survives a restart'),
    queue.auto_delete && badge('AD', 'quiet', 'Deleted when its last consumer goes'),
    queue.exclusive && badge('Excl', 'quiet', 'Of one connection only; deleted with it'),
    marks,
    others.length > 0 && badge('Args', 'quiet', others.join('\n')),
    queue.policy && h('span.policy-mark', { title: 'Policy' }, h('span.quiet', null, 'policy '), link.policy(queue.vhost, queue.policy)),
    queue.operator_policy && badge(queue.operator_policy, 'info', 'Operator policy'));
}

/** How many mirrors have everything, and how many don't yet; null for a queue without mirroring. */
export function mirrorBadges(queue) {
  const mirrors = queue.slave_nodes;
  if (!Array.isArray(mirrors)) return null;
  const synced = queue.synchronised_slave_nodes ?? [];
  const behind = mirrors.filter((node) => !synced.includes(node));
  const missing = new Map((queue.mirrors ?? []).map((mirror) => [mirror.node, mirror.lacks]));
  const told = behind.map((node) => (missing.get(node) > 0 ? `${node} lacks ${plural(missing.get(node), 'message')}` : node));
  if (!mirrors.length) return badge('+0', 'warn', 'A policy wants mirrors, but there is none.');
  return [
    badge(`+${synced.length}`, synced.length ? 'good' : 'warn', synced.length ? `Synchronised mirrors: ${synced.join(', ')}` : 'No mirror has everything.'),
    behind.length > 0 && badge(`+${behind.length}`, 'bad', `Unsynchronised mirrors: ${told.join(', ')}`),
  ];
}

/** Suggestions for a queue's arguments (`argumentsEditor`). */
export const QUEUE_CHIPS = [
  { key: 'x-message-ttl', label: 'Message TTL', type: 'number', hint: 'x-message-ttl: how long a message may wait, ms' },
  { key: 'x-expires', label: 'Auto expire', type: 'number', hint: 'x-expires: how long the queue may be unused, ms' },
  { key: 'x-max-length', label: 'Max length', type: 'number', hint: 'x-max-length: most messages that are ready' },
  { key: 'x-max-length-bytes', label: 'Max length bytes', type: 'number', hint: 'x-max-length-bytes: most bytes of messages that are ready' },
  { key: 'x-overflow', label: 'Overflow', value: 'reject-publish', hint: 'x-overflow: drop-head, reject-publish or reject-publish-dlx' },
  { key: 'x-dead-letter-exchange', label: 'Dead letter exchange', hint: 'x-dead-letter-exchange: where rejected, expired and dropped messages go' },
  { key: 'x-dead-letter-routing-key', label: 'Dead letter routing key', hint: 'x-dead-letter-routing-key: instead of the message’s own' },
  { key: 'x-single-active-consumer', label: 'Single active consumer', type: 'boolean', value: 'true', hint: 'x-single-active-consumer: one consumer at a time' },
  { key: 'x-group-header', label: 'Group header', hint: 'x-group-header: messages with the same value of this header go to one consumer, in order' },
  { key: 'x-message-deduplication', label: 'Deduplication', type: 'boolean', value: 'true', hint: 'x-message-deduplication: messages with the x-deduplication-header of one that is in the queue are dropped' },
  { key: 'x-max-priority', label: 'Max priority', type: 'number', value: '10', hint: 'x-max-priority: highest priority, 1 to 255' },
  { key: 'x-queue-mode', label: 'Lazy', value: 'lazy', hint: 'x-queue-mode: messages are kept on disk' },
  { key: 'x-hold-until-header', label: 'Hold until', value: 'eta', hint: 'x-hold-until-header: the header with the time until which a message waits' },
  { key: 'x-delivery-limit', label: 'Delivery limit', type: 'number', hint: 'x-delivery-limit: how often a message may come back' },
  { key: 'x-dead-letter-strategy', label: 'Dead letter strategy', value: 'at-least-once', hint: 'x-dead-letter-strategy: of a quorum queue with overflow reject-publish' },
  { key: 'x-delayed-retry-type', label: 'Retries wait', value: 'all', hint: 'x-delayed-retry-type: disabled, all, failed or returned' },
  { key: 'x-delayed-retry-min', label: 'Shortest wait', type: 'number', hint: 'x-delayed-retry-min: milliseconds, for each return once more' },
  { key: 'x-delayed-retry-max', label: 'Longest wait', type: 'number', hint: 'x-delayed-retry-max: milliseconds' },
  { key: 'x-max-in-memory-length', label: 'Max in memory length', type: 'number', hint: 'x-max-in-memory-length: most messages of a quorum queue in memory' },
  { key: 'x-queue-master-locator', label: 'Master locator', value: 'min-masters', hint: 'x-queue-master-locator: min-masters, client-local or random' },
];
