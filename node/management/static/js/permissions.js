/** Permissions: tables with a button that takes one away, and forms that give one. Of a user, or of a virtual host. */

import { del, path, put } from './api.js';
import { attempt, confirm } from './dialog.js';
import { h } from './dom.js';
import { exchangeName } from './format.js';
import { field, form, input } from './form.js';
import { button, link } from './parts.js';
import { Table } from './table.js';

const expression = (text) => h('code', null, text === '' ? '(nothing)' : text);

/** @param {'user'|'vhost'} of the subject of the page: the table names the other one */
export function permissionsTable(view, of) {
  return new Table({
    key: (row) => JSON.stringify([row.vhost, row.user]),
    caption: 'permissions',
    empty: 'No permissions.',
    columns: [
      whoColumn(of),
      { id: 'configure', title: 'Configure', cell: (row) => expression(row.configure) },
      { id: 'write', title: 'Write', cell: (row) => expression(row.write) },
      { id: 'read', title: 'Read', cell: (row) => expression(row.read) },
      { id: 'clear', title: '', class: 'is-action', cell: (row) => button('Clear', () => clear(view, row, 'permissions'), { small: true }) },
    ],
  });
}

export function topicPermissionsTable(view, of) {
  return new Table({
    key: (row) => JSON.stringify([row.vhost, row.user, row.exchange]),
    caption: 'topic permissions',
    empty: 'No topic permissions: all routing keys are allowed.',
    columns: [
      whoColumn(of),
      { id: 'exchange', title: 'Exchange', cell: (row) => exchangeName(row.exchange) },
      { id: 'write', title: 'Write', cell: (row) => expression(row.write) },
      { id: 'read', title: 'Read', cell: (row) => expression(row.read) },
      { id: 'clear', title: '', class: 'is-action', cell: (row) => button('Clear', () => clear(view, row, 'topic-permissions'), { small: true }) },
    ],
  });
}

function whoColumn(of) {
  if (of === 'user') return { id: 'vhost', title: 'Virtual host', cell: (row) => link.vhost(row.vhost) };
  return { id: 'user', title: 'User', cell: (row) => link.user(row.user) };
}

async function clear(view, row, kind) {
  const isTopic = kind === 'topic-permissions';
  const text = isTopic ? `On the exchange ${exchangeName(row.exchange)}: all routing keys are allowed then.` : 'Nothing there can be used then.';
  if (!(await confirm({ title: `Clear the permissions of ${row.user} in ${row.vhost}?`, text, action: 'Clear' }))) return;
  const where = path(kind, row.vhost, row.user, ...(isTopic ? [row.exchange] : []));
  if (await attempt(() => del(where), 'Cleared')) await view.refresh();
}

/** @param {{user?: string, vhost?: string}} fixed what the page is about */
export function permissionForm(view, fixed) {
  const fields = [
    whoField(fixed),
    ...['configure', 'write', 'read'].map((kind) => field(`${kind[0].toUpperCase()}${kind.slice(1)}`, input(kind, { value: '.*' }))),
  ];
  return form(fields, 'Set permission', async (values) => {
    const { user, vhost } = { ...values, ...fixed };
    const { configure, write, read } = values;
    if (await attempt(() => put(path('permissions', vhost, user), { configure, write, read }), 'Set')) await view.refresh();
  }, { 'aria-label': 'Set permission' });
}

export function topicPermissionForm(view, fixed) {
  const fields = [
    whoField(fixed),
    field('Exchange', input('exchange', { placeholder: '(default)', maxlength: 255 })),
    field('Write', input('write', { value: '.*' })),
    field('Read', input('read', { value: '.*' })),
  ];
  return form(fields, 'Set topic permission', async (values) => {
    const { user, vhost } = { ...values, ...fixed };
    const { exchange, write, read } = values;
    if (await attempt(() => put(path('topic-permissions', vhost, user), { exchange, write, read }), 'Set')) await view.refresh();
  }, { 'aria-label': 'Set topic permission' });
}

function whoField(fixed) {
  return fixed.user === undefined
    ? field('User', input('user', { required: true }))
    : field('Virtual host', input('vhost', { required: true, value: '/' }));
}
