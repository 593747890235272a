import assert from 'node:assert/strict';
import test from 'node:test';

globalThis.window = { localStorage: null, sessionStorage: null };
globalThis.document = { addEventListener() {}, dispatchEvent() {} };

const { troubles } = await import('../../../node/management/static/js/cluster.js');
const { ApiError, path, reasonText, withParams } = await import('../../../node/management/static/js/api.js');
const { basic, tagsOf } = await import('../../../node/management/static/js/auth.js');
const { typed } = await import('../../../node/management/static/js/form.js');
const { memoryParts } = await import('../../../node/management/static/js/memory_bar.js');
const { fileName, summary } = await import('../../../node/management/static/js/definitions_panel.js');

const kinds = (nodes, vhosts) => troubles(nodes, vhosts).map((one) => one.kind);

test('a cluster that is well has no troubles', () => {
  assert.deepEqual(kinds([]), []);
  assert.deepEqual(kinds([{ name: 'a', running: true, partitions: [] }], [{ name: '/', cluster_state: { a: 'running' } }]), []);
});

test('troubles, the worst first', () => {
  const nodes = [
    { name: 'a', running: true, mem_alarm: true, disk_free_alarm: true, being_drained: true },
    { name: 'b', running: false },
    { name: 'c', running: true, partitions: ['a'] },
  ];
  assert.deepEqual(kinds(nodes), ['partition', 'down', 'alarm', 'alarm', 'drained']);
  assert.match(troubles(nodes)[0].detail, /a side without a majority pauses/);
});

test('a virtual host that does not run on a node that does', () => {
  const nodes = [{ name: 'a', running: true }, { name: 'b', running: false }];
  assert.deepEqual(kinds(nodes, [{ name: 'v', cluster_state: { a: 'stopped', b: 'nodedown' } }]), ['down', 'vhost']);
});

test('paths of requests', () => {
  assert.equal(path('queues', '/', 'a/b c'), 'queues/%2F/a%2Fb%20c');
  assert.equal(path('exchanges', '/', ''), 'exchanges/%2F/amq.default');
  assert.equal(withParams('a', { b: 1, c: null, d: undefined, e: 'x y' }), 'a?b=1&e=x+y');
  assert.equal(withParams('a', {}), 'a');
});

test('reasons are strings or lists', () => {
  assert.equal(reasonText(['no_such_user', 'zz']), 'no_such_user: zz');
  assert.equal(reasonText('Not Found'), 'Not Found');
  assert.equal(reasonText(null), '');
  assert.equal(new ApiError(500, '', null).message, 'HTTP 500');
  assert.equal(new ApiError(0, 'unreachable', 'x').isOutage, true);
  assert.equal(new ApiError(503, 'x', 'x').isOutage, true);
  assert.equal(new ApiError(404, 'x', 'x').isOutage, false);
});

test('credentials are UTF-8', () => {
  assert.equal(atob(basic('guest', 'guest')), 'guest:guest');
  assert.equal(Buffer.from(basic('jürgen', '漢:字'), 'base64').toString('utf8'), 'jürgen:漢:字');
});

test('tags are a list, or text as before 3.9', () => {
  assert.deepEqual(tagsOf(['a', 'b']), ['a', 'b']);
  assert.deepEqual(tagsOf('a, b'), ['a', 'b']);
  assert.deepEqual(tagsOf(''), []);
});

test('arguments have the type that is chosen, or are refused', () => {
  assert.equal(typed('60000', 'number'), 60000);
  assert.equal(typed('true', 'boolean'), true);
  assert.deepEqual(typed('a, b,', 'list'), ['a', 'b']);
  assert.equal(typed('12', 'string'), '12');
  for (const [text, type] of [['', 'number'], ['x', 'number'], ['Infinity', 'number'], ['yes', 'boolean']]) {
    assert.throws(() => typed(text, type), TypeError);
  }
});

test('parts of the memory, the largest first', () => {
  const parts = memoryParts({ binary: 30, code: 70, atom: 0, strategy: 'rss', total: { rss: 100 }, new_part: 100 });
  assert.deepEqual(parts.map((part) => [part.name, part.share]), [['new part', 0.5], ['Code', 0.35], ['Messages and other binaries', 0.15]]);
  assert.deepEqual(memoryParts(null), []);
});

test('definitions: the name of the file, what it holds', () => {
  assert.equal(fileName('a/b c\\d"', new Date(0)), 'rabbit_a_b_c_d__1970-01-01.json');
  assert.equal(summary({ users: [1, 2], queues: [1], policies: [1, 2] }), '2 users, 2 policies, 1 queue');
  assert.equal(summary({}), 'nothing');
});
