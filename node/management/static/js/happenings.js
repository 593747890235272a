/** What happened to rings, as /api/mirroring/events tells it: which of it is about a queue, in words, in charts. Pure. */

const PREFIX = /^Mirrored queue '.*?' in vhost '.*?': /s;
const MARKS = { promotion: 'failover', transfer: 'moved', revived: 'back' };

/** Events newest first, whatever order the server has. */
export function newestFirst(events) {
  return [...(events ?? [])].sort((one, other) => (other.time ?? 0) - (one.time ?? 0));
}

/** Those of one queue. */
export function eventsOf(events, vhost, name) {
  return events.filter((event) => event.vhost === vhost && event.name === name);
}

/** What happened: `n2@host took over from n1@host`, or the log's words. */
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
