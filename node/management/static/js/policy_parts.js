/** Policies and operator policies: tables, and the form that sets one, with what it would match. */

import { del, get, path, put } from './api.js';
import { can } from './auth.js';
import { cluster } from './cluster.js';
import { attempt, confirm } from './dialog.js';
import { a, fill, h } from './dom.js';
import { argumentsEditor, field, form, input, select } from './form.js';
import { number, plural } from './format.js';
import { argumentList, badge, button, link } from './parts.js';
import { href } from './router.js';

const MATCHES_SHOWN = 12;

const QUEUE_CHIPS = [
  { key: 'max-length', label: 'Max length', type: 'number' },
  { key: 'max-length-bytes', label: 'Max length bytes', type: 'number' },
  { key: 'message-ttl', label: 'Message TTL', type: 'number', hint: 'Milliseconds' },
  { key: 'expires', label: 'Expires', type: 'number', hint: 'Milliseconds without use until the queue is deleted' },
  { key: 'delivery-limit', label: 'Delivery limit', type: 'number' },
];

const CHIPS = [
  { key: 'ha-mode', label: 'HA mode', value: 'all', hint: 'all, exactly or nodes' },
  { key: 'ha-params', label: 'HA params', type: 'number', hint: 'With exactly: copies, the master among them. With nodes: their names, as a list' },
  { key: 'ha-sync-mode', label: 'HA sync mode', value: 'automatic', hint: 'automatic or manual' },
  { key: 'ha-sync-batch-size', label: 'HA sync batch', type: 'number' },
  { key: 'ha-promote-on-shutdown', label: 'Promote on shutdown', value: 'when-synced', hint: 'when-synced or always' },
  { key: 'ha-promote-on-failure', label: 'Promote on failure', value: 'when-synced', hint: 'always or when-synced' },
  { key: 'queue-master-locator', label: 'Master locator', value: 'min-masters', hint: 'min-masters, client-local or random' },
  ...QUEUE_CHIPS,
  { key: 'overflow', label: 'Overflow', value: 'reject-publish', hint: 'drop-head, reject-publish or reject-publish-dlx' },
  { key: 'dead-letter-exchange', label: 'Dead letter exchange' },
  { key: 'dead-letter-routing-key', label: 'Dead letter key' },
  { key: 'dead-letter-strategy', label: 'Dead letter strategy', value: 'at-least-once', hint: 'Of quorum queues, with overflow reject-publish' },
  { key: 'delayed-retry-type', label: 'Retries wait', value: 'all', hint: 'disabled, all, failed or returned' },
  { key: 'delayed-retry-min', label: 'Shortest wait', type: 'number', hint: 'Milliseconds, for each return once more' },
  { key: 'delayed-retry-max', label: 'Longest wait', type: 'number', hint: 'Milliseconds' },
  { key: 'delayed-retry-multiplier', label: 'Wait multiplier', type: 'number', hint: '2: each wait is twice the one before' },
  { key: 'queue-mode', label: 'Lazy', value: 'lazy' },
  { key: 'hold-until-header', label: 'Hold until', value: 'eta', hint: 'The header with the time until which a message waits; Celery’s is eta' },
  { key: 'group-header', label: 'Group header', hint: 'Messages with the same value of this header go to one consumer, in order' },
  { key: 'message-deduplication', label: 'Deduplication', type: 'boolean', value: 'true', hint: 'Messages with the x-deduplication-header of one that is in the queue are dropped' },
  { key: 'alternate-exchange', label: 'Alternate exchange', hint: 'Of exchanges' },
];

/** What differs between the two kinds. */
export const KINDS = {
  policy: { path: 'policies', noun: 'policy', many: 'policies', tag: 'policymaker', chips: CHIPS, applies: ['all', 'queues', 'exchanges'] },
  operator: { path: 'operator-policies', noun: 'operator policy', many: 'operator policies', tag: 'administrator', chips: QUEUE_CHIPS, applies: ['queues'] },
};

/** Columns for a list of policies. @param {'policy'|'operator'} kind */
export function policyColumns(view, kind) {
  const { path: where, tag } = KINDS[kind];
  return [
    { id: 'name', title: 'Name', sort: 'name', cell: (row) => nameLink(where, row) },
    { id: 'vhost', title: 'Virtual host', sort: 'vhost', off: cluster.vhosts.length < 2, cell: (row) => link.vhost(row.vhost) },
    { id: 'pattern', title: 'Pattern', sort: 'pattern', cell: (row) => h('code', null, row.pattern) },
    { id: 'applies', title: 'Applies to', sort: 'apply-to', cell: (row) => badge(row['apply-to']) },
    { id: 'definition', title: 'Definition', cell: (row) => argumentList(row.definition) },
    { id: 'priority', title: 'Priority', sort: 'priority', number: true, cell: (row) => number(row.priority) },
    ...(can(tag) ? [{ id: 'clear', title: '', class: 'is-action', cell: (row) => button('Clear', () => clearPolicy(view, kind, row), { small: true }) }] : []),
  ];
}

