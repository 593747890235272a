/** The login page: `#/login`. Credentials are tried with /api/whoami. */

import { ApiError, get } from './api.js';
import { basic, confirmSession, startSession } from './auth.js';
import { fill, h } from './dom.js';

/**
 * Shows the page in `root`; resolves when a user is logged in.
 *
 * @param {HTMLElement} root
 * @param {string|null} message the reason why the user has to log in again
 */
export function loginPage(root, message) {
  return new Promise((resolve) => {
    const problem = h('p.login-problem', { role: 'alert' }, message ?? '');
    const name = h('input', { type: 'text', name: 'username', autocomplete: 'username', required: true, spellcheck: 'false' });
    const password = h('input', { type: 'password', name: 'password', autocomplete: 'current-password' });
    const go = h('button.button.is-primary', { type: 'submit' }, 'Log in');
    const submit = async (event) => {
      event.preventDefault();
      go.disabled = true;
      fill(problem);
      try {
        const auth = `Basic ${basic(name.value, password.value)}`;
        const whoami = await get('whoami', { headers: { authorization: auth }, vhost: null, quiet: true });
        startSession(name.value, password.value);
        confirmSession(whoami);
        resolve();
      } catch (error) {
        fill(problem, loginProblem(error));
        password.select();
      }
      go.disabled = false;
    };
    const form = h('form.login', { onsubmit: submit },
      h('img.login-logo', { src: 'img/fluffle.svg', alt: '', width: 72, height: 72 }),
      h('h1', null, 'Fluffle'),
      h('label.field', null, h('span', null, 'User'), name),
      h('label.field', null, h('span', null, 'Password'), password),
      problem, go);
    fill(root, h('main.login-page', null, form));
    document.title = 'Log in · Fluffle';
    name.focus();
  });
}

function loginProblem(error) {
  if (!(error instanceof ApiError)) throw error;
  if (error.status !== 401) return `Can’t log in: ${error.message}`;
  if (/not management user/i.test(error.message)) return 'This user has no tag that lets it log in here.';
  if (/localhost/i.test(error.message)) return 'This user can only log in from the machine itself.';
  return 'Wrong user or password.';
}
