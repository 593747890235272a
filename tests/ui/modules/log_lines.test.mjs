import assert from 'node:assert/strict';
import test from 'node:test';

const { added, isShown, toneOf } = await import('../../../node/management/static/js/log_lines.js');

const line = (number, level = 'info', text = `line ${number}`) => ({ number, level, text });

test('new lines are added', () => {
  assert.deepEqual(added(0, { lines: [line(7), line(8)], last: 8 }), { lines: [line(7), line(8)], last: 8 });
  assert.deepEqual(added(8, { lines: [line(9)], last: 9 }).lines, [line(9)]);
  assert.deepEqual(added(9, { lines: [], last: 9 }), { lines: [], last: 9 });
});

test('what is missing is said', () => {
  const { lines } = added(8, { lines: [line(12)], last: 12 });
  assert.deepEqual(lines.map(({ text }) => text), ['3 lines came too fast to be shown.', 'line 12']);
  assert.ok(lines[0].isRemark);
});

test('a node that was started anew counts from one', () => {
  const { lines, last } = added(500, { lines: [line(1)], last: 1 });
  assert.deepEqual([lines.map(({ text }) => text), last], [['The node was started anew.', 'line 1'], 1]);
});

test('which lines are shown', () => {
  assert.ok(isShown(line(1, 'warning'), 'warning', ''));
  assert.ok(isShown(line(1, 'critical'), 'error', 'LINE'));
  assert.ok(!isShown(line(1, 'info'), 'notice', ''));
  assert.ok(!isShown(line(1), 'debug', 'other'));
  assert.ok(isShown({ level: 'info', text: 'missing', isRemark: true }, 'error', 'word'));
  assert.deepEqual(['info', 'warning', 'error', 'alert'].map((level) => toneOf({ level })), ['quiet', 'warn', 'bad', 'bad']);
});
