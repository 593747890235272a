/**
 * Hash routes, the same as RabbitMQ's: `#/queues/%2F/orders?page=2`. Pure, except `go` and `replaceQuery`.
 * A pattern's `:name` takes one segment, decoded once.
 */

/** @returns {{path: string[], query: URLSearchParams}} the decoded segments of a hash, and what follows `?` */
export function parse(hash) {
  const text = hash.replace(/^#?\/?/, '');
  const mark = text.indexOf('?');
  const path = mark < 0 ? text : text.slice(0, mark);
  const query = new URLSearchParams(mark < 0 ? '' : text.slice(mark + 1));
  return { path: path.split('/').filter((part, index, all) => part || index < all.length - 1).map(decoded), query };
}

function decoded(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment; // a stray %: taken as it is
  }
}

/** The params of a path that fits a pattern such as `#/queues/:vhost/:name`, or null. */
export function match(pattern, path) {
  const wanted = pattern.replace(/^#\//, '').split('/').filter(Boolean);
  if (wanted.length !== path.length) return null;
  const params = {};
  for (const [index, part] of wanted.entries()) {
    if (part.startsWith(':')) params[part.slice(1)] = path[index];
    else if (part !== path[index]) return null;
  }
  return params;
}

/** `href('queues', '/', 'a b')` → `#/queues/%2F/a%20b`. The default exchange is written amq.default. */
export function href(...segments) {
  return `#/${segments.map((segment) => encodeURIComponent(segment)).join('/')}`;
}

/** Links to the pages of things. */
export const to = {
  node: (name) => href('nodes', name),
  connection: (name) => href('connections', name),
  channel: (name) => href('channels', name),
  exchange: (vhost, name) => href('exchanges', vhost, name === '' ? 'amq.default' : name),
  queue: (vhost, name) => href('queues', vhost, name),
  vhost: (name) => href('vhosts', name),
  user: (name) => href('users', name),
  policy: (vhost, name) => href('policies', vhost, name),
  operatorPolicy: (vhost, name) => href('operator-policies', vhost, name),
};

/** The hash of a path with a query; without entries, no `?`. */
export function withQuery(hash, query) {
  const base = hash.split('?')[0];
  const text = new URLSearchParams(query).toString();
  return text ? `${base}?${text}` : base;
}

/** Goes to another page. */
export function go(hash) {
  window.location.hash = hash;
}

/** Changes the query of the page that is shown: the page isn't made anew, and Back leaves the page. */
export function replaceQuery(query) {
  window.history.replaceState(null, '', withQuery(window.location.hash || '#/', query));
}
