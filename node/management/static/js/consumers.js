/** Consumers of a queue or a channel, in a table. */

import { h } from './dom.js';
import { number } from './format.js';
import { argumentList, badge, link, state, yesNo } from './parts.js';
import { Table } from './table.js';

const TONES = { up: 'good', single_active: 'good', waiting: 'quiet', suspected_down: 'bad' };

/** @param {boolean} showsQueue the queue of each instead of its channel: for a channel's page */
export function consumersTable(showsQueue = false) {
  const of = showsQueue
    ? { id: 'queue', title: 'Queue', cell: (row) => link.queue(row.queue.vhost, row.queue.name) }
    : { id: 'channel', title: 'Channel', cell: (row) => (row.channel_details?.name ? link.channel(row.channel_details.name) : '–') };
  return new Table({
    key: (row) => JSON.stringify([row.channel_details?.name, row.queue, row.consumer_tag]),
    caption: 'consumers',
    empty: 'No consumers.',
    columns: [
      of,
      { id: 'tag', title: 'Consumer tag', cell: (row) => h('code', null, row.consumer_tag) },
      { id: 'activity', title: 'State', cell: (row) => state(row.activity_status ?? 'up', TONES[row.activity_status ?? 'up'] ?? 'quiet') },
      { id: 'ack', title: 'Acknowledges', cell: (row) => yesNo(row.ack_required) },
      { id: 'exclusive', title: 'Exclusive', cell: (row) => (row.exclusive ? badge('exclusive', 'info') : 'no') },
      { id: 'prefetch', title: 'Prefetch', number: true, cell: (row) => (row.prefetch_count ? number(row.prefetch_count) : 'no limit') },
      { id: 'arguments', title: 'Arguments', cell: (row) => argumentList(row.arguments) },
    ],
  });
}
