/** Looking into the messages of a queue: the properties of each, and its payload as text, JSON, hexadecimal or base64. */

import { get, path, post } from './api.js';
import { attempt, confirm } from './dialog.js';
import { fill, h } from './dom.js';
import { field, form, select } from './form.js';
import { bytes, exchangeName, json, number, plural } from './format.js';
import { badge, button, link } from './parts.js';
import { HEX_MAX, base64Of, bytesOf, hexDump, prettyJson, textOf } from './payload.js';

const CUT_BYTES = 64 * 1024; // of each payload, unless all of it is asked for
const WHOLE_BYTES = 1024 * 1024; // of each payload at most, when nothing is to change
const TEXT_MAX = 256 * 1024; // characters shown at once: more would make the browser slow
const LOOK_MAX = 1000; // messages that paging goes into a queue: each page takes all before it out and puts them back

const BROWSE = 'browse';
const MODES = [
  [BROWSE, 'Look: nothing changes'],
  ['ack_requeue_true', 'Look: they stay'],
  ['reject_requeue_true', 'Look: reject and requeue'],
  ['ack_requeue_false', 'Take them out'],
  ['reject_requeue_false', 'Reject: drop or dead-letter'],
];

/** The browser: a form, and below it the messages that came. */
export function messageBrowser(view, vhost, queue) {
  const results = h('.messages', { 'aria-live': 'polite' });
  const where = path('queues', vhost, queue, 'get');
  const fetch = (mode, count, isWhole) =>
    post(where, { count, ackmode: mode, encoding: 'auto', ...(isWhole ? {} : { truncate: CUT_BYTES }) });
  const browse = async (values, before) => {
    const first = before[before.length - 1];
    const worked = await attempt(async () => {
      const params = { first, count: values.count, truncate: values.whole ? WHOLE_BYTES : CUT_BYTES };
      showBrowsed(results, await get(path('queues', vhost, queue, 'messages'), { params }), vhost, {
        skipped: (before.length - 1) * Number(values.count),
        back: before.length > 1 ? () => browse(values, before.slice(0, -1)) : null,
        on: (next) => browse(values, [...before, next]),
      });
    });
    return worked;
  };
  const look = async (values, page) => {
    const size = Number(values.count);
    let messages = [];
    const worked = await attempt(async () => {
      messages = await fetch(values.ackmode, size * page, values.whole);
    });
    if (!worked) return;
    showPage(results, messages, { vhost, size, page, isLook: isLook(values.ackmode), turn: (to) => look(values, to) });
    await view.refresh();
  };
  const whole = h('label.check', null, h('input', { type: 'checkbox', name: 'whole' }), 'Whole payloads');
  const fields = [
    field('What happens to them', select('ackmode', MODES)),
    field('Messages', select('count', ['1', '5', '10', '25', '50', '100'], '10')),
    whole,
  ];
  const note = h('p.hint', null, 'Messages that go back into the queue keep their place and are marked as redelivered.');
  const element = form(fields, 'Get messages', async (values) => {
    if (values.ackmode === BROWSE) {
      await browse(values, [1]);
      return;
    }
    if (!isLook(values.ackmode) && !(await mayTake(queue, values))) return;
    await look(values, 1);
  });
  return h('div', null, element, note, results);
}

const isLook = (mode) => mode === 'ack_requeue_true' || mode === 'reject_requeue_true';

function mayTake(queue, { ackmode, count }) {
  const what = ackmode === 'ack_requeue_false' ? 'taken out of' : 'rejected from';
  const text = `Up to ${plural(Number(count), 'message')} will be ${what} the queue ${queue}, and not come back.`;
  return confirm({ title: 'Remove messages?', text, action: 'Remove them' });
}

