/**
 * The pages that enabled plug-ins bring: `#/plugins/NAME`. Each is a module with the interface of the UI's own pages
 * (app.js), which the node serves below `plugins/NAME/`; `../../js/api.js` is the way from there to the UI's modules.
 */

import { getIfAny } from './api.js';
import { can } from './auth.js';
import { pagesOf } from './pages.js';

let pages = [];

/** The pages that the last `refreshPluginPages` found, in the form of those of pages.js. */
export function pluginPages() {
  return pages;
}

/** Asks which pages there are; an older server has none. */
export async function refreshPluginPages() {
  pages = pagesOf((await getIfAny('extensions', { vhost: null, quiet: true })) ?? []).filter((one) => can(one.tag));
}
