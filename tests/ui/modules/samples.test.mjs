import assert from 'node:assert/strict';
import test from 'node:test';

import { aligned, begunAt, dashes, knownSince, lengths, rangesFor, rates, whyEmpty } from '../../../node/management/static/js/samples.js';

const details = (...values) => ({ samples: values.map((sample, index) => ({ sample, timestamp: 50_000 - 5_000 * index })) });

test('samples come newest first, charts want the oldest', () => {
  assert.deepEqual(lengths(details(3, 2, 1)), [[40, 45, 50], [1, 2, 3]]);
  assert.deepEqual(lengths(undefined), [[], []]);
  assert.deepEqual(lengths({ rate: 1 }), [[], []]);
});

test('where nobody knows what was before, there is a gap', () => {
  const cut = { ...details(3, 2), known_since: 45_000, asked_since: 10_000 };
  assert.deepEqual(lengths(cut), [[10, 45, 50], [null, 2, 3]]);
  assert.deepEqual(knownSince(cut), [{ time: 45, label: 'nodes came or went', isOnlyMark: true }]);
  assert.deepEqual(knownSince(details(1)), []);
  assert.deepEqual(knownSince(undefined), []);
});

test('a counter becomes a rate; one that fell began anew', () => {
  assert.deepEqual(rates(details(30, 20, 0)), [[45, 50], [4, 2]]);
  assert.deepEqual(rates(details(5, 100)), [[50], [0]]);
  assert.deepEqual(rates(details(5)), [[], []]);
});

test('series of different times share one axis', () => {
  assert.deepEqual(aligned([[[1, 2], [10, 20]], [[2, 3], [5, 6]]]), [[1, 2, 3], [10, 20, null], [null, 5, 6]]);
  assert.deepEqual(aligned([[[], []]]), [[], []]);
});

test('only ranges that are kept are offered', () => {
  assert.deepEqual(rangesFor([600, 3600]).map((range) => range.id), ['60|5', '600|5', '3600|60']);
  assert.equal(rangesFor([600, 3600, 28800, 86400]).length, 5);
  assert.equal(rangesFor(undefined).length, 3);
});

test('a chart without lines says why', () => {
  assert.equal(whyEmpty(true, [undefined, undefined], 0), 'No traffic yet', 'never counted');
  assert.equal(whyEmpty(true, [details(1), undefined], 0), 'Collecting data …');
  assert.equal(whyEmpty(true, [details(1)], 15_000), 'No traffic yet');
  assert.equal(whyEmpty(false, [undefined], 0), 'Collecting data …');
  assert.equal(whyEmpty(false, [undefined], 15_000), 'No data');
});

test('a line begins where its master took over', () => {
  const times = [10, 15, 20, 25, 30];
  assert.deepEqual(begunAt([times, [0, 0, 0, 7, 8]], 17), [times, [null, null, null, 7, 8]]);
  assert.deepEqual(begunAt([times, [0, 0, 4, 7, 8]], 22), [times, [null, null, 4, 7, 8]], 'a clock that is ahead');
  assert.deepEqual(begunAt([times, [0, 0, 0, 0, 0]], 17), [times, [null, null, null, null, 0]]);
  assert.deepEqual(begunAt([times, [0, 0, 0, 0, 0]], 40), [times, [null, null, null, null, null]]);
  assert.deepEqual(begunAt([times, [0, 3, 0, 7, 8]], 27), [times, [0, 3, 0, 7, 8]], 'it knows of the time before');
  assert.deepEqual(begunAt([times, [3, 3, 0, 7, 8]], 17), [times, [3, 3, 0, 7, 8]]);
  assert.deepEqual(begunAt([[], []], 17), [[], []]);
});

test('lines that run together take turns', () => {
  const [flat, steep] = [[100, 100, 100], [0, 50, 100]];
  assert.deepEqual(dashes([flat, steep], [true, true]), [null, null]);
  assert.deepEqual(dashes([flat, steep, [100, 100.5, 101]], [true, true, true]), [null, null, [12, 12]]);
  assert.deepEqual(dashes([flat, flat, flat], [true, true, true]), [null, [16, 8], [8, 16]]);
  assert.deepEqual(dashes([flat, flat, flat], [false, true, true]), [null, null, [12, 12]], 'who is hidden hides nobody');
  assert.deepEqual(dashes([[0, 0], [0, 0]], [true, true]), [null, null], 'zeros lie on the axis');
  assert.deepEqual(dashes([[null, 1], [1, null]], [true, true]), [null, null]);
});
