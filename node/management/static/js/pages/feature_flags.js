/** Feature flags: which are on, and turning one on. */

import { get, path, put } from '../api.js';
import { attempt, confirm } from '../dialog.js';
import { append, h } from '../dom.js';
import { badge, button, state } from '../parts.js';
import { Table } from '../table.js';

const TONES = { enabled: 'good', disabled: 'quiet', unavailable: 'bad' };

export const title = 'Feature flags';

export async function render(view) {
  const table = new Table({
    key: (row) => row.name,
    caption: 'feature flags',
    empty: 'No feature flags.',
    columns: [
      { id: 'name', title: 'Name', cell: (row) => h('code', null, row.name) },
      { id: 'state', title: 'State', cell: (row) => state(row.state, TONES[row.state] ?? 'quiet') },
      { id: 'stability', title: 'Stability', cell: (row) => (row.stability === 'experimental' ? badge('experimental', 'warn') : badge(row.stability ?? 'stable')) },
      { id: 'desc', title: 'What it does', cell: (row) => row.desc },
      { id: 'enable', title: '', class: 'is-action', cell: (row) => (row.state === 'disabled' ? button('Enable', () => enable(view, row.name), { small: true }) : null) },
    ],
  });
  append(view.body, h('header.page-head', null, h('h1', null, 'Feature flags')), table.element);
  await view.every(async () => table.update(await get('feature-flags', { signal: view.signal })));
}

async function enable(view, name) {
  if (!(await confirm({ title: `Enable ${name}?`, text: 'It can’t be disabled again.', action: 'Enable', danger: false }))) return;
  if (await attempt(() => put(path('feature-flags', name, 'enable')), 'Enabled')) await view.refresh();
}
