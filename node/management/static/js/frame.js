/** The header: logo, cluster health, virtual host, refresh, search, theme, user; the tabs; the admin menu; the footer. */

import { can, user } from './auth.js';
import { banners } from './banner.js';
import { cluster, showsVhosts, troubles } from './cluster.js';
import { append, fill, h, icon, patch } from './dom.js';
import { clock, plural, zone } from './format.js';
import { help } from './keyboard.js';
import './menu.js';
import { PAGES, TABS } from './pages.js';
import { link, state } from './parts.js';
import { pluginPages } from './plugin_pages.js';
import { pref, setPref } from './prefs.js';
import { openSearch } from './search.js';
import { toggleTheme } from './theme.js';

const INTERVALS = [[5, 'every 5 s'], [10, 'every 10 s'], [30, 'every 30 s'], [0, 'by hand']];

/**
 * Builds the frame in `root`.
 *
 * @param {HTMLElement} root
 * @param {{logout, changed, tick, secondsLeft, reschedule}} actions of app.js; changed: another virtual host was chosen
 * @returns {{show: (page, body) => void, told: () => void, fresh: () => void}} show: puts a page in; told: the cluster was
 *   asked anew; fresh: what the page shows is of this moment
 */
export function buildFrame(root, actions) {
  const health = healthMenu();
  const vhosts = vhostSelect(actions.changed);
  const updated = h('span.updated');
  const name = h('span.cluster-name');
  const main = h('main#main', { tabindex: -1 });
  const menu = h('nav.side', { 'aria-label': 'Admin', hidden: true });
  const tabs = h('nav.tabs', { 'aria-label': 'Main' }, TABS.map(([id, label, hash]) => h('a', { href: hash, 'data-tab': id }, label)));
  const footer = h('footer');
  fill(root,
    h('a.skip', { href: '#main', onclick: (event) => { event.preventDefault(); main.focus(); } }, 'To the content'),
    h('header', null,
      h('.bar', null,
        h('a.brand', { href: '#/', 'aria-label': 'Fluffle: overview' }, h('img', { src: 'img/fluffle.svg', alt: '', width: 32, height: 32 }), h('span', null, 'Fluffle')),
        name, health.element, h('span.space'), vhosts.element, refreshControls(actions, updated), symbols(actions)),
      tabs, banners(actions.secondsLeft)),
    h('.content', null, menu, main), footer);
  return {
    show(page, body) {
      showTabs(tabs, menu, page);
      fill(main, body);
      fill(updated, '…'); // nothing of it is here yet
    },
    told() {
      const text = cluster.overview.cluster_name ?? '';
      if (name.textContent !== text) fill(name, text);
      name.title = `Cluster ${text}, answered by ${cluster.overview.node ?? ''}`;
      health.told();
      vhosts.told();
      showFooter(footer);
    },
    fresh() {
      fill(updated, clock(Date.now()));
    },
  };
}

function showTabs(tabs, menu, page) {
  for (const tab of tabs.children) {
    const isHere = tab.dataset.tab === page?.tab;
    if (isHere) tab.setAttribute('aria-current', 'page');
    else tab.removeAttribute('aria-current');
    if (isHere && tabs.scrollWidth > tabs.clientWidth) tab.scrollIntoView({ block: 'nearest', inline: 'center' });
  }
  menu.hidden = page?.tab !== 'admin';
  if (menu.hidden) return;
  const entries = [...PAGES, ...pluginPages()].filter((one) => one.menu && can(one.tag));
  fill(menu, entries.map((one) => h('a', { href: one.route, 'aria-current': one.file === page.file ? 'page' : null }, one.menu)));
}

