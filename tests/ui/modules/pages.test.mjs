/** Which pages an answer of /api/extensions brings. */

import assert from 'node:assert/strict';
import test from 'node:test';

import { pagesOf } from '../../../node/management/static/js/pages.js';
import { match, parse } from '../../../node/management/static/js/router.js';

test('a page of a plug-in has a route, a module and an entry of the menu', () => {
  const [page] = pagesOf([
    { javascript: 'dispatcher.js' },
    { javascript: 'plugins/a.b/x.js', plugin: 'a.b', menu: 'X', tag: 'monitoring' },
  ]);
  assert.deepEqual(page, { route: '#/plugins/a.b', file: 'plugin-a.b', module: '../plugins/a.b/x.js', tab: 'admin', menu: 'X', tag: 'monitoring' });
  assert.deepEqual(match(page.route, parse('#/plugins/a.b').path), {});
});

test('there are none without plug-ins', () => {
  assert.deepEqual(pagesOf([{ javascript: 'dispatcher.js' }]), []);
  assert.deepEqual(pagesOf([]), []);
});
