/**
 * Menus: `details.menu` elements whose `.menu-body` floats. They close when something else is clicked, when a link in them
 * is followed, and by Escape. One listener serves all, so that menus of pages that were left are forgotten.
 */

const OPEN = 'details.menu[open]';

document.addEventListener('click', ({ target }) => {
  if (!(target instanceof Element)) return;
  for (const menu of document.querySelectorAll(OPEN)) if (!menu.contains(target) || target.closest('a')) menu.open = false;
});

document.addEventListener('keydown', (event) => {
  const menu = event.key === 'Escape' && event.target instanceof Element ? event.target.closest(OPEN) ?? document.querySelector(OPEN) : null;
  if (!menu) return;
  menu.open = false;
  menu.querySelector('summary').focus();
});
