/** A virtual host: its messages, permissions, tracing, limits. */

import { del, get, getIfAny, path, put } from '../api.js';
import { can } from '../auth.js';
import { Chart, rangeParams, rangePicker } from '../chart.js';
import { cluster } from '../cluster.js';
import { attempt, confirm } from '../dialog.js';
import { append, h, patch } from '../dom.js';
import { number } from '../format.js';
import { limitForm, limitRows, limitsTable } from '../limits_parts.js';
import { badge, button, liveFacts, section } from '../parts.js';
import { permissionForm, permissionsTable, topicPermissionForm, topicPermissionsTable } from '../permissions.js';
import { go } from '../router.js';
import { knownSince } from '../samples.js';
import { described, vhostState, vhostTags } from './vhosts.js';

const LENGTHS = [
  { label: 'Ready', field: 'messages_ready', colour: 'ready' },
  { label: 'Unacked', field: 'messages_unacknowledged', colour: 'unacked' },
  { label: 'Total', field: 'messages', colour: 'total' },
];
const RATES = [
  { label: 'Publish', field: 'message_stats.publish', colour: 'publish' },
  { label: 'Confirm', field: 'message_stats.confirm', colour: 'confirm' },
  { label: 'Deliver', field: 'message_stats.deliver', colour: 'deliver' },
  { label: 'Deliver, auto ack', field: 'message_stats.deliver_no_ack', colour: 'autoack' },
  { label: 'Acknowledge', field: 'message_stats.ack', colour: 'ack' },
];

export const title = ({ name }) => name;

export async function render(view, { name }) {
  const where = path('vhosts', name);
  const kept = cluster.overview.sample_retention_policies?.global;
  const shown = parts(view, name, kept);
  append(view.body, shown.all);
  await view.every(async () => {
    const { signal } = view;
    const [vhost, limited] = await Promise.all([
      get(where, { params: rangeParams('vhost', ['lengths', 'msg_rates', 'data_rates'], kept), signal }),
      getIfAny(path('vhost-limits', name), { signal }),
    ]);
    patch(shown.head, vhostState(vhost), ' ', vhost.tracing && badge('tracing', 'warn'), ' ', vhostTags(vhost.tags).map((tag) => [badge(tag), ' ']));
    shown.lengths.mark(knownSince(vhost.messages_details));
    shown.lengths.update(vhost);
    shown.rates.update(vhost);
    shown.details([
      ['Description', described(vhost.description) || null],
      ['Default queue type', described(vhost.default_queue_type) || 'classic'],
      ['Messages', number(vhost.messages ?? 0)],
    ]);
    shown.limits.update(limitRows('vhost', limited));
    shown.trace.setAttribute('aria-pressed', String(Boolean(vhost.tracing)));
    shown.trace.textContent = vhost.tracing ? 'Stop tracing' : 'Start tracing';
  });
  if (can('administrator')) await view.every(() => showPermissions(view, shown, where));
}

async function showPermissions(view, shown, where) {
  const { signal } = view;
  const [allowed, topics] = await Promise.all([get(`${where}/permissions`, { signal }), get(`${where}/topic-permissions`, { signal })]);
  shown.permissions.update(allowed ?? []);
  shown.topics.update(topics ?? []);
}

function parts(view, name, kept) {
  const head = h('.page-marks');
  const lengths = new Chart({ id: 'vhost.lengths', title: 'Queued messages', kind: 'count', series: LENGTHS });
  const rates = new Chart({ id: 'vhost.rates', title: 'Message rates', kind: 'rate', series: RATES });
  const details = liveFacts();
  const permissions = permissionsTable(view, 'vhost');
  const topics = topicPermissionsTable(view, 'vhost');
  const isAdmin = can('administrator');
  const limits = limitsTable(view, 'vhost', { canChange: isAdmin, namesOwner: false });
  const trace = button('Start tracing', () => turnTracing(view, name, trace.getAttribute('aria-pressed') !== 'true'));
  const all = [
    h('header.page-head', null, h('h1', null, h('span.page-kind', null, 'Virtual host'), ' ', h('span.name', null, name)), head),
    section('vhost.charts', 'Messages', { tools: rangePicker('vhost', kept, () => view.refresh()) }, h('.charts', null, lengths.element, rates.element)),
    section('vhost.details', 'Details', {}, details.element),
    isAdmin && section('vhost.permissions', 'Permissions', {}, permissions.element, permissionForm(view, { vhost: name })),
    isAdmin && section('vhost.topics', 'Topic permissions', { isOpen: false }, topics.element, topicPermissionForm(view, { vhost: name })),
    section('vhost.limits', 'Limits', { isOpen: false }, limits.element, isAdmin && limitForm(view, 'vhost', name)),
    isAdmin && section('vhost.tracing', 'Tracing', { isOpen: false },
      h('p.hint', null, 'Copies of all messages that are published and delivered go to the exchange ', h('code', null, 'amq.rabbitmq.trace'), '. It costs throughput.'),
      h('.form-buttons', null, trace)),
    isAdmin && section('vhost.danger', 'Delete', { isOpen: false }, h('.danger-buttons', null, button('Delete virtual host', () => deleteVhost(name), { danger: true }))),
  ];
  return { all, head, lengths, rates, details, permissions, topics, limits, trace };
}

/** Sends all other fields, too: a PUT resets the missing ones. */
async function turnTracing(view, name, tracing) {
  const work = async () => {
    const vhost = await get(path('vhosts', name));
    const body = { description: described(vhost.description), tags: vhostTags(vhost.tags), tracing };
    await put(path('vhosts', name), body);
  };
  if (await attempt(work, tracing ? 'Tracing' : 'Tracing stopped')) await view.refresh();
}

async function deleteVhost(name) {
  const text = 'All its queues with all their messages, its exchanges, policies and permissions go with it. Its connections are closed.';
  if (!(await confirm({ title: `Delete the virtual host ${name}?`, text, action: 'Delete', typed: name }))) return;
  if (await attempt(() => del(path('vhosts', name)), 'Deleted')) go('#/vhosts');
}
