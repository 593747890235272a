/** One node: its use of resources, its disk and network, its use of memory, its configuration. */

import { get, path } from '../api.js';
import { can } from '../auth.js';
import { Chart, rangeParams, rangePicker } from '../chart.js';
import { cluster } from '../cluster.js';
import { append, h, patch } from '../dom.js';
import { byteRate, bytes, duration, milliseconds, number, time } from '../format.js';
import { maintenanceButton } from '../maintenance.js';
import { memoryBar } from '../memory_bar.js';
import { diskMeter, memoryMeter, usedMeter } from '../nodes_table.js';
import { badge, link, liveFacts, section, state } from '../parts.js';
import { withQuery } from '../router.js';
import { Table } from '../table.js';

export const title = ({ name }) => name;

const one = (label, field, colour, hint) => ({ label, field, colour, hint });

/** [id, title, kind, series] of each chart; the group is the section. */
const GROUPS = {
  resources: [
    ['memory', 'Memory', 'bytes', [one('Used', 'mem_used', 'used')]],
    ['disk', 'Free disk space', 'bytes', [one('Free', 'disk_free', 'free')]],
    ['fd', 'File descriptors', 'count', [one('Used', 'fd_used', 'confirm')]],
    ['sockets', 'Sockets', 'count', [one('Used', 'sockets_used', 'publish')]],
    ['lag', 'Event-loop lag', 'ms', [one('Longest', 'loop_lag', 'redeliver', 'For how long the node’s loop was held at once at most: what clients wait for when it is busy')]],
  ],
  persistence: [
    ['store', 'Message store', 'rate', [one('Read', 'msg_store_read_count', 'read'), one('Write', 'msg_store_write_count', 'write')]],
    ['index', 'Queue index', 'rate', [one('Read', 'queue_index_read_count', 'read'), one('Write', 'queue_index_write_count', 'write')]],
    ['catalogue', 'Catalogue transactions', 'rate', [one('In memory', 'mnesia_ram_tx_count', 'read'), one('On disk', 'mnesia_disk_tx_count', 'write')]],
    ['io', 'Disk operations', 'rate', [one('Read', 'io_read_count', 'read'), one('Write', 'io_write_count', 'write'), one('Sync', 'io_sync_count', 'ack')]],
    ['io-bytes', 'Disk data', 'byteRate', [one('Read', 'io_read_bytes', 'read'), one('Write', 'io_write_bytes', 'write')]],
    ['io-time', 'Time of a disk operation', 'ms', [one('Read', 'io_read_avg_time', 'read'), one('Write', 'io_write_avg_time', 'write'), one('Sync', 'io_sync_avg_time', 'ack')]],
  ],
  churn: [
    ['connections', 'Connections', 'rate', [one('Created', 'connection_created', 'created'), one('Closed', 'connection_closed', 'closed')]],
    ['channels', 'Channels', 'rate', [one('Created', 'channel_created', 'created'), one('Closed', 'channel_closed', 'closed')]],
    ['queues', 'Queues', 'rate', [one('Declared', 'queue_declared', 'confirm'), one('Created', 'queue_created', 'created'), one('Deleted', 'queue_deleted', 'closed')]],
  ],
};

export async function render(view, { name }) {
  const kept = cluster.overview.sample_retention_policies?.global ?? [600, 3600];
  const shown = parts(view, name, kept);
  append(view.body, shown.all);
  await view.every(async () => {
    const params = { ...rangeParams('node', ['node_stats'], kept), memory: true };
    show(shown, await get(path('nodes', name), { params, signal: view.signal }));
  });
}

function charts(group) {
  return GROUPS[group].map(([id, name, kind, series]) => new Chart({ id: `node.${id}`, title: name, kind, series, height: 130 }));
}

function grid(all) {
  return h('.charts.is-three', null, all.map((chart) => chart.element));
}

function parts(view, name, kept) {
  const head = h('.page-marks');
  const maintenance = maintenanceButton(view, name);
  const log = can('monitoring') && h('a.button', { href: withQuery('#/log', { node: name }) }, 'Log');
  const details = liveFacts();
  const [resources, persistence, churn] = [charts('resources'), charts('persistence'), charts('churn')];
  const memory = h('.memory');
  const links = linksTable();
  const setup = h('.setup');
  const picker = rangePicker('node', kept, () => view.refresh());
  const down = h('.notice', { hidden: true }, h('p', null, 'The node is down, or can’t be reached from the node that answers.'));
  const sections = [
    section('node.details', 'Node', {}, details.element),
    section('node.resources', 'Resources', { tools: picker }, grid(resources)),
    section('node.memory', 'Memory', {}, memory),
    section('node.persistence', 'Persistence and disk', {}, grid(persistence)),
    section('node.churn', 'Churn', { isOpen: false }, grid(churn)),
    section('node.links', 'Links to other nodes', {}, links.element),
    section('node.setup', 'Set up', { isOpen: false }, setup),
  ];
  const heading = h('.page-head', null, h('h1', null, h('span.page-kind', null, 'Node'), ' ', h('span.name', null, name)), head,
    h('.page-tools', null, log, maintenance.element));
  return { all: [heading, down, ...sections], sections, maintenance, head, down, details, charts: [...resources, ...persistence, ...churn], memory, links, setup };
}

