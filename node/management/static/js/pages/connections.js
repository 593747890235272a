/** All connections: users, addresses, traffic; closing them. */

import { del, path } from '../api.js';
import { bulk } from '../bulk.js';
import { isClustered, showsVhosts } from '../cluster.js';
import { nodeColumn, userColumn, vhostColumn } from '../columns.js';
import { append, h } from '../dom.js';
import { NOTHING, ago, byteRate, bytes, number, time } from '../format.js';
import { badge, link, state } from '../parts.js';
import { PagedList } from '../table.js';

export const title = 'Connections';

export async function render(view) {
  const list = new PagedList(view, {
    id: 'connections',
    noun: 'connection',
    path: 'connections',
    columns: columns(view.vhost),
    fields: ['name', 'vhost'],
    key: (row) => row.name,
    actions: [{ label: 'Close', danger: true, run: close }],
    empty: 'No connections.',
  });
  view.turn = (by) => list.turn(by);
  append(view.body, h('.page-head', null, h('h1', null, 'Connections')), list.element);
  await view.every(() => list.refresh());
}

function close(rows) {
  return bulk(rows, rows.map((row) => row.user_provided_name ?? row.name), {
    verb: 'Close', noun: 'connection', text: 'Their clients get 320 CONNECTION_FORCED; most connect again.',
    each: (row) => del(path('connections', row.name), { headers: { 'x-reason': 'Closed in the web UI' } }),
  });
}

const TONES = { running: 'good', flow: 'warn', blocking: 'warn', blocked: 'bad', closing: 'warn', closed: 'quiet' };
const HINTS = {
  flow: 'Slowed down: it publishes faster than the queues take',
  blocking: 'An alarm is on; it will be blocked when it publishes',
  blocked: 'Blocked by an alarm: nothing is read from it',
};

/** The state of a connection; a direct one has none. */
function connectionState(row) {
  return row.state ? state(row.state, TONES[row.state] ?? 'quiet', HINTS[row.state]) : h('span.quiet', null, NOTHING);
}

function text(id, name, fieldName, extra = {}) {
  return { id, title: name, sort: fieldName, fields: [fieldName], cell: (row) => row[fieldName] ?? NOTHING, ...extra };
}

function traffic(id, name, way) {
  const field = `${way}_oct_details`;
  return { id, title: name, group: 'Network', number: true, sort: `${field}.rate`, fields: [field], cell: (row) => byteRate(row[field]?.rate) };
}

function columns(vhost) {
  const name = (row) => [link.connection(row.name), row.user_provided_name && h('small', null, row.user_provided_name)];
  const tls = (row) => (row.ssl ? badge(row.ssl_protocol || 'TLS', 'good', row.ssl_cipher) : h('span.quiet', null, NOTHING));
  const off = { off: true, group: 'TLS' };
  return [
    { id: 'name', title: 'Name', sort: 'name', fields: ['name', 'user_provided_name'], cell: name },
    ...(showsVhosts(vhost) ? [vhostColumn()] : []),
    ...(isClustered() ? [nodeColumn()] : []),
    userColumn(),
    { id: 'state', title: 'State', sort: 'state', fields: ['state'], cell: connectionState },
    { id: 'tls', title: 'TLS', sort: 'ssl', fields: ['ssl', 'ssl_protocol', 'ssl_cipher'], cell: tls },
    text('tls-cipher', 'Cipher', 'ssl_cipher', off),
    text('tls-subject', 'Peer certificate', 'peer_cert_subject', off),
    text('protocol', 'Protocol', 'protocol'),
    { id: 'channels', title: 'Channels', number: true, sort: 'channels', fields: ['channels'], cell: (row) => number(row.channels) },
    text('mechanism', 'Authentication', 'auth_mechanism', { off: true }),
    { id: 'client', title: 'Client', off: true, sort: 'client_properties.product', fields: ['client_properties'], cell: client },
    { id: 'channel-max', title: 'Channel max', number: true, off: true, sort: 'channel_max', fields: ['channel_max'], cell: (row) => number(row.channel_max) },
    { id: 'frame-max', title: 'Frame max', number: true, off: true, sort: 'frame_max', fields: ['frame_max'], cell: (row) => bytes(row.frame_max) },
    traffic('from', 'From client', 'recv'),
    traffic('to', 'To client', 'send'),
    { id: 'heartbeat', title: 'Heartbeat', group: 'Network', off: true, number: true, sort: 'timeout', fields: ['timeout'], cell: (row) => (row.timeout ? `${number(row.timeout)} s` : NOTHING) },
    { id: 'since', title: 'Connected', group: 'Network', sort: 'connected_at', fields: ['connected_at'],
      cell: (row) => h('span', { title: time(row.connected_at) }, ago(row.connected_at, Date.now())) },
  ];
}

function client({ client_properties: properties }) {
  if (!properties) return NOTHING;
  const product = [properties.product, properties.version].filter((part) => typeof part === 'string').join(' ');
  return [product || NOTHING, typeof properties.platform === 'string' && h('small', null, properties.platform)];
}
