/** A connection: its traffic, its channels, its client's properties; closing it. */

import { del, get, path } from '../api.js';
import { Chart, rangeParams, rangePicker } from '../chart.js';
import { cluster } from '../cluster.js';
import { ask, attempt } from '../dialog.js';
import { fill, h, patch } from '../dom.js';
import { field, input } from '../form.js';
import { NOTHING, ago, bytes, number, rate, time } from '../format.js';
import { argumentList, badge, button, link, liveFacts, section, state } from '../parts.js';
import { go } from '../router.js';
import { Table } from '../table.js';

const TRAFFIC = [
  { label: 'From client', field: 'recv_oct', colour: 'publish' },
  { label: 'To client', field: 'send_oct', colour: 'deliver' },
];
const TONES = { running: 'good', flow: 'warn', blocking: 'warn', blocked: 'bad', closing: 'warn', closed: 'bad' };

export const title = ({ name }) => name;

export async function render(view, { name }) {
  const where = path('connections', name);
  const kept = cluster.overview.sample_retention_policies?.basic;
  const head = h('.page-marks');
  const chart = new Chart({ id: 'connection.traffic', title: 'Bytes', kind: 'byteRate', series: TRAFFIC });
  const details = liveFacts();
  const channels = channelsTable();
  const client = h('div');
  const close = button('Force close', () => forceClose(name), { danger: true });
  fill(view.body,
    h('header.page-head', null, h('h1', null, h('span.page-kind', null, 'Connection'), ' ', h('span.name', null, name)), head),
    section('connection.charts', 'Network', { tools: rangePicker('connection', kept, () => view.refresh()) }, h('.charts', null, chart.element)),
    section('connection.details', 'Details', {}, details.element),
    section('connection.channels', 'Channels', {}, channels.element),
    section('connection.client', 'Client', {}, client),
    section('connection.danger', 'Close this connection', { isOpen: false }, h('.danger-buttons', null, close)));
  await view.every(async () => {
    const { signal } = view;
    const [connection, rows] = await Promise.all([
      get(where, { params: rangeParams('connection', ['data_rates'], kept), signal }),
      get(`${where}/channels`, { signal }),
    ]);
    patch(head, marks(connection));
    chart.update(connection);
    details(detailsOf(connection));
    channels.update(rows ?? []);
    patch(client, argumentList(connection.client_properties));
  });
}

function marks(connection) {
  return [
    connection.state && state(connection.state, TONES[connection.state] ?? 'quiet'), ' ',
    connection.user_provided_name && h('strong', null, connection.user_provided_name), ' ',
    connection.protocol && badge(connection.protocol), ' ',
    connection.ssl ? badge('TLS', 'good') : badge('no TLS'),
  ];
}

function detailsOf(connection) {
  const { ssl } = connection;
  return [
    ['Node', connection.node ? link.node(connection.node) : null],
    ['Virtual host', connection.vhost === undefined ? null : link.vhost(connection.vhost)],
    ['User', connection.user === undefined ? null : link.user(connection.user)],
    ['Connected', connection.connected_at ? [ago(connection.connected_at, Date.now()), ' ', h('span.quiet', null, time(connection.connected_at))] : null],
    ['Client', `${connection.peer_host ?? NOTHING}:${connection.peer_port ?? ''}`],
    ['Listener', `${connection.host ?? NOTHING}:${connection.port ?? ''}`],
    ['Authentication', connection.auth_mechanism],
    ['Heartbeat', connection.timeout ? `${number(connection.timeout)} s` : 'none'],
    ['Frame max', bytes(connection.frame_max)],
    ['Channel max', number(connection.channel_max)],
    ['Received', bytes(connection.recv_oct)],
    ['Sent', bytes(connection.send_oct)],
    ['Waiting to be sent', typeof connection.send_pend === 'number' ? bytes(connection.send_pend) : null],
    ssl ? ['TLS', [connection.ssl_protocol, connection.ssl_cipher].filter(Boolean).join(', ')] : null,
    ssl && connection.peer_cert_subject ? ['Certificate of', connection.peer_cert_subject] : null,
    ssl && connection.peer_cert_issuer ? ['Issued by', connection.peer_cert_issuer] : null,
    ssl && connection.peer_cert_validity ? ['Valid', connection.peer_cert_validity] : null,
  ];
}

function channelsTable() {
  return new Table({
    key: (row) => row.name,
    caption: 'channels',
    empty: 'No channels.',
    columns: [
      { id: 'name', title: 'Channel', cell: (row) => link.channel(row.name, `channel ${row.number}`) },
      { id: 'mode', title: 'Mode', cell: (row) => [row.confirm && badge('confirm', 'info'), row.transactional && badge('transaction', 'info')] },
      { id: 'state', title: 'State', cell: (row) => (row.idle_since ? state('idle') : state(row.state ?? 'running', 'good')) },
      { id: 'consumers', title: 'Consumers', number: true, cell: (row) => number(row.consumer_count) },
      { id: 'prefetch', title: 'Prefetch', number: true, cell: (row) => number(row.prefetch_count) },
      { id: 'unacked', title: 'Unacked', number: true, cell: (row) => number(row.messages_unacknowledged) },
      { id: 'publish', title: 'Publish', number: true, cell: (row) => rate(row.message_stats?.publish_details?.rate) },
      { id: 'deliver', title: 'Deliver / get', number: true, cell: (row) => rate(row.message_stats?.deliver_get_details?.rate) },
      { id: 'ack', title: 'Ack', number: true, cell: (row) => rate(row.message_stats?.ack_details?.rate) },
    ],
  });
}

async function forceClose(name) {
  const reason = await ask('Close this connection?', (finish) => {
    const why = input('reason', { maxlength: 200, placeholder: 'Closed via management', autofocus: true });
    return {
      body: [
        h('.dialog-text', null, 'Its client is told CONNECTION_FORCED with your reason. Most clients connect again at once.'),
        field('Reason', why, 'In plain ASCII; it goes into the client’s log.'),
      ],
      buttons: [
        h('button.button', { type: 'button', onclick: () => finish(null) }, 'Cancel'),
        h('button.button.is-danger', { type: 'submit' }, 'Close it'),
      ],
      submit: () => finish(why.value),
    };
  }, null);
  if (reason === null) return;
  // A header holds no more; the server says its own text when this is empty.
  const text = reason.replace(/[^\x20-\x7e]/g, '?').trim();
  const headers = text ? { 'x-reason': text } : {};
  if (await attempt(() => del(path('connections', name), { headers }), 'Closed')) go('#/connections');
}
