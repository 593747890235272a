/** A node's use of memory: one bar, and the parts by size. */

import { h } from './dom.js';
import { bytes, percent } from './format.js';

/** [field of node.memory, name, colour]; what isn't here is shown by its field's name. */
const PARTS = [
  ['connection_readers', 'Connection readers', 'confirm'],
  ['connection_writers', 'Connection writers', 'unacked'],
  ['connection_channels', 'Channels', 'getauto'],
  ['connection_other', 'Connections, other', 'read'],
  ['queue_procs', 'Queues', 'deliver'],
  ['queue_slave_procs', 'Mirrors', 'autoack'],
  ['quorum_queue_procs', 'Quorum queues', 'created'],
  ['quorum_queue_dlx_procs', 'Dead letters of quorum queues', 'created'],
  ['stream_queue_procs', 'Streams', 'created'],
  ['stream_queue_replica_reader_procs', 'Stream replica readers', 'created'],
  ['stream_queue_coordinator_procs', 'Stream coordinator', 'created'],
  ['binary', 'Messages and other binaries', 'publish'],
  ['msg_index', 'Message index', 'ready'],
  ['mnesia', 'Catalogue', 'ack'],
  ['mgmt_db', 'Statistics', 'out'],
  ['metrics', 'Metrics', 'used'],
  ['quorum_ets', 'Quorum queue tables', 'ack'],
  ['other_ets', 'Other tables', 'ack'],
  ['plugins', 'Plug-ins', 'return'],
  ['other_proc', 'Other processes', 'redeliver'],
  ['code', 'Code', 'get'],
  ['atom', 'Atoms', 'get'],
  ['other_system', 'Other', 'drop'],
  ['allocated_unused', 'Allocated, unused', 'getempty'],
  ['reserved_unallocated', 'Reserved by the system', 'getempty'],
];

/** The parts that are not empty, largest first: [{name, colour, size, share}]. Pure. */
export function memoryParts(memory) {
  const known = new Map(PARTS.map(([field, name, colour]) => [field, { name, colour }]));
  const parts = Object.entries(memory ?? {})
    .filter(([, size]) => typeof size === 'number' && size > 0)
    .map(([field, size]) => ({ ...(known.get(field) ?? { name: field.replaceAll('_', ' '), colour: 'getempty' }), size }));
  const all = parts.reduce((sum, part) => sum + part.size, 0);
  return parts.map((part) => ({ ...part, share: part.size / all })).sort((one, other) => other.size - one.size);
}

/** Elements for a node's `memory`. */
export function memoryBar(memory) {
  const parts = memoryParts(memory);
  if (!parts.length) return h('p.quiet', null, 'The node doesn’t tell.');
  const bar = h('.stack', { role: 'img', 'aria-label': 'Shares of the memory' }, parts.map((part) =>
    h(`span.swatch.is-${part.colour}`, { title: `${part.name}: ${bytes(part.size)}`, style: { width: `${(part.share * 100).toFixed(2)}%` } })));
  const rows = parts.map((part) => h('li', null, h(`span.swatch.is-${part.colour}`), h('span', null, part.name),
    h('b', null, bytes(part.size)), h('span.quiet', null, percent(part.share))));
  const total = memory.total;
  const sums = total && typeof total === 'object'
    ? `Resident ${bytes(total.rss)}, allocated ${bytes(total.allocated)}, in use ${bytes(total.erlang)}`
    : null;
  return [bar, h('ul.stack-parts', null, rows), sums && h('p.quiet', null, sums)];
}
