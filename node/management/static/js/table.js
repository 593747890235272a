/**
 * Tables. `Table` shows rows; `PagedList` is a table with a filter, pages, sorting, columns to choose and actions on
 * selected rows, whose state is in the URL. Rows are kept by key through a refresh: focus and selection stay.
 */

import { ApiError, get } from './api.js';
import { fill, h, hidden, icon, patch } from './dom.js';
import { number, plural } from './format.js';
import { PAGE_SIZES, apply, listingOf, sortedBy, toApi, toQuery } from './listing.js';
import { pref, setPref } from './prefs.js';
import { replaceQuery } from './router.js';

/**
 * @typedef {object} Column
 * @property {string} id unique in its table; kept in URLs and preferences
 * @property {string} title '' of what is done to a row: such a column is always there
 * @property {(row: object) => any} cell content as `h` takes it
 * @property {string} [sort] dotted field to sort by; without, the column can't be sorted
 * @property {boolean} [number] right-aligned; the first click sorts the largest first
 * @property {boolean} [off] not shown until chosen
 * @property {string} [group] heading in the column chooser
 * @property {string} [hint] what the title means
 * @property {string[]} [fields] fields of the row that `cell` reads; when all shown columns say so, only these are asked for
 * @property {string} [class] classes of the cells
 */

export class Table {
  /**
   * @param {{columns: Column[], key: (row) => string, empty?: string, caption?: string, rowClass?: (row) => string,
   *   onSort?: (column: Column) => void, selection?: Set<string>, onSelect?: () => void}} options
   *   caption: said by screen readers. selection: keys of the rows that are ticked; makes a column of boxes.
   */
  constructor(options) {
    this.options = options;
    this.columns = options.columns;
    this.rows = [];
    this.rowElements = new Map();
    this.head = h('tr');
    this.body = h('tbody');
    this.empty = h('p.empty', { hidden: true }, options.empty ?? 'Nothing here.');
    const caption = options.caption && h('caption.sr-only', null, options.caption);
    this.table = h('table.table', null, caption, h('thead', null, this.head), this.body);
    this.element = h('.table-frame', null, this.table, this.empty);
    this.showHead({ sort: '', reverse: false });
  }

  /** Shows other columns from the next update on. */
  setColumns(columns) {
    this.columns = columns;
    this.rowElements.clear();
    this.body.replaceChildren();
  }

  /** @param {object[]} rows @param {{sort: string, reverse: boolean}} [sorting] what the arrow in the head says */
  update(rows, sorting) {
    this.rows = rows;
    if (sorting) this.showHead(sorting);
    const elements = new Map();
    for (const row of rows) {
      const key = this.options.key(row);
      const element = this.rowElements.get(key) ?? h('tr');
      this.showRow(element, row, key);
      elements.set(key, element);
    }
    for (const [key, element] of this.rowElements) if (!elements.has(key)) element.remove();
    let place = this.body.firstChild;
    for (const element of elements.values()) {
      if (element === place) place = place.nextSibling;
      else this.body.insertBefore(element, place);
    }
    this.rowElements = elements;
    this.empty.hidden = rows.length > 0;
    this.table.hidden = rows.length === 0;
  }

  showRow(element, row, key) {
    const cells = this.columns.map((column) => {
      const classes = [column.number ? 'number' : '', column.class ?? ''].join(' ');
      return h('td', { class: classes, 'data-label': column.title }, column.cell(row));
    });
    if (this.options.selection) cells.unshift(this.tick(row, key, element.firstChild));
    element.className = this.options.rowClass?.(row) ?? '';
    patch(element, cells);
  }

  tick(row, key, old) {
    const { selection, onSelect } = this.options;
    const box = old?.querySelector('input');
    if (box) {
      box.checked = selection.has(key);
      return old.cloneNode(true); // equal, so that `patch` keeps the old one and its listener
    }
    const toggle = (event) => {
      if (event.target.checked) selection.add(key);
      else selection.delete(key);
      onSelect?.();
    };
    const label = `Select ${row.name ?? key}`;
    return h('td.tick', { 'data-label': 'Select' }, h('input', {
      type: 'checkbox', 'aria-label': label, checked: selection.has(key), onchange: toggle,
    }));
  }

