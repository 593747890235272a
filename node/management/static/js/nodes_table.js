/** The nodes and their use of resources. */

import { del, path } from './api.js';
import { can } from './auth.js';
import { attempt, confirm } from './dialog.js';
import { h } from './dom.js';
import { NOTHING, bytes, duration, milliseconds, number, plural } from './format.js';
import { badge, button, link, meter, state } from './parts.js';
import { Table } from './table.js';

/** The fields of /api/nodes that the table and the notes of the overview read. */
export const NODE_COLUMNS = 'name,type,running,uptime,fd_used,fd_total,sockets_used,sockets_total,mem_used,'
  + 'mem_limit,mem_alarm,mem_calculation_strategy,disk_free,disk_free_limit,disk_free_alarm,rates_mode,enabled_plugins,partitions,'
  + 'applications,being_drained,loop_lag';

/** Used of a total: `55 / 20,000`. */
export function usedMeter(used, total, hint) {
  if (typeof used !== 'number') return NOTHING;
  return meter(used, total, `${number(used)} / ${number(total)}`, { hint });
}

/** Memory against its high watermark. */
export function memoryMeter(node) {
  if (typeof node.mem_used !== 'number') return NOTHING;
  return meter(node.mem_used, node.mem_limit, `${bytes(node.mem_used)} / ${bytes(node.mem_limit)}`,
    { isAlarm: node.mem_alarm, hint: node.mem_alarm ? 'Memory alarm: publishers are blocked' : 'Of the high watermark' });
}

/** Free disk space against its low watermark: full where the limit is reached. */
export function diskMeter(node) {
  if (typeof node.disk_free !== 'number') return NOTHING;
  return meter(node.disk_free_limit, node.disk_free, `${bytes(node.disk_free)} free`,
    { isAlarm: node.disk_free_alarm, hint: node.disk_free_alarm ? 'Disk alarm: publishers are blocked' : `Low watermark ${bytes(node.disk_free_limit)}` });
}

function health(node) {
  if (node.running === false) return state('down', 'bad', 'The node doesn’t run, or can’t be reached');
  if (node.partitions?.length) return state('partitioned', 'bad', node.partitions.join(', '));
  if (node.mem_alarm || node.disk_free_alarm) return state('alarm', 'bad');
  if (node.being_drained) return state('maintenance', 'warn');
  return state('running', 'good');
}

function info(node) {
  if (node.running === false) return NOTHING;
  return h('span.marks', null,
    node.rates_mode && badge(`rates: ${node.rates_mode}`, 'quiet', 'Statistics: which rates are kept'),
    node.type && badge(node.type, node.type === 'ram' ? 'warn' : 'quiet', `This node keeps the definitions ${node.type === 'ram' ? 'in memory only' : 'on disk'}`),
    node.enabled_plugins && badge(plural(node.enabled_plugins.length, 'plug-in'), 'quiet', `Plug-ins: ${node.enabled_plugins.join(', ') || 'none'}`),
    node.mem_calculation_strategy && badge(`memory: ${node.mem_calculation_strategy}`, 'quiet', 'How used memory is reckoned'));
}

/** @returns {Table} of nodes of /api/nodes (NODE_COLUMNS) */
export function nodesTable(view) {
  const resets = can('administrator') ? [{ id: 'reset', title: 'Statistics', cell: (node) => resetButton(view, node) }] : [];
  return new Table({
    caption: 'Nodes',
    key: (node) => node.name,
    rowClass: (node) => (node.running === false ? 'is-dim' : ''),
    empty: 'No nodes.',
    columns: [
      { id: 'name', title: 'Name', cell: (node) => link.node(node.name) },
      { id: 'state', title: 'State', cell: health },
      { id: 'memory', title: 'Memory', class: 'meter-cell', cell: memoryMeter },
      { id: 'disk', title: 'Disk space', class: 'meter-cell', cell: diskMeter },
      { id: 'fd', title: 'File descriptors', class: 'meter-cell', cell: (node) => usedMeter(node.fd_used, node.fd_total) },
      { id: 'sockets', title: 'Sockets', class: 'meter-cell', cell: (node) => usedMeter(node.sockets_used, node.sockets_total) },
      { id: 'lag', title: 'Loop lag', number: true, hint: 'Event-loop lag: for how long the node’s loop was held at once at most in the last seconds', cell: (node) => milliseconds(node.loop_lag) },
      { id: 'uptime', title: 'Uptime', class: 'uptime-cell', cell: (node) => duration(node.uptime) },
      { id: 'info', title: 'Info', class: 'info-cell', cell: info },
      ...resets,
    ],
  });
}

const RESET = 'The history behind rates and charts is forgotten. Counters go on; queues and messages are not touched.';

function resetButton(view, node) {
  if (node.running === false) return NOTHING;
  return button('Reset', () => reset(view, path('reset', node.name), node.name), { small: true, hint: `Reset the statistics of ${node.name}` });
}

async function reset(view, where, whose) {
  const sure = await confirm({ title: `Reset the statistics of ${whose}?`, text: RESET, action: 'Reset' });
  if (sure && (await attempt(() => del(where), 'Statistics are reset'))) await view.refresh();
}

/** A button that resets the statistics of all nodes. */
export function resetAllButton(view) {
  return button('Reset all statistics', () => reset(view, 'reset', 'all nodes'), { small: true });
}
