/** Maintenance mode of a node: the button that drains it, or lets clients in again. */

import { path, post } from './api.js';
import { can } from './auth.js';
import { cluster } from './cluster.js';
import { attempt, confirm } from './dialog.js';
import { h } from './dom.js';
import { button } from './parts.js';

/**
 * @param {object} view the page's view
 * @param {string} name of the node
 * @returns {{element: HTMLElement, update: (node: object) => void}} empty for users without the right; `update` with each new row of the node
 */
export function maintenanceButton(view, name) {
  const drain = button('Drain', () => act(view, name, 'drain', drainText(name)), { hint: 'Maintenance mode: masters move away, clients are disconnected' });
  const revive = button('Revive', () => act(view, name, 'revive', 'Clients may connect again, and the node gets masters again.'), { primary: true, hint: 'End maintenance mode' });
  const element = can('administrator') ? h('span.page-tools', null, drain, revive) : h('span');
  const update = (node) => {
    drain.hidden = node.running === false || Boolean(node.being_drained);
    revive.hidden = node.running === false || !node.being_drained;
  };
  update({ running: false });
  return { element, update };
}

/** The effect of draining, with a warning when no other node can take over. */
function drainText(name) {
  const others = cluster.nodes.filter((node) => node.name !== name && node.running !== false && !node.being_drained);
  const text = 'Its masters move to synchronised mirrors, its clients are disconnected and have to go elsewhere, and it takes no new ones. The node keeps running until it is stopped or revived.';
  if (others.length) return text;
  return [h('p', null, text), h('p.problem', null, 'No other node serves clients: no node could take over, and no client could connect.')];
}

async function act(view, name, action, text) {
  const isDrain = action === 'drain';
  if (!(await confirm({ title: isDrain ? `Drain ${name}?` : `Revive ${name}?`, text, action: isDrain ? 'Drain' : 'Revive', danger: isDrain }))) return;
  const done = isDrain ? `${name} goes into maintenance mode` : `${name} comes back`;
  if (await attempt(() => post(`${path('nodes', name)}/actions`, { action }), done)) await view.refresh();
}
