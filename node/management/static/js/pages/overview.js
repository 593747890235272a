/** The overview: totals, rates, nodes, churn, ports, definitions. */

import { get, getIfAny } from '../api.js';
import { can } from '../auth.js';
import { Chart, rangeParams, rangePicker } from '../chart.js';
import { cluster } from '../cluster.js';
import { append, h, patch } from '../dom.js';
import { number, short } from '../format.js';
import { exportPanel, importPanel } from '../definitions_panel.js';
import { NODE_COLUMNS, nodesTable, resetAllButton } from '../nodes_table.js';
import { badge, link, section, tile } from '../parts.js';
import { knownSince } from '../samples.js';
import { Table } from '../table.js';

export const title = 'Overview';

const LENGTHS = [
  { label: 'Ready', field: 'queue_totals.messages_ready', colour: 'ready', hint: 'Wait for a consumer' },
  { label: 'Unacked', field: 'queue_totals.messages_unacknowledged', colour: 'unacked', hint: 'With consumers, not acknowledged' },
  { label: 'Total', field: 'queue_totals.messages', colour: 'total' },
];

const RATES = [
  { label: 'Publish', field: 'message_stats.publish', colour: 'publish' },
  { label: 'Confirm', field: 'message_stats.confirm', colour: 'confirm', hint: 'Confirmed to publishers' },
  { label: 'Deliver', field: 'message_stats.deliver', colour: 'deliver', hint: 'To consumers that acknowledge' },
  { label: 'Deliver (auto ack)', field: 'message_stats.deliver_no_ack', colour: 'autoack', hint: 'To consumers that don’t acknowledge' },
  { label: 'Ack', field: 'message_stats.ack', colour: 'ack' },
  { label: 'Redelivered', field: 'message_stats.redeliver', colour: 'redeliver' },
  { label: 'Get', field: 'message_stats.get', colour: 'get', off: true },
  { label: 'Get (auto ack)', field: 'message_stats.get_no_ack', colour: 'getauto', off: true },
  { label: 'Get (empty)', field: 'message_stats.get_empty', colour: 'getempty', off: true },
  { label: 'Unroutable (return)', field: 'message_stats.return_unroutable', colour: 'return', off: true, hint: 'Given back to publishers' },
  { label: 'Unroutable (drop)', field: 'message_stats.drop_unroutable', colour: 'drop', hint: 'No queue took them, and nobody was told' },
  { label: 'Disk read', field: 'message_stats.disk_reads', colour: 'read', off: true },
  { label: 'Disk write', field: 'message_stats.disk_writes', colour: 'write', off: true },
];

const churn = (noun, first, second) => [
  { label: first, field: `churn_rates.${noun}_${first.toLowerCase()}`, colour: 'created' },
  { label: second, field: `churn_rates.${noun}_${second.toLowerCase()}`, colour: 'closed' },
];

const CHURN = [
  ['connections', 'Connections', churn('connection', 'Created', 'Closed')],
  ['channels', 'Channels', churn('channel', 'Created', 'Closed')],
  ['queues', 'Queues', [{ label: 'Declared', field: 'churn_rates.queue_declared', colour: 'confirm' }, ...churn('queue', 'Created', 'Deleted')]],
];

export async function render(view) {
  const kept = cluster.overview.sample_retention_policies?.global ?? [600, 3600, 28800, 86400];
  const shown = parts(view, kept);
  append(view.body, h('h1.sr-only', null, 'Overview'), shown.all);
  await view.every(async () => {
    const params = { ...rangeParams('overview', ['lengths', 'msg_rates'], kept) };
    const [overview, nodes] = await Promise.all([
      get('overview', { params, signal: view.signal }),
      can('monitoring') ? getIfAny('nodes', { params: { columns: NODE_COLUMNS }, signal: view.signal }) : null,
    ]);
    show(shown, overview, nodes ?? []);
  });
}