  showHead(sorting) {
    const cells = this.columns.map((column) => this.headCell(column, sorting));
    if (this.options.selection) cells.unshift(this.tickAll());
    const focused = document.activeElement?.dataset?.column;
    const isOurs = this.head.contains(document.activeElement);
    fill(this.head, cells);
    if (isOurs && focused) this.head.querySelector(`[data-column="${CSS.escape(focused)}"]`)?.focus();
  }

  tickAll() {
    const { selection, onSelect, key } = this.options;
    const keys = this.rows.map(key);
    const isAll = keys.length > 0 && keys.every((one) => selection.has(one));
    const toggle = (event) => {
      for (const one of keys) {
        if (event.target.checked) selection.add(one);
        else selection.delete(one);
      }
      this.update(this.rows);
      onSelect?.();
    };
    const box = h('input', { type: 'checkbox', 'aria-label': 'Select all on this page', checked: isAll, onchange: toggle });
    return h('th.tick', { scope: 'col' }, box);
  }

  headCell(column, { sort, reverse }) {
    const isSorted = Boolean(column.sort) && column.sort === sort;
    const props = { scope: 'col', class: column.number ? 'number' : '', title: column.hint };
    if (isSorted) props['aria-sort'] = reverse ? 'descending' : 'ascending';
    if (!column.sort || !this.options.onSort) return h('th', props, column.title || hidden('Action'));
    const arrow = isSorted && h('span.arrow', { 'aria-hidden': 'true' }, reverse ? '▾' : '▴');
    const press = () => this.options.onSort(column);
    return h('th', props, h('button.sort', { type: 'button', 'data-column': column.id, onclick: press }, column.title, arrow));
  }
}

export class PagedList {
  /**
   * A list with everything around it. Put `element` into the page and call `refresh` by `view.every`.
   *
   * @param {object} view the page's view (app.js)
   * @param {object} options
   *   id: name for preferences. columns, key, rowClass: as for `Table`. noun: `queue`; many: its plural.
   *   caption: said by screen readers, where a page has two lists of the same noun.
   *   path: a list of the API that pages (`queues`); or rows: async () => object[], paged here.
   *   params: further parameters of the request. defaults: {sort, reverse, size}. nameOf: what a filter looks at (rows only).
   *   actions: [{label, danger, run: async (rows) => boolean}] for selected rows; false: cancelled. empty: text without rows.
   *   onPage: called with each page object. isAside: how it is looked at stays out of the URL, which is another list's.
   *   filterBy: what the filter is about, `name` by default. isSmall: without filter and columns while it is on one short page.
   */
  constructor(view, options) {
    this.view = view;
    this.options = options;
    this.defaults = { size: pref('page_size', undefined), ...options.defaults };
    this.query = options.isAside ? new URLSearchParams() : view.query;
    this.listing = listingOf(this.query, this.defaults);
    this.selection = options.actions?.length ? new Set() : null;
    this.table = new Table({
      columns: this.shown(),
      key: options.key,
      rowClass: options.rowClass,
      caption: options.caption ?? options.many ?? `${options.noun}s`,
      empty: options.empty ?? `No ${options.many ?? `${options.noun}s`} here.`,
      onSort: (column) => this.change(sortedBy(this.listing, column.sort, column.number)),
      selection: this.selection,
      onSelect: () => this.showActions(),
    });
    this.build();
  }

