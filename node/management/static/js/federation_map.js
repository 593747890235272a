/** Who is upstream of whom, as a drawing: upstreams at the left, this cluster in the middle, and at the right those that take from it. */

import { svg } from './dom.js';
import { cut } from './format.js';

const WIDTH = 720;
const ROW = 92;
const DISC = 26;
const COLUMNS = { up: 120, here: 360, down: 600 };
const LETTERS = { up: 'U', here: 'H', down: 'D' };

/** The drawing. Classes carry all colours, and are those of the ring. */
export function drawMap(cluster, { up, down }) {
  const rows = Math.max(1, up.length, down.length);
  const height = rows * ROW + 40;
  const middle = { x: COLUMNS.here, y: height / 2 - 10 };
  const places = (list, x) => list.map((one, index) => ({ one, x, y: 50 + ((height - 60) / (list.length + 1)) * (index + 1) - 20 }));
  const left = places(up, COLUMNS.up);
  const right = places(down, COLUMNS.down);
  return svg(
    'svg.ring',
    { viewBox: `0 0 ${WIDTH} ${height}`, role: 'img', 'aria-label': sentence(cluster, { up, down }), style: { maxWidth: `${WIDTH}px` } },
    svg('defs', null, svg('marker', { id: 'federation-head', viewBox: '0 0 8 8', refX: 6, refY: 4, orient: 'auto', markerUnits: 'userSpaceOnUse', markerWidth: 8, markerHeight: 8 },
      svg('path.ring-arrow', { d: 'M0,0 L8,4 L0,8 Z' }))),
    left.map((from) => arrow(from, middle)),
    right.map((to) => arrow(middle, to)),
    disc({ name: cluster, role: 'master', text: 'this cluster' }, middle, LETTERS.here),
    left.map(({ one, x, y }) => disc(one, { x, y }, LETTERS.up)),
    right.map(({ one, x, y }) => disc(one, { x, y }, LETTERS.down)),
  );
}

/** The content of the drawing as text, for users who do not see it. */
export function sentence(cluster, { up, down }) {
  const list = (all) => all.map(({ name, text }) => `${name} (${text})`).join(', ') || 'none';
  return `Upstreams of ${cluster}: ${list(up)}. Downstreams: ${list(down)}.`;
}

function arrow(from, to) {
  const length = Math.hypot(to.x - from.x, to.y - from.y);
  const gap = (DISC + 10) / length;
  const at = (share) => `${from.x + (to.x - from.x) * share},${from.y + (to.y - from.y) * share}`;
  return svg('path.ring-hop', { d: `M${at(gap)} L${at(1 - gap)}`, 'marker-end': 'url(#federation-head)' });
}

function disc({ name, role, text }, { x, y }, letter) {
  return svg(
    `g.ring-node.is-${role}`,
    { transform: `translate(${x} ${y})` },
    svg('title', null, `${name}: ${text}`),
    svg('circle.ring-disc', { r: DISC }),
    svg('text.ring-mark', { 'text-anchor': 'middle', dy: '0.35em' }, letter),
    svg('text.ring-name', { 'text-anchor': 'middle', y: DISC + 18 }, cut(name, 26)),
    svg('text.ring-text', { 'text-anchor': 'middle', y: DISC + 34 }, text),
  );
}
