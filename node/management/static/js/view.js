/** One shown page, the argument of `render`. It ends when the user leaves the page. */

import { ApiError, currentVhost } from './api.js';
import { fill, h } from './dom.js';

export class View {
  /** @param {HTMLElement} body @param {URLSearchParams} query of the URL @param {() => void} fresh called when all is new */
  constructor(body, query, fresh = () => {}) {
    this.body = body;
    this.fresh = fresh;
    this.query = query;
    this.vhost = currentVhost();
    this.tasks = [];
    this.ending = new AbortController();
    this.signal = this.ending.signal;
    this.running = null;
    this.isAgain = false;
    this.isOver = false;
  }

  /** Runs `task` now and at each refresh; waits for the first run. A 404 there ends the page with "not found". */
  async every(task) {
    this.tasks.push(task);
    await this.guarded([task]);
  }

  /** Runs all tasks; while they run, further calls make one more run. */
  async refresh() {
    if (this.isOver) return;
    if (this.running) {
      this.isAgain = true;
      await this.running;
      return;
    }
    do {
      this.isAgain = false;
      this.running = this.guarded(this.tasks);
      try {
        await this.running;
      } finally {
        this.running = null;
      }
    } while (this.isAgain && !this.isOver);
  }

  async guarded(tasks) {
    const results = await Promise.allSettled(tasks.map((task) => task()));
    const failures = results.filter((one) => one.status === 'rejected');
    for (const { reason } of failures) this.failed(reason);
    if (!failures.length && !this.isOver) this.fresh();
  }

  failed(error) {
    if (this.signal.aborted || error.name === 'AbortError') return;
    if (!(error instanceof ApiError)) throw error;
    if (error.isOutage) return; // the banner tells
    if (error.status === 404) this.notice('Not found', 'It may have been deleted, or expired.');
    else if (error.status === 401) this.notice('Not allowed', error.message);
    else this.notice('The request failed', error.message);
  }

  /** Puts a notice in the place of the page, and stops refreshing. */
  notice(title, text) {
    this.tasks = [];
    fill(this.body, h('.notice', null, h('h1', null, title), h('p', null, text),
      h('p', null, h('a.button', { href: '#/' }, 'Overview'))));
  }

  /** Ends: requests are aborted, tasks run no more. */
  end() {
    this.isOver = true;
    this.tasks = [];
    this.ending.abort();
  }
}