function nameLink(where, row) {
  const element = a(href(where, row.vhost, row.name), row.name === '' ? '(no name)' : row.name);
  element.classList.add('name');
  return element;
}

/** Asks, and clears; true when it is gone. */
export async function clearPolicy(view, kind, row) {
  const { path: where, noun } = KINDS[kind];
  const text = 'The queues and exchanges that it holds for go by the next one that matches, or by none. Mirrors that only it asked for are dropped.';
  if (!(await confirm({ title: `Clear the ${noun} ${row.name}?`, text, action: 'Clear' }))) return false;
  if (!(await attempt(() => del(path(where, row.vhost, row.name)), 'Cleared'))) return false;
  await view.refresh();
  return true;
}

/**
 * The form. `fixed`: the policy that it changes, whose name and virtual host stay; null adds one.
 *
 * @returns {{element: HTMLElement, load: (policy: object) => void}}
 */
export function policyForm(view, kind, fixed = null) {
  const { path: where, chips, applies, noun } = KINDS[kind];
  const definition = argumentsEditor({ chips, label: 'Definition' });
  const names = { name: input('name', { required: true, maxlength: 255 }), vhost: vhostSelect(view) };
  const controls = {
    pattern: input('pattern', { required: true, placeholder: '^orders\\.' }),
    'apply-to': select('apply-to', applies),
    priority: input('priority', { type: 'number', value: '0' }),
  };
  const matches = h('.matches', { 'aria-live': 'polite' });
  const owner = () => fixed?.vhost ?? names.vhost.value;
  const preview = button('What does it match?', () => showMatches(matches, owner(), controls.pattern.value, controls['apply-to'].value), { small: true });
  const fields = [
    !fixed && field('Virtual host', names.vhost),
    !fixed && field('Name', names.name),
    field('Pattern', controls.pattern, 'A regular expression on names'),
    field('Applies to', controls['apply-to']),
    field('Priority', controls.priority, 'The highest that matches holds'),
    definition.element,
    h('.form-wide', null, preview, matches),
  ];
  const element = form(fields, fixed ? `Change ${noun}` : `Add ${noun}`, async (values, self) => {
    const work = () => put(path(where, owner(), fixed?.name ?? values.name),
      { pattern: values.pattern, definition: definition.read(), priority: Number(values.priority), 'apply-to': values['apply-to'] });
    if (!(await attempt(work, 'Set'))) return;
    fill(matches);
    if (!fixed) {
      self.reset();
      definition.load({});
    }
    await view.refresh();
  }, { 'aria-label': fixed ? `Change the ${noun}` : `Add a ${noun}` });
  const load = (policy) => {
    for (const [name, control] of Object.entries(controls)) control.value = String(policy[name] ?? '');
    definition.load(policy.definition);
  };
  return { element, load };
}

function vhostSelect(view) {
  const names = cluster.vhosts.map((vhost) => vhost.name);
  return select('vhost', names.length ? names : ['/'], view.vhost ?? undefined);
}

/** Names that a pattern fits, by the server, whose expressions may differ from a browser's. */
async function showMatches(element, vhost, pattern, applies) {
  const kinds = applies === 'all' ? ['queues', 'exchanges'] : [applies];
  const lists = [];
  const worked = await attempt(async () => {
    for (const kind of kinds) {
      const params = { page: 1, page_size: MATCHES_SHOWN, name: pattern, use_regex: true, columns: 'name,vhost,policy' };
      lists.push([kind, await get(path(kind, vhost), { params, vhost: null })]);
    }
  });
  if (!worked) return;
  fill(element, lists.map(([kind, page]) => matchList(kind, page)));
}

function matchList(kind, page) {
  const noun = kind === 'queues' ? 'queue' : 'exchange';
  const to = kind === 'queues' ? link.queue : link.exchange;
  const more = page.filtered_count - page.items.length;
  return h('div', null, h('p', null, h('strong', null, plural(page.filtered_count, noun)), ' of ', number(page.total_count), page.filtered_count ? ':' : ' match.'),
    h('ul.match-list', null, page.items.map((row) => h('li', null, to(row.vhost, row.name), row.policy ? [' ', badge(row.policy, 'quiet', 'The policy that holds now')] : null)),
      more > 0 && h('li', null, `and ${number(more)} more`)));
}
