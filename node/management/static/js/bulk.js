/** One action on many selected objects: asks, acts on one after the other, and shows which were refused. */

import { confirm, tell, toast } from './dialog.js';
import { h } from './dom.js';
import { plural } from './format.js';

const SHOWN = 8;

/**
 * @param {object[]} rows
 * @param {string[]} names of the rows, for the question
 * @param {{verb: string, noun: string, text: string, each: (row) => Promise, danger?: boolean, isTyped?: boolean}} options
 *   isTyped: the number of things has to be typed, when there are several
 * @returns {Promise<boolean>} false when it was cancelled
 */
export async function bulk(rows, names, { verb, noun, text, each, danger = true, isTyped = false }) {
  const what = plural(rows.length, noun);
  const list = h('ul.bulk-names', null, names.slice(0, SHOWN).map((name) => h('li', null, name)),
    names.length > SHOWN && h('li.quiet', null, `and ${names.length - SHOWN} more`));
  const sure = await confirm({
    title: `${verb} ${what}?`, text: [h('p', null, text), list], action: `${verb} ${what}`, danger, typed: isTyped && rows.length > 1 ? String(rows.length) : null,
  });
  if (!sure) return false;
  const failures = [];
  for (const [index, row] of rows.entries()) {
    try {
      await each(row);
    } catch (error) {
      failures.push([names[index], error.message]);
    }
  }
  if (rows.length > failures.length) toast(`${verb}: ${plural(rows.length - failures.length, noun)}`);
  if (failures.length) {
    await tell(`${plural(failures.length, noun)} refused`, h('dl.bulk-failures', null,
      failures.slice(0, SHOWN).map(([name, reason]) => [h('dt', null, name), h('dd', null, reason)])));
  }
  return true;
}
