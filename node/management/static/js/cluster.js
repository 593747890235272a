/**
 * The facts about the cluster that each refresh fetches: names, versions, nodes, virtual hosts. Pages read them instead of asking
 * again. `events` tells of a change.
 */

import { get, getIfAny } from './api.js';
import { can } from './auth.js';

export const events = new EventTarget();

/** @type {{overview: object, nodes: object[], vhosts: object[]}} nodes is empty for users who may not see them */
export const cluster = { overview: {}, nodes: [], vhosts: [] };

const OVERVIEW = 'management_version,rabbitmq_version,product_name,product_version,cluster_name,erlang_full_version,node,'
  + 'rates_mode,sample_retention_policies,exchange_types,statistics_db_event_queue,disable_stats,object_totals';
const NODES = 'name,type,running,partitions,mem_alarm,disk_free_alarm,being_drained,mem_used,mem_limit,disk_free,disk_free_limit';

/** Asks anew. Throws what `get` throws. */
export async function refreshCluster() {
  const [overview, nodes, vhosts] = await Promise.all([
    get('overview', { params: { columns: OVERVIEW }, vhost: null }),
    can('monitoring') ? getIfAny('nodes', { params: { columns: NODES }, quiet: true }) : [],
    getIfAny('vhosts', { params: { columns: 'name,cluster_state' }, quiet: true, vhost: null }),
  ]);
  Object.assign(cluster, { overview, nodes: nodes ?? [], vhosts: vhosts ?? [] });
  events.dispatchEvent(new Event('change'));
}

/** True if there is more than one node: then lists have a column for the node. */
export function isClustered() {
  return cluster.nodes.length > 1;
}

/** Names of all nodes that the user may see. */
export function nodeNames() {
  return cluster.nodes.map((node) => node.name);
}

/** True if there is more than one virtual host and none is chosen: then lists have a column for it. */
export function showsVhosts(chosen) {
  return !chosen && cluster.vhosts.length > 1;
}

/**
 * The problems of the cluster, worst first: [{tone, text, detail}]; empty when all is well. Pure.
 *
 * @param {object[]} nodes of /api/nodes
 * @param {object[]} vhosts of /api/vhosts
 */
export function troubles(nodes, vhosts = []) {
  const found = [];
  for (const node of nodes.filter((one) => one.partitions?.length)) {
    found.push({ tone: 'bad', kind: 'partition', text: `Network partition: ${node.name} was partitioned from ${node.partitions.join(', ')}`,
      detail: 'Nothing diverges: a side without a majority pauses, and comes back by itself when the network does.' });
  }
  for (const node of nodes.filter((one) => one.running === false)) {
    found.push({ tone: 'bad', kind: 'down', text: `${node.name} is down`, detail: 'Its clients have to go elsewhere.', node: node.name });
  }
  for (const node of nodes.filter((one) => one.mem_alarm)) {
    found.push({ tone: 'bad', kind: 'alarm', text: `Memory alarm on ${node.name}`, detail: 'Publishers are blocked on all nodes.', node: node.name });
  }
  for (const node of nodes.filter((one) => one.disk_free_alarm)) {
    found.push({ tone: 'bad', kind: 'alarm', text: `Disk alarm on ${node.name}`, detail: 'Publishers are blocked on all nodes.', node: node.name });
  }
  for (const node of nodes.filter((one) => one.being_drained)) {
    found.push({ tone: 'warn', kind: 'drained', text: `${node.name} is in maintenance`, detail: 'It takes no clients.', node: node.name });
  }
  const up = new Set(nodes.filter((one) => one.running !== false).map((one) => one.name));
  for (const vhost of vhosts) {
    const bad = Object.entries(vhost.cluster_state ?? {}).filter(([name, how]) => how !== 'running' && (!nodes.length || up.has(name)));
    for (const [name, how] of bad) {
      found.push({ tone: 'bad', kind: 'vhost', text: `Virtual host ${vhost.name} is ${how} on ${name}`, detail: '' });
    }
  }
  return found;
}
