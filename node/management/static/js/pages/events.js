/** Events of all mirrored queues: failovers, lost mirrors, repairs; filtered by kind and by name. */

import { get } from '../api.js';
import { showsVhosts } from '../cluster.js';
import { append, h } from '../dom.js';
import { select } from '../form.js';
import { number, time } from '../format.js';
import { KIND_NAMES, eventText, isNews, newestFirst } from '../mirror_events.js';
import { link } from '../parts.js';
import { kindBadge } from '../ring_panel.js';
import { PagedList } from '../table.js';

const NEWS = 'news';

export const title = 'Events';

export async function render(view) {
  const list = new PagedList(view, {
    id: 'events',
    noun: 'event',
    rows: () => rows(view),
    key: (row) => row.key,
    nameOf: (row) => `${row.name} ${row.node ?? ''} ${row.former ?? ''}`,
    filterBy: 'queue or node',
    empty: 'No such events recently.',
    columns: columns(view.vhost),
  });
  view.turn = (by) => list.turn(by);
  append(view.body,
    h('header.page-head', null, h('h1', null, 'Events'), h('.page-marks', null, kindSelect(view, list))),
    h('p.lead', null, 'What happened to mirrored queues lately, newest first. Each node keeps its last 500 events; what a queue has kept for itself is on its own page.'),
    list.element);
  await view.every(() => list.refresh());
}

/** Which kinds are shown; in the URL, as the filter. */
function kindSelect(view, list) {
  const kinds = Object.entries(KIND_NAMES).sort(([, one], [, other]) => (one < other ? -1 : 1));
  const choices = [['', 'All kinds'], [NEWS, 'All but repairs'], ...kinds];
  const chooser = select('kind', choices);
  chooser.setAttribute('aria-label', 'Kind of event');
  chooser.value = view.query.get('kind') ?? '';
  chooser.addEventListener('change', () => {
    if (chooser.value) view.query.set('kind', chooser.value);
    else view.query.delete('kind');
    list.change({ ...list.listing, page: 1 });
  });
  return h('label', null, 'Kind ', chooser);
}

async function rows(view) {
  const events = newestFirst(await get('mirroring/events', { signal: view.signal }));
  const kind = view.query.get('kind');
  const seen = new Map();
  return events
    .filter((event) => !view.vhost || event.vhost === view.vhost)
    .filter((event) => !kind || (kind === NEWS ? isNews(event) : event.kind === kind))
    .map((event) => {
      const same = JSON.stringify([event.time, event.kind, event.vhost, event.name, event.node, event.former]);
      seen.set(same, (seen.get(same) ?? 0) + 1);
      return { ...event, key: `${same} ${seen.get(same)}` };
    });
}

function columns(vhost) {
  return [
    { id: 'time', title: 'Time', sort: 'time', number: false, cell: (row) => h('time', null, time(row.time)) },
    { id: 'kind', title: 'Kind', sort: 'kind', cell: kindBadge },
    { id: 'queue', title: 'Queue', sort: 'name', cell: (row) => link.queue(row.vhost, row.name) },
    ...(showsVhosts(vhost) ? [{ id: 'vhost', title: 'Virtual host', sort: 'vhost', cell: (row) => link.vhost(row.vhost) }] : []),
    { id: 'what', title: 'What happened', cell: (row) => h('span', { title: row.text }, eventText(row), row.count > 1 && ` (${number(row.count)} times)`) },
  ];
}
