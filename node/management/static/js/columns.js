/** Columns that several lists share. */

import { h } from './dom.js';
import { NOTHING, at, rate } from './format.js';
import { link } from './parts.js';

/** A rate per second at a dotted field, as `message_stats.publish_details.rate`. */
export function rateColumn(id, title, field, extra = {}) {
  const cell = (row) => {
    const value = at(row, field);
    return value ? rate(value) : h('span.quiet', null, value === 0 ? '0/s' : NOTHING);
  };
  return { id, title, number: true, sort: field, fields: [field], group: 'Message rates', cell, ...extra };
}

/** The virtual host, in lists of several. */
export function vhostColumn() {
  return { id: 'vhost', title: 'Virtual host', sort: 'vhost', fields: ['vhost'], cell: (row) => link.vhost(row.vhost) };
}

/** The node, in a cluster. */
export function nodeColumn() {
  return { id: 'node', title: 'Node', sort: 'node', fields: ['node'], cell: (row) => (row.node ? link.node(row.node) : '–') };
}

/** The user. */
export function userColumn() {
  return { id: 'user', title: 'User', sort: 'user', fields: ['user'], cell: (row) => link.user(row.user) };
}
