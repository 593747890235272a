/** Virtual hosts: their contents and rates; adding one. */

import { get, path, put } from '../api.js';
import { attempt } from '../dialog.js';
import { append, h } from '../dom.js';
import { byteRate, number, rate } from '../format.js';
import { field, form, input, select } from '../form.js';
import { badge, link, section, state } from '../parts.js';
import { PagedList } from '../table.js';

export const title = 'Virtual hosts';

const perSecond = (row, name) => rate(row.message_stats?.[`${name}_details`]?.rate);

export async function render(view) {
  const list = new PagedList(view, {
    id: 'vhosts',
    noun: 'virtual host',
    rows: () => get('vhosts', { signal: view.signal, vhost: null }),
    key: (row) => row.name,
    defaults: { sort: 'name' },
    columns: [
      { id: 'name', title: 'Name', sort: 'name', cell: (row) => link.vhost(row.name) },
      { id: 'state', title: 'State', cell: (row) => vhostState(row) },
      { id: 'tracing', title: 'Tracing', off: true, cell: (row) => (row.tracing ? badge('on', 'warn') : 'off') },
      { id: 'description', title: 'Description', sort: 'description', off: true, cell: (row) => described(row.description) },
      { id: 'tags', title: 'Tags', off: true, cell: (row) => vhostTags(row.tags).join(', ') },
      { id: 'ready', title: 'Ready', sort: 'messages_ready', number: true, group: 'Messages', cell: (row) => number(row.messages_ready ?? 0) },
      { id: 'unacked', title: 'Unacked', sort: 'messages_unacknowledged', number: true, group: 'Messages', cell: (row) => number(row.messages_unacknowledged ?? 0) },
      { id: 'total', title: 'Total', sort: 'messages', number: true, group: 'Messages', cell: (row) => number(row.messages ?? 0) },
      { id: 'in', title: 'From clients', sort: 'recv_oct_details.rate', number: true, group: 'Network', cell: (row) => byteRate(row.recv_oct_details?.rate) },
      { id: 'out', title: 'To clients', sort: 'send_oct_details.rate', number: true, group: 'Network', cell: (row) => byteRate(row.send_oct_details?.rate) },
      { id: 'publish', title: 'Publish', sort: 'message_stats.publish_details.rate', number: true, group: 'Rates', cell: (row) => perSecond(row, 'publish') },
      { id: 'deliver', title: 'Deliver / get', sort: 'message_stats.deliver_get_details.rate', number: true, group: 'Rates', cell: (row) => perSecond(row, 'deliver_get') },
    ],
  });
  append(view.body,
    h('header.page-head', null, h('h1', null, 'Virtual hosts')),
    list.element,
    section('vhosts.add', 'Add a virtual host', { isOpen: false }, addForm(view)));
  await view.every(() => list.refresh());
}

/** The state of a virtual host: running if all nodes serve it. */
export function vhostState(vhost) {
  const bad = Object.entries(vhost.cluster_state ?? {}).filter(([, how]) => how !== 'running').map(([node, how]) => `${how} on ${node}`);
  return bad.length ? state(bad.join(', '), 'bad') : state('running', 'good');
}

/** RabbitMQ writes the word `undefined` for a missing value. */
export function described(text) {
  return text === 'undefined' ? '' : text ?? '';
}

export function vhostTags(tags) {
  return Array.isArray(tags) ? tags : [];
}

function addForm(view) {
  const fields = [
    field('Name', input('name', { required: true, maxlength: 255 })),
    field('Description', input('description')),
    field('Tags', input('tags'), 'Separated by commas'),
    field('Default queue type', select('type', [['', 'Classic, as usual'], ['classic', 'Classic'], ['quorum', 'Quorum'], ['stream', 'Stream']])),
  ];
  return form(fields, 'Add virtual host', async (values, element) => {
    const body = { description: values.description, tags: values.tags };
    if (values.type) body.defaultqueuetype = values.type;
    if (!(await attempt(() => put(path('vhosts', values.name), body), `Added ${values.name}`))) return;
    element.reset();
    await view.refresh();
  });
}
