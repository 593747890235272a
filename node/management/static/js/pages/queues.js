/** All queues: their lengths and rates, their mirrors; adding, purging, deleting and synchronising them. */

import { currentVhost, del, path, post, put } from '../api.js';
import { can } from '../auth.js';
import { bulk } from '../bulk.js';
import { cluster, isClustered, nodeNames, showsVhosts } from '../cluster.js';
import { rateColumn, vhostColumn } from '../columns.js';
import { attempt } from '../dialog.js';
import { append, h } from '../dom.js';
import { bytes, number, percent } from '../format.js';
import { argumentsEditor, field, form, input, mark, select } from '../form.js';
import { link, section } from '../parts.js';
import { QUEUE_CHIPS, mirrorBadges, queueFeatures, queueState } from '../queue_marks.js';
import { PagedList } from '../table.js';

/** The types of queues: [value of x-queue-type, label]. */
const TYPES = [['', 'Default of the virtual host'], ['classic', 'Classic'], ['quorum', 'Quorum']];

export const title = 'Queues';

export async function render(view) {
  const list = new PagedList(view, {
    id: 'queues',
    noun: 'queue',
    path: 'queues',
    columns: columns(view.vhost),
    fields: ['name', 'vhost'],
    key: (row) => `${row.vhost}\0${row.name}`,
    rowClass: (row) => (row.state && row.state !== 'down' ? '' : 'is-dim'),
    actions: actions(),
    empty: 'No queues here.',
  });
  view.turn = (by) => list.turn(by);
  append(view.body, h('.page-head', null, h('h1', null, 'Queues')), list.element,
    section('queues.add', 'Add a queue', { isOpen: false }, addForm(view)));
  await view.every(() => list.refresh());
}

function count(id, name, fieldName, extra = {}) {
  const cell = (row) => (row[fieldName] === 0 ? h('span.quiet', null, '0') : number(row[fieldName]));
  return { id, title: name, number: true, sort: fieldName, fields: [fieldName], group: 'Messages', cell, ...extra };
}

function size(id, name, fieldName) {
  return { id, title: name, number: true, off: true, sort: fieldName, fields: [fieldName], group: 'Message bytes', cell: (row) => bytes(row[fieldName]) };
}

const MIRROR_FIELDS = ['slave_nodes', 'synchronised_slave_nodes', 'mirrors', 'node'];
const FEATURE_FIELDS = ['durable', 'auto_delete', 'exclusive', 'arguments', 'policy', 'operator_policy'];
const STATE_FIELDS = ['state', 'idle_since', 'messages', 'sync_messages'];

function columns(vhost) {
  const node = (row) => h('span.marks', null, row.node ? link.node(row.node) : '–', mirrorBadges(row));
  return [
    { id: 'name', title: 'Name', sort: 'name', fields: STATE_FIELDS, cell: (row) => link.queue(row.vhost, row.name) },
    ...(showsVhosts(vhost) ? [vhostColumn()] : []),
    ...(isClustered() ? [{ id: 'node', title: 'Node', hint: 'The master’s node; + counts its mirrors, red those that are not synchronised', sort: 'node', fields: MIRROR_FIELDS, cell: node }] : []),
    { id: 'type', title: 'Type', sort: 'type', fields: ['type'], cell: (row) => row.type ?? '–' },
    { id: 'features', title: 'Features', fields: FEATURE_FIELDS, cell: queueFeatures },
    { id: 'state', title: 'State', sort: 'state', fields: STATE_FIELDS, cell: queueState },
    { id: 'consumers', title: 'Consumers', number: true, off: true, sort: 'consumers', fields: ['consumers'], cell: (row) => number(row.consumers) },
    { id: 'capacity', title: 'Capacity', hint: 'Share of the time in which a consumer could take a message at once', number: true, off: true,
      sort: 'consumer_capacity', fields: ['consumer_capacity', 'consumer_utilisation'], cell: (row) => percent(row.consumer_capacity ?? row.consumer_utilisation) },
    { id: 'memory', title: 'Memory', number: true, off: true, sort: 'memory', fields: ['memory'], cell: (row) => bytes(row.memory) },
    count('ready', 'Ready', 'messages_ready', { hint: 'Messages that wait for a consumer' }),
    count('unacked', 'Unacked', 'messages_unacknowledged', { hint: 'Messages that a consumer has and has not acknowledged' }),
    count('total', 'Total', 'messages'),
    count('ram', 'In memory', 'messages_ram', { off: true }),
    count('persistent', 'Persistent', 'messages_persistent', { off: true }),
    size('bytes-ready', 'Ready', 'message_bytes_ready'),
    size('bytes-unacked', 'Unacked', 'message_bytes_unacknowledged'),
    size('bytes-ram', 'In memory', 'message_bytes_ram'),
    size('bytes-persistent', 'Persistent', 'message_bytes_persistent'),
    size('bytes-total', 'Total', 'message_bytes'),
    rateColumn('incoming', 'Incoming', 'message_stats.publish_details.rate'),
    rateColumn('deliver', 'Deliver / get', 'message_stats.deliver_get_details.rate'),
    rateColumn('redelivered', 'Redelivered', 'message_stats.redeliver_details.rate', { off: true }),
    rateColumn('ack', 'Ack', 'message_stats.ack_details.rate'),
  ];
}

