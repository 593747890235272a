/** Dark or light: the system's wish until the user chooses. */

import { pref, setPref } from './prefs.js';

const system = window.matchMedia('(prefers-color-scheme: dark)');

/** `dark` or `light`, as shown. */
export function theme() {
  return pref('theme', null) ?? (system.matches ? 'dark' : 'light');
}

/** Puts the theme on the page and keeps to it. */
export function applyTheme() {
  document.documentElement.dataset.theme = theme();
  document.dispatchEvent(new Event('fluffle:theme'));
}

/** Changes to the other theme. If the system wants that one, the choice is forgotten: the page follows the system again. */
export function toggleTheme() {
  const next = theme() === 'dark' ? 'light' : 'dark';
  setPref('theme', next === (system.matches ? 'dark' : 'light') ? undefined : next);
  applyTheme();
}

system.addEventListener('change', applyTheme);
