import assert from 'node:assert/strict';
import test from 'node:test';

const { copiesOf, membersOf } = await import('../../../node/management/static/js/ring.js');

const ring = (changes) => ({
  master: 'b',
  mirrors: ['c', 'a'],
  synchronised: ['c'],
  joining: [],
  dead: [],
  ring: ['a', 'b', 'c'],
  lag: {},
  sync: {},
  ...changes,
});
const roles = (row, running) => Object.fromEntries(membersOf(row, running).map(({ node, role }) => [node, role]));

test('ring order, from the master on', () => {
  assert.deepEqual(membersOf(ring()).map(({ node }) => node), ['b', 'c', 'a']);
});

test('what each copy is', () => {
  assert.deepEqual(roles(ring()), { b: 'master', c: 'synced', a: 'behind' });
  assert.deepEqual(roles(ring(), ['a', 'b']), { b: 'master', c: 'down', a: 'behind' });
  assert.deepEqual(roles(ring({ joining: ['d'], dead: ['e'] })), { b: 'master', c: 'synced', a: 'behind', d: 'joining', e: 'down' });
  assert.deepEqual(copiesOf(membersOf(ring())), { complete: 2, all: 3 });
});

test('how far a mirror is', () => {
  const text = (row) => membersOf(row).find(({ node }) => node === 'a').text;
  assert.equal(text(ring()), 'unsynchronised');
  assert.equal(text(ring({ lag: { a: 3 } })), 'unsynchronised', 'broadcasts are no messages');
  assert.equal(text(ring({ lacks: { a: 500 }, messages: 2000 })), 'lacks 500 of 2,000');
  assert.equal(text(ring({ lacks: { a: 500 }, messages: 20 })), 'lacks 500', 'counts of different times');
  assert.equal(text(ring({ lacks: { a: 0 }, messages: 20 })), 'unsynchronised');
  assert.equal(text(ring({ sync: { a: { installed: 1, total: 4, is_running: true } } })), 'syncing 25%');
  assert.equal(text(ring({ sync: { a: { installed: 1, total: 4, is_running: false } } })), 'unsynchronised');
  assert.equal(text(ring({ sync: { a: { installed: 0, total: 0, is_running: true } } })), 'unsynchronised');
});

test('a ring without a master', () => {
  assert.deepEqual(roles(ring({ master: null, ring: [], mirrors: [] })), {});
  assert.deepEqual(roles(ring({ master: null, synchronised: [] })), { a: 'behind', b: 'behind', c: 'behind' });
});

test('places that should have a copy are there, after the copies', () => {
  const places = (row, running) => membersOf(row, running).filter(({ role }) => role === 'absent').map(({ node, text }) => [node, text]);
  const two = ring({ mirrors: ['a'], ring: ['b', 'a'], synchronised: ['a'], wanted: 3 });
  assert.deepEqual(places({ ...two, absent: ['c'] }, ['a', 'b']), [['c', 'no copy: down']]);
  assert.deepEqual(places({ ...two, absent: ['c'] }), [['c', 'no copy']]);
  assert.deepEqual(places(two), [['', 'no node for a copy']]);
  assert.deepEqual(places({ ...two, wanted: 2 }), []);
  assert.deepEqual(places({ ...two, absent: ['c'], dead: ['c'] }), []); // still known as a copy that is down
  assert.deepEqual(copiesOf(membersOf({ ...two, absent: ['c'] }), 3), { complete: 2, all: 3 });
});
