import assert from 'node:assert/strict';
import test from 'node:test';

const { endOf, shovelOf, shownUri, shownUris } = await import('../../../node/management/static/js/shovel_values.js');

const EMPTY = {
  'src-uri': 'amqp://', 'src-kind': 'queue', 'src-name': 'q', 'src-exchange-key': '', 'src-prefetch-count': '', 'src-delete-after': '', 'src-predeclared': false,
  'dest-uri': 'amqp://', 'dest-kind': 'queue', 'dest-name': 'r', 'dest-exchange-key': '', 'dest-predeclared': false,
  'dest-add-forward-headers': false, 'dest-add-timestamp-header': false, 'dest-publish-properties': '', 'ack-mode': '', 'reconnect-delay': '',
};

test('passwords are not shown', () => {
  assert.equal(shownUri('amqp://user:secret@host:1/v?heartbeat=1'), 'amqp://user:******@host:1/v?heartbeat=1');
  assert.deepEqual(shownUris(['amqp://h', 'amqps://u:s@h']), ['amqp://h', 'amqps://u:******@h']);
  assert.deepEqual(shownUris('amqp://h'), ['amqp://h']);
  assert.equal(shownUri('amqps://h?verify=verify_peer&password=secret&keyfile=k'), 'amqps://h?verify=verify_peer&password=******&keyfile=k');
});

test('what is empty is left out', () => {
  assert.deepEqual(shovelOf(EMPTY), { 'src-uri': 'amqp://', 'src-queue': 'q', 'dest-uri': 'amqp://', 'dest-queue': 'r' });
});

test('values have their types', () => {
  const values = {
    ...EMPTY, 'src-uri': ' amqp://a  amqp://b ', 'src-kind': 'exchange', 'src-exchange-key': 'k', 'src-prefetch-count': '7', 'src-delete-after': '5',
    'dest-kind': 'exchange', 'dest-name': '', 'dest-exchange-key': 'l', 'dest-add-forward-headers': true, 'dest-publish-properties': '{"priority":1}',
    'ack-mode': 'on-publish', 'reconnect-delay': '1.5',
  };
  assert.deepEqual(shovelOf(values), {
    'src-uri': ['amqp://a', 'amqp://b'], 'src-exchange': 'q', 'dest-uri': 'amqp://', 'ack-mode': 'on-publish', 'src-exchange-key': 'k', 'dest-exchange-key': 'l',
    'src-prefetch-count': 7, 'reconnect-delay': 1.5, 'dest-add-forward-headers': true, 'src-delete-after': 5, 'dest-publish-properties': { priority: 1 },
  });
  assert.equal(shovelOf({ ...EMPTY, 'src-delete-after': 'queue-length' })['src-delete-after'], 'queue-length');
});

test('a key without an exchange is left out', () => {
  const found = shovelOf({ ...EMPTY, 'src-exchange-key': 'k', 'dest-exchange-key': 'l' });
  assert.deepEqual(Object.keys(found).filter((key) => key.endsWith('-key')), []);
});

test('the ends of a state and of a parameter', () => {
  assert.deepEqual(endOf({ src_queue: 'q' }, 'src_'), ['queue', 'q', null]);
  assert.deepEqual(endOf({ dest_exchange: 'x', dest_exchange_key: 'k' }, 'dest_'), ['exchange', 'x', 'k']);
  assert.deepEqual(endOf({ 'dest-exchange': 'x', 'dest-exchange-key': 'k' }, 'dest-'), ['exchange', 'x', 'k']);
  assert.deepEqual(endOf({}, 'dest_'), ['exchange', null, null]);
});
