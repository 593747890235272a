/** Plug-ins: which are enabled, what they bring, and how they fare on each node. */

import { get } from '../api.js';
import { append, h } from '../dom.js';
import { number } from '../format.js';
import { badge, state } from '../parts.js';
import { pluginPages, refreshPluginPages } from '../plugin_pages.js';
import { href } from '../router.js';
import { Table } from '../table.js';

const TONES = { running: 'good', down: 'quiet' };
const SOURCES = { node: 'part of the node', 'built-in': 'built in', package: 'package' };
const KINDS = {
  exchange_types: 'exchange types',
  auth_backends: 'auth backends',
  protocols: 'protocols',
  interceptors: 'interceptors of publishes',
  delivery_interceptors: 'interceptors of deliveries',
  peer_discovery: 'peer discovery',
  telemetry: 'telemetry',
  http_resources: 'HTTP resources',
  page: 'page',
  settings: 'settings',
};

export const title = 'Plug-ins';

export async function render(view) {
  const table = new Table({
    key: (row) => row.name,
    caption: 'plug-ins',
    empty: 'No plug-in is enabled.',
    columns: [
      { id: 'name', title: 'Name', cell: (row) => h('code', null, row.name) },
      { id: 'version', title: 'Version', cell: (row) => row.version ?? '' },
      { id: 'source', title: 'Source', cell: (row) => badge(SOURCES[row.source] ?? row.source) },
      { id: 'offers', title: 'What it brings', cell: offers },
      { id: 'nodes', title: 'Nodes', cell: nodes },
      { id: 'failures', title: 'Exceptions', number: true, hint: 'Exceptions that the plug-in raised; the log has the first ones', cell: (row) => number(row.failures) },
    ],
  });
  append(view.body, h('header.page-head', null, h('h1', null, 'Plug-ins')), table.element,
    h('p.quiet', null, 'They are enabled and disabled with ', h('code', null, 'fluffle plugins'), '.'));
  await view.every(async () => {
    const [rows] = await Promise.all([get('plugins', { signal: view.signal }), refreshPluginPages()]);
    table.update(rows);
  });
}

function offers(row) {
  const found = Object.entries(row.offers).filter(([kind]) => kind !== 'settings').map(([kind, what]) => h('li', null, offer(row.name, kind, what)));
  return [row.description ? h('p', null, row.description) : null, found.length ? h('ul.arguments', null, found) : null];
}

function offer(name, kind, what) {
  const text = KINDS[kind] ?? kind;
  if (kind === 'page') {
    const route = href('plugins', name);
    return pluginPages().some((one) => one.route === route) ? h('a', { href: route }, `page ${what}`) : `page ${what}`;
  }
  if (Array.isArray(what)) return `${text}: ${what.join(', ')}`;
  return typeof what === 'number' ? `${text}: ${number(what)}` : text;
}

function nodes(row) {
  return h('ul.arguments', null, row.nodes.map((node) =>
    h('li', null, state(node.state, TONES[node.state] ?? 'bad'), ' ', node.name, node.failures ? ` (${number(node.failures)} exceptions)` : '')));
}
