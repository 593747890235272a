/** Bindings of a queue or an exchange: a table with a button that unbinds, and a form that binds. */

import { del, path, post } from './api.js';
import { attempt, confirm } from './dialog.js';
import { h } from './dom.js';
import { argumentsEditor, field, form, input, select } from './form.js';
import { argumentList, badge, button, link } from './parts.js';
import { PagedList } from './table.js';

/**
 * A list that the server pages: an exchange may have thousands of bindings.
 *
 * @param {object} view the page's view
 * @param {string} where path of the bindings, of `path`
 * @param {'source'|'destination'} shows which end of the bindings the list names: the one that isn't this page's
 * @param {{isAside?: boolean}} [options] isAside: there is another list on the page
 */
export function bindingsList(view, where, shows, { isAside = false } = {}) {
  const end = shows === 'source' ? 'From' : 'To';
  return new PagedList(view, {
    id: `bindings.${shows}`,
    noun: 'binding',
    caption: `bindings by ${shows}`,
    path: where,
    isAside,
    isSmall: true,
    filterBy: `${shows} or key`,
    key: (row) => JSON.stringify([row.source, row.destination_type, row.destination, row.properties_key]),
    empty: 'No bindings.',
    columns: [
      { id: 'end', title: end, sort: shows, cell: (row) => otherEnd(row, shows) },
      { id: 'key', title: 'Routing key', sort: 'routing_key', cell: (row) => h('code', null, row.routing_key) },
      { id: 'arguments', title: 'Arguments', cell: (row) => argumentList(row.arguments) },
      { id: 'unbind', title: '', class: 'is-action', cell: (row) => unbindButton(view, row) },
    ],
  });
}

function otherEnd(row, shows) {
  if (shows === 'source') return [link.exchange(row.vhost, row.source), ' ', badge('exchange')];
  const isQueue = row.destination_type === 'queue';
  const name = isQueue ? link.queue(row.vhost, row.destination) : link.exchange(row.vhost, row.destination);
  return [name, ' ', badge(row.destination_type, isQueue ? 'info' : 'quiet')];
}

function unbindButton(view, row) {
  if (row.source === '') return h('span.quiet', { title: 'Every queue is bound to the default exchange by its name.' }, 'implicit');
  return button('Unbind', () => unbind(view, row), { small: true, hint: `Unbind ${row.destination} from ${row.source}` });
}

async function unbind(view, row) {
  const from = row.source;
  const text = [h('code', null, from), ' → ', h('code', null, row.destination), ', routing key ', h('code', null, row.routing_key)];
  if (!(await confirm({ title: 'Remove this binding?', text, action: 'Unbind' }))) return;
  const type = row.destination_type === 'queue' ? 'q' : 'e';
  const where = path('bindings', row.vhost, 'e', from, type, row.destination, row.properties_key);
  if (await attempt(() => del(where), 'Unbound')) await view.refresh();
}

/** Binds a queue to an exchange whose name is typed. */
export function bindQueueForm(view, vhost, queue) {
  const table = argumentsEditor();
  const fields = [
    field('From exchange', input('source', { required: true, maxlength: 255 })),
    field('Routing key', input('routing_key', { maxlength: 255 })),
    table.element,
  ];
  return form(fields, 'Bind', (values, element) =>
    bind(view, vhost, [values.source, 'q', queue], values.routing_key, table, element));
}

/** Binds a queue or exchange, whose name is typed, to an exchange. */
export function bindExchangeForm(view, vhost, exchange) {
  const table = argumentsEditor();
  const fields = [
    field('To', select('type', [['q', 'Queue'], ['e', 'Exchange']])),
    field('Name', input('destination', { required: true, maxlength: 255 })),
    field('Routing key', input('routing_key', { maxlength: 255 })),
    table.element,
  ];
  return form(fields, 'Bind', (values, element) =>
    bind(view, vhost, [exchange, values.type, values.destination], values.routing_key, table, element));
}

async function bind(view, vhost, [source, type, destination], key, table, element) {
  const work = () => post(path('bindings', vhost, 'e', source, type, destination), { routing_key: key, arguments: table.read() });
  if (!(await attempt(work, 'Bound'))) return;
  element.reset();
  table.load({});
  await view.refresh();
}