function showPage(results, messages, { vhost, size, page, isLook: canTurn, turn }) {
  const first = (page - 1) * size;
  const shown = messages.slice(first);
  if (!shown.length) {
    fill(results, h('p.empty', null, page === 1 ? 'The queue has no messages that are ready.' : 'There are no more messages.'),
      page > 1 && button('Back to the first', () => turn(1), { small: true }));
    return;
  }
  const left = messages[messages.length - 1].message_count;
  const canGoOn = canTurn && left > 0 && size * (page + 1) <= LOOK_MAX;
  const pager = canTurn && h('nav.pages', { 'aria-label': 'Messages' },
    button('Previous', () => turn(page - 1), { small: true, hint: 'Messages nearer to the head' }),
    h('span', null, `${number(first + 1)} – ${number(first + shown.length)}, ${number(left)} behind them`),
    button('Next', () => turn(page + 1), { small: true, hint: 'Messages behind these' }));
  if (pager) {
    pager.firstChild.disabled = page === 1;
    pager.lastChild.disabled = !canGoOn;
  }
  fill(results, pager, shown.map((message, index) => messageCard(vhost, message, first + index)));
}

/** Messages that were only looked at.   turn.skipped: those before them. turn.back, turn.on: show those before and behind. */
function showBrowsed(results, { messages, next }, vhost, turn) {
  const pager = h('nav.pages', { 'aria-label': 'Messages' },
    button('Previous', () => turn.back(), { small: true, hint: 'Messages nearer to the head' }),
    h('span', null, messages.length ? plural(messages.length, 'message') : 'No messages'),
    button('Next', () => turn.on(next), { small: true, hint: 'Messages behind these' }));
  pager.firstChild.disabled = turn.back === null;
  pager.lastChild.disabled = next === null;
  if (!messages.length && turn.back === null) {
    fill(results, h('p.empty', null, 'The queue has no messages that are ready.'));
    return;
  }
  fill(results, pager, messages.map((message, index) => messageCard(vhost, message, turn.skipped + index)));
}

/** A message as a card. `index` counts from 0 at the queue's head. */
function messageCard(vhost, message, index) {
  const { headers, ...properties } = message.properties ?? {};
  return h('article.message', { 'aria-label': `Message ${index + 1}` },
    h('header.message-head', null,
      h('strong', null, `#${number(index + 1)}`),
      h('span', null, h('span.quiet', null, 'from '), message.exchange === '' ? exchangeName('') : link.exchange(vhost, message.exchange)),
      h('span', null, h('span.quiet', null, 'key '), h('code', null, message.routing_key)),
      h('span.quiet', null, bytes(message.payload_bytes)),
      message.redelivered && badge('redelivered', 'warn')),
    pairs('Properties', properties),
    pairs('Headers', headers),
    payloadView(message));
}

function pairs(title, object) {
  const entries = Object.entries(object ?? {});
  if (!entries.length) return null;
  return h('.message-pairs', null, h('h3', null, title),
    h('dl', null, entries.map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, json(value))))));
}

/** The views that fit a payload: [[name, text]], the one to show first at the head. */
function viewsOf(octets, isCut) {
  const text = textOf(octets, isCut);
  const pretty = prettyJson(text);
  return [
    pretty !== null && ['JSON', pretty],
    text !== null && ['Text', text],
    ['Hex', hexDump(octets)],
    ['Base64', base64Of(octets)],
  ].filter(Boolean);
}

function payloadView(message) {
  if (message.payload_bytes === 0) return h('p.quiet', null, 'The payload is empty.');
  const octets = bytesOf(message.payload, message.payload_encoding);
  const isCut = octets.length < message.payload_bytes;
  const views = viewsOf(octets, isCut);
  const body = h('pre.payload', { tabindex: 0, 'aria-label': 'Payload' });
  const note = h('p.hint');
  const show = (chosen) => {
    const [name, text] = views[chosen];
    buttons.forEach((one, index) => one.setAttribute('aria-pressed', String(index === chosen)));
    fill(body, text.slice(0, TEXT_MAX));
    note.hidden = !(isCut || text.length > TEXT_MAX || (name === 'Hex' && octets.length > HEX_MAX));
    fill(note, `Not all of it is shown: the payload has ${bytes(message.payload_bytes)}.`);
  };
  const buttons = views.map(([name], index) => h('button.view-tab', { type: 'button', onclick: () => show(index) }, name));
  show(0);
  return h('.payload-frame', null, h('.view-tabs', { role: 'group', 'aria-label': 'View of the payload' }, buttons), body, note);
}
