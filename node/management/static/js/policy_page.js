/** The page of one policy or operator policy. */

import { get, path } from './api.js';
import { can } from './auth.js';
import { append, h, patch } from './dom.js';
import { number } from './format.js';
import { argumentList, badge, button, link, liveFacts, section } from './parts.js';
import { KINDS, clearPolicy, policyForm } from './policy_parts.js';
import { go } from './router.js';

/** @param {'policy'|'operator'} kind */
export async function renderPolicy(view, kind, { vhost, name }) {
  const { path: where, noun, tag } = KINDS[kind];
  const head = h('.page-marks');
  const details = liveFacts();
  const form = policyForm(view, kind, { vhost, name });
  const clear = button(`Clear ${noun}`, async () => {
    if (await clearPolicy({ refresh: () => null }, kind, { vhost, name })) go('#/policies');
  }, { danger: true });
  const label = `${noun[0].toUpperCase()}${noun.slice(1)}`;
  append(view.body,
    h('header.page-head', null, h('h1', null, h('span.page-kind', null, label), ' ', h('span.name', null, name)), head),
    section('policy.details', 'Details', {}, details.element),
    can(tag) && section('policy.change', 'Change', {}, form.element),
    can(tag) && section('policy.danger', 'Clear', { isOpen: false }, h('.danger-buttons', null, clear)));
  let isFirst = true;
  await view.every(async () => {
    const policy = await get(path(where, vhost, name), { signal: view.signal });
    patch(head, badge(policy['apply-to']));
    details([
      ['Virtual host', link.vhost(vhost)],
      ['Pattern', h('code', null, policy.pattern)],
      ['Priority', number(policy.priority)],
      ['Definition', argumentList(policy.definition)],
    ]);
    if (isFirst) form.load(policy);
    isFirst = false;
  });
}
