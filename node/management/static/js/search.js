/** Search over everything: pages, queues, exchanges, connections and channels by a part of their names. */

import { get } from './api.js';
import { cluster } from './cluster.js';
import { ask, isDialogOpen } from './dialog.js';
import { fill, h, icon } from './dom.js';
import { exchangeName } from './format.js';
import { PAGES, TABS } from './pages.js';
import { can } from './auth.js';
import { go, href, to } from './router.js';

const EACH = 6;
const WAIT_MS = 180;

const KINDS = [
  { path: 'queues', noun: 'queue', hash: (row) => to.queue(row.vhost, row.name), columns: 'name,vhost' },
  { path: 'exchanges', noun: 'exchange', hash: (row) => to.exchange(row.vhost, row.name), columns: 'name,vhost' },
  { path: 'connections', noun: 'connection', hash: (row) => to.connection(row.name), columns: 'name,vhost,user_provided_name' },
  { path: 'channels', noun: 'channel', hash: (row) => to.channel(row.name), columns: 'name,vhost' },
];

/** Opens the search. */
export function openSearch() {
  if (isDialogOpen()) return;
  ask('Search', (finish) => {
    const results = h('ul.results', { role: 'listbox', tabindex: 0, 'aria-label': 'Results' });
    const field = h('input', {
      type: 'search', placeholder: 'Queues, exchanges, connections, pages …', 'aria-label': 'Search', autofocus: true, spellcheck: 'false', maxlength: 255,
    });
    const choose = (hash) => {
      finish(undefined);
      go(hash);
    };
    const lookup = searching(results, choose);
    field.addEventListener('input', () => lookup(field.value.trim()));
    field.addEventListener('keydown', (event) => moveIn(event, results));
    lookup('');
    return { body: [field, results], submit: () => results.querySelector('[aria-selected=true]')?.click() };
  }, undefined, { wide: true });
}

function moveIn(event, results) {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!by) return;
  event.preventDefault();
  const entries = [...results.querySelectorAll('[role=option]')];
  const place = entries.findIndex((entry) => entry.getAttribute('aria-selected') === 'true');
  pick(entries, entries[(place + by + entries.length) % entries.length]);
}

function pick(entries, chosen) {
  for (const entry of entries) entry.setAttribute('aria-selected', String(entry === chosen));
  chosen?.scrollIntoView({ block: 'nearest' });
}

function searching(results, choose) {
  let latest = '';
  let timer = 0;
  const show = (found) => {
    fill(results, found.map(({ noun, label, where, hash }) => h('li', { role: 'option', 'aria-selected': 'false', onclick: () => choose(hash) },
      h('span.result-kind', null, noun), h('span.result-name', null, label), where && h('span.quiet', null, where))));
    pick([...results.children], results.firstChild);
    if (!found.length) fill(results, h('li.empty', null, icon('search'), 'Nothing found'));
  };
  return (text) => {
    latest = text;
    clearTimeout(timer);
    const pages = pagesLike(text);
    if (!text) {
      show(pages);
      return;
    }
    timer = setTimeout(async () => {
      const rows = await Promise.all(KINDS.map((kind) => find(kind, text)));
      if (latest === text) show([...rows.flat(), ...pages]);
    }, WAIT_MS);
  };
}

async function find(kind, text) {
  try {
    const params = { page: 1, page_size: EACH, name: text, columns: kind.columns, disable_stats: null };
    const result = await get(kind.path, { params, quiet: true });
    const several = cluster.vhosts.length > 1;
    return (result.items ?? []).map((row) => ({
      noun: kind.noun,
      label: exchangeName(row.name ?? ''),
      where: row.user_provided_name ?? (several ? row.vhost : ''),
      hash: kind.hash(row),
    }));
  } catch {
    return []; // a kind that can't be asked: the others answer
  }
}

function pagesLike(text) {
  const menu = PAGES.filter((page) => page.menu && can(page.tag)).map((page) => ({ label: page.menu, hash: page.route }));
  const tabs = TABS.filter(([id]) => id !== 'admin').map(([, label, hash]) => ({ label, hash }));
  const nodes = cluster.nodes.map((node) => ({ label: node.name, hash: href('nodes', node.name), noun: 'node' }));
  const vhosts = cluster.vhosts.map((vhost) => ({ label: vhost.name, hash: href('vhosts', vhost.name), noun: 'virtual host' }));
  const all = text ? [...tabs, ...menu, ...nodes, ...vhosts] : [...tabs, ...menu];
  return all.filter((one) => one.label.toLowerCase().includes(text.toLowerCase())).slice(0, 20).map((one) => ({ noun: 'page', ...one }));
}
