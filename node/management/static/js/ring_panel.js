/** The ring of one queue with what goes with it: copies and how far they are, synchronise and cancel, last events. */

import { path, post } from './api.js';
import { can } from './auth.js';
import { cluster } from './cluster.js';
import { attempt, confirm, toast } from './dialog.js';
import { fill, h, patch } from './dom.js';
import { clock, plural, time } from './format.js';
import { KIND_NAMES, eventText, eventTone } from './mirror_events.js';
import { badge, button, link } from './parts.js';
import { copiesOf, drawRing, membersOf } from './ring.js';

const EVENTS_SHOWN = 6;
const MIRRORS = new Set(['synced', 'syncing', 'behind', 'joining']);
const TONES = { master: 'info', synced: 'good', syncing: 'warn', joining: 'warn', behind: 'warn', down: 'bad', absent: 'quiet' };

/** Names of the nodes that run; null for users who may not see nodes. */
export function runningNodes() {
  return cluster.nodes.length ? cluster.nodes.filter((node) => node.running !== false).map((node) => node.name) : null;
}

/** Is a queue of /api/queues mirrored? */
export function isMirrored(queue) {
  return Array.isArray(queue.slave_nodes);
}

/** A row as of /api/mirroring/rings, out of what a queue of /api/queues says, where there is none. */
export function ringOf(queue) {
  const mirrors = queue.mirrors ?? [];
  const syncs = mirrors.filter((mirror) => mirror.sync).map((mirror) => [mirror.node, mirror.sync]);
  return {
    vhost: queue.vhost,
    name: queue.name,
    master: queue.node,
    mirrors: queue.slave_nodes ?? [],
    synchronised: queue.synchronised_slave_nodes ?? [],
    ring: [queue.node, ...(queue.slave_nodes ?? [])],
    lag: Object.fromEntries(mirrors.map((mirror) => [mirror.node, mirror.behind])),
    lacks: Object.fromEntries(mirrors.map((mirror) => [mirror.node, mirror.lacks])),
    messages: queue.messages,
    sync: Object.fromEntries(syncs),
    state: queue.state,
  };
}

export class RingPanel {
  /** @param {object} view @param {string} vhost @param {string} name of the queue */
  constructor(view, vhost, name) {
    this.view = view;
    this.where = path('queues', vhost, name, 'actions');
    this.name = name;
    this.master = null;
    this.drawing = h('.ring-frame');
    this.copies = h('.ring-copies');
    this.events = h('.ring-events');
    this.element = h('.ring-panel', null, this.drawing, h('.ring-side', null, this.copies, this.tools()), this.events);
  }

  tools() {
    this.sync = button('Synchronise', () => this.act('sync', 'Synchronisation asked for'), { small: true, primary: true });
    this.cancel = button('Cancel synchronisation', () => this.act('cancel_sync', 'Synchronisation cancelled'), { small: true });
    return can('administrator') ? h('.ring-tools', null, this.sync, this.cancel) : null;
  }

  async act(action, done) {
    const text = 'Its clients go on meanwhile; a busy queue is slower for that time.';
    if (action === 'sync' && !(await confirm({ title: `Synchronise ${this.name}?`, text, action: 'Synchronise', danger: false }))) return;
    if (await attempt(() => post(this.where, { action }), done)) await this.view.refresh();
  }

  /** The button that makes a mirror the master; all mirrors have it, so that users find it. */
  moveButton({ node, role }) {
    if (!can('administrator') || !MIRRORS.has(role)) return null;
    const isReady = role === 'synced';
    const element = button('Make master', () => this.move(node), {
      small: true, hint: isReady ? `Make the mirror on ${node} the master` : 'This mirror does not have all messages yet',
    });
    element.setAttribute('aria-label', `Make ${node} the master`);
    element.disabled = !isReady;
    return element;
  }

  async move(node) {
    const text = 'Its clients stay connected and the queue pauses for a moment. The former master stays as a mirror.';
    if (!(await confirm({ title: `Make ${node} the master of ${this.name}?`, text, action: 'Make it the master', danger: false }))) return;
    if (await attempt(() => post(this.where, { action: 'move', node }))) await this.view.refresh();
  }

  /** @param {object} ring @param {object[]} events those of this queue, newest first */
  update(ring, events) {
    const running = runningNodes();
    const members = membersOf(ring, running);
    if (this.master && ring.master && ring.master !== this.master) {
      toast(`The master is now on ${ring.master} (was on ${this.master})`, 'warn');
    }
    this.master = ring.master || this.master;
    const drawing = drawRing(ring, running);
    if (!this.drawing.firstChild?.isEqualNode(drawing)) fill(this.drawing, drawing);
    patch(this.copies, copyList(members, ring.wanted, (member) => this.moveButton(member)));
    const isSyncing = members.some(({ role }) => role === 'syncing');
    this.sync.hidden = isSyncing || !members.some(({ role }) => role === 'behind' || role === 'joining');
    this.cancel.hidden = !isSyncing;
    this.events.hidden = events.length === 0;
    patch(this.events, eventList(events.slice(0, EVENTS_SHOWN), { isOfOne: true }));
  }
}

function copyList(members, wanted, moveButton) {
  const { complete, all } = copiesOf(members, wanted);
  const safe = all === 1 ? badge('no mirror: lost with its node', 'bad')
    : complete === 1 ? badge('no synchronised mirror', 'bad')
      : complete < all ? badge(`${complete} of ${all} copies complete`, 'warn') : badge(plural(all, 'complete copy', 'complete copies'), 'good');
  const rows = members.map((member) => h(`li.is-${member.role}`, null,
    member.node ? link.node(member.node) : h('span.quiet', null, 'any node'),
    h('span.copy-marks', null, badge(member.text, TONES[member.role]), moveButton(member))));
  return h('div', null, h('p.ring-safety', null, safe), h('ol.copies', { 'aria-label': 'Copies in ring order' }, rows));
}

/** The badge with the kind of an event. */
export function kindBadge(event) {
  return badge(KIND_NAMES[event.kind] ?? event.kind, eventTone(event));
}

/** Events of rings, newest first. `isOfOne`: all are of the queue that the page is about. */
export function eventList(events, { isOfOne = false } = {}) {
  if (!events.length) return h('p.quiet', null, 'No recent events.');
  return h('ol.events', null, events.map((event) => h('li', null,
    h('time', null, isOfOne ? time(event.time) : clock(event.time)), ' ',
    kindBadge(event), ' ',
    !isOfOne && [link.queue(event.vhost, event.name), ' '],
    h('span', { title: event.text }, eventText(event)))));
}
