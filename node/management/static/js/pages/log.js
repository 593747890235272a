/** The log of a node as it is written: its last lines, and each new one; filtered by level and by a word. */

import { get, path } from '../api.js';
import { cluster } from '../cluster.js';
import { append, h } from '../dom.js';
import { select } from '../form.js';
import { plural } from '../format.js';
import { KEPT, SHOWN, added, isShown, toneOf } from '../log_lines.js';
import { replaceQuery } from '../router.js';

const EACH_MS = 1000;

export const title = 'Log';

export async function render(view) {
  const log = new Log(view);
  append(view.body,
    h('header.page-head', null, h('h1', null, 'Log'), h('.page-marks', null, log.node)),
    log.tools, log.element);
  const timer = setInterval(() => !document.hidden && !log.isPaused && view.refresh(), EACH_MS);
  view.signal.addEventListener('abort', () => clearInterval(timer));
  await view.every(() => log.refresh());
}

class Log {
  constructor(view) {
    this.view = view;
    this.isPaused = false;
    this.lines = [];
    this.last = 0;
    this.element = h('.log-lines', { role: 'log', 'aria-live': 'off', 'aria-label': 'Lines of the log', tabindex: 0 });
    this.node = this.nodeChoice();
    this.tools = this.build();
  }

  nodeChoice() {
    const up = cluster.nodes.filter((node) => node.running !== false).map((node) => node.name);
    const wanted = this.view.query.get('node');
    const first = cluster.overview.node;
    const names = wanted && !up.includes(wanted) ? [...up, wanted] : up;
    this.chooser = select('node', names, wanted ?? (names.includes(first) ? first : names[0]));
    this.chooser.addEventListener('change', () => {
      this.view.query.set('node', this.chooser.value);
      replaceQuery(this.view.query);
      this.lines = [];
      this.last = 0;
      this.show();
      this.view.refresh();
    });
    return h('label', null, 'Node ', this.chooser);
  }

  build() {
    this.level = select('level', SHOWN);
    this.text = h('input.filter', { type: 'search', 'data-filter': true, placeholder: 'Filter lines', 'aria-label': 'Filter lines', spellcheck: 'false', autocomplete: 'off', maxlength: 200 });
    this.level.addEventListener('change', () => this.show());
    this.text.addEventListener('input', () => this.show());
    this.count = h('span.count', { 'aria-live': 'polite' });
    const pause = h('button.button.small', { type: 'button', 'aria-pressed': 'false' }, 'Pause');
    pause.addEventListener('click', () => {
      this.isPaused = !this.isPaused;
      pause.setAttribute('aria-pressed', String(this.isPaused));
      pause.textContent = this.isPaused ? 'Go on' : 'Pause';
      if (!this.isPaused) this.view.refresh();
    });
    return h('.tools', null, this.text, h('label', null, 'Level ', this.level), pause, this.count);
  }

  async refresh() {
    if (this.isPaused) return;
    const name = this.chooser.value;
    const answer = await get(`${path('nodes', name)}/log`, { params: { after: this.last }, signal: this.view.signal });
    if (name !== this.chooser.value) return; // another node was chosen meanwhile
    const { lines, last } = added(this.last, answer);
    this.last = last;
    if (!lines.length && this.element.childElementCount) return;
    this.lines = [...this.lines, ...lines].slice(-KEPT);
    this.add(lines);
  }

  /** Appends lines, and stays at the end if that is in sight. */
  add(lines) {
    const { element } = this;
    const isAtEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 40;
    append(element, lines.filter((line) => this.isShown(line)).map(lineElement));
    while (element.childElementCount > KEPT) element.firstChild.remove();
    if (isAtEnd) element.scrollTop = element.scrollHeight;
    const shown = element.childElementCount;
    const text = shown === this.lines.length ? plural(shown, 'line') : `${shown} of ${plural(this.lines.length, 'line')}`;
    if (this.count.textContent !== text) this.count.textContent = text;
  }

  /** Shows all lines anew, for another level or word. */
  show() {
    this.element.replaceChildren();
    this.add(this.lines);
    this.element.scrollTop = this.element.scrollHeight;
  }

  isShown(line) {
    return isShown(line, this.level.value, this.text.value.trim());
  }
}

function lineElement(line) {
  return h(`p.log-line.is-${toneOf(line)}`, line.isRemark ? { class: 'is-remark' } : null, line.text);
}