function parts(view, kept) {
  const tiles = h('.tiles');
  const notes = h('.notes');
  const lengths = new Chart({ id: 'overview.lengths', title: 'Queued messages', kind: 'count', series: LENGTHS });
  const rates = new Chart({ id: 'overview.rates', title: 'Message rates', kind: 'rate', series: RATES });
  const nodes = nodesTable(view);
  const churns = CHURN.map(([id, name, series]) => new Chart({ id: `overview.churn.${id}`, title: name, kind: 'rate', series, height: 130 }));
  const ports = portsTable();
  const contexts = contextsTable();
  const picker = rangePicker('overview', kept, () => view.refresh());
  const nodesSection = section('overview.nodes', 'Nodes', { tools: can('administrator') ? resetAllButton(view) : null }, nodes.element);
  const portsSection = section('overview.ports', 'Ports and contexts', { isOpen: false }, h('.charts', null, ports.element, contexts.element));
  for (const one of [nodesSection, portsSection]) one.hidden = !can('monitoring');
  const definitions = can('administrator')
    ? section('overview.definitions', 'Definitions', { isOpen: false }, h('.charts', null, exportPanel(), importPanel(view)))
    : null;
  const all = [
    notes, tiles,
    section('overview.messages', 'Messages', { tools: picker }, h('.charts', null, lengths.element, rates.element)),
    nodesSection,
    section('overview.churn', 'Churn', { isOpen: false }, h('.charts.is-three', null, churns.map((chart) => chart.element))),
    portsSection, definitions,
  ];
  return { all, tiles, notes, lengths, rates, nodes, churns, ports, contexts };
}

function show(shown, overview, nodes) {
  patch(shown.tiles, tiles(overview));
  patch(shown.notes, notes(overview, nodes));
  shown.lengths.mark(knownSince(overview.queue_totals?.messages_details));
  shown.lengths.update(overview);
  shown.rates.update(overview);
  shown.nodes.update(nodes);
  for (const chart of shown.churns) chart.update(overview);
  shown.ports.update(overview.listeners ?? []);
  shown.contexts.update(overview.contexts ?? []);
}

function tiles(overview) {
  const counts = overview.object_totals ?? {};
  const queued = overview.queue_totals ?? {};
  const one = (label, value, href) => tile(label, value >= 100000 ? short(value) : number(value), { href, hint: number(value) });
  return [
    one('Connections', counts.connections, '#/connections'),
    one('Channels', counts.channels, '#/channels'),
    one('Exchanges', counts.exchanges, '#/exchanges'),
    one('Queues', counts.queues, '#/queues'),
    one('Consumers', counts.consumers, '#/queues?sort=consumers&sort_reverse=true'),
    one('Messages', queued.messages ?? 0, '#/queues?sort=messages&sort_reverse=true'),
  ];
}

/** Notes for the operator, in addition to the banners. */
function notes(overview, nodes) {
  const found = [];
  if (overview.statistics_db_event_queue > 1000) {
    found.push(`The statistics lag: ${number(overview.statistics_db_event_queue)} events wait. Numbers here may be old.`);
  }
  const versions = new Set(nodes.map(rabbitVersion).filter(Boolean));
  if (versions.size > 1) found.push(`The nodes run different versions: ${[...versions].sort().join(', ')}.`);
  return found.map((text) => h('.banner.is-warn', null, h('span', null, text)));
}

function rabbitVersion(node) {
  return (node.applications ?? []).find((application) => application.name === 'rabbit')?.version;
}

function portsTable() {
  return new Table({
    caption: 'Ports',
    key: (row) => `${row.node} ${row.protocol} ${row.ip_address} ${row.port}`,
    empty: 'No listeners.',
    columns: [
      { id: 'protocol', title: 'Protocol', cell: (row) => [row.protocol, ' ', /ssl|https|tls/.test(row.protocol) && badge('TLS', 'good')] },
      { id: 'node', title: 'Node', cell: (row) => link.node(row.node) },
      { id: 'bound', title: 'Bound to', cell: (row) => row.ip_address },
      { id: 'port', title: 'Port', number: true, cell: (row) => String(row.port) },
    ],
  });
}

function contextsTable() {
  return new Table({
    caption: 'Web contexts',
    key: (row) => `${row.node} ${row.description} ${row.port} ${row.path}`,
    empty: 'No web contexts.',
    columns: [
      { id: 'context', title: 'Context', cell: (row) => row.description },
      { id: 'node', title: 'Node', cell: (row) => link.node(row.node) },
      { id: 'port', title: 'Port', number: true, cell: (row) => String(row.port) },
      { id: 'path', title: 'Path', cell: (row) => row.path },
    ],
  });
}
