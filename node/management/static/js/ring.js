/**
 * The ring of a mirrored queue as a drawing: its master, the order in which its copies pass messages on, which of them have all
 * messages, and how far the others are.
 */

import { svg } from './dom.js';
import { cut, number } from './format.js';

const SIZE = 380;
const CENTRE = SIZE / 2;
const RADIUS = 112; // of the circle that the nodes sit on
const DISC = 30; // of a node
const PROGRESS = DISC + 6; // of the arc around a node that is being synchronised
const LETTERS = { master: 'M', synced: 'S', syncing: '↻', joining: '…', behind: 'U', down: '×', absent: '–' };

/** The names of the roles in legends and cells. */
export const ROLES = {
  master: 'master',
  synced: 'synchronised',
  syncing: 'being synchronised',
  joining: 'joining',
  behind: 'not synchronised',
  down: 'down',
  absent: 'no copy',
};

/**
 * The role of each copy of a queue, in ring order, the master first; after them the places where a copy is missing.
 *
 * @param {object} ring a row of /api/mirroring/rings
 * @param {string[]|null} running names of the nodes that run; null when that is not known
 * @returns {{node: string, role: string, letter: string, text: string, share?: number}[]}
 */
export function membersOf(ring, running = null) {
  const order = ring.ring?.length ? ring.ring : [ring.master, ...(ring.mirrors ?? [])];
  const nodes = [...new Set(order.filter(Boolean))];
  const start = Math.max(0, nodes.indexOf(ring.master));
  const turned = [...nodes.slice(start), ...nodes.slice(0, start)];
  const others = [...(ring.joining ?? []), ...(ring.dead ?? [])].filter((node) => !turned.includes(node));
  const members = [...turned, ...new Set(others)].map((node) => {
    const standing = standingOf(ring, node, running);
    return { node, letter: LETTERS[standing.role], ...standing };
  });
  return [...members, ...placesWithout(ring, members, running)];
}

/** Places without a copy: those whose nodes are known, then as many as the policy wants besides. */
function placesWithout(ring, members, running) {
  const known = (ring.absent ?? []).filter((node) => !members.some((member) => member.node === node));
  const unknown = Math.max(0, (ring.wanted ?? 0) - members.length - known.length);
  const named = known.map((node) => ({ node, text: running && !running.includes(node) ? 'no copy: down' : 'no copy' }));
  const free = Array.from({ length: unknown }, () => ({ node: '', text: 'no node for a copy' }));
  return [...named, ...free].map((place) => ({ ...place, role: 'absent', letter: LETTERS.absent }));
}

function standingOf(ring, node, running) {
  const isOut = ring.dead?.includes(node) && !ring.ring?.includes(node);
  if (isOut || (running && !running.includes(node))) return { role: 'down', text: 'down' };
  if (node === ring.master) return { role: 'master', text: 'master' };
  if ((ring.synchronised ?? []).includes(node)) return { role: 'synced', text: 'synchronised' };
  const sync = syncOf(ring, node);
  if (sync) {
    const share = Math.min(1, sync.installed / sync.total);
    return { role: 'syncing', text: `syncing ${Math.round(share * 100)}%`, share };
  }
  if ((ring.joining ?? []).includes(node)) return { role: 'joining', text: 'joining' };
  return { role: 'behind', text: lacksText(ring.lacks?.[node], ring.messages) };
}

/** `lacks 500 of 2,000`: of a queue's messages; `unsynchronised` when that is not known. */
function lacksText(lacks, messages) {
  if (!lacks) return 'unsynchronised';
  return messages >= lacks ? `lacks ${number(lacks)} of ${number(messages)}` : `lacks ${number(lacks)}`;
}

/** The synchronisation that a node's copy is in, or null. */
function syncOf(ring, node) {
  const sync = ring.sync?.[node] ?? ring.sync;
  return sync?.is_running && sync.total > 0 ? sync : null;
}

/** Copies that have all messages, and copies there should be: as many as the policy wants, or as there are. */
export function copiesOf(members, wanted = 0) {
  const complete = members.filter(({ role }) => role === 'master' || role === 'synced').length;
  return { complete, all: Math.max(members.length, wanted ?? 0) };
}

