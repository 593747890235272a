/** A queue: its rates and lengths, its ring, its bindings and consumers, and all actions on it. */

import { get, getIfAny, path } from '../api.js';
import { bindQueueForm, bindingsList } from '../bindings.js';
import { Chart, rangeParams, rangePicker } from '../chart.js';
import { cluster } from '../cluster.js';
import { consumersTable } from '../consumers.js';
import { fill, h, hidden, patch } from '../dom.js';
import { ago, bytes, duration, number, percent } from '../format.js';
import { eventsOf, masterChanges, newestFirst } from '../mirror_events.js';
import { messageBrowser } from '../messages.js';
import { argumentList, badge, button, liveFacts, link, section } from '../parts.js';
import { publishForm } from '../publish.js';
import { deleteQueue, purgeQueue } from '../queue_actions.js';
import { queueState } from '../queue_marks.js';
import { replayForm } from '../replay.js';
import { RingPanel, isMirrored, ringOf } from '../ring_panel.js';

const LENGTHS = [
  { label: 'Ready', field: 'messages_ready', colour: 'ready' },
  { label: 'Unacked', field: 'messages_unacknowledged', colour: 'unacked' },
  { label: 'Total', field: 'messages', colour: 'total' },
];

export const QUEUE_RATES = [
  { label: 'Publish', field: 'message_stats.publish', colour: 'publish' },
  { label: 'Deliver', field: 'message_stats.deliver', colour: 'deliver' },
  { label: 'Deliver, auto ack', field: 'message_stats.deliver_no_ack', colour: 'autoack' },
  { label: 'Acknowledge', field: 'message_stats.ack', colour: 'ack' },
  { label: 'Redelivered', field: 'message_stats.redeliver', colour: 'redeliver' },
  { label: 'Get', field: 'message_stats.get', colour: 'get' },
];

export const title = ({ name }) => name;

export async function render(view, { vhost, name }) {
  const where = path('queues', vhost, name);
  const kept = cluster.overview.sample_retention_policies?.basic;
  const shown = parts(view, vhost, name, kept);
  fill(view.body, shown.all);
  await view.every(async () => {
    const params = rangeParams('queue', ['lengths', 'msg_rates', 'data_rates'], kept);
    const [queue] = await Promise.all([get(where, { params, signal: view.signal }), shown.bindings.refresh()]);
    show(shown, queue);
    if (isMirrored(queue)) await showRing(view, shown, queue);
    shown.ringSection.hidden = !isMirrored(queue);
  });
}

function parts(view, vhost, name, kept) {
  const head = h('.page-marks');
  const lengths = new Chart({ id: 'queue.lengths', title: 'Queued messages', kind: 'count', series: LENGTHS });
  const rates = new Chart({ id: 'queue.rates', title: 'Message rates', kind: 'rate', series: QUEUE_RATES });
  const details = liveFacts();
  const counts = h('.counts');
  const consumers = consumersTable();
  const bindings = bindingsList(view, `${path('queues', vhost, name)}/bindings`, 'source');
  const ring = new RingPanel(view, vhost, name);
  const ringSection = section('queue.ring', 'Ring', {}, ring.element);
  ringSection.hidden = true;
  const picker = rangePicker('queue', kept, () => view.refresh());
  const purge = button('Purge messages', () => purgeQueue(view, vhost, name), { danger: true });
  const remove = button('Delete queue', () => deleteQueue(view, vhost, name), { danger: true });
  const all = [
    h('header.page-head', null, h('h1', null, h('span.page-kind', null, 'Queue'), ' ', h('span.name', null, name)), head),
    h('.page-columns', null,
      section('queue.charts', 'Messages', { tools: picker }, h('.charts', null, lengths.element, rates.element)), ringSection),
    section('queue.details', 'Details', {}, details.element, counts),
    section('queue.consumers', 'Consumers', {}, consumers.element),
    section('queue.bindings', 'Bindings', {}, bindings.element, section('queue.bind', 'Add a binding', { isOpen: false }, bindQueueForm(view, vhost, name))),
    section('queue.publish', 'Publish a message', { isOpen: false }, publishForm(view, vhost, '', name)),
    section('queue.get', 'Get messages', { isOpen: false }, messageBrowser(view, vhost, name)),
    section('queue.replay', 'Replay dead letters', { isOpen: false }, replayForm(view, vhost, name)),
    section('queue.danger', 'Purge, delete', { isOpen: false }, h('.danger-buttons', null, purge, remove)),
  ];
  return { all, head, lengths, rates, details, counts, consumers, bindings, ring, ringSection };
}

