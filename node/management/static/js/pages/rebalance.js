/** Rebalancing: the moves that it would make, the masters of each node after them, and a button that begins it. */

import { get, post } from '../api.js';
import { can } from '../auth.js';
import { attempt, confirm } from '../dialog.js';
import { append, h, patch } from '../dom.js';
import { number, plural } from '../format.js';
import { button, link, meter, section } from '../parts.js';
import { PagedList } from '../table.js';

export const title = 'Rebalance';

export async function render(view) {
  const counts = h('.rebalance-counts');
  const verdict = h('span');
  let plan = null;
  const list = new PagedList(view, {
    id: 'moves',
    noun: 'move',
    key: (row) => JSON.stringify([row.vhost, row.name]),
    empty: 'No master would move.',
    rows: () => plan?.moves ?? [],
    columns: [
      { id: 'queue', title: 'Queue', sort: 'name', cell: (row) => link.queue(row.vhost, row.name) },
      { id: 'vhost', title: 'Virtual host', sort: 'vhost', cell: (row) => link.vhost(row.vhost) },
      { id: 'from', title: 'From', sort: 'from', cell: (row) => link.node(row.from) },
      { id: 'to', title: 'To', sort: 'to', cell: (row) => link.node(row.to) },
      { id: 'messages', title: 'Messages', sort: 'messages', number: true, cell: (row) => number(row.messages) },
    ],
  });
  view.turn = (by) => list.turn(by);
  const apply = button('Rebalance now', () => rebalance(view, plan), { primary: true });
  append(view.body,
    h('header.page-head', null, h('h1', null, 'Rebalance'), h('.page-marks', null, verdict, can('administrator') && apply)),
    h('p.lead', null, 'Masters move to synchronised mirrors until every node has as many as the others. Clients stay connected; each queue pauses for a moment.'),
    section('rebalance.counts', 'Masters on each node', {}, counts),
    section('rebalance.moves', 'What would move', {}, list.element));
  await view.every(async () => {
    plan = await get('mirroring/rebalance-plan', { signal: view.signal });
    const moves = plan.moves ?? [];
    patch(counts, countsTable(plan));
    patch(verdict, moves.length ? plural(moves.length, 'move') : 'The masters are spread evenly.');
    apply.hidden = moves.length === 0;
    list.element.hidden = moves.length === 0;
    await list.refresh();
  });
}

function countsTable(plan) {
  const nodes = [...new Set([...Object.keys(plan.before ?? {}), ...Object.keys(plan.after ?? {})])].sort();
  const most = Math.max(1, ...Object.values(plan.before ?? {}), ...Object.values(plan.after ?? {}));
  const bar = (count) => meter(count, most, number(count), { alarm: 2 });
  return h('.table-frame', null, h('table.table.compact', null,
    h('thead', null, h('tr', null, h('th', null, 'Node'), h('th', null, 'Now'), h('th', null, 'Afterwards'))),
    h('tbody', null, nodes.map((node) => h('tr', null, h('td', null, link.node(node)),
      h('td', null, bar(plan.before?.[node] ?? 0)), h('td', null, bar(plan.after?.[node] ?? 0)))))));
}

async function rebalance(view, plan) {
  const text = `${plural(plan.moves.length, 'master')} will move. Only complete mirrors take over, so no message is lost.`;
  if (!(await confirm({ title: 'Rebalance the cluster?', text, action: 'Rebalance', danger: false }))) return;
  if (await attempt(() => post('rebalance/queues'), 'The masters begin to move')) await view.refresh();
}
