/**
 * How a list is looked at: page, page size, sorting, filter, columns. Pure. The state is in the page's URL, so that a link
 * or bookmark shows the same. `toApi` asks a server that pages; `apply` does the same to rows that are here already.
 */

import { at } from './format.js';

export const PAGE_SIZES = [10, 25, 50, 100, 200, 500];
const DEFAULT_SIZE = 50;

/**
 * @typedef {object} Listing
 * @property {number} page from 1
 * @property {number} size rows a page, 1..500
 * @property {string} sort dotted field, '' for the server's own order
 * @property {boolean} reverse
 * @property {string} name filter on the name, a part of it or a regular expression; case doesn't matter
 * @property {boolean} regex
 */

/** Reads a listing of a URL's query; missing and invalid values are as in `defaults`. */
export function listingOf(query, defaults = {}) {
  const whole = (name, otherwise, max) => {
    const value = Number(query.get(name));
    return Number.isInteger(value) && value >= 1 && value <= max ? value : otherwise;
  };
  return {
    page: whole('page', 1, 1e9),
    size: whole('page_size', defaults.size ?? DEFAULT_SIZE, 500),
    sort: query.get('sort') ?? defaults.sort ?? '',
    reverse: query.has('sort') ? query.get('sort_reverse') === 'true' : Boolean(defaults.reverse),
    name: query.get('name') ?? '',
    regex: query.get('use_regex') === 'true',
  };
}

/** The query for the page's URL: only what differs from the defaults; other entries of `query` stay. */
export function toQuery(listing, defaults = {}, query = new URLSearchParams()) {
  const result = new URLSearchParams(query);
  const set = (name, value, isDefault) => (isDefault ? result.delete(name) : result.set(name, String(value)));
  const isSorted = listing.sort !== (defaults.sort ?? '') || listing.reverse !== Boolean(defaults.reverse);
  set('page', listing.page, listing.page === 1);
  set('page_size', listing.size, listing.size === (defaults.size ?? DEFAULT_SIZE));
  set('sort', listing.sort, !isSorted);
  set('sort_reverse', 'true', !isSorted || !listing.reverse);
  set('name', listing.name, !listing.name);
  set('use_regex', 'true', !listing.regex);
  return result;
}

/** The parameters of a paged request. */
export function toApi(listing) {
  const params = { page: listing.page, page_size: listing.size, name: listing.name || null };
  if (listing.name && listing.regex) params.use_regex = true;
  if (listing.sort) Object.assign(params, { sort: listing.sort, sort_reverse: listing.reverse });
  return params;
}

/** Sorting as a click on a column's title does it: numbers start with the largest, a second click turns it round. */
export function sortedBy(listing, field, isNumber) {
  const reverse = listing.sort === field ? !listing.reverse : Boolean(isNumber);
  return { ...listing, sort: field, reverse, page: 1 };
}

/** The test of a name that a listing's filter makes; an expression that doesn't compile throws SyntaxError. */
export function nameTest(listing) {
  if (!listing.name) return () => true;
  if (listing.regex) {
    const expression = new RegExp(listing.name, 'iu');
    return (name) => expression.test(name);
  }
  const part = listing.name.toLowerCase();
  return (name) => name.toLowerCase().includes(part);
}

/**
 * Filters, sorts and cuts rows as the server would.
 *
 * @param {object[]} rows
 * @param {Listing} listing
 * @param {(row: object) => string} nameOf returns the text that is filtered
 * @returns {{items, page, page_count, page_size, filtered_count, total_count, item_count}}
 */
export function apply(rows, listing, nameOf = (row) => row.name) {
  const test = nameTest(listing);
  const kept = rows.filter((row) => test(String(nameOf(row) ?? '')));
  if (listing.sort) {
    const sign = listing.reverse ? -1 : 1;
    kept.sort((one, other) => sign * compare(at(one, listing.sort), at(other, listing.sort)));
  }
  const pages = Math.ceil(kept.length / listing.size);
  const page = Math.min(listing.page, Math.max(1, pages));
  const items = kept.slice((page - 1) * listing.size, page * listing.size);
  return {
    items,
    page,
    page_count: pages,
    page_size: listing.size,
    filtered_count: kept.length,
    total_count: rows.length,
    item_count: items.length,
  };
}

/** Missing values are the smallest, numbers come before text, text ignores case. */
export function compare(one, other) {
  const rank = (value) => (value === undefined || value === null ? 0 : typeof value === 'number' ? 1 : 2);
  if (rank(one) !== rank(other)) return rank(one) - rank(other);
  if (typeof one === 'number') return one - other;
  if (rank(one) === 0) return 0;
  const [first, second] = [textOf(one), textOf(other)];
  return first < second ? -1 : first > second ? 1 : 0;
}

function textOf(value) {
  return (typeof value === 'object' ? JSON.stringify(value) : String(value)).toLowerCase();
}
