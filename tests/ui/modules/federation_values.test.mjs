// The page of federation: URIs never show passwords, forms become parameters, and neighbours are told from links and queues.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { downstreamOf, neighbours, shownUris, upstreamOf } from '../../../node/management/static/js/federation_values.js';

test('a password is never shown', () => {
  assert.deepEqual(shownUris({ uri: 'amqp://me:secret@host:5672/v?cacertfile=x' }), ['amqp://me:******@host:5672/v']);
  assert.deepEqual(shownUris({ uri: ['amqp://a', 'amqps://me:s@b'] }), ['amqp://a', 'amqps://me:******@b']);
  assert.deepEqual(shownUris(null), []);
});

test('what a form has becomes a parameter, and what is empty is left out', () => {
  const empty = Object.fromEntries(['prefetch-count', 'reconnect-delay', 'max-hops', 'expires', 'message-ttl', 'exchange', 'queue', 'consumer-tag',
    'ha-policy', 'ack-mode', 'resource-cleanup-mode', 'trust-user-id', 'bind-nowait'].map((key) => [key, '']));
  assert.deepEqual(upstreamOf({ ...empty, uri: ' amqp://a ' }), { uri: 'amqp://a' });
  assert.deepEqual(
    upstreamOf({ ...empty, uri: 'amqp://a amqp://b', 'max-hops': '2', 'ack-mode': 'no-ack', 'trust-user-id': 'true', exchange: 'x' }),
    { uri: ['amqp://a', 'amqp://b'], 'max-hops': 2, exchange: 'x', 'ack-mode': 'no-ack', 'trust-user-id': true },
  );
});

test('the name of a queue tells which cluster waits for it', () => {
  assert.equal(downstreamOf('federation: x -> east'), 'east');
  assert.equal(downstreamOf('federation: x -> east:v:y'), 'east');
  assert.equal(downstreamOf('federation: a -> b -> east'), 'east', 'an exchange may have any name');
  assert.equal(downstreamOf('orders'), null);
});

test('neighbours have the state of their links', () => {
  const links = [
    { upstream: 'u', uri: 'amqp://u', status: 'running' },
    { upstream: 'u', uri: 'amqp://u', status: 'error' },
    { upstream: 'v', uri: 'amqp://v', status: 'error' },
  ];
  const queues = [{ name: 'federation: x -> east', consumers: 1, messages: 0 }, { name: 'federation: y -> west', consumers: 0, messages: 5 }, { name: 'q' }];
  const { up, down } = neighbours(links, queues);
  assert.deepEqual(up.map(({ name, role, text }) => [name, role, text]), [['u', 'behind', '1 of 2 links run'], ['v', 'down', '0 of 1 link runs']]);
  assert.deepEqual(down.map(({ name, role, text }) => [name, role, text]), [['east', 'synced', 'takes from 1 exchange'], ['west', 'down', '5 messages wait']]);
});
