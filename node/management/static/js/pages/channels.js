/** All channels: modes, unacknowledged and unconfirmed messages, rates. */

import { isClustered, showsVhosts } from '../cluster.js';
import { nodeColumn, rateColumn, userColumn, vhostColumn } from '../columns.js';
import { append, h } from '../dom.js';
import { NOTHING, number, time } from '../format.js';
import { badge, link, state } from '../parts.js';
import { PagedList } from '../table.js';

export const title = 'Channels';

export async function render(view) {
  const list = new PagedList(view, {
    id: 'channels',
    noun: 'channel',
    path: 'channels',
    columns: columns(view.vhost),
    fields: ['name', 'vhost'],
    key: (row) => row.name,
    empty: 'No channels are open.',
  });
  view.turn = (by) => list.turn(by);
  append(view.body, h('.page-head', null, h('h1', null, 'Channels')), list.element);
  await view.every(() => list.refresh());
}

const TONES = { running: 'good', flow: 'warn', closing: 'warn' };

function channelState(row) {
  if (row.idle_since) return state('idle', 'quiet', `since ${time(row.idle_since)}`);
  return state(row.state ?? NOTHING, TONES[row.state] ?? 'quiet');
}

function mode(row) {
  return h('span.marks', null, row.confirm && badge('C', 'info', 'Confirms'), row.transactional && badge('T', 'info', 'Transactional'));
}

/** 0 of a prefetch count is no limit. */
function prefetch(row) {
  const parts = [row.prefetch_count > 0 && number(row.prefetch_count), row.global_prefetch_count > 0 && `${number(row.global_prefetch_count)} (global)`];
  return parts.filter(Boolean).join(', ') || h('span.quiet', { title: 'No limit' }, '∞');
}

function count(id, name, field, extra = {}) {
  const cell = (row) => (row[field] === 0 ? h('span.quiet', null, '0') : number(row[field]));
  return { id, title: name, number: true, sort: field, fields: [field], group: 'Messages', cell, ...extra };
}

function columns(vhost) {
  return [
    { id: 'name', title: 'Channel', sort: 'name', fields: ['name'], cell: (row) => link.channel(row.name) },
    ...(showsVhosts(vhost) ? [vhostColumn()] : []),
    ...(isClustered() ? [nodeColumn()] : []),
    userColumn(),
    { id: 'mode', title: 'Mode', fields: ['confirm', 'transactional'], cell: mode },
    { id: 'state', title: 'State', sort: 'state', fields: ['state', 'idle_since'], cell: channelState },
    count('consumers', 'Consumers', 'consumer_count', { off: true }),
    { id: 'prefetch', title: 'Prefetch', number: true, sort: 'prefetch_count', fields: ['prefetch_count', 'global_prefetch_count'], cell: prefetch },
    count('unconfirmed', 'Unconfirmed', 'messages_unconfirmed'),
    count('unacked', 'Unacked', 'messages_unacknowledged'),
    count('uncommitted', 'Uncommitted', 'messages_uncommitted', { off: true }),
    count('acks-uncommitted', 'Uncommitted acks', 'acks_uncommitted', { off: true }),
    rateColumn('publish', 'Publish', 'message_stats.publish_details.rate'),
    rateColumn('confirm', 'Confirm', 'message_stats.confirm_details.rate'),
    rateColumn('drop', 'Unroutable (drop)', 'message_stats.drop_unroutable_details.rate', { off: true }),
    rateColumn('return', 'Unroutable (return)', 'message_stats.return_unroutable_details.rate', { off: true }),
    rateColumn('deliver', 'Deliver / get', 'message_stats.deliver_get_details.rate'),
    rateColumn('redelivered', 'Redelivered', 'message_stats.redeliver_details.rate', { off: true }),
    rateColumn('ack', 'Ack', 'message_stats.ack_details.rate'),
  ];
}