  build() {
    const { listing } = this;
    const label = `Filter by ${this.options.filterBy ?? 'name'}`;
    let typing = 0;
    const filter = () => {
      clearTimeout(typing);
      typing = setTimeout(() => this.change({ ...this.listing, name: this.filter.value, page: 1 }), 250);
    };
    this.filter = h('input.filter', {
      type: 'search', placeholder: label, 'aria-label': label, value: listing.name,
      maxlength: 500, 'data-filter': true, oninput: filter, spellcheck: 'false', autocomplete: 'off',
    });
    const regex = h('input', {
      type: 'checkbox', checked: listing.regex,
      onchange: (event) => this.change({ ...this.listing, regex: event.target.checked, page: 1 }),
    });
    this.problem = h('span.problem', { role: 'alert', hidden: true });
    this.count = h('span.count', { 'aria-live': 'polite' });
    this.actions = h('.actions', { hidden: true });
    this.sorter = h('label.sorter', null, 'Sort by ', this.sortSelect());
    const { caption, many, noun } = this.options;
    this.pages = h('nav.pages', { 'aria-label': `Pages of ${caption ?? many ?? `${noun}s`}`, hidden: true }); // until there are several
    this.tools = h('.tools', null, this.filter, h('label.check', null, regex, 'Regex'), this.problem, this.count,
      this.sorter, this.columnChooser());
    this.element = h('.list', null, this.tools, this.actions, this.table.element, this.pages);
  }

  /** The columns to show: of the URL, else as chosen before, else those that aren't off. */
  shown() {
    const { columns, id } = this.options;
    const wanted = this.query.get('columns')?.split(',') ?? pref(`columns.${id}`, null);
    const shown = columns.filter((column, index) => index === 0 || !column.title || (wanted ? wanted.includes(column.id) : !column.off));
    return shown.length > 1 ? shown : columns.filter((column) => !column.off);
  }

  columnChooser() {
    const { columns, id } = this.options;
    const boxes = new Map();
    const changed = () => {
      const ids = columns.filter((column) => boxes.get(column.id)?.checked).map((column) => column.id);
      setPref(`columns.${id}`, ids);
      this.query.set('columns', ids.join(','));
      this.table.setColumns(this.shown());
      this.change(this.listing);
    };
    const groups = new Map();
    for (const column of columns.slice(1).filter(({ title }) => title)) {
      const box = h('input', { type: 'checkbox', checked: this.table.columns.includes(column), onchange: changed });
      boxes.set(column.id, box);
      const group = column.group ?? 'Columns';
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(h('label.check', { title: column.hint }, box, column.title));
    }
    boxes.set(columns[0].id, { checked: true });
    const reset = () => {
      setPref(`columns.${id}`, undefined);
      this.query.delete('columns');
      for (const column of columns.slice(1)) if (boxes.has(column.id)) boxes.get(column.id).checked = !column.off;
      this.table.setColumns(this.shown());
      this.change(this.listing);
    };
    const parts = [...groups].map(([title, labels]) => h('fieldset', null, h('legend', null, title), labels));
    return h('details.menu.columns', null, h('summary.button', { title: 'Choose columns' }, icon('columns'), hidden('Choose columns')),
      h('.menu-body', null, parts, h('button.button.small', { type: 'button', onclick: reset }, 'Back to the usual')));
  }

  sortSelect() {
    const sortable = this.options.columns.filter((column) => column.sort);
    const options = [h('option', { value: '' }, '–'), ...sortable.map((column) => h('option', { value: column.sort }, column.title))];
    const select = h('select', null, options);
    select.value = this.listing.sort;
    select.addEventListener('change', () => {
      const column = sortable.find((one) => one.sort === select.value);
      this.change({ ...this.listing, sort: select.value, reverse: Boolean(column?.number), page: 1 });
    });
    return select;
  }

  /** Looks at the list in another way: keeps that in the URL and fetches. */
  change(listing) {
    if (this.view.isOver) return undefined; // the URL is another page's: the filter's delay may end after this one
    this.listing = listing;
    this.selection?.clear(); // an action must not concern rows that are not shown
    const query = toQuery(listing, this.defaults, this.query);
    for (const name of [...this.query.keys()]) this.query.delete(name);
    for (const [name, value] of query) this.query.set(name, value);
    if (!this.options.isAside) replaceQuery(query);
    return this.view.refresh();
  }

  /** Goes some pages on or back, within what there is. */
  turn(by) {
    const page = Math.min(Math.max(1, this.listing.page + by), Math.max(1, this.pageCount ?? 1));
    if (page !== this.listing.page) this.change({ ...this.listing, page });
  }