/** The drawing. Classes carry all colours: the style sheet knows of dark and light. */
export function drawRing(ring, running = null) {
  const members = membersOf(ring, running);
  const places = members.map((_, index) => place(index, members.length));
  const linked = places.filter((_, index) => members[index].role !== 'absent');
  return svg(
    'svg.ring',
    { viewBox: `0 0 ${SIZE} ${bottomOf(places)}`, role: 'img', 'aria-label': sentence(ring, members) },
    arrowHead(),
    svg('circle.ring-track', { cx: CENTRE, cy: CENTRE, r: RADIUS }),
    linked.length > 1 && linked.map((from, index) => hop(from, linked[(index + 1) % linked.length])),
    middle(ring, members),
    members.map((member, index) => disc(member, places[index])),
  );
}

/** The content of the drawing as text, for users who do not see it. */
function sentence(ring, members) {
  return `Ring of ${ring.name}: ${members.map(({ node, text }) => `${node} ${text}`.trim()).join(', ')}`;
}

function place(index, count) {
  const angle = -Math.PI / 2 + (2 * Math.PI * index) / count;
  return { angle, x: CENTRE + RADIUS * Math.cos(angle), y: CENTRE + RADIUS * Math.sin(angle) };
}

/** Where the drawing ends: below the lowest text, and below the circle. */
function bottomOf(places) {
  return Math.max(CENTRE + RADIUS + 12, ...places.map(({ y }) => y + DISC + 48));
}

function arrowHead() {
  const marker = { id: 'ring-head', viewBox: '0 0 8 8', refX: 6, refY: 4, orient: 'auto', markerUnits: 'userSpaceOnUse' };
  const head = svg('marker', { ...marker, markerWidth: 8, markerHeight: 8 }, svg('path.ring-arrow', { d: 'M0,0 L8,4 L0,8 Z' }));
  return svg('defs', null, head);
}

/** From one node to the next, along the circle. */
function hop(from, to) {
  const gap = (DISC + 12) / RADIUS;
  const end = to.angle <= from.angle ? to.angle + 2 * Math.PI : to.angle;
  const [begin, stop] = [from.angle + gap, end - gap];
  const at = (angle) => `${CENTRE + RADIUS * Math.cos(angle)},${CENTRE + RADIUS * Math.sin(angle)}`;
  const d = `M${at(begin)} A${RADIUS},${RADIUS} 0 ${stop - begin > Math.PI ? 1 : 0} 1 ${at(stop)}`;
  return svg('path.ring-hop', { d, 'marker-end': 'url(#ring-head)' });
}

function middle(ring, members) {
  const { complete, all } = copiesOf(members, ring.wanted);
  const line = (kind, y, text) => svg(`text.${kind}`, { x: CENTRE, y: CENTRE + y, 'text-anchor': 'middle' }, text);
  return [
    line('ring-state', -10, stateOf(ring)),
    line('ring-safe', 12, all === 1 ? 'no mirror' : `${complete} of ${all} complete`),
    ring.version !== undefined && ring.version !== null && line('ring-view', 32, `changed ${number(ring.version)}×`),
  ];
}

/** Converts a state to the words that queues use: the metadata's `live` is what others call running. */
function stateOf({ state }) {
  return !state || state === 'live' ? 'running' : state;
}

function disc({ node, role, letter, text, share }, { angle, x, y }) {
  // Names stand on the far side of their discs, so that none crosses the ring.
  const [nameY, textY] = y < CENTRE - 1 ? [-DISC - 26, -DISC - 10] : [DISC + 22, DISC + 38];
  const aside = 30 * Math.cos(angle);
  const around = 2 * Math.PI * PROGRESS;
  const dashes = `${(share ?? 0) * around} ${around}`;
  return svg(
    `g.ring-node.is-${role}`,
    { transform: `translate(${x} ${y})` },
    svg('title', null, node ? `${node}: ${text}` : text),
    svg('circle.ring-disc', { r: DISC }),
    role === 'syncing' && svg('circle.ring-progress', { r: PROGRESS, transform: 'rotate(-90)', 'stroke-dasharray': dashes }),
    svg('text.ring-mark', { 'text-anchor': 'middle', dy: '0.35em' }, letter),
    svg('text.ring-name', { 'text-anchor': 'middle', x: aside, y: nameY }, cut(node, 22)),
    svg('text.ring-text', { 'text-anchor': 'middle', x: aside, y: textY }, text),
  );
}
