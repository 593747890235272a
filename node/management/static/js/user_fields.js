/** The fields that forms about users share: passwords and tags. */

import { tagsOf } from './auth.js';
import { h } from './dom.js';
import { field, input, select } from './form.js';
import { badge } from './parts.js';

const TAGS = [
  ['administrator', 'Everything'],
  ['monitoring', 'Sees all, changes what its permissions allow'],
  ['policymaker', 'Policies and parameters of its virtual hosts'],
  ['management', 'What belongs to it'],
  ['impersonator', 'May publish in the name of others'],
];
const TONES = { administrator: 'bad', monitoring: 'info', policymaker: 'info', management: 'good' };

/** Tags as badges. */
export function tagBadges(tags) {
  const all = tagsOf(tags);
  return all.length ? all.map((tag) => [badge(tag, TONES[tag] ?? 'quiet'), ' ']) : h('span.quiet', null, 'none');
}

/** Buttons that put a tag into an input of tags, or take it out. */
export function tagChips(target) {
  const toggle = (tag) => {
    const now = tagsOf(target.value);
    target.value = (now.includes(tag) ? now.filter((one) => one !== tag) : [...now, tag]).join(', ');
  };
  return h('.chips', { role: 'group', 'aria-label': 'Known tags' }, TAGS.map(([tag, hint]) => h('button.chip', { type: 'button', title: hint, onclick: () => toggle(tag) }, tag)));
}

/** The choice of login: a password, its hash, or none. */
export function passwordFields() {
  const kind = select('kind', [['password', 'Password'], ['hash', 'Hash of a password'], ['none', 'No password']]);
  const password = input('password', { type: 'password', autocomplete: 'new-password', required: true });
  const again = input('again', { type: 'password', autocomplete: 'new-password', required: true });
  const hash = input('password_hash', {});
  const labels = [field('Password', password), field('Again', again)];
  const hashed = field('Hash', hash, 'Base64 of salt and digest');
  const check = () => again.setCustomValidity(kind.value === 'password' && again.value !== password.value ? 'The passwords differ' : '');
  const choose = () => {
    const { value } = kind;
    for (const label of labels) label.hidden = value !== 'password';
    hashed.hidden = value !== 'hash';
    password.required = again.required = value === 'password';
    hash.required = value === 'hash';
    check();
  };
  password.addEventListener('input', check);
  again.addEventListener('input', check);
  kind.addEventListener('change', choose);
  choose();
  return [field('Logs in with', kind), ...labels, hashed];
}

/** The values of these fields for the API. */
export function passwordOf({ kind, password, password_hash }) {
  if (kind === 'password') return { password };
  return { password_hash: kind === 'hash' ? password_hash : '' };
}
