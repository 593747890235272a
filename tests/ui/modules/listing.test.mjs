import assert from 'node:assert/strict';
import test from 'node:test';

import { apply, listingOf, sortedBy, toApi, toQuery } from '../../../node/management/static/js/listing.js';

const of = (text, defaults) => listingOf(new URLSearchParams(text), defaults);
const names = (result) => result.items.map((row) => row.name).join(' ');

test('what a URL says, and what it does not', () => {
  assert.deepEqual(of(''), { page: 1, size: 50, sort: '', reverse: false, name: '', regex: false });
  assert.deepEqual(of('page=3&page_size=10&sort=messages&sort_reverse=true&name=a&use_regex=true'), {
    page: 3, size: 10, sort: 'messages', reverse: true, name: 'a', regex: true,
  });
});

test('nonsense in a URL gives the defaults', () => {
  for (const text of ['page=0', 'page=-1', 'page=x', 'page=1.5', 'page_size=501', 'page_size=0']) assert.deepEqual(of(text), of(''));
});

test('a URL holds only what differs, and keeps what is not ours', () => {
  assert.equal(String(toQuery(of(''))), '');
  const text = 'columns=a%2Cb&page=2&sort=messages&sort_reverse=true';
  assert.equal(String(toQuery(of(text), {}, new URLSearchParams(text))), text);
  const defaults = { sort: 'name', reverse: true, size: 10 };
  assert.equal(String(toQuery(of('', defaults), defaults)), '');
});

test('the request of a page', () => {
  assert.deepEqual(toApi(of('')), { page: 1, page_size: 50, name: null });
  assert.deepEqual(toApi(of('name=a&use_regex=true&sort=x')), { page: 1, page_size: 50, name: 'a', use_regex: true, sort: 'x', sort_reverse: false });
});

test('a click sorts numbers from the largest, text from the first, a second one turns round', () => {
  assert.equal(sortedBy(of('page=4'), 'messages', true).reverse, true);
  assert.equal(sortedBy(of('page=4'), 'messages', true).page, 1);
  assert.equal(sortedBy(of(''), 'name', false).reverse, false);
  assert.equal(sortedBy(of('sort=messages&sort_reverse=true'), 'messages', true).reverse, false);
});

const ROWS = [{ name: 'b', n: 2 }, { name: 'A' }, { name: 'c', n: 10 }, { name: 'd', n: null }];

test('rows without the field come first, turned round last', () => {
  assert.equal(names(apply(ROWS, of('sort=n'))), 'A d b c');
  assert.equal(names(apply(ROWS, of('sort=n&sort_reverse=true'))), 'c b A d');
  assert.equal(names(apply(ROWS, of('sort=name'))), 'A b c d');
});

test('filters are parts of names, or expressions; case does not matter', () => {
  assert.equal(names(apply(ROWS, of('name=a'))), 'A');
  assert.equal(names(apply(ROWS, of('name=^[ab]$&use_regex=true'))), 'b A');
  assert.equal(names(apply(ROWS, of('name=^[ab]$'))), '');
  assert.throws(() => apply(ROWS, of('name=(&use_regex=true')), SyntaxError);
});

test('pages, also one beyond the last', () => {
  const rows = Array.from({ length: 25 }, (_, index) => ({ name: `q${index}` }));
  const result = apply(rows, of('page=3&page_size=10'));
  assert.deepEqual([result.page, result.page_count, result.item_count, result.filtered_count, result.total_count], [3, 3, 5, 25, 25]);
  assert.equal(apply(rows, of('page=99&page_size=10')).page, 3);
  assert.deepEqual(apply([], of('')).items, []);
});
