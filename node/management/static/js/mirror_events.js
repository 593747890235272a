/** Events of rings from /api/mirroring/events: those of one queue, their texts, their marks in charts. Pure. */

const PREFIX = /^Mirrored queue '.*?' in vhost '.*?': /s;
const REPAIRS = new Set(['mirror-added', 'mirror-synchronised', 'fully-replicated', 'sync-begun', 'sync-ended']);
const MARKS = { promotion: 'failover', transfer: 'moved', revived: 'back' };

/** Events newest first, whatever order the server has. */
export function newestFirst(events) {
  return [...(events ?? [])].sort((one, other) => (other.time ?? 0) - (one.time ?? 0));
}

/** Those of one queue. */
export function eventsOf(events, vhost, name) {
  return events.filter((event) => event.vhost === vhost && event.name === name);
}

/** True unless the event only says that a queue gets its copies back. */
export function isNews(event) {
  return !REPAIRS.has(event.kind);
}

/** The text of an event: `n2@host took over from n1@host`, or the log's words. */
export function eventText(event) {
  const isMasterChange = event.former && event.node && event.kind !== 'data-loss-possible';
  if (isMasterChange) return `${event.node} took over from ${event.former}`;
  return String(event.text ?? event.node ?? '').replace(PREFIX, '');
}

/** When a queue had another master, for `Chart.mark`: [{time s, label}], the oldest first. */
export function masterChanges(events) {
  const found = events.filter((event) => MARKS[event.kind] && event.time);
  return newestFirst(found).reverse().map((event) => ({ time: event.time / 1000, label: MARKS[event.kind] }));
}

/** Names of the kinds of events; other kinds are shown as they are. */
export const KIND_NAMES = {
  promotion: 'Failover',
  transfer: 'Moved',
  revived: 'Back',
  'leader-lost': 'Master lost',
  'mirror-added': 'Joined',
  'mirror-lost': 'Mirror lost',
  'mirror-dropped': 'Dropped',
  'mirror-slow': 'Slow',
  'copy-given-up': 'Given up',
  'mirror-synchronised': 'Synchronised',
  'sync-begun': 'Synchronising',
  'data-loss-possible': 'Data loss possible',
  'sync-ended': 'Synchronisation ended',
  'fully-replicated': 'Complete',
};
const LEVELS = { info: 'info', warning: 'warn', error: 'bad' };

/** The tone of an event's badge. */
export function eventTone(event) {
  if (event.kind === 'promotion') return 'warn';
  return event.kind === 'mirror-synchronised' ? 'good' : LEVELS[event.level] ?? 'quiet';
}
