/** Definitions to a file and from a file, of the whole cluster or one virtual host. The text of the file stays as it is. */

import { get, path, post } from './api.js';
import { cluster } from './cluster.js';
import { attempt, confirm, tell } from './dialog.js';
import { h } from './dom.js';
import { field, form, input, select } from './form.js';
import { plural } from './format.js';

const ALL = '*';

function vhostChoice() {
  return select('vhost', [[ALL, 'The whole cluster'], ...cluster.vhosts.map((vhost) => [`:${vhost.name}`, vhost.name])], ALL);
}

function where(choice) {
  return choice === ALL ? 'definitions' : path('definitions', choice.slice(1));
}

/** A file's name from the cluster's: letters that file systems take. */
export function fileName(clusterName, date) {
  const day = date.toISOString().slice(0, 10);
  return `rabbit_${String(clusterName ?? 'cluster').replace(/[^\w.@-]+/g, '_')}_${day}.json`;
}

export function exportPanel() {
  const name = input('file', { value: fileName(cluster.overview.cluster_name, new Date()), required: true });
  const element = form([field('File', name), field('Of', vhostChoice())], 'Download', (values) => attempt(async () => {
    save(await get(where(values.vhost), { isText: true, vhost: null }), values.file);
  }));
  return h('.panel', null, h('h3', null, 'Export'), h('p.quiet', null, 'Virtual hosts, users, permissions, policies, exchanges, queues, bindings; no messages.'), element);
}

function save(text, name) {
  const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  const link = h('a', { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

const PARTS = [['vhosts', 'virtual host'], ['users', 'user'], ['permissions', 'permission'], ['policies', 'policy', 'policies'],
  ['exchanges', 'exchange'], ['queues', 'queue'], ['bindings', 'binding'], ['parameters', 'parameter']];

/** The contents of a document in words: `2 users, 5 queues`. */
export function summary(document) {
  const parts = PARTS.filter(([key]) => Array.isArray(document[key]) && document[key].length)
    .map(([key, noun, many]) => plural(document[key].length, noun, many));
  return parts.join(', ') || 'nothing';
}

export function importPanel(view) {
  const file = h('input', { type: 'file', name: 'file', accept: 'application/json,.json', required: true });
  const element = form([field('File', file), field('Into', vhostChoice())], 'Import', async (values, shown) => {
    const text = await file.files[0].text();
    let held;
    try {
      held = summary(JSON.parse(text));
    } catch {
      await tell('That is no JSON', 'The file can’t be read as definitions.');
      return;
    }
    const sure = await confirm({
      title: 'Import definitions?', text: `The file holds ${held}. Existing objects stay; users and policies of the same name are changed.`,
      action: 'Import', danger: false,
    });
    if (!sure) return;
    if (await attempt(() => post(where(values.vhost), undefined, { text, vhost: null }), 'Definitions are imported')) {
      shown.reset();
      await view.refresh();
    }
  });
  return h('.panel', null, h('h3', null, 'Import'), h('p.quiet', null, 'A file of this page or of a RabbitMQ.'), element);
}
