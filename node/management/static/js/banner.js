/** The strips below the header: partitions, alarms, nodes that are down, and a server that doesn't answer. */

import { health } from './api.js';
import { cluster, events, troubles } from './cluster.js';
import { h, icon, patch } from './dom.js';
import { clock } from './format.js';

const element = h('#banners', { role: 'status', 'aria-live': 'polite' });
let outage = null;
let nextTry = () => null;

health.addEventListener('change', ({ detail }) => {
  outage = detail.ok ? null : { ...detail, since: outage?.since ?? detail.at };
  show();
});
events.addEventListener('change', show);
setInterval(() => outage && show(), 1000);

/** The element for the frame. `secondsLeft`: () => seconds until the next request, or null. */
export function banners(secondsLeft) {
  nextTry = secondsLeft;
  return element;
}

/** Removes all strips, at logout. */
export function clearBanners() {
  outage = null;
  element.replaceChildren();
}

function show() {
  const strips = [];
  if (outage) {
    const left = nextTry();
    const when = left === null ? '' : left > 0 ? ` Trying again in ${left} s.` : ' Trying again …';
    strips.push(strip('bad', 'Not responding', `${outage.error.message}.${when} The data shown are from ${clock(outage.since)}.`));
  }
  const found = troubles(cluster.nodes, cluster.vhosts);
  for (const one of found.slice(0, 4)) strips.push(strip(one.tone, one.text, one.detail));
  if (found.length > 4) strips.push(strip('bad', `${found.length - 4} more`, 'See the overview.'));
  patch(element, strips);
  document.documentElement.classList.toggle('is-stale', Boolean(outage));
}

function strip(tone, text, detail) {
  return h(`.banner.is-${tone}`, null, icon('alert'), h('strong', null, text), ' ', h('span', null, detail));
}
