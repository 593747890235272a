/** Small parts that pages are made of: sections, facts, badges, meters, links to things. */

import { a, fill, h, icon, patch } from './dom.js';
import { NOTHING, cut, exchangeName, json } from './format.js';
import { pref, setPref } from './prefs.js';
import { to } from './router.js';

/**
 * A section that folds; whether it is open is remembered under `id`.
 *
 * @param {string} id of letters, unique in the whole UI: `queue.consumers`
 * @param {string} title
 * @param {{isOpen?: boolean, tools?: Node}} options tools: controls at the right of the title
 */
export function section(id, title, { isOpen = true, tools = null } = {}, ...children) {
  const body = h('.section-body', null, children);
  const details = h('details.section', { open: pref(`section.${id}`, isOpen), 'data-section': id },
    h('summary', null, h('h2', null, title)), body);
  details.addEventListener('toggle', () => setPref(`section.${id}`, details.open === isOpen ? undefined : details.open));
  return tools ? h('.section-with-tools', null, details, h('.section-tools', null, tools)) : details;
}

/** Names and values: `facts([['Durable', yes(true)], …])`; entries that are null are left out. Give it to `patch` or `fill`. */
export function facts(entries) {
  return h('dl.facts', null, entries.filter(Boolean).map(([name, value, hint]) =>
    h('.fact', null, h('dt', { title: hint }, name), h('dd', null, value ?? NOTHING))));
}

/** Facts that are told anew at each refresh: `const show = liveFacts(); show.element; show([…])`. */
export function liveFacts() {
  const element = h('.facts-frame');
  const show = (entries) => patch(element, facts(entries));
  show.element = element;
  return show;
}

/** A short mark. `tone`: good, bad, warn, info, quiet. */
export function badge(text, tone = 'quiet', hint = null) {
  return h(`span.badge.is-${tone}`, { title: hint }, text);
}

/** A dot and a word: `state('running', 'good')`. */
export function state(text, tone = 'quiet', hint = null) {
  return h(`span.state.is-${tone}`, { title: hint }, h('span.dot', { 'aria-hidden': 'true' }), text);
}

export function yesNo(value) {
  return value ? 'yes' : 'no';
}

/** A bar with text: how much of `most` is used; from `alarm` (0..1) on it is red. */
export function meter(used, most, text, { alarm = 0.9, isAlarm = false, hint = null } = {}) {
  const share = most > 0 && used >= 0 ? Math.min(1, used / most) : 0;
  const tone = isAlarm || share >= alarm ? 'is-bad' : share >= alarm * 0.8 ? 'is-warn' : 'is-good';
  const bar = h('span.meter-bar', { style: { width: `${(share * 100).toFixed(1)}%` } });
  return h(`span.meter.${tone}`, { title: hint }, h('span.meter-track', { 'aria-hidden': 'true' }, bar), h('span.meter-text', null, text));
}

/** A number with its name, large. */
export function tile(label, value, { href = null, hint = null, tone = '' } = {}) {
  const inner = [h('b', null, value), h('span', null, label)];
  const spec = tone ? `.tile.is-${tone}` : '.tile';
  return href ? h(`a${spec}`, { href, title: hint }, inner) : h(`div${spec}`, { title: hint }, inner);
}

/** JSON arguments, each as a small entry. */
export function argumentList(table) {
  const entries = Object.entries(table ?? {});
  if (!entries.length) return h('span.quiet', null, NOTHING);
  return h('ul.arguments', null, entries.map(([name, value]) =>
    h('li', null, h('span.argument-name', null, name), ' ', h('code', null, json(value)))));
}

/** Names of things as links to their pages. */
export const link = {
  queue: (vhost, name) => named(to.queue(vhost, name), name),
  exchange: (vhost, name) => named(to.exchange(vhost, name), exchangeName(name)),
  connection: (name, label = name) => named(to.connection(name), label),
  channel: (name, label = name) => named(to.channel(name), label),
  vhost: (name) => named(to.vhost(name), name),
  user: (name) => named(to.user(name), name),
  node: (name, label = name) => named(to.node(name), label, name),
  policy: (vhost, name) => named(to.policy(vhost, name), name),
};

function named(hash, name, hint = null) {
  const text = name === '' ? '(no name)' : name;
  const shown = cut(text, 90);
  const element = a(hash, shown);
  element.classList.add('name');
  if (shown !== text || hint) element.title = hint ?? text;
  return element;
}

/** A button; `onclick` may be async: while it runs the button is off. */
export function button(label, onclick, { danger = false, primary = false, small = false, symbol = null, hint = null } = {}) {
  const classes = [danger && 'is-danger', primary && 'is-primary', small && 'small'].filter(Boolean).join(' ');
  const element = h('button.button', { type: 'button', class: classes, title: hint }, symbol && icon(symbol), label);
  element.addEventListener('click', async () => {
    element.disabled = true;
    try {
      await onclick();
    } finally {
      element.disabled = false;
    }
  });
  return element;
}

/** The notice of a page whose object is gone. */
export function notFound(view, what) {
  fill(view.body, h('.notice', null, h('h1', null, 'Not found'), h('p', null, what)));
}
