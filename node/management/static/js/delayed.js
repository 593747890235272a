/** Messages that wait in a delayed exchange: when each is due, what it is, and a button that cancels it. */

import { del, get, path } from './api.js';
import { attempt, confirm } from './dialog.js';
import { fill, h } from './dom.js';
import { bytes, cut, json, time } from './format.js';
import { button } from './parts.js';

const COUNT = 50; // messages of a page
const PAYLOAD = 200; // bytes of each payload

/** The list: empty until it is asked for, as a page may come from disk. */
export function delayedList(view, vhost, exchange) {
  const results = h('.messages', { 'aria-live': 'polite' });
  const where = path('exchanges', vhost, exchange, 'delayed');
  const look = async (from) => {
    const params = { from, count: COUNT, truncate: PAYLOAD };
    await attempt(async () => show(results, await get(where, { params, signal: view.signal }), from, actions));
  };
  const cancel = async (id, from) => {
    const text = 'It will not go out, and nobody is told.';
    if (!(await confirm({ title: `Cancel message ${id}?`, text, action: 'Cancel the message' }))) return;
    await attempt(() => del(path('exchanges', vhost, exchange, 'delayed', String(id))), 'Cancelled');
    await look(from);
    await view.refresh();
  };
  const actions = { look, cancel };
  const note = h('p.hint', null, 'Messages are listed in the order in which they came.');
  return h('div', null, h('.form-buttons', null, button('Show messages', () => look(0))), note, results);
}

function show(results, { messages, next }, from, { look, cancel }) {
  if (!messages.length) {
    fill(results, h('p.empty', null, from ? 'There are no more messages.' : 'No message waits.'),
      from ? button('Back to the first', () => look(0), { small: true }) : null);
    return;
  }
  const head = h('tr', null, ['Id', 'Due', 'Routing key', 'Size', 'Properties', 'Payload', ''].map((text) => h('th', null, text)));
  const rows = messages.map((message) => h('tr', null,
    h('td', null, String(message.id)),
    h('td', null, time(message.due)),
    h('td', null, cut(message.routing_key, 60)),
    h('td', null, bytes(message.payload_bytes)),
    h('td', null, h('code', null, cut(json(message.properties), 200))),
    h('td', null, h('code', null, cut(message.payload, PAYLOAD))),
    h('td', null, button('Cancel', () => cancel(message.id, from), { danger: true, small: true, hint: `Message ${message.id} will not go out` }))));
  const pager = h('nav.pages', { 'aria-label': 'Messages' },
    from ? button('Back to the first', () => look(0), { small: true }) : null,
    next === null ? null : button('Next', () => look(next), { small: true }));
  fill(results, h('.table-frame', null, h('table.table.compact', null, h('thead', null, head), h('tbody', null, rows))), pager);
}
