/** Limits of all virtual hosts and users. */

import { get } from '../api.js';
import { can } from '../auth.js';
import { append, h } from '../dom.js';
import { limitForm, limitRows, limitsTable } from '../limits_parts.js';
import { section } from '../parts.js';

export const title = 'Limits';

export async function render(view) {
  const canChange = can('administrator');
  append(view.body, h('header.page-head', null, h('h1', null, 'Limits')));
  const kinds = [['vhost', 'Virtual hosts'], ...(canChange ? [['user', 'Users']] : [])];
  for (const [kind, label] of kinds) {
    const table = limitsTable(view, kind, { canChange, namesOwner: true });
    append(view.body, section(`limits.${kind}`, label, {}, table.element, canChange && limitForm(view, kind)));
    view.every(async () => table.update(limitRows(kind, await get(`${kind}-limits`, { signal: view.signal }))));
  }
}
