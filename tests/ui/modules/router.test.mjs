import assert from 'node:assert/strict';
import test from 'node:test';

import { href, match, parse, to, withQuery } from '../../../node/management/static/js/router.js';

const params = (pattern, hash) => match(pattern, parse(hash).path);

test('the routes of RabbitMQ, decoded once', () => {
  assert.deepEqual(params('#/', '#/'), {});
  assert.deepEqual(params('#/', ''), {});
  assert.deepEqual(params('#/queues', '#/queues?page=2'), {});
  assert.deepEqual(params('#/queues/:vhost/:name', '#/queues/%2F/a%20b'), { vhost: '/', name: 'a b' });
  assert.deepEqual(params('#/queues/:vhost/:name', '#/queues/%2F/%252F'), { vhost: '/', name: '%2F' });
  assert.equal(params('#/queues/:vhost/:name', '#/queues/%2F'), null);
  assert.equal(params('#/queues', '#/queues/%2F/a'), null);
  assert.equal(params('#/queues', '#/exchanges'), null);
});

test('a stray percent is taken as it is', () => {
  assert.deepEqual(params('#/users/:name', '#/users/50%'), { name: '50%' });
});

test('a link leads to what it names, whatever the name', () => {
  const names = ['/', 'a/b', '%2F', 'a?b', 'a#b', 'a&b=c', ' ', '+', '漢字', '<script>', '"', "'", '\u202e', 'x'.repeat(255)];
  for (const vhost of names) {
    for (const name of names) assert.deepEqual(params('#/queues/:vhost/:name', to.queue(vhost, name)), { vhost, name });
  }
});

test('no name makes a link that is no hash', () => {
  assert.ok(to.queue('javascript:alert(1)', '../..').startsWith('#/queues/'));
  assert.equal(href('a b', 'c/d'), '#/a%20b/c%2Fd');
});

test('the default exchange is written amq.default', () => {
  assert.equal(to.exchange('/', ''), '#/exchanges/%2F/amq.default');
});

test('a query of a hash', () => {
  assert.equal(parse('#/queues?name=a%26b&page=3').query.get('name'), 'a&b');
  assert.equal(withQuery('#/queues?page=3', { name: 'a b' }), '#/queues?name=a+b');
  assert.equal(withQuery('#/queues?page=3', {}), '#/queues');
});
