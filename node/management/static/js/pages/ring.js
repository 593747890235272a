/** The ring of one queue on a page of its own: the drawing, its copies, and its events. */

import { get, getIfAny, path } from '../api.js';
import { a, append, h, patch } from '../dom.js';
import { eventsOf, newestFirst } from '../mirror_events.js';
import { link, section } from '../parts.js';
import { RingPanel, eventList, isMirrored, ringOf } from '../ring_panel.js';
import { to } from '../router.js';

export const title = ({ name }) => `Ring of ${name}`;

export async function render(view, { vhost, name }) {
  const panel = new RingPanel(view, vhost, name);
  const happened = h('.ring-events');
  const none = h('p.empty', { hidden: true }, 'This queue is not mirrored.');
  append(view.body,
    h('header.page-head', null, h('h1', null, h('span.page-kind', null, 'Ring'), ' ', h('span.name', null, name)),
      h('.page-marks', null, h('span', null, h('span.quiet', null, 'in '), link.vhost(vhost)), ' ', a(to.queue(vhost, name), 'The queue’s page'))),
    section('ring.ring', 'Ring', {}, none, panel.element),
    section('ring.events', 'What happened', {}, happened));
  await view.every(async () => {
    const { signal } = view;
    const queue = await get(path('queues', vhost, name), { signal });
    const [ring, events] = await Promise.all([
      getIfAny(path('mirroring', 'rings', vhost, name), { signal, quiet: true }),
      getIfAny('mirroring/events', { signal, quiet: true, params: { vhost, name } }),
    ]);
    const own = eventsOf(newestFirst(events), vhost, name);
    none.hidden = isMirrored(queue);
    panel.element.hidden = !isMirrored(queue);
    panel.update(ring ?? ringOf(queue), []);
    patch(happened, eventList(own, { isOfOne: true }));
  });
}
