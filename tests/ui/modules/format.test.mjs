import assert from 'node:assert/strict';
import test from 'node:test';

import * as format from '../../../node/management/static/js/format.js';

test('numbers that are missing or none are never NaN', () => {
  for (const value of [undefined, null, NaN, Infinity, '12', {}]) {
    for (const name of ['number', 'short', 'rate', 'bytes', 'byteRate', 'percent', 'duration', 'milliseconds']) {
      assert.equal(format[name](value), format.NOTHING, name);
    }
  }
});

test('numbers', () => {
  assert.equal(format.number(0), '0');
  assert.equal(format.number(1234567), '1,234,567');
  assert.equal(format.short(999), '999');
  assert.equal(format.short(12345), '12.3k');
  assert.equal(format.short(1_200_000), '1.2M');
  assert.equal(format.short(0.25), '0.25');
});

test('rates have few digits', () => {
  assert.equal(format.rate(0), '0/s');
  assert.equal(format.rate(0.4), '0.40/s');
  assert.equal(format.rate(4.25), '4.3/s');
  assert.equal(format.rate(1234.5), '1,235/s');
});

test('bytes are powers of 1024', () => {
  assert.equal(format.bytes(0), '0 B');
  assert.equal(format.bytes(1023), '1023 B');
  assert.equal(format.bytes(1536), '1.5 KiB');
  assert.equal(format.bytes(1024 ** 4), '1 TiB');
  assert.equal(format.byteRate(2048), '2 KiB/s');
});

test('shares: little is not nothing', () => {
  assert.equal(format.percent(0), '0%');
  assert.equal(format.percent(0.001), '<1%');
  assert.equal(format.percent(1), '100%');
});

test('durations name the two largest units', () => {
  assert.equal(format.duration(0), '0 ms');
  assert.equal(format.duration(-5), '0 ms');
  assert.equal(format.duration(5_000), '5s');
  assert.equal(format.duration(65_000), '1m 5s');
  assert.equal(format.duration(3 * 86400_000 + 4 * 3600_000 + 59_000), '3d 4h');
  assert.equal(format.duration(86400_000 + 59_000), '1d');
});

test('times', () => {
  assert.match(format.time(0), /^(1969-12-31|1970-01-01) \d\d:\d\d:\d\d$/);
  assert.equal(format.time('no time'), format.NOTHING);
  assert.equal(format.time(null), format.NOTHING);
  assert.equal(format.ago(1_000, 61_000), '1m ago');
  assert.equal(format.ago(9_000, 1_000), '0 ms ago'); // a clock that is ahead of ours
});

test('a dotted path stops where something is missing', () => {
  const row = { message_stats: { publish_details: { rate: 2 } } };
  assert.equal(format.at(row, 'message_stats.publish_details.rate'), 2);
  assert.equal(format.at(row, 'message_stats.ack_details.rate'), undefined);
  assert.equal(format.at(null, 'a.b'), undefined);
});

test('names', () => {
  assert.equal(format.exchangeName(''), '(default)');
  assert.equal(format.cut('abc', 3), 'abc');
  assert.equal(format.cut('abcd', 3), 'ab…');
  assert.equal(format.cut('🐇🐇🐇', 2), '🐇…');
  assert.equal(format.plural(1, 'queue'), '1 queue');
  assert.equal(format.plural(0, 'policy', 'policies'), '0 policies');
  assert.equal(format.nodeName('n1@host', ['n1@host', 'n2@host']), 'n1');
  assert.equal(format.nodeName('rabbit@a', ['rabbit@a', 'rabbit@b']), 'a');
  assert.equal(format.nodeName('rabbit@a', ['rabbit@a']), 'rabbit@a');
});

test('values at an axis have their unit', () => {
  assert.deepEqual(['rate', 'count', 'bytes', 'byteRate', 'ms'].map((kind) => format.axisText(kind, 2048)),
    ['2048/s', '2048', '2 KiB', '2 KiB/s', '2048 ms']);
  assert.equal(format.axisText('rate', 25_000), '25k/s');
});

test('the time zone', () => {
  const date = { getTimezoneOffset: () => -330 };
  assert.match(format.zone(date), /UTC\+05:30/);
  assert.match(format.zone({ getTimezoneOffset: () => 210 }), /UTC-03:30/);
});