function show(shown, queue) {
  patch(shown.head, marks(queue));
  shown.lengths.update(queue);
  shown.rates.update(queue);
  shown.details(detailsOf(queue));
  patch(shown.counts, countsTable(queue));
  shown.consumers.update(queue.consumer_details ?? []);
}

async function showRing(view, shown, queue) {
  const options = { signal: view.signal, quiet: true };
  const [ring, events] = await Promise.all([
    getIfAny(path('mirroring', 'rings', queue.vhost, queue.name), options),
    getIfAny('mirroring/events', { ...options, params: { vhost: queue.vhost, name: queue.name } }),
  ]);
  shown.ringSection.hidden = false;
  const own = eventsOf(newestFirst(events), queue.vhost, queue.name);
  shown.ring.update(ring ?? ringOf(queue), own);
  for (const chart of [shown.lengths, shown.rates]) chart.mark(masterChanges(own));
}

function marks(queue) {
  return [
    queueState(queue), ' ',
    h('span', null, h('span.quiet', null, 'in '), link.vhost(queue.vhost)), ' ',
    badge(queue.type ?? 'classic'), ' ',
    queue.durable ? badge('durable') : badge('transient', 'warn'), ' ',
    queue.auto_delete && badge('auto delete'), ' ',
    queue.exclusive && badge('exclusive'),
  ];
}

function detailsOf(queue) {
  const effective = queue.effective_policy_definition;
  const owner = queue.owner_pid_details;
  const head = queue.head_message_timestamp;
  return [
    ['Node', link.node(queue.node)],
    ['Policy', queue.policy ? link.policy(queue.vhost, queue.policy) : null],
    ['Operator policy', queue.operator_policy || null],
    ['Effective policy', argumentList(effective)],
    ['Arguments', argumentList(queue.arguments)],
    ['Consumers', number(queue.consumers)],
    ['Consumer capacity', percent(queue.consumer_capacity ?? queue.consumer_utilisation), 'How much of the time the queue could hand messages to consumers at once'],
    ['Memory', bytes(queue.memory)],
    queue.messages_dlx === undefined ? null : ['Dead letters that wait', number(queue.messages_dlx), 'They stay in the queue until each target has them'],
    queue.messages_delayed === undefined ? null : ['Waiting to be retried', number(queue.messages_delayed), 'Returned by clients, and ready again later'],
    head ? ['Oldest message', ago(head * 1000, Date.now()), 'By its timestamp property'] : null,
    queue.idle_since ? ['Idle for', duration(Date.now() - Date.parse(queue.idle_since))] : null,
    queue.exclusive_consumer_tag ? ['Exclusive consumer', queue.exclusive_consumer_tag] : null,
    queue.single_active_consumer_tag ? ['Active consumer', queue.single_active_consumer_tag] : null,
    owner?.name ? ['Owner', link.connection(owner.name)] : null,
  ];
}

function countsTable(queue) {
  const kinds = [['Total', ''], ['Ready', '_ready'], ['Unacked', '_unacknowledged'], ['In memory', '_ram'],
    ['Persistent', '_persistent'], ['Paged out', '_paged_out']];
  const row = (label, base, write) => h('tr', null, h('th', { scope: 'row' }, label),
    kinds.map(([title, end]) => h('td.number', { 'data-label': title }, write(queue[`${base}${end}`]))));
  return h('.table-frame', null, h('table.table.compact', null,
    h('thead', null, h('tr', null, h('th', { scope: 'col' }, hidden('What')), kinds.map(([label]) => h('th.number', { scope: 'col' }, label)))),
    h('tbody', null, row('Messages', 'messages', number), row('Body bytes', 'message_bytes', bytes))));
}

