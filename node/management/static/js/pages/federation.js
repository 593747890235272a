/** Federation: the links and how they fare, who is upstream of whom, upstreams and sets of them. */

import { del, get, getIfAny, path, put } from '../api.js';
import { can } from '../auth.js';
import { cluster } from '../cluster.js';
import { attempt, confirm } from '../dialog.js';
import { append, fill, h } from '../dom.js';
import { drawMap } from '../federation_map.js';
import { neighbours, shownUris, upstreamOf } from '../federation_values.js';
import { field, form, input, select } from '../form.js';
import { NOTHING, number } from '../format.js';
import { argumentList, button, link, section, state } from '../parts.js';
import { Table } from '../table.js';

const TONES = { running: 'good', starting: 'warn' };
const UPSTREAM = 'federation-upstream';
const SET = 'federation-upstream-set';

export const title = 'Federation';

export async function render(view) {
  const links = linksTable(view);
  const upstreams = parametersTable(view, UPSTREAM, 'upstreams', [
    { id: 'uri', title: 'URI', cell: (row) => h('ul.arguments', null, shownUris(row.value).map((uri) => h('li', null, h('code', null, uri)))) },
    { id: 'rest', title: 'Settings', cell: (row) => argumentList(Object.fromEntries(Object.entries(row.value).filter(([key]) => key !== 'uri'))) },
  ]);
  const sets = parametersTable(view, SET, 'sets', [
    { id: 'members', title: 'Upstreams', cell: (row) => row.value.map((one) => one.upstream).join(', ') },
  ]);
  const map = h('.ring-frame');
  append(view.body,
    h('header.page-head', null, h('h1', null, 'Federation')),
    h('p.lead', null, 'A link consumes from an exchange or queue of another broker, its upstream, and publishes here. Which exchanges and queues have links is said by policies.'),
    section('federation.links', 'Links', {}, links.element),
    section('federation.map', 'Who is upstream of whom', {}, map),
    can('policymaker') && section('federation.upstreams', 'Upstreams', {}, upstreams.element),
    can('policymaker') && section('federation.addUpstream', 'Add or change an upstream', { isOpen: false }, upstreamForm(view)),
    can('policymaker') && section('federation.sets', 'Sets of upstreams', { isOpen: false }, h('p.hint', null, 'The set “all” has all upstreams of its virtual host.'), sets.element, setForm(view)));
  await view.every(async () => {
    const [rows, queues] = await Promise.all([
      get('federation-links', { signal: view.signal, params: { disable_stats: true } }),
      getIfAny('queues', { signal: view.signal, params: { page: 1, page_size: 500, name: '^federation: ', use_regex: true, columns: 'name,consumers,messages' } }),
    ]);
    links.update(rows);
    fill(map, drawMap(cluster.overview.cluster_name ?? 'here', neighbours(rows, queues?.items ?? [])));
  });
  if (can('policymaker')) {
    await view.every(async () => {
      upstreams.update(await get(path('parameters', UPSTREAM), { signal: view.signal }));
      sets.update(await get(path('parameters', SET), { signal: view.signal }));
    });
  }
}

function linksTable(view) {
  return new Table({
    key: (row) => `${row.node} ${row.id}`,
    caption: 'links',
    empty: 'No links: no policy here names an upstream.',
    columns: [
      { id: 'what', title: 'Exchange or queue', cell: (row) => [row.type, ' ', link[row.type](row.vhost, row[row.type])] },
      { id: 'vhost', title: 'Virtual host', cell: (row) => link.vhost(row.vhost) },
      { id: 'upstream', title: 'Upstream', cell: (row) => [h('code', null, row.upstream), ` ${row[`upstream_${row.type}`]}`] },
      { id: 'uri', title: 'URI', cell: (row) => h('code', null, row.uri) },
      { id: 'status', title: 'State', cell: (row) => [state(row.status, TONES[row.status] ?? 'bad'), row.error ? h('pre.quiet', null, row.error) : null] },
      { id: 'node', title: 'Node', cell: (row) => link.node(row.node) },
      { id: 'taken', title: 'Messages', number: true, hint: 'Messages passed on since the node runs the link', cell: (row) => number(row.counters?.taken ?? 0) },
      { id: 'since', title: 'Since', cell: (row) => row.timestamp ?? NOTHING },
      { id: 'restart', title: '', class: 'is-action', cell: (row) => button('Restart', () => restart(view, row), { small: true, hint: `Restart link ${row.id}` }) },
    ],
  });
}

