/** Keys: `g` and a letter goes to a tab, `/` filters, `?` tells all. None works while something is typed or asked. */

import { ask, isDialogOpen } from './dialog.js';
import { h } from './dom.js';
import { TABS } from './pages.js';
import { go } from './router.js';

const WAIT_MS = 1200;

/**
 * Starts listening.
 *
 * @param {{refresh: () => void, search: () => void, theme: () => void, turn: (by: number) => void, isIn: () => boolean}} actions
 */
export function listen(actions) {
  let since = 0;
  document.addEventListener('keydown', (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k' && actions.isIn() && !isDialogOpen()) {
      event.preventDefault();
      actions.search();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isDialogOpen() || !actions.isIn()) return;
    if (isTyping(event.target)) {
      if (event.key === 'Escape') event.target.blur();
      return;
    }
    const isAfterG = Date.now() - since < WAIT_MS;
    since = 0;
    if (isAfterG && jump(event.key)) event.preventDefault();
    else if (event.key === 'g') since = Date.now();
    else if (press(event.key, actions)) event.preventDefault();
  });
}

function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
    && !/^(checkbox|radio|button|submit)$/.test(target.type);
}

function jump(key) {
  const tab = TABS.find(([, , , letter]) => letter === key);
  if (tab) go(tab[2]);
  return Boolean(tab);
}

function press(key, actions) {
  if (key === '?') help();
  else if (key === '/') focusFilter();
  else if (key === 's') actions.search();
  else if (key === 'r') actions.refresh();
  else if (key === 't') actions.theme();
  else if (key === '[' || key === 'p') actions.turn(-1);
  else if (key === ']' || key === 'n') actions.turn(1);
  else if (key === 'j') step(1);
  else if (key === 'k') step(-1);
  else return false;
  return true;
}

function focusFilter() {
  const filter = document.querySelector('[data-filter]');
  filter?.focus();
  filter?.select();
}

/** Moves the focus to the next or previous row's link. */
function step(by) {
  const links = [...document.querySelectorAll('main tbody tr')].map((row) => row.querySelector('a')).filter(Boolean);
  if (!links.length) return;
  const row = document.activeElement?.closest?.('tbody tr');
  const place = links.findIndex((one) => row && row.contains(one));
  links[Math.min(links.length - 1, Math.max(0, place < 0 ? (by > 0 ? 0 : links.length - 1) : place + by))].focus();
}

/** Shows the sheet of keys. */
export function help() {
  const rows = [
    ...TABS.map(([, label, , letter]) => [`g ${letter}`, label]),
    ['/', 'Filter the list'],
    ['s or Ctrl K', 'Search everything'],
    ['j k', 'Next, previous row; Enter opens it'],
    ['[ ]', 'Previous, next page'],
    ['r', 'Refresh now'],
    ['t', 'Dark or light'],
    ['Esc', 'Leave a field, close a dialog'],
    ['?', 'This sheet'],
  ];
  const keys = (text) => text.split(' ').map((key) => (key === 'or' ? ' or ' : h('kbd', null, key)));
  return ask('Keyboard', () => ({
    body: [h('dl.keys', null, rows.map(([key, what]) => h('div', null, h('dt', null, keys(key)), h('dd', null, what))))],
    buttons: [h('button.button.is-primary', { type: 'button', autofocus: true, onclick: (event) => event.target.closest('dialog').close() }, 'Close')],
  }), undefined);
}
