/** All exchanges; adding and deleting them. */

import { currentVhost, del, path, put } from '../api.js';
import { bulk } from '../bulk.js';
import { cluster, showsVhosts } from '../cluster.js';
import { rateColumn, vhostColumn } from '../columns.js';
import { attempt } from '../dialog.js';
import { append, h } from '../dom.js';
import { argumentsEditor, field, form, input, mark, select } from '../form.js';
import { json } from '../format.js';
import { badge, link, section } from '../parts.js';
import { PagedList } from '../table.js';

export const title = 'Exchanges';

const CHIPS = [
  { key: 'alternate-exchange', label: 'Alternate exchange', hint: 'alternate-exchange: takes the messages that match no binding' },
  { key: 'x-delayed-type', label: 'Delayed type', value: 'direct', hint: 'x-delayed-type: how an x-delayed-message exchange routes: direct, topic, fanout or headers' },
  { key: 'x-cache-size', label: 'Cache size', type: 'number', value: '100000', hint: 'x-cache-size: the most ids that an x-message-deduplication exchange remembers' },
  { key: 'x-cache-ttl', label: 'Cache TTL', type: 'number', hint: 'x-cache-ttl: for how long it remembers an id, ms' },
  { key: 'x-cache-persistence', label: 'Cache on disk', value: 'disk', hint: 'x-cache-persistence: disk or memory' },
  { key: 'x-recent-history-length', label: 'History length', type: 'number', value: '20', hint: 'x-recent-history-length: the messages that an x-recent-history exchange keeps' },
];

export async function render(view) {
  const list = new PagedList(view, {
    id: 'exchanges',
    noun: 'exchange',
    path: 'exchanges',
    columns: columns(view.vhost),
    fields: ['name', 'vhost'],
    key: (row) => `${row.vhost}\0${row.name}`,
    actions: [{ label: 'Delete', danger: true, run: remove }],
  });
  view.turn = (by) => list.turn(by);
  append(view.body, h('.page-head', null, h('h1', null, 'Exchanges')), list.element,
    section('exchanges.add', 'Add an exchange', { isOpen: false }, addForm(view)));
  await view.every(() => list.refresh());
}

function remove(rows) {
  return bulk(rows, rows.map((row) => row.name), {
    verb: 'Delete', noun: 'exchange', text: 'Their bindings go with them. Publishing to a deleted exchange closes the channel with an error.', isTyped: true,
    each: (row) => del(path('exchanges', row.vhost, row.name)),
  });
}

function features(row) {
  const table = row.arguments ?? {};
  const others = Object.entries(table).filter(([name]) => name !== 'alternate-exchange').map(([name, value]) => `${name}: ${json(value)}`);
  return h('span.marks', null,
    row.durable && badge('D', 'quiet', 'Durable: it survives a restart'),
    row.auto_delete && badge('AD', 'quiet', 'Deleted when the last binding from it goes'),
    row.internal && badge('I', 'quiet', 'Internal: only other exchanges publish to it'),
    'alternate-exchange' in table && badge('AE', 'quiet', `Alternate exchange: ${json(table['alternate-exchange'])}`),
    others.length > 0 && badge('Args', 'quiet', others.join('\n')),
    row.policy && h('span.policy-mark', { title: 'Policy' }, h('span.quiet', null, 'policy '), link.policy(row.vhost, row.policy)));
}

function columns(vhost) {
  return [
    { id: 'name', title: 'Name', sort: 'name', fields: ['name'], cell: (row) => link.exchange(row.vhost, row.name) },
    ...(showsVhosts(vhost) ? [vhostColumn()] : []),
    { id: 'type', title: 'Type', sort: 'type', fields: ['type'], cell: (row) => row.type },
    { id: 'features', title: 'Features', fields: ['durable', 'auto_delete', 'internal', 'arguments', 'policy'], cell: features },
    rateColumn('in', 'Rate in', 'message_stats.publish_in_details.rate', { hint: 'Messages published to it' }),
    rateColumn('out', 'Rate out', 'message_stats.publish_out_details.rate', { hint: 'Messages routed by it, once for each queue' }),
  ];
}

function addForm(view) {
  const vhosts = cluster.vhosts.map((vhost) => vhost.name);
  const types = (cluster.overview.exchange_types ?? []).filter((type) => type.enabled !== false && !type.internal_purpose).map((type) => type.name);
  const table = argumentsEditor({ chips: CHIPS });
  const yes = (name) => select(name, [['false', 'No'], ['true', 'Yes']]);
  const fields = [
    vhosts.length > 1 && field('Virtual host', select('vhost', vhosts, currentVhost() ?? vhosts[0])),
    field('Name', input('name', { required: true, maxlength: 255 })),
    field('Type', select('type', types.length ? types : ['direct', 'fanout', 'topic', 'headers'], 'direct')),
    field('Durability', select('durable', [['true', 'Durable'], ['false', 'Transient']])),
    field('Auto delete', yes('auto_delete'), 'Deleted when the last binding from it goes'),
    field('Internal', yes('internal'), 'Clients can’t publish to it'),
    table.element,
  ];
  return form(fields, 'Add exchange', async (values, element) => {
    const vhost = values.vhost ?? view.vhost ?? vhosts[0] ?? '/';
    const isDone = await attempt(() => put(path('exchanges', vhost, values.name), {
      type: values.type,
      durable: values.durable === 'true',
      auto_delete: values.auto_delete === 'true',
      internal: values.internal === 'true',
      arguments: table.read(),
    }), `Exchange ${values.name} is there`, `The exchange ${values.name}`);
    if (!isDone) {
      if (!table.element.querySelector('.argument-row')) mark(element, 'name'); // nothing else can be wrong
      return;
    }
    element.reset();
    table.load({});
    await view.refresh();
  });
}