function actions() {
  const names = (rows) => rows.map((row) => row.name);
  const purge = (rows) => bulk(rows, names(rows), {
    verb: 'Purge', noun: 'queue', text: 'All ready messages are dropped. This cannot be undone.',
    each: (row) => del(`${path('queues', row.vhost, row.name)}/contents`),
  });
  const remove = (rows) => bulk(rows, names(rows), {
    verb: 'Delete', noun: 'queue', text: 'All their messages and bindings go with them.', isTyped: true,
    each: (row) => del(path('queues', row.vhost, row.name)),
  });
  const sync = (rows) => bulk(rows, names(rows), {
    verb: 'Synchronise', noun: 'queue', danger: false, text: 'While the mirrors of a queue are filled, its clients wait.',
    each: (row) => post(`${path('queues', row.vhost, row.name)}/actions`, { action: 'sync' }),
  });
  return [
    { label: 'Purge', danger: true, run: purge },
    { label: 'Delete', danger: true, run: remove },
    ...(isClustered() && can('administrator') ? [{ label: 'Synchronise', run: sync }] : []),
  ];
}

function addForm(view) {
  const vhosts = cluster.vhosts.map((vhost) => vhost.name);
  const table = argumentsEditor({ chips: QUEUE_CHIPS });
  const nodes = nodeNames();
  const type = select('type', TYPES);
  const ofClassic = [
    field('Durability', select('durable', [['true', 'Durable'], ['false', 'Transient']])),
    field('Auto delete', select('auto_delete', [['false', 'No'], ['true', 'Yes']]), 'Deleted when its last consumer goes'),
  ];
  const fields = [
    vhosts.length > 1 && field('Virtual host', select('vhost', vhosts, currentVhost() ?? vhosts[0])),
    field('Type', type, 'Quorum: mirrored to a majority by itself, always durable'),
    field('Name', input('name', { required: true, maxlength: 255 })),
    ofClassic,
    nodes.length > 1 && field('Node', select('node', [['', 'As policy and arguments say'], ...nodes])),
    table.element,
  ];
  type.addEventListener('change', () => ofClassic.forEach((one) => { one.hidden = type.value === 'quorum'; }));
  return form(fields, 'Add queue', async (values, element) => {
    const vhost = values.vhost ?? view.vhost ?? vhosts[0] ?? '/';
    const isDone = await attempt(() => {
      const isQuorum = values.type === 'quorum';
      const body = {
        durable: isQuorum || values.durable === 'true',
        auto_delete: !isQuorum && values.auto_delete === 'true',
        arguments: { ...(values.type ? { 'x-queue-type': values.type } : {}), ...table.read() },
      };
      if (values.node) body.node = values.node;
      return put(path('queues', vhost, values.name), body);
    }, `Queue ${values.name} is there`, `The queue ${values.name}`);
    if (!isDone) {
      if (!table.element.querySelector('.argument-row')) mark(element, 'name'); // nothing else can be wrong
      return;
    }
    element.reset();
    type.dispatchEvent(new Event('change'));
    table.load({});
    await view.refresh();
  });
}
