/**
 * The web UI's start: login, routes, refreshes.
 *
 * How a page is written. One file a page, in js/pages/, named in js/pages.js with its route and tab. It exports
 *
 *     export const title = 'Queues';                        // or (params) => string
 *     export async function render(view, params) { … }      // params: the route's, decoded
 *
 * `render` builds its elements once into `view.body` (an empty element) and then names the tasks of a refresh:
 *
 *     const list = new PagedList(view, {…});                // table.js
 *     append(view.body, h('h1', null, 'Queues'), list.element);
 *     await view.every(() => list.refresh());               // now, at each tick of the refresh interval, and on view.refresh()
 *
 * `view`: `body`; `query` (URLSearchParams of the URL; `replaceQuery` of router.js keeps changes); `vhost` (the one chosen in
 * the header, or null); `signal` (aborted when the page is left: give it to requests); `refresh()`; `notice(title, text)`.
 * Errors that a task throws are handled: outages in the banner, 404 and 401 as a notice. Actions of the user are wrapped in
 * `attempt` (dialog.js), which shows the server's reason. A refresh doesn't rebuild: forms, focus and scrolling stay; use
 * `Table`, `Chart`, `liveFacts` or `patch`. A destructive action asks first: `confirm` (dialog.js).
 *
 * The modules: dom (h, patch), api (get, put, post, del, path), router (to, href), table, chart, parts (section, facts, badge,
 * link), form (field, argumentsEditor), dialog (confirm, attempt, toast), format, cluster (nodes, virtual hosts), auth (can).
 * Text only through `h` and `textContent`; no markup from strings; styles by CSSOM (`style: {width: '3em'}`) or css/.
 */

import { ApiError, get } from './api.js';
import { borrowSession, can, confirmSession, endSession, startSession } from './auth.js';
import { clearBanners } from './banner.js';
import { refreshCluster } from './cluster.js';
import { closeDialogs, tell } from './dialog.js';
import { fill, h } from './dom.js';
import { buildFrame } from './frame.js';
import * as keyboard from './keyboard.js';
import { loginPage } from './login.js';
import { PAGES } from './pages.js';
import { pluginPages, refreshPluginPages } from './plugin_pages.js';
import { pref } from './prefs.js';
import { match, parse } from './router.js';
import { openSearch } from './search.js';
import { applyTheme, toggleTheme } from './theme.js';
import { View } from './view.js';

const root = document.getElementById('app');
const RETRY_S = 5;
const MENU_DEFAULT = ['#/users', '#/policies'];

let frame = null;
let view = null;
let page = null;
let due = null; // when the next refresh comes, epoch ms; null: none
let timer = 0;
let isRefreshing = false;

async function start() {
  applyTheme();
  window.addEventListener('hashchange', follow);
  window.addEventListener('popstate', closeDialogs); // also where only the query is another one
  document.addEventListener('visibilitychange', () => !document.hidden && due !== null && due < Date.now() && tick());
  document.addEventListener('fluffle:unauthorized', () => frame && leave('Your session has ended. Log in again.'));
  document.addEventListener('fluffle:logout', () => frame && leave('You have logged out.'));
  keyboard.listen({
    refresh: tick,
    search: openSearch,
    theme: toggleTheme,
    turn: (by) => view?.turn?.(by),
    isIn: () => frame !== null,
  });
  let isLate;
  const late = new Promise((resolve) => { isLate = resolve; });
  const isIn = (await loginByLink()) || ((await borrowSession(isLate)) && (await resume()));
  if (!isIn) await Promise.race([loginPage(root, null), late.then(resumed)]);
  await enter();
}

/** `#/login/user/password`, as links of RabbitMQ's UI have it. */
async function loginByLink() {
  const params = match('#/login/:user/:password', parse(window.location.hash).path);
  if (!params) return false;
  startSession(params.user, params.password);
  window.history.replaceState(null, '', '#/');
  return resume();
}

