/** All mirrored queues: their masters, the queues that would be lost with a node, and events. */

import { get } from '../api.js';
import { cluster, events as clusterEvents } from '../cluster.js';
import { append, h, patch } from '../dom.js';
import { nodeName, number, plural, short } from '../format.js';
import { newestFirst } from '../mirror_events.js';
import { badge, link, section, tile } from '../parts.js';
import { ROLES, copiesOf, membersOf } from '../ring.js';
import { eventList, runningNodes } from '../ring_panel.js';
import { to } from '../router.js';
import { PagedList } from '../table.js';

const EVENTS_SHOWN = 40;
const DANGERS = [['no master', 'bad'], ['one copy', 'bad'], ['not complete', 'warn'], ['complete', 'good']];

export const title = 'Rings';

export async function render(view) {
  const tiles = h('.tiles');
  const nodes = h('.ring-nodes');
  const newest = h('.ring-events');
  const list = new PagedList(view, {
    id: 'rings',
    noun: 'ring',
    path: 'mirroring/rings',
    key: (row) => JSON.stringify([row.vhost, row.name]),
    columns: columnsOf(),
    rowClass: (row) => (row.danger < 2 ? 'is-endangered' : ''),
    defaults: { sort: 'danger' },
    empty: 'No mirrored queues. A policy with ha-mode makes queues mirrored.',
  });
  append(view.body,
    h('header.page-head', null, h('h1', null, 'Rings'), h('.page-marks', null, h('a.button', { href: '#/rebalance' }, 'Rebalance …'))),
    tiles,
    section('rings.nodes', 'If a node is lost', {}, nodes),
    section('rings.matrix', 'Queues and nodes', {}, legend(), list.element),
    section('rings.events', 'What happened', { tools: h('a.button.small', { href: '#/events' }, 'All events') }, newest));
  followNodes(view, list);
  await view.every(() => list.refresh());
  await view.every(async () => {
    const summary = await get('mirroring/summary', { signal: view.signal });
    patch(tiles, tilesOf(summary));
    patch(nodes, nodesTable(summary.nodes));
  });
  await view.every(async () => {
    const events = await get('mirroring/events', { signal: view.signal });
    patch(newest, eventList(newestFirst(events).slice(0, EVENTS_SHOWN)));
  });
}

/** A node that joins the cluster gets a column. */
function followNodes(view, list) {
  let known = nodesOf().join('\0');
  const check = () => {
    if (nodesOf().join('\0') === known) return;
    known = nodesOf().join('\0');
    list.options.columns = columnsOf();
    list.table.setColumns(list.shown());
  };
  clusterEvents.addEventListener('change', check, { signal: view.signal });
}

/** All nodes, in one order: those of the cluster, for users who may see them. */
function nodesOf() {
  return cluster.nodes.map((node) => node.name).sort();
}

function columnsOf() {
  const nodes = nodesOf();
  const cells = nodes.map((node) => ({
    id: `node.${node}`,
    title: nodeName(node, nodes),
    hint: node,
    class: 'is-cell',
    cell: (row) => roleCell(row, node),
  }));
  return [
    { id: 'name', title: 'Queue', sort: 'name', cell: (row) => h('a.name', { href: ringHash(row) }, row.name) },
    { id: 'vhost', title: 'Virtual host', sort: 'vhost', off: cluster.vhosts.length < 2, cell: (row) => link.vhost(row.vhost) },
    { id: 'danger', title: 'Copies', sort: 'danger', cell: dangerBadge },
    ...cells,
    { id: 'master', title: 'Master', sort: 'master', off: nodes.length > 0, cell: (row) => link.node(row.master) },
    { id: 'lacks', title: 'Lacks', number: true, hint: 'Messages that a mirror has not got, of the one that lacks most', cell: (row) => number(most(row.lacks)) },
    { id: 'messages', title: 'Messages', sort: 'messages', number: true, off: true, cell: (row) => number(row.messages) },
    { id: 'policy', title: 'Policy', sort: 'policy', off: true, cell: (row) => (row.policy ? link.policy(row.vhost, row.policy) : '–') },
    { id: 'version', title: 'Changes', hint: 'How often the ring has changed: mirrors that came, went or were synchronised, masters that changed', sort: 'version', number: true, off: true, cell: (row) => number(row.version) },
  ];
}

/** A ring's own page. */
export function ringHash(ring) {
  return to.queue(ring.vhost, ring.name).replace('#/queues/', '#/rings/');
}

function most(lacks) {
  return Math.max(0, ...Object.values(lacks ?? {}));
}

function dangerBadge(row) {
  const [text, tone] = DANGERS[row.danger];
  const { complete, all } = copiesOf(membersOf(row), row.wanted);
  if (row.danger === 3) return badge(plural(complete, 'copy', 'copies'), tone);
  return badge(row.danger === 2 ? `${complete} of ${all} complete` : text, tone);
}

function roleCell(row, node) {
  const member = membersOf(row, runningNodes()).find((one) => one.node === node);
  if (!member) return h('span.cell.is-none', { title: `no copy on ${node}` }, h('span.sr-only', null, 'none'));
  const { role, letter, text, share } = member;
  const more = role === 'behind' && row.lacks?.[node] ? short(row.lacks[node]) : role === 'syncing' ? `${Math.round(share * 100)}%` : '';
  return h(`span.cell.is-${role}`, { title: `${node}: ${text}` }, letter, more && h('small', null, more));
}

function legend() {
  const letters = [['M', 'master'], ['S', 'synced'], ['↻', 'syncing'], ['U', 'behind'], ['×', 'down'], ['–', 'absent']];
  return h('p.legend-line', null, letters.map(([letter, role]) => h('span', null, h(`span.cell.is-${role}`, null, letter), ' ', ROLES[role])));
}

function tilesOf({ rings, danger }) {
  const [none, one, few, safe] = danger;
  return [
    tile('mirrored queues', number(rings)),
    tile('without a master', number(none), { tone: none ? 'bad' : '' }),
    tile('with one complete copy', number(one), { tone: one ? 'bad' : '' }),
    tile('not complete', number(few), { tone: few ? 'warn' : '' }),
    tile('complete', number(safe), { tone: rings && safe === rings ? 'good' : '' }),
  ];
}

/** For each node: masters, mirrors, and the queues that would be unavailable without it. */
function nodesTable(nodes) {
  const running = runningNodes();
  const rows = Object.entries(nodes).sort(([one], [other]) => (one < other ? -1 : 1)).map(([node, { masters, mirrors, alone }]) =>
    h('tr', null, h('td', null, link.node(node)), h('td.number', { 'data-label': 'Masters' }, number(masters)),
      h('td.number', { 'data-label': 'Mirrors' }, number(mirrors)),
      h('td.wide', null, verdict(masters, alone, !running || running.includes(node)))));
  return h('.table-frame', null, h('table.table.compact', null,
    h('thead', null, h('tr', null, h('th', null, 'Node'), h('th.number', null, 'Masters'), h('th.number', null, 'Mirrors'), h('th', null, 'Without it'))),
    h('tbody', null, rows)));
}

function verdict(masters, alone, isUp) {
  if (!isUp) return badge('is down', 'bad');
  if (alone) return badge(`${plural(alone, 'queue')} would be unavailable`, 'bad');
  return masters ? badge(`${plural(masters, 'queue')} would fail over`, 'info') : badge('no master here');
}
