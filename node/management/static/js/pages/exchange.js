/** An exchange: its rates, its bindings in both directions, publishing, deleting. */

import { del, get, path } from '../api.js';
import { bindExchangeForm, bindingsList } from '../bindings.js';
import { Chart, rangeParams, rangePicker } from '../chart.js';
import { cluster } from '../cluster.js';
import { delayedList } from '../delayed.js';
import { attempt, confirm } from '../dialog.js';
import { fill, h, patch } from '../dom.js';
import { exchangeName, number, plural } from '../format.js';
import { argumentList, badge, button, link, liveFacts, section } from '../parts.js';
import { publishForm } from '../publish.js';
import { go } from '../router.js';

const RATES = [
  { label: 'Publish in', field: 'message_stats.publish_in', colour: 'publish' },
  { label: 'Publish out', field: 'message_stats.publish_out', colour: 'deliver' },
];

/** The name that a route's `amq.default` stands for. */
const named = ({ name }) => (name === 'amq.default' ? '' : name);

export const title = (params) => exchangeName(named(params));

export async function render(view, params) {
  const { vhost } = params;
  const name = named(params);
  const where = path('exchanges', vhost, name);
  const kept = cluster.overview.sample_retention_policies?.basic;
  const shown = parts(view, vhost, name, kept);
  fill(view.body, shown.all);
  view.turn = (by) => shown.from.turn(by);
  await view.every(async () => {
    const { signal } = view;
    const [exchange] = await Promise.all([
      get(where, { params: rangeParams('exchange', ['msg_rates'], kept), signal }),
      shown.from.refresh(),
      name === '' ? null : shown.onto.refresh(),
    ]);
    patch(shown.head, marks(exchange));
    shown.delayed.hidden = exchange.type !== 'x-delayed-message';
    shown.chart.update(exchange);
    shown.details([
      ['Virtual host', link.vhost(vhost)],
      exchange.messages_delayed !== undefined && ['Delayed messages', number(exchange.messages_delayed)],
      ['Policy', exchange.policy ? link.policy(vhost, exchange.policy) : null],
      ['Arguments', argumentList(exchange.arguments)],
      ['Declared by', exchange.user_who_performed_action || null],
    ]);
  });
}

function parts(view, vhost, name, kept) {
  const head = h('.page-marks');
  const chart = new Chart({ id: 'exchange.rates', title: 'Message rates', kind: 'rate', series: RATES });
  const details = liveFacts();
  const where = path('exchanges', vhost, name);
  const from = bindingsList(view, `${where}/bindings/source`, 'destination');
  const onto = bindingsList(view, `${where}/bindings/destination`, 'source', { isAside: true });
  const isDefault = name === '';
  const isOwn = !isDefault && !name.startsWith('amq.');
  const bind = isDefault
    ? h('p.hint', null, 'Every queue is bound to the default exchange by its name; nothing else can be.')
    : section('exchange.bind', 'Add a binding from this exchange', { isOpen: false }, bindExchangeForm(view, vhost, name));
  const delayed = section('exchange.delayed', 'Delayed messages', { isOpen: false }, delayedList(view, vhost, name));
  delayed.hidden = true;
  const remove = button('Delete exchange', () => deleteExchange(vhost, name, from), { danger: true });
  const all = [
    h('header.page-head', null, h('h1', null, h('span.page-kind', null, 'Exchange'), ' ', h('span.name', null, exchangeName(name))), head),
    section('exchange.charts', 'Messages', { tools: rangePicker('exchange', kept, () => view.refresh()) }, h('.charts', null, chart.element)),
    section('exchange.details', 'Details', {}, details.element),
    section('exchange.bindings', 'Bindings', {},
      h('h3', null, 'From this exchange'), from.element,
      isDefault ? null : [h('h3', null, 'To this exchange'), onto.element], bind),
    delayed,
    section('exchange.publish', 'Publish a message', { isOpen: false }, publishForm(view, vhost, name)),
    isOwn && section('exchange.danger', 'Delete', { isOpen: false }, h('.danger-buttons', null, remove)),
  ];
  return { all, head, chart, details, delayed, from, onto };
}

function marks(exchange) {
  return [
    badge(exchange.type, 'info'), ' ',
    exchange.durable ? badge('durable') : badge('transient', 'warn'), ' ',
    exchange.auto_delete && badge('auto delete'), ' ',
    exchange.internal && badge('internal', 'quiet', 'Clients can’t publish to it'),
  ];
}

async function deleteExchange(vhost, name, from) {
  const count = from.total ?? 0;
  const text = count ? `${plural(count, 'binding')} go with it; publishers to it will get an error.` : 'Publishers to it will get an error.';
  if (!(await confirm({ title: `Delete the exchange ${name}?`, text, action: 'Delete', typed: count ? name : null }))) return;
  if (await attempt(() => del(path('exchanges', vhost, name)), 'Deleted')) go('#/exchanges');
}
