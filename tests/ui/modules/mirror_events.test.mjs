import assert from 'node:assert/strict';
import test from 'node:test';

import { eventText, eventsOf, isNews, masterChanges, newestFirst } from '../../../node/management/static/js/mirror_events.js';

const event = (kind, time, more) => ({ kind, time, vhost: '/', name: 'q', node: 'n2@h', former: '', text: '', ...more });

test('a failover says from whom and to whom', () => {
  assert.equal(eventText(event('promotion', 1, { former: 'n1@h' })), 'n2@h took over from n1@h');
  assert.equal(eventText(event('transfer', 1, { former: 'n1@h' })), 'n2@h took over from n1@h');
  const text = "Mirrored queue 'it''s' in vhost '/': Adding mirror on node n2@h: <n2@h.1.2>";
  assert.equal(eventText(event('mirror-added', 1, { text })), 'Adding mirror on node n2@h: <n2@h.1.2>');
  assert.equal(eventText(event('data-loss-possible', 1, { former: 'n1@h', text: 'may be lost' })), 'may be lost');
});

test('charts mark when the master was another one', () => {
  const events = [event('mirror-added', 9000), event('transfer', 8000), event('promotion', 2000), event('revived', 3000)];
  assert.deepEqual(masterChanges(events), [
    { time: 2, label: 'failover' }, { time: 3, label: 'back' }, { time: 8, label: 'moved' },
  ]);
});

test('events of one queue, newest first', () => {
  const events = [event('promotion', 1), event('promotion', 2, { name: 'other' }), event('transfer', 3)];
  assert.deepEqual(eventsOf(newestFirst(events), '/', 'q').map(({ time }) => time), [3, 1]);
  assert.deepEqual(newestFirst(null), []);
});

test('a repair is no news', () => {
  assert.deepEqual(['promotion', 'mirror-lost', 'sync-begun', 'fully-replicated'].map((kind) => isNews({ kind })), [true, true, false, false]);
});
