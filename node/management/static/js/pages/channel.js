/** A channel: its rates, its consumers, and the messages that it waits for. */

import { get, path } from '../api.js';
import { Chart, rangeParams, rangePicker } from '../chart.js';
import { cluster } from '../cluster.js';
import { consumersTable } from '../consumers.js';
import { fill, h, patch } from '../dom.js';
import { number, rate } from '../format.js';
import { badge, link, liveFacts, section, state } from '../parts.js';
import { Table } from '../table.js';

const RATES = [
  { label: 'Publish', field: 'message_stats.publish', colour: 'publish' },
  { label: 'Confirm', field: 'message_stats.confirm', colour: 'confirm' },
  { label: 'Deliver', field: 'message_stats.deliver', colour: 'deliver' },
  { label: 'Deliver, auto ack', field: 'message_stats.deliver_no_ack', colour: 'autoack' },
  { label: 'Acknowledge', field: 'message_stats.ack', colour: 'ack' },
  { label: 'Redelivered', field: 'message_stats.redeliver', colour: 'redeliver' },
  { label: 'Get', field: 'message_stats.get', colour: 'get' },
  { label: 'Unroutable', field: 'message_stats.return_unroutable', colour: 'drop' },
];

export const title = ({ name }) => name;

export async function render(view, { name }) {
  const where = path('channels', name);
  const kept = cluster.overview.sample_retention_policies?.basic;
  const head = h('.page-marks');
  const chart = new Chart({ id: 'channel.rates', title: 'Message rates', kind: 'rate', series: RATES });
  const details = liveFacts();
  const consumers = consumersTable(true);
  const flows = flowsTables();
  fill(view.body,
    h('header.page-head', null, h('h1', null, h('span.page-kind', null, 'Channel'), ' ', h('span.name', null, name)), head),
    section('channel.charts', 'Messages', { tools: rangePicker('channel', kept, () => view.refresh()) }, h('.charts', null, chart.element)),
    section('channel.details', 'Details', {}, details.element),
    section('channel.consumers', 'Consumers', {}, consumers.element),
    flows.element);
  await view.every(async () => {
    const channel = await get(where, { params: rangeParams('channel', ['msg_rates'], kept), signal: view.signal });
    patch(head, marks(channel));
    chart.update(channel);
    details(detailsOf(channel));
    consumers.update(channel.consumer_details ?? []);
    flows.update(channel);
  });
}

function marks(channel) {
  return [
    channel.idle_since ? state('idle') : state(channel.state ?? 'running', channel.state === 'flow' ? 'warn' : 'good'), ' ',
    channel.confirm && badge('publisher confirms', 'info'), ' ',
    channel.transactional && badge('transactional', 'info'),
  ];
}

function detailsOf(channel) {
  const connection = channel.connection_details?.name;
  return [
    ['Connection', connection ? link.connection(connection) : null],
    ['Node', channel.node ? link.node(channel.node) : null],
    ['Virtual host', channel.vhost === undefined ? null : link.vhost(channel.vhost)],
    ['User', channel.user === undefined ? null : link.user(channel.user)],
    ['Consumers', number(channel.consumer_count)],
    ['Prefetch of each consumer', channel.prefetch_count ? number(channel.prefetch_count) : 'no limit'],
    ['Prefetch of the channel', channel.global_prefetch_count ? number(channel.global_prefetch_count) : 'no limit'],
    ['Unacknowledged', number(channel.messages_unacknowledged), 'Delivered, not acknowledged by the client yet'],
    ['Unconfirmed', number(channel.messages_unconfirmed), 'Published, not confirmed to the client yet'],
    channel.transactional ? ['Uncommitted messages', number(channel.messages_uncommitted)] : null,
    channel.transactional ? ['Uncommitted acks', number(channel.acks_uncommitted)] : null,
  ];
}

/** The rates by exchange and by queue; only where the server counts in detail. */
function flowsTables() {
  const publishes = new Table({
    key: (row) => JSON.stringify(row.exchange),
    caption: 'publishes',
    columns: [
      { id: 'exchange', title: 'Exchange', cell: (row) => link.exchange(row.exchange.vhost, row.exchange.name) },
      { id: 'publish', title: 'Publish', number: true, cell: (row) => rate(row.stats?.publish_details?.rate) },
      { id: 'confirm', title: 'Confirm', number: true, cell: (row) => rate(row.stats?.confirm_details?.rate) },
    ],
  });
  const deliveries = new Table({
    key: (row) => JSON.stringify(row.queue),
    caption: 'deliveries',
    columns: [
      { id: 'queue', title: 'Queue', cell: (row) => link.queue(row.queue.vhost, row.queue.name) },
      { id: 'deliver', title: 'Deliver / get', number: true, cell: (row) => rate(row.stats?.deliver_get_details?.rate) },
      { id: 'ack', title: 'Ack', number: true, cell: (row) => rate(row.stats?.ack_details?.rate) },
    ],
  });
  const element = section('channel.flows', 'Exchanges and queues', {}, h('h3', null, 'Publishes to'), publishes.element, h('h3', null, 'Gets from'), deliveries.element);
  const update = (channel) => {
    publishes.update(channel.publishes ?? []);
    deliveries.update(channel.deliveries ?? []);
    element.hidden = !channel.publishes?.length && !channel.deliveries?.length;
  };
  return { element, update };
}
