/**
 * The file of each page, in the order in which routes are tried. `tab` is the tab that is lit; admin pages also appear in
 * the menu of the admin tab, when the user has the tag that they need. Pages of plug-ins come last (plugin_pages.js).
 */

export const PAGES = [
  { route: '#/', file: 'overview', tab: 'overview' },
  { route: '#/nodes/:name', file: 'node', tab: 'overview' },
  { route: '#/connections', file: 'connections', tab: 'connections' },
  { route: '#/connections/:name', file: 'connection', tab: 'connections' },
  { route: '#/channels', file: 'channels', tab: 'channels' },
  { route: '#/channels/:name', file: 'channel', tab: 'channels' },
  { route: '#/exchanges', file: 'exchanges', tab: 'exchanges' },
  { route: '#/exchanges/:vhost/:name', file: 'exchange', tab: 'exchanges' },
  { route: '#/queues', file: 'queues', tab: 'queues' },
  { route: '#/queues/:vhost/:name', file: 'queue', tab: 'queues' },
  { route: '#/rings', file: 'rings', tab: 'rings' },
  { route: '#/rings/:vhost/:name', file: 'ring', tab: 'rings' },
  { route: '#/users', file: 'users', tab: 'admin', menu: 'Users', tag: 'administrator' },
  { route: '#/users/:name', file: 'user', tab: 'admin' },
  { route: '#/vhosts', file: 'vhosts', tab: 'admin', menu: 'Virtual hosts', tag: 'administrator' },
  { route: '#/vhosts/:name', file: 'vhost', tab: 'admin' },
  { route: '#/policies', file: 'policies', tab: 'admin', menu: 'Policies', tag: 'management' },
  { route: '#/policies/:vhost/:name', file: 'policy', tab: 'admin' },
  { route: '#/operator-policies/:vhost/:name', file: 'operator_policy', tab: 'admin' },
  { route: '#/limits', file: 'limits', tab: 'admin', menu: 'Limits', tag: 'management' },
  { route: '#/rebalance', file: 'rebalance', tab: 'admin', menu: 'Rebalance', tag: 'administrator' },
  { route: '#/events', file: 'events', tab: 'admin', menu: 'Events', tag: 'management' },
  { route: '#/log', file: 'log', tab: 'admin', menu: 'Log', tag: 'monitoring' },
  { route: '#/feature-flags', file: 'feature_flags', tab: 'admin', menu: 'Feature flags', tag: 'administrator' },
  { route: '#/plugins', file: 'plugins', tab: 'admin', menu: 'Plug-ins', tag: 'monitoring' },
  { route: '#/cluster-name', file: 'cluster_name', tab: 'admin', menu: 'Cluster', tag: 'administrator' },
];

/** The tabs of the header: [id, label, hash, key after g]. */
export const TABS = [
  ['overview', 'Overview', '#/', 'o'],
  ['connections', 'Connections', '#/connections', 'c'],
  ['channels', 'Channels', '#/channels', 'h'],
  ['exchanges', 'Exchanges', '#/exchanges', 'e'],
  ['queues', 'Queues', '#/queues', 'q'],
  ['rings', 'Rings', '#/rings', 'r'],
  ['admin', 'Admin', '#/admin', 'a'],
];

/** The pages of an answer of /api/extensions; RabbitMQ's own script is no page of ours. */
export function pagesOf(extensions) {
  return extensions
    .filter((one) => typeof one.plugin === 'string' && typeof one.menu === 'string')
    .map((one) => ({
      route: `#/plugins/${encodeURIComponent(one.plugin)}`,
      file: `plugin-${one.plugin}`,
      module: `../${one.javascript}`,
      tab: 'admin',
      menu: one.menu,
      tag: one.tag,
    }));
}
