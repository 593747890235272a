/** Policies and operator policies. */

import { get } from '../api.js';
import { can } from '../auth.js';
import { append, h } from '../dom.js';
import { section } from '../parts.js';
import { KINDS, policyColumns, policyForm } from '../policy_parts.js';
import { PagedList, Table } from '../table.js';

export const title = 'Policies';

export async function render(view) {
  const list = new PagedList(view, {
    id: 'policies',
    noun: 'policy',
    many: 'policies',
    rows: () => get('policies', { signal: view.signal }),
    key: (row) => JSON.stringify([row.vhost, row.name]),
    defaults: { sort: 'name' },
    columns: policyColumns(view, 'policy'),
  });
  const operators = new Table({
    key: (row) => JSON.stringify([row.vhost, row.name]),
    caption: 'operator policies',
    empty: 'No operator policies.',
    columns: policyColumns(view, 'operator'),
  });
  append(view.body,
    h('header.page-head', null, h('h1', null, 'Policies')),
    h('p.lead', null, 'A policy gives queues and exchanges whose names it matches arguments that can be changed later. Of those that match, the one with the highest priority holds.'),
    section('policies.users', 'Policies', {}, list.element),
    can(KINDS.policy.tag) && section('policies.add', 'Add or change a policy', { isOpen: false }, policyForm(view, 'policy').element),
    section('policies.operators', 'Operator policies', {},
      h('p.hint', null, 'They bound what clients and policies may ask for: of two values, the lower one holds.'), operators.element),
    can(KINDS.operator.tag) && section('policies.addOperator', 'Add or change an operator policy', { isOpen: false }, policyForm(view, 'operator').element));
  await view.every(() => list.refresh());
  await view.every(async () => operators.update(await get('operator-policies', { signal: view.signal })));
}
