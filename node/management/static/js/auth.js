/**
 * Who is logged in. The credentials live in the tab's sessionStorage and are sent with each request; a new tab asks the
 * other tabs of this browser for them, so that a link opened beside doesn't ask again.
 */

const KEY = 'fluffle.session';
const DEFAULT_MINUTES = 8 * 60;
const ASK_MS = 250;

let me = null;
const channel = 'BroadcastChannel' in window ? new BroadcastChannel('fluffle') : null;

/** @returns {{basic: string, until: number}|null} */
function session() {
  try {
    const value = JSON.parse(window.sessionStorage.getItem(KEY) ?? 'null');
    return value && value.until > Date.now() ? value : null;
  } catch {
    return null;
  }
}

function keep(value) {
  try {
    if (value) window.sessionStorage.setItem(KEY, JSON.stringify(value));
    else window.sessionStorage.removeItem(KEY);
  } catch {
    // Without storage a reload logs out.
  }
}

channel?.addEventListener('message', ({ data }) => {
  if (data === 'who?' && session()) channel.postMessage({ session: session() });
  if (data === 'logout') document.dispatchEvent(new CustomEvent('fluffle:logout'));
});

/**
 * Waits a moment for another tab's session; true when this tab has one then.
 *
 * @param {() => void} onLate called when a busy tab has given its session later, unless this tab had one by then
 */
export async function borrowSession(onLate) {
  if (session() || !channel) return Boolean(session());
  await new Promise((resolve) => {
    let go = resolve;
    const take = ({ data }) => {
      if (!data?.session?.basic) return;
      channel.removeEventListener('message', take);
      if (session()) return;
      keep(data.session);
      go();
    };
    channel.addEventListener('message', take);
    channel.postMessage('who?');
    setTimeout(() => {
      go = onLate;
      resolve();
    }, ASK_MS);
  });
  return Boolean(session());
}

/** The Authorization header's value, or null when nobody is logged in or the session is over. */
export function authorization() {
  const value = session();
  return value ? `Basic ${value.basic}` : null;
}

/** Base64 of user:password in UTF-8. */
export function basic(user, password) {
  const octets = new TextEncoder().encode(`${user}:${password}`);
  return btoa(Array.from(octets, (octet) => String.fromCharCode(octet)).join(''));
}

/** Starts a session with credentials; `confirmSession` follows once the server knows them. */
export function startSession(user, password) {
  keep({ basic: basic(user, password), until: Date.now() + DEFAULT_MINUTES * 60_000, started: Date.now() });
}

/** Takes /api/whoami: tags, and how long the session may last. */
export function confirmSession(whoami) {
  me = { name: whoami.name, tags: tagsOf(whoami.tags) };
  const value = session();
  const minutes = Number(whoami.login_session_timeout);
  if (value && minutes > 0) keep({ ...value, until: (value.started ?? Date.now()) + minutes * 60_000 });
}

/** Tags as RabbitMQ before 3.9 (text) and since (list) give them. */
export function tagsOf(tags) {
  return Array.isArray(tags) ? tags : String(tags ?? '').split(',').map((tag) => tag.trim()).filter(Boolean);
}

/** Ends the session, here and (`everywhere`) in the other tabs. */
export function endSession(everywhere = false) {
  me = null;
  keep(null);
  if (everywhere) channel?.postMessage('logout');
}

/** @returns {{name: string, tags: string[]}|null} */
export function user() {
  return me;
}

const INCLUDED = {
  management: ['management', 'policymaker', 'monitoring', 'administrator'],
  policymaker: ['policymaker', 'administrator'],
  monitoring: ['monitoring', 'administrator'],
  administrator: ['administrator'],
};

/** True if the user has the rights of a tag. Tags include each other: an administrator has all rights. */
export function can(tag) {
  return Boolean(me) && INCLUDED[tag].some((one) => me.tags.includes(one));
}