  /** Fetches the page and shows it. An invalid filter is reported beside the filter. */
  async refresh() {
    const { listing } = this;
    try {
      const result = await this.fetch(listing);
      if (listing !== this.listing) return; // changed meanwhile: the newer request shows
      this.problem.hidden = true;
      this.show(result);
    } catch (error) {
      if (error instanceof ApiError && error.error === 'page_out_of_range' && listing.page > 1) {
        await this.change({ ...listing, page: 1 });
        return;
      }
      const isFilter = (error instanceof ApiError && error.status === 400) || error instanceof SyntaxError;
      if (!isFilter) throw error;
      this.problem.hidden = false;
      fill(this.problem, listing.regex ? 'Not a regular expression' : error.message);
    }
  }

  async fetch(listing) {
    const { path, rows, params, nameOf } = this.options;
    if (rows) return apply(await rows(), listing, nameOf);
    const result = await get(path, { params: { ...params, ...toApi(listing), columns: this.fields() }, signal: this.view.signal });
    return Array.isArray(result) ? apply(result, listing, nameOf) : result; // a server without pages there
  }

  fields() {
    const columns = this.table.columns;
    if (!this.options.fields || !columns.every((column) => column.fields)) return null;
    return [...new Set([...this.options.fields, ...columns.flatMap((column) => column.fields)])].join(',');
  }

  show(result) {
    this.pageCount = result.page_count;
    this.total = result.total_count;
    this.table.update(result.items, this.listing);
    const { noun, many } = this.options;
    const all = plural(result.total_count, noun, many);
    const text = this.listing.name ? `${number(result.filtered_count)} of ${all}` : all;
    if (this.count.textContent !== text) this.count.textContent = text;
    this.tools.hidden = Boolean(this.options.isSmall) && !this.listing.name && result.total_count <= PAGE_SIZES[0];
    this.showPages(result);
    this.showActions();
    this.options.onPage?.(result);
  }

  showPages({ page, page_count: count, filtered_count: rows }) {
    const turn = (name, label, by, isOff) => h('button.button.small', {
      type: 'button', disabled: isOff, title: label, 'aria-label': label, onclick: () => this.turn(by),
    }, icon(name));
    const size = h('select', { 'aria-label': 'Rows a page' }, PAGE_SIZES.map((one) => h('option', { value: one }, `${one} a page`)));
    size.value = String(this.listing.size);
    size.addEventListener('change', () => {
      setPref('page_size', Number(size.value));
      this.change({ ...this.listing, size: Number(size.value), page: 1 });
    });
    this.pages.hidden = rows <= PAGE_SIZES[0];
    const state = `${page}|${count}|${this.listing.size}`;
    if (this.pages.dataset.state === state) return;
    this.pages.dataset.state = state;
    fill(this.pages, turn('first', 'First page', -count, page <= 1), turn('left', 'Previous page', -1, page <= 1),
      h('span', null, `Page ${number(page)} of ${number(Math.max(1, count))}`),
      turn('right', 'Next page', 1, page >= count), turn('last', 'Last page', count, page >= count), size);
  }

  showActions() {
    if (!this.selection) return;
    const chosen = this.table.rows.filter((row) => this.selection.has(this.options.key(row)));
    this.actions.hidden = chosen.length === 0;
    const state = chosen.map(this.options.key).join('\n');
    if (state === this.actionsState) return; // the same rows: a button that has the focus stays
    this.actionsState = state;
    const run = (action) => async () => {
      if ((await action.run(chosen)) === false) return; // the user has cancelled
      this.selection.clear();
      await this.view.refresh();
    };
    const buttons = this.options.actions.map((action) => h(`button.button.small${action.danger ? '.is-danger' : ''}`,
      { type: 'button', onclick: run(action) }, action.label));
    const clear = () => {
      this.selection.clear();
      this.table.update(this.table.rows, this.listing);
      this.showActions();
    };
    fill(this.actions, h('span', null, `${plural(chosen.length, this.options.noun, this.options.many)} selected`), buttons,
      h('button.button.small', { type: 'button', onclick: clear }, 'None'));
  }
}