function show(shown, node) {
  const isUp = node.running !== false;
  patch(shown.head, marks(node));
  shown.maintenance.update(node);
  shown.down.hidden = isUp;
  for (const element of shown.sections) element.hidden = !isUp;
  if (!isUp) return;
  shown.details(detailsOf(node));
  for (const chart of shown.charts) {
    chart.mark(startOf(node));
    chart.update(node);
  }
  patch(shown.memory, memoryBar(node.memory));
  shown.links.update(node.cluster_links ?? []);
  patch(shown.setup, setup(node));
}

/** The start of the node, for `Chart.mark`: there are no samples before. Rounded to the second, as each answer computes it anew. */
function startOf({ uptime }) {
  return typeof uptime === 'number' ? [{ time: Math.round((Date.now() - uptime) / 1000), label: 'started' }] : [];
}

function marks(node) {
  return [
    node.running === false ? state('down', 'bad') : state('running', 'good'),
    node.mem_alarm && badge('memory alarm', 'bad'),
    node.disk_free_alarm && badge('disk alarm', 'bad'),
    node.partitions?.length > 0 && badge(`partitioned from ${node.partitions.join(', ')}`, 'bad'),
    node.store_scrub?.damaged_files > 0 && badge(`damaged files: ${number(node.store_scrub.damaged_files)}`, 'bad', 'Files with messages that can’t be read'),
    node.being_drained && badge('maintenance', 'warn'),
    node.type && badge(node.type, 'quiet', 'Where it keeps the definitions'),
  ];
}

function detailsOf(node) {
  const versionOf = (name) => (node.applications ?? []).find((application) => application.name === name)?.version;
  const [own, version] = [versionOf('fluffle'), versionOf('rabbit')];
  return [
    ['Memory', memoryMeter(node)],
    ['Disk space', diskMeter(node)],
    ['File descriptors', usedMeter(node.fd_used, node.fd_total)],
    ['Sockets', usedMeter(node.sockets_used, node.sockets_total)],
    ['Uptime', duration(node.uptime)],
    version ? ['Version', own ? `${own} (as RabbitMQ ${version})` : version] : null,
    ['Process', node.os_pid],
    ['Cores', number(node.processors)],
    ['Event-loop lag', milliseconds(node.loop_lag), 'For how long the node’s loop was held at once at most in the last seconds: what its clients wait for when it is busy'],
    ['Low watermark of the disk', bytes(node.disk_free_limit)],
    ...scrubOf(node.store_scrub),
    ['Lease', node.net_ticktime ? `${node.net_ticktime} s` : null, 'A node that the others have not heard of for so long is taken for lost'],
  ];
}

function scrubOf(scrub) {
  if (!scrub) return [];
  const done = `${bytes(scrub.checked_bytes)} read, ${number(scrub.findings)} findings`;
  return [
    ['Search for rot', scrub.rate ? done : 'off'],
    ['Last full round', scrub.last_round ? time(scrub.last_round) : null],
  ];
}

function setup(node) {
  const list = (name, values) => h('.setup-part', null, h('h3', null, name), h('ul', null, (values ?? []).map((value) => h('li', null, value))));
  return [
    list('Configuration', node.config_files),
    list('Data', [node.db_dir].filter(Boolean)),
    list('Logs', node.log_files),
    list('Plug-ins', node.enabled_plugins),
    list('Authentication', (node.auth_mechanisms ?? []).filter((item) => item.enabled).map((item) => item.name)),
    list('Exchange types', (node.exchange_types ?? []).filter((item) => item.enabled).map((item) => item.name)),
    list('Applications', (node.applications ?? []).map((item) => `${item.name} ${item.version}`)),
  ];
}

function linksTable() {
  return new Table({
    caption: 'Links to other nodes',
    key: (row) => row.name,
    empty: 'No links to other nodes.',
    columns: [
      { id: 'peer', title: 'Node', cell: (row) => link.node(row.name) },
      { id: 'local', title: 'Local address', cell: (row) => `${row.sock_addr}:${row.sock_port}` },
      { id: 'remote', title: 'Remote address', cell: (row) => `${row.peer_addr}:${row.peer_port}` },
      { id: 'in', title: 'Received', number: true, cell: (row) => bytes(row.recv_bytes) },
      { id: 'in-rate', title: 'Receiving', number: true, cell: (row) => byteRate(row.stats?.recv_bytes_details?.rate) },
      { id: 'out', title: 'Sent', number: true, cell: (row) => bytes(row.send_bytes) },
      { id: 'out-rate', title: 'Sending', number: true, cell: (row) => byteRate(row.stats?.send_bytes_details?.rate) },
    ],
  });
}
