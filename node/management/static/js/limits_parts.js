/** Limits of one virtual host or user: a table with a button that lifts one, and a form that sets one. */

import { del, path, put } from './api.js';
import { attempt, confirm } from './dialog.js';
import { h } from './dom.js';
import { number } from './format.js';
import { field, form, input, select } from './form.js';
import { button, link } from './parts.js';
import { Table } from './table.js';

/** By kind: the API's path, the field that names whose they are, the limits there are. */
const KINDS = {
  vhost: { path: 'vhost-limits', who: 'vhost', label: 'Virtual host', names: ['max-connections', 'max-queues'] },
  user: { path: 'user-limits', who: 'user', label: 'User', names: ['max-connections', 'max-channels'] },
};

/** Rows of the API, one for each limit: [{kind, of, name, value}]. */
export function limitRows(kind, answer) {
  return (answer ?? []).flatMap((item) =>
    Object.entries(item.value ?? {}).map(([name, value]) => ({ kind, of: item[KINDS[kind].who], name, value })));
}

/** @param {boolean} canChange is the user an administrator? @param {boolean} namesOwner false on the owner's page */
export function limitsTable(view, kind, { canChange, namesOwner }) {
  return new Table({
    key: (row) => JSON.stringify([row.of, row.name]),
    caption: 'limits',
    empty: 'No limits.',
    columns: [
      namesOwner && { id: 'of', title: KINDS[kind].label, cell: (row) => link[kind](row.of) },
      { id: 'name', title: 'Limit', cell: (row) => h('code', null, row.name) },
      { id: 'value', title: 'Value', number: true, cell: (row) => (row.value < 0 ? 'none' : number(row.value)) },
      canChange && { id: 'clear', title: '', class: 'is-action', cell: (row) => button('Lift', () => lift(view, row), { small: true }) },
    ].filter(Boolean),
  });
}

async function lift(view, row) {
  if (!(await confirm({ title: `Lift ${row.name} of ${row.of}?`, text: 'There is no limit after that.', action: 'Lift' }))) return;
  if (await attempt(() => del(path(KINDS[row.kind].path, row.of, row.name)), 'Lifted')) await view.refresh();
}

/** @param {string} [of] whose limit: asked for, when it isn't given */
export function limitForm(view, kind, of) {
  const { label, names, path: where } = KINDS[kind];
  const fields = [
    of === undefined && field(label, input('of', { required: true })),
    field('Limit', select('name', names)),
    field('Value', input('value', { type: 'number', min: -1, required: true }), '0 refuses all, −1 is no limit'),
  ];
  return form(fields, 'Set limit', async (values, element) => {
    const work = () => put(path(where, of ?? values.of, values.name), { value: Number(values.value) });
    if (!(await attempt(work, 'Set'))) return;
    element.reset();
    await view.refresh();
  }, { 'aria-label': `Set a limit of a ${label.toLowerCase()}` });
}
