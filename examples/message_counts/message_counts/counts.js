/** The page of the plug-in message_counts: how many messages each user publishes and gets. */

import { del, get } from '../../js/api.js';
import { can } from '../../js/auth.js';
import { attempt, confirm } from '../../js/dialog.js';
import { append, h } from '../../js/dom.js';
import { number } from '../../js/format.js';
import { button } from '../../js/parts.js';
import { Table } from '../../js/table.js';

const COUNTS = 'plugins/message_counts/counts';

export const title = 'Message counts';

export async function render(view) {
  const table = new Table({
    key: (row) => row.user,
    caption: 'users',
    empty: 'No messages yet.',
    columns: [
      { id: 'user', title: 'User', cell: (row) => row.user },
      { id: 'published', title: 'Published', number: true, cell: (row) => number(row.published) },
      { id: 'delivered', title: 'Delivered', number: true, cell: (row) => number(row.delivered) },
    ],
  });
  const node = h('span.quiet');
  append(view.body, h('header.page-head', null, h('h1', null, title), node), table.element,
    can('administrator') && button('Forget', () => forget(view)));
  await view.every(async () => {
    const found = await get(COUNTS, { signal: view.signal });
    node.textContent = found.node;
    table.update(found.users);
  });
}

async function forget(view) {
  if (!(await confirm({ title: 'Forget all counts?', text: 'They begin anew.', action: 'Forget' }))) return;
  if (await attempt(() => del(COUNTS), 'Forgotten')) await view.refresh();
}