/** The health at a glance: one word, and the nodes below it. */
function healthMenu() {
  const summary = h('summary.health');
  const body = h('.menu-body');
  const element = h('details.menu', { hidden: true }, summary, body);
  const told = () => {
    const { nodes } = cluster;
    element.hidden = nodes.length === 0;
    const found = troubles(nodes, cluster.vhosts);
    const up = nodes.filter((node) => node.running !== false).length;
    const tone = found.some((one) => one.tone === 'bad') ? 'bad' : found.length ? 'warn' : 'good';
    const text = up === nodes.length ? plural(up, 'node') : `${up} of ${plural(nodes.length, 'node')}`;
    patch(summary, state(text, tone, tone === 'good' ? 'All is well' : plural(found.length, 'trouble')));
    patch(body, h('ul.health-nodes', null, nodes.map((node) => h('li', null, nodeState(node), link.node(node.name)))),
      found.length ? h('ul.health-troubles', null, found.map((one) => h(`li.is-${one.tone}`, null, one.text))) : null);
  };
  return { element, told };
}

function nodeState(node) {
  if (node.running === false) return state('down', 'bad');
  if (node.partitions?.length) return state('partitioned', 'bad');
  if (node.mem_alarm || node.disk_free_alarm) return state('alarm', 'bad');
  if (node.being_drained) return state('maintenance', 'warn');
  return state('running', 'good');
}

function vhostSelect(changed) {
  const select = h('select', { 'aria-label': 'Virtual host' });
  const element = h('label.vhost', { title: 'Virtual host' }, icon('vhost'), select);
  select.addEventListener('change', () => {
    setPref('vhost', select.value === '*' ? undefined : select.value.slice(1));
    changed();
  });
  const told = () => {
    const chosen = pref('vhost', null);
    const names = cluster.vhosts.map((vhost) => vhost.name);
    if (chosen !== null && names.length && !names.includes(chosen)) {
      setPref('vhost', undefined); // it is gone, or not this user's
      changed();
    }
    // '*' can't be told from a virtual host of that name: names have a colon before.
    patch(select, h('option', { value: '*' }, 'All virtual hosts'), names.map((name) => h('option', { value: `:${name}` }, name)));
    const value = pref('vhost', null) === null ? '*' : `:${pref('vhost')}`;
    if (select.value !== value) select.value = value;
    element.hidden = names.length < 2 && !showsVhosts(null);
  };
  return { element, told };
}

function refreshControls(actions, updated) {
  const select = h('select', { 'aria-label': 'Refresh' }, INTERVALS.map(([seconds, label]) => h('option', { value: seconds }, label)));
  select.value = String(pref('interval', 5));
  select.addEventListener('change', () => {
    setPref('interval', Number(select.value));
    actions.reschedule();
  });
  const now = h('button.button.plain', { type: 'button', title: 'Refresh now (r)', 'aria-label': 'Refresh now', onclick: actions.tick }, icon('refresh'));
  return h('.refresh', null, now, h('span.updated-label', { title: 'The time of the data on this page' }, 'as of ', updated), select);
}

function symbols(actions) {
  const search = h('button.button.plain', { type: 'button', title: 'Search (s or Ctrl K)', 'aria-label': 'Search', onclick: openSearch }, icon('search'));
  const theme = h('button.button.plain', { type: 'button', title: 'Dark or light (t)', 'aria-label': 'Dark or light', onclick: toggleTheme }, icon('theme'));
  const keys = h('button.button.plain.keys-button', { type: 'button', title: 'Keys (?)', 'aria-label': 'Keys', onclick: help }, icon('keyboard'));
  const me = user();
  const menu = h('details.menu.user-menu', null,
    h('summary.button.plain', { title: me.name }, icon('user'), h('span.user-name', null, me.name)),
    h('.menu-body', null, h('p', null, me.name), h('p.quiet', null, me.tags.join(', ') || 'no tags'),
      h('button.button', { type: 'button', onclick: actions.logout }, 'Log out')));
  return append(h('.symbols'), search, theme, keys, menu);
}

function showFooter(footer) {
  const { overview } = cluster;
  const versions = [overview.product_name, overview.product_version ?? overview.rabbitmq_version].filter(Boolean).join(' ');
  patch(footer, h('span', null, versions), h('span', null, overview.erlang_full_version ?? ''),
    h('span', null, `Times: ${zone()}`), h('a', { href: 'api/' }, 'HTTP API'), h('button.plain-link', { type: 'button', onclick: help }, 'Keys'));
}
