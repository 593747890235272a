/** Dialogs: questions before destructive actions, refusals, and short messages at the edge. */

import { h } from './dom.js';

/**
 * Asks. Resolves to true when it is confirmed.
 *
 * @param {{title: string, text?: any, action: string, danger?: boolean, typed?: string|null}} options
 *   action: label of the button that does it. typed: a name to be typed before, for what can't be undone.
 */
export function confirm({ title, text = null, action, danger = true, typed = null }) {
  return ask(title, (finish) => {
    const go = h(`button.button${danger ? '.is-danger' : '.is-primary'}`, { type: 'submit', disabled: typed !== null }, action);
    const check = (event) => {
      go.disabled = event.target.value !== typed;
    };
    const field = typed === null ? null : h('label.field', null,
      h('span', null, 'Type ', h('code', null, typed), ' to confirm'),
      h('input', { type: 'text', oninput: check, autocomplete: 'off', spellcheck: 'false', autofocus: true }));
    const back = h('button.button', { type: 'button', autofocus: typed === null, onclick: () => finish(false) }, 'Cancel');
    return { body: [text && h('.dialog-text', null, text), field], buttons: [back, go], submit: () => finish(true) };
  }, false);
}

/** Shows a text that the user has to read. */
export function tell(title, text) {
  return ask(title, (finish) => ({
    body: [h('.dialog-text', null, text)],
    buttons: [h('button.button.is-primary', { type: 'submit', autofocus: true }, 'Close')],
    submit: () => finish(undefined),
  }), undefined);
}

/** A refusal, with the server's reason. Use it in a catch: `catch (error) { refused(error); }`. */
export function refused(error, title = 'That was refused') {
  return tell(title, h('pre.reason', null, error.message));
}

/** Runs an action; returns true if it worked. A refusal is shown with the name `what`.   done: text after success. */
export async function attempt(work, done = null, what = 'That') {
  try {
    await work();
  } catch (error) {
    if (error.name === 'AbortError') return false;
    await refused(error, `${what} was refused`);
    return false;
  }
  if (done) toast(done);
  return true;
}

/**
 * A modal dialog with a form. `make(finish)` gives {body, buttons, submit}; `finish(value)` closes. Escape gives `cancelled`.
 */
export function ask(title, make, cancelled, { wide = false } = {}) {
  return new Promise((resolve) => {
    let result = cancelled;
    const finish = (value) => {
      result = value;
      dialog.close();
    };
    const { body, buttons, submit } = make(finish);
    const form = h('form', { method: 'dialog' }, h('h2', null, title), body, buttons && h('.dialog-buttons', null, buttons));
    const dialog = h(`dialog.dialog${wide ? '.is-wide' : ''}`, { 'aria-label': title }, form);
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      submit?.();
    });
    dialog.addEventListener('click', (event) => {
      if (event.target === dialog) dialog.close(); // the backdrop
    });
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Closes what asks or tells, as Escape does: the page that it belongs to was left. */
export function closeDialogs() {
  for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close();
}

/** Is a dialog open? Keys belong to it then. */
export function isDialogOpen() {
  return Boolean(document.querySelector('dialog[open]'));
}

/** A short message that goes away. */
export function toast(text, tone = 'good') {
  let shelf = document.getElementById('toasts');
  if (!shelf) {
    shelf = h('div#toasts', { role: 'status', 'aria-live': 'polite' });
    document.body.append(shelf);
  }
  const message = h(`.toast.is-${tone}`, null, text);
  shelf.append(message);
  while (shelf.childElementCount > 4) shelf.firstChild.remove();
  setTimeout(() => message.remove(), 4500);
}
