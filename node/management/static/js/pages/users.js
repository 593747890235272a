/** Users: their tags and virtual hosts; adding one. */

import { get, path, put } from '../api.js';
import { attempt } from '../dialog.js';
import { append, h } from '../dom.js';
import { field, form, input } from '../form.js';
import { badge, link, section } from '../parts.js';
import { PagedList } from '../table.js';
import { passwordFields, passwordOf, tagBadges, tagChips } from '../user_fields.js';

export const title = 'Users';

export async function render(view) {
  let permissions = new Map();
  const list = new PagedList(view, {
    id: 'users',
    noun: 'user',
    path: 'users',
    key: (row) => row.name,
    defaults: { sort: 'name' },
    columns: [
      { id: 'name', title: 'Name', sort: 'name', cell: (row) => link.user(row.name) },
      { id: 'tags', title: 'Tags', sort: 'tags', cell: (row) => tagBadges(row.tags) },
      { id: 'vhosts', title: 'Can access', cell: (row) => vhostLinks(permissions.get(row.name)) },
      { id: 'password', title: 'Has password', cell: (row) => (row.password_hash ? 'yes' : badge('no', 'warn', 'Can’t log in with a password')) },
    ],
  });
  append(view.body,
    h('header.page-head', null, h('h1', null, 'Users')),
    list.element,
    section('users.add', 'Add a user', { isOpen: false }, addForm(view)));
  await view.every(async () => {
    permissions = new Map();
    for (const { user, vhost } of await get('permissions', { signal: view.signal, vhost: null })) {
      if (!permissions.has(user)) permissions.set(user, []);
      permissions.get(user).push(vhost);
    }
    await list.refresh();
  });
}

function vhostLinks(vhosts) {
  if (!vhosts?.length) return badge('no virtual host', 'warn');
  return vhosts.sort().map((vhost, index) => [index ? ', ' : null, link.vhost(vhost)]);
}

function addForm(view) {
  const tags = input('tags', { placeholder: 'none' });
  const fields = [
    field('Name', input('name', { required: true, maxlength: 255 })),
    ...passwordFields(),
    field('Tags', tags, 'Separated by commas'),
    tagChips(tags),
  ];
  return form(fields, 'Add user', async (values, element) => {
    const work = () => put(path('users', values.name), { ...passwordOf(values), tags: values.tags });
    if (!(await attempt(work, `Added ${values.name}`))) return;
    element.reset();
    await view.refresh();
  });
}
