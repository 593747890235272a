import assert from 'node:assert/strict';
import test from 'node:test';

const { HEX_MAX, base64Of, bytesOf, hexDump, prettyJson, textOf } = await import('../../../node/management/static/js/payload.js');

const bytes = (...values) => Uint8Array.from(values);

test('bytes of both encodings', () => {
  assert.deepEqual(bytesOf('é', 'string'), bytes(0xc3, 0xa9));
  assert.deepEqual(bytesOf('/wA=', 'base64'), bytes(0xff, 0));
});

test('text is UTF-8 or none', () => {
  assert.equal(textOf(bytes(0xc3, 0xa9)), 'é');
  assert.equal(textOf(bytes(0xff)), null);
  assert.equal(textOf(bytes(0xef, 0xbb, 0xbf, 0x61)), '\ufeffa'); // a byte order mark is a part of the payload
});

test('what was cut may end within a character', () => {
  assert.equal(textOf(bytes(0x61, 0xc3)), null);
  assert.equal(textOf(bytes(0x61, 0xc3), true), 'a');
});

test('JSON keeps the digits of its numbers', () => {
  assert.equal(prettyJson('{"a":9007199254740993,"b":[1.0,{}],"c":[]}'), '{\n  "a": 9007199254740993,\n  "b": [\n    1.0,\n    {}\n  ],\n  "c": []\n}');
  assert.equal(prettyJson('"a, [b]: {c} \\" d"'), '"a, [b]: {c} \\" d"');
});

test('what is no JSON stays text', () => {
  for (const text of [null, '', 'x', '{', '{"a":}', '12', 'true']) assert.equal(prettyJson(text), null);
});

test('hexadecimal, sixteen bytes a line', () => {
  assert.equal(hexDump(bytes(0x41, 0x0a)), '00000000  41 0a                                             A·');
  assert.equal(hexDump(new Uint8Array(17)).split('\n')[1].slice(0, 12), '00000010  00');
  assert.equal(hexDump(new Uint8Array(HEX_MAX + 1)).split('\n').length, HEX_MAX / 16);
});

test('base64, 76 characters a line', () => {
  assert.equal(base64Of(bytes(1, 2, 3)), 'AQID');
  assert.deepEqual(base64Of(new Uint8Array(58)).split('\n').map((line) => line.length), [76, 4]);
  assert.equal(base64Of(bytes()), '');
});
