/** A user: permissions, limits, password and tags. */

import { del, get, path, put } from '../api.js';
import { tagsOf, user as me } from '../auth.js';
import { attempt, confirm } from '../dialog.js';
import { append, h, patch } from '../dom.js';
import { field, form, input } from '../form.js';
import { limitForm, limitRows, limitsTable } from '../limits_parts.js';
import { button, liveFacts, section } from '../parts.js';
import { permissionForm, permissionsTable, topicPermissionForm, topicPermissionsTable } from '../permissions.js';
import { go } from '../router.js';
import { passwordFields, passwordOf, tagBadges, tagChips } from '../user_fields.js';

export const title = ({ name }) => name;

export async function render(view, { name }) {
  const where = path('users', name);
  const head = h('.page-marks');
  const details = liveFacts();
  const permissions = permissionsTable(view, 'user');
  const topics = topicPermissionsTable(view, 'user');
  const limits = limitsTable(view, 'user', { canChange: true, namesOwner: false });
  const tags = input('tags');
  append(view.body,
    h('header.page-head', null, h('h1', null, h('span.page-kind', null, 'User'), ' ', h('span.name', null, name)), head),
    section('user.details', 'Details', {}, details.element),
    section('user.permissions', 'Permissions', {}, permissions.element, permissionForm(view, { user: name })),
    section('user.topics', 'Topic permissions', { isOpen: false }, topics.element, topicPermissionForm(view, { user: name })),
    section('user.limits', 'Limits', { isOpen: false }, limits.element, limitForm(view, 'user', name)),
    section('user.tags', 'Tags', { isOpen: false }, tagsForm(view, where, tags)),
    section('user.password', 'Password', { isOpen: false }, passwordForm(view, where)),
    section('user.danger', 'Delete', { isOpen: false }, h('.danger-buttons', null, button('Delete user', () => deleteUser(name), { danger: true }))));
  let isFirst = true;
  await view.every(async () => {
    const { signal } = view;
    const [user, allowed, topicAllowed, limited] = await Promise.all([
      get(where, { signal }),
      get(`${where}/permissions`, { signal }),
      get(`${where}/topic-permissions`, { signal }),
      get(path('user-limits', name), { signal }),
    ]);
    patch(head, tagBadges(user.tags));
    details([
      ['Password', user.password_hash ? 'set' : 'none: can’t log in with one'],
      user.password_hash ? ['Hashed by', String(user.hashing_algorithm ?? '').replace('rabbit_password_hashing_', '')] : null,
    ]);
    permissions.update(allowed ?? []);
    topics.update(topicAllowed ?? []);
    limits.update(limitRows('user', limited));
    if (isFirst) tags.value = tagsOf(user.tags).join(', ');
    isFirst = false;
  });
}

/** Sends the hash, too: a PUT without one would remove the password. */
function tagsForm(view, where, tags) {
  return form([field('Tags', tags, 'Separated by commas'), tagChips(tags)], 'Set tags', async (values) => {
    const work = async () => {
      const { password_hash, hashing_algorithm } = await get(where);
      await put(where, { password_hash, hashing_algorithm, tags: values.tags });
    };
    if (await attempt(work, 'Set')) await view.refresh();
  });
}

function passwordForm(view, where) {
  return form(passwordFields(), 'Set password', async (values, element) => {
    const work = async () => {
      const { tags } = await get(where);
      await put(where, { ...passwordOf(values), tags: tagsOf(tags).join(',') });
    };
    if (!(await attempt(work, 'Set'))) return;
    for (const control of element.elements) if (control.type === 'password') control.value = '';
    await view.refresh();
  });
}

async function deleteUser(name) {
  const text = me()?.name === name ? 'That is you: you will be logged out.' : 'Its connections are closed, and its permissions go with it.';
  if (!(await confirm({ title: `Delete the user ${name}?`, text, action: 'Delete', typed: name }))) return;
  if (await attempt(() => del(path('users', name)), 'Deleted')) go('#/users');
}
