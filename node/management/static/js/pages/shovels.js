/** Shovels: which run where and how they fare, their parameters, and a form for new ones. */

import { del, get, path, put } from '../api.js';
import { can } from '../auth.js';
import { cluster } from '../cluster.js';
import { attempt, confirm } from '../dialog.js';
import { append, h } from '../dom.js';
import { field, form, input, select } from '../form.js';
import { NOTHING, number } from '../format.js';
import { argumentList, button, link, section, state } from '../parts.js';
import { endOf, shovelOf, shownUris } from '../shovel_values.js';
import { Table } from '../table.js';

const TONES = { running: 'good', starting: 'warn' };
const COMPONENT = 'shovel';
const ENDS = /^(src|dest)-(uri|queue|exchange|exchange-key)$/;

export const title = 'Shovels';

export async function render(view) {
  const states = statesTable(view);
  const parameters = parametersTable(view);
  append(view.body,
    h('header.page-head', null, h('h1', null, 'Shovels')),
    h('p.lead', null, 'A shovel takes messages from a queue or exchange and publishes them elsewhere: in this cluster or in another broker.'),
    section('shovels.states', 'Shovel status', {}, states.element),
    can('policymaker') && section('shovels.parameters', 'Shovel management', {}, parameters.element),
    can('policymaker') && section('shovels.add', 'Add or change a shovel', { isOpen: false }, shovelForm(view)));
  await view.every(async () => states.update(await get('shovels', { signal: view.signal })));
  if (can('policymaker')) {
    await view.every(async () => parameters.update(await get(path('parameters', COMPONENT), { signal: view.signal })));
  }
}

function statesTable(view) {
  return new Table({
    key: (row) => JSON.stringify([row.node, row.vhost ?? null, row.name]),
    caption: 'shovels',
    empty: 'No shovels.',
    columns: [
      { id: 'name', title: 'Name', cell: (row) => h('code', null, row.name) },
      { id: 'vhost', title: 'Virtual host', cell: (row) => (row.vhost === undefined ? 'static' : link.vhost(row.vhost)) },
      { id: 'state', title: 'State', cell: (row) => [state(row.state, TONES[row.state] ?? 'bad'), row.error ? h('.quiet', null, row.error) : null] },
      { id: 'source', title: 'Source', cell: (row) => shownEnd(row, 'src_') },
      { id: 'destination', title: 'Destination', cell: (row) => shownEnd(row, 'dest_') },
      { id: 'node', title: 'Node', cell: (row) => link.node(row.node) },
      { id: 'forwarded', title: 'Messages', number: true, hint: 'Messages forwarded since the node runs the shovel', cell: (row) => number(row.counters?.forwarded ?? 0) },
      { id: 'since', title: 'Since', cell: (row) => row.timestamp ?? NOTHING },
      { id: 'restart', title: '', class: 'is-action', cell: (row) => row.vhost !== undefined && button('Restart', () => restart(view, row), { small: true, hint: `Restart shovel ${row.name}` }) },
    ],
  });
}

function shownEnd(row, prefix) {
  if (row.state !== 'running') return NOTHING;
  const [kind, name, key] = endOf(row, prefix);
  const what = name === null ? 'as published' : [kind, ' ', h('code', null, name)];
  return [h('code', null, row[`${prefix}uri`]), ' ', what, key && [' key ', h('code', null, key)]];
}

async function restart(view, row) {
  if (await attempt(() => del(path('shovels', 'vhost', row.vhost, row.name, 'restart')), 'Restarted')) await view.refresh();
}

function parametersTable(view) {
  return new Table({
    key: (row) => JSON.stringify([row.vhost, row.name]),
    caption: 'shovels',
    empty: 'No shovels.',
    columns: [
      { id: 'name', title: 'Name', cell: (row) => h('code', null, row.name) },
      { id: 'vhost', title: 'Virtual host', cell: (row) => link.vhost(row.vhost) },
      { id: 'source', title: 'Source', cell: (row) => parameterEnd(row.value, 'src-') },
      { id: 'destination', title: 'Destination', cell: (row) => parameterEnd(row.value, 'dest-') },
      { id: 'rest', title: 'Settings', cell: (row) => argumentList(Object.fromEntries(Object.entries(row.value).filter(([key]) => !ENDS.test(key)))) },
      { id: 'delete', title: '', class: 'is-action', cell: (row) => button('Delete', () => remove(view, row), { small: true }) },
    ],
  });
}

function parameterEnd(value, prefix) {
  const [kind, name, key] = endOf(value, prefix);
  const uris = shownUris(value[`${prefix}uri`]).map((uri) => h('li', null, h('code', null, uri)));
  return [h('ul.arguments', null, uris), name === null ? 'as published' : [kind, ' ', h('code', null, name)], key && [' key ', h('code', null, key)]];
}

async function remove(view, row) {
  const text = 'What is under way is confirmed first. Messages that wait in its source stay there.';
  if (!(await confirm({ title: `Delete ${row.name}?`, text, action: 'Delete' }))) return;
  if (await attempt(() => del(path('parameters', COMPONENT, row.vhost, row.name)), 'Deleted')) await view.refresh();
}

function shovelForm(view) {
  const vhosts = cluster.vhosts.map((vhost) => vhost.name);
  const kinds = [['queue', 'Queue'], ['exchange', 'Exchange']];
  const fields = [
    field('Virtual host', select('vhost', vhosts.length ? vhosts : ['/'], view.vhost ?? undefined)),
    field('Name', input('name', { required: true, maxlength: 255 })),
    field('Source URI', input('src-uri', { required: true, value: 'amqp://' }), 'amqp:// is this cluster; several of one cluster may be given, with spaces between them'),
    field('Source is a', select('src-kind', kinds)),
    field('Source name', input('src-name', { required: true })),
    field('Source routing key', input('src-exchange-key'), 'Of an exchange'),
    field('Prefetch count', input('src-prefetch-count', { type: 'number', min: 0, max: 65535 }), 'Messages under way at a time; 1,000 unless set'),
    field('Deletes itself after', input('src-delete-after', { pattern: 'never|queue-length|[0-9]+' }), 'never, queue-length or a number of messages'),
    field('Source queue must be there', input('src-predeclared', { type: 'checkbox' })),
    field('Destination URI', input('dest-uri', { required: true, value: 'amqp://' })),
    field('Destination is a', select('dest-kind', kinds)),
    field('Destination name', input('dest-name'), 'Without the name of an exchange messages keep their own'),
    field('Destination routing key', input('dest-exchange-key'), 'Of an exchange; messages keep their own unless set'),
    field('Destination queue must be there', input('dest-predeclared', { type: 'checkbox' })),
    field('Add forwarding headers', input('dest-add-forward-headers', { type: 'checkbox' })),
    field('Add a timestamp header', input('dest-add-timestamp-header', { type: 'checkbox' })),
    field('Properties to set', input('dest-publish-properties', { placeholder: '{"delivery_mode": 2}' }), 'JSON'),
    field('Acknowledgement mode', select('ack-mode', [['', ''], 'on-confirm', 'on-publish', 'no-ack']), 'on-confirm unless set: nothing is lost'),
    field('Reconnect delay', input('reconnect-delay', { type: 'number', min: 0, step: 'any' }), 'Seconds after a failure; 5 unless set'),
  ];
  return form(fields, 'Set shovel', async (values, self) => {
    if (!(await attempt(async () => put(path('parameters', COMPONENT, values.vhost, values.name), { value: shovelOf(values) }), 'Set'))) return;
    self.reset();
    await view.refresh();
  }, { 'aria-label': 'Add a shovel' });
}
