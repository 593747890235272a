/** The cluster: its name, and its nodes in short. */

import { get, put } from '../api.js';
import { cluster } from '../cluster.js';
import { attempt } from '../dialog.js';
import { append, h } from '../dom.js';
import { field, form, input } from '../form.js';
import { link, section, state } from '../parts.js';
import { Table } from '../table.js';

export const title = 'Cluster';

export async function render(view) {
  const name = input('name', { required: true, maxlength: 255 });
  const rename = form([field('Name', name, 'Clients are told it when they connect')], 'Rename', async (values) => {
    if (await attempt(() => put('cluster-name', { name: values.name }), 'Renamed')) await view.refresh();
  });
  const nodes = new Table({
    key: (row) => row.name,
    caption: 'nodes',
    empty: 'No facts about the nodes are known.',
    columns: [
      { id: 'name', title: 'Node', cell: (row) => link.node(row.name) },
      { id: 'state', title: 'State', cell: (row) => (row.running === false ? state('down', 'bad') : state('running', 'good')) },
      { id: 'type', title: 'Type', cell: (row) => row.type },
    ],
  });
  append(view.body,
    h('header.page-head', null, h('h1', null, 'Cluster')),
    section('cluster.name', 'Name', {}, rename),
    section('cluster.nodes', 'Nodes', {}, nodes.element));
  name.value = (await get('cluster-name', { signal: view.signal })).name;
  await view.every(async () => nodes.update(cluster.nodes));
}