async function restart(view, row) {
  if (await attempt(() => del(path('federation-links', 'vhost', row.vhost, row.id, row.node, 'restart')), 'Restarted')) await view.refresh();
}

function parametersTable(view, component, noun, columns) {
  return new Table({
    key: (row) => JSON.stringify([row.vhost, row.name]),
    caption: noun,
    empty: `No ${noun}.`,
    columns: [
      { id: 'name', title: 'Name', cell: (row) => h('code', null, row.name) },
      { id: 'vhost', title: 'Virtual host', cell: (row) => link.vhost(row.vhost) },
      ...columns,
      { id: 'delete', title: '', class: 'is-action', cell: (row) => button('Delete', () => remove(view, component, row), { small: true }) },
    ],
  });
}

async function remove(view, component, row) {
  const text = 'Its links end, and what they made upstream is deleted, with the messages that wait there.';
  if (!(await confirm({ title: `Delete ${row.name}?`, text, action: 'Delete' }))) return;
  if (await attempt(() => del(path('parameters', component, row.vhost, row.name)), 'Deleted')) await view.refresh();
}

function vhostSelect(view) {
  const names = cluster.vhosts.map((vhost) => vhost.name);
  return select('vhost', names.length ? names : ['/'], view.vhost ?? undefined);
}

function upstreamForm(view) {
  const fields = [
    field('Virtual host', vhostSelect(view)),
    field('Name', input('name', { required: true, maxlength: 255 })),
    field('URI', input('uri', { required: true, placeholder: 'amqp://user:password@host' }), 'Several of one cluster may be given, with spaces between them'),
    field('Prefetch count', input('prefetch-count', { type: 'number', min: 0 }), 'Messages on their way at a time; 1,000 unless set'),
    field('Reconnect delay', input('reconnect-delay', { type: 'number', min: 0, step: 'any' }), 'Seconds after a failure; 5 unless set'),
    field('Acknowledgement mode', select('ack-mode', [['', ''], 'on-confirm', 'on-publish', 'no-ack']), 'on-confirm unless set: nothing is lost'),
    field('Trust user id', select('trust-user-id', [['', ''], ['true', 'yes'], ['false', 'no']]), 'Keeps the property user_id'),
    field('Exchange', input('exchange'), 'Its name upstream; the same as here unless set'),
    field('Max hops', input('max-hops', { type: 'number', min: 0 }), 'Links that a message may pass; 1 unless set'),
    field('Expires', input('expires', { type: 'number', min: 1 }), 'Milliseconds until the queue upstream is deleted that nothing uses'),
    field('Message TTL', input('message-ttl', { type: 'number', min: 0 }), 'Milliseconds for which messages wait upstream'),
    field('Queue', input('queue'), 'Its name upstream; the same as here unless set'),
    field('Consumer tag', input('consumer-tag')),
    field('Resource cleanup', select('resource-cleanup-mode', [['', ''], 'default', 'never']), 'never: what links made upstream stays'),
    field('HA policy', input('ha-policy'), 'For upstreams of long ago'),
    field('Bind without waiting', select('bind-nowait', [['', ''], ['true', 'yes'], ['false', 'no']])),
  ];
  return form(fields, 'Set upstream', async (values, self) => {
    if (!(await attempt(() => put(path('parameters', UPSTREAM, values.vhost, values.name), { value: upstreamOf(values) }), 'Set'))) return;
    self.reset();
    await view.refresh();
  }, { 'aria-label': 'Add an upstream' });
}

function setForm(view) {
  const fields = [
    field('Virtual host', vhostSelect(view)),
    field('Name', input('name', { required: true, maxlength: 255 })),
    field('Upstreams', input('members', { required: true }), 'Names, with spaces between them'),
  ];
  return form(fields, 'Set set', async (values, self) => {
    const value = values.members.split(/\s+/).filter(Boolean).map((upstream) => ({ upstream }));
    if (!(await attempt(() => put(path('parameters', SET, values.vhost, values.name), { value }), 'Set'))) return;
    self.reset();
    await view.refresh();
  }, { 'aria-label': 'Add a set of upstreams' });
}