async function resume() {
  try {
    confirmSession(await get('whoami', { vhost: null, quiet: true }));
    return true;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 401) endSession();
    return false;
  }
}

/** Resolves when the session of this tab is found to be good, else never. */
function resumed() {
  return new Promise((resolve) => { resume().then((isGood) => isGood && resolve()); });
}

async function enter() {
  frame = buildFrame(root, { logout: () => leave('You have logged out.', true), changed: follow, tick, secondsLeft, reschedule });
  if (/^#?\/?(login|logout)?$/.test(window.location.hash)) window.history.replaceState(null, '', '#/');
  await Promise.all([tickCluster(), tickPlugins()]);
  await navigate();
}

/** Logs out and shows the login page; a login then returns to the same page. */
async function leave(message, everywhere = false) {
  endSession(everywhere);
  view?.end();
  view = null;
  page = null;
  frame = null;
  clearTimeout(timer);
  clearBanners();
  closeDialogs();
  await loginPage(root, message);
  await enter();
}

/** Shows the page of the hash, once the first one is shown: before, the cluster is not known, and `enter` will do it. */
function follow() {
  if (view) navigate();
}

async function navigate() {
  if (!frame) return; // the session has ended meanwhile
  const { path, query } = parse(window.location.hash);
  if (path[0] === 'logout') {
    leave('You have logged out.', true);
    return;
  }
  if (path.length === 1 && path[0] === 'admin') {
    window.location.replace(can('administrator') ? MENU_DEFAULT[0] : MENU_DEFAULT[1]);
    return;
  }
  const found = [...PAGES, ...pluginPages()].map((one) => ({ one, params: match(one.route, path) })).find(({ params }) => params);
  view?.end();
  page = found?.one ?? null;
  const body = h('.page', { 'data-page': page?.file ?? 'none' });
  view = new View(body, query, () => frame?.fresh());
  frame.show(page, body);
  const current = view;
  try {
    if (!found) view.notice('Not found', 'There is no such page.');
    else if (page.tag && !can(page.tag)) view.notice('Not allowed', `This page is for users with the tag ${page.tag}.`);
    else await show(current, found);
  } finally {
    if (current === view) schedule();
  }
}

async function show(current, { one, params }) {
  try {
    const module = await import(one.module ?? `./pages/${one.file}.js`);
    const title = typeof module.title === 'function' ? module.title(params) : module.title;
    document.title = `${title} · Fluffle`;
    window.scrollTo(0, 0);
    if (!current.isOver) await module.render(current, params);
  } catch (error) {
    current.failed(error instanceof ApiError ? error : Object.assign(error, { page: one.file }));
  }
}

async function tickCluster() {
  try {
    await refreshCluster();
    frame?.told();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
}

async function tickPlugins() {
  try {
    await refreshPluginPages();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
}

/** Refreshes the frame and the page now. */
async function tick() {
  if (!frame || isRefreshing) return;
  isRefreshing = true;
  due = Date.now();
  try {
    await Promise.all([tickCluster(), view?.refresh()]);
  } finally {
    isRefreshing = false;
    schedule();
  }
}

function schedule() {
  clearTimeout(timer);
  const isOut = document.documentElement.classList.contains('is-stale');
  const seconds = pref('interval', 5) || (isOut ? RETRY_S : 0);
  due = seconds ? Date.now() + seconds * 1000 : null;
  if (due !== null) timer = setTimeout(() => !document.hidden && tick(), seconds * 1000);
}

function reschedule() {
  schedule();
  tick();
}

function secondsLeft() {
  return due === null ? null : Math.max(0, Math.ceil((due - Date.now()) / 1000));
}

window.addEventListener('unhandledrejection', ({ reason }) => {
  if (reason?.name !== 'AbortError') tell('Something went wrong in this page', h('pre.reason', null, String(reason?.message ?? reason)));
});

start().catch((error) => fill(root, h('.notice', null, h('h1', null, 'The page can’t start'), h('p', null, error.message))));
