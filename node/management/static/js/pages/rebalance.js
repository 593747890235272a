/** Rebalancing: what it would move, how many masters each node would have, and doing it. */

import { get, post } from '../api.js';
import { attempt, confirm } from '../dialog.js';
import { append, h, patch } from '../dom.js';
import { number, plural } from '../format.js';
import { button, link, meter, section } from '../parts.js';
import { Table } from '../table.js';

const MOVES_SHOWN = 500;

export const title = 'Rebalance';

export async function render(view) {
  const counts = h('.rebalance-counts');
  const verdict = h('p');
  const table = new Table({
    key: (row) => JSON.stringify([row.vhost, row.name]),
    caption: 'moves',
    empty: 'Nothing would move.',
    columns: [
      { id: 'queue', title: 'Queue', cell: (row) => link.queue(row.vhost, row.name) },
      { id: 'vhost', title: 'Virtual host', cell: (row) => link.vhost(row.vhost) },
      { id: 'from', title: 'From', cell: (row) => link.node(row.from) },
      { id: 'to', title: 'To', cell: (row) => link.node(row.to) },
      { id: 'messages', title: 'Messages', number: true, cell: (row) => number(row.messages) },
    ],
  });
  let plan = null;
  const apply = button('Rebalance now', () => rebalance(view, plan), { primary: true });
  append(view.body,
    h('header.page-head', null, h('h1', null, 'Rebalance')),
    h('p.lead', null, 'Masters move to synchronised mirrors until every node has as many as the others. Clients stay connected; each queue pauses for a moment.'),
    section('rebalance.counts', 'Masters on each node', {}, counts),
    section('rebalance.moves', 'What would move', {}, verdict, table.element, h('.form-buttons', null, apply)));
  await view.every(async () => {
    plan = await get('mirroring/rebalance-plan', { signal: view.signal });
    const moves = plan.moves ?? [];
    patch(counts, countsTable(plan));
    patch(verdict, moves.length > MOVES_SHOWN ? `The first ${number(MOVES_SHOWN)} of ${plural(moves.length, 'move')}:` : moves.length ? plural(moves.length, 'move') : 'The masters are spread evenly.');
    table.update(moves.slice(0, MOVES_SHOWN));
    apply.hidden = moves.length === 0;
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
