/** Values of shovels: the parameter from a form, its two ends as texts, URIs without their passwords. Nothing here knows the page. */

const NUMBERS = ['src-prefetch-count', 'reconnect-delay'];
const FLAGS = ['dest-add-forward-headers', 'dest-add-timestamp-header', 'src-predeclared', 'dest-predeclared'];
const TEXTS = ['ack-mode', 'src-exchange-key', 'dest-exchange-key'];

/** A URI with asterisks in place of its password, and of that of a key for TLS. */
export function shownUri(uri) {
  return uri.replace(/(:\/\/[^@:/?#]*):[^@/?#]*@/, '$1:******@').replace(/([?&]password=)[^&#]*/g, '$1******');
}

/** The URIs of an end of a parameter, as they may be shown. */
export function shownUris(found) {
  return (Array.isArray(found) ? found : [found]).map(shownUri);
}

/** One end of a shovel as [kind, name, key]; `prefix`: src_ and dest_ of a state, src- and dest- of a parameter. */
export function endOf(row, prefix) {
  const join = prefix.at(-1);
  if (row[`${prefix}queue`] !== undefined) return ['queue', row[`${prefix}queue`], null];
  return ['exchange', row[`${prefix}exchange`] ?? null, row[`${prefix}exchange${join}key`] ?? null];
}

/** The parameter that the values of the form make; what is left empty is left out. */
export function shovelOf(values) {
  const found = {};
  for (const end of ['src', 'dest']) {
    const uris = values[`${end}-uri`].split(/\s+/).filter(Boolean);
    found[`${end}-uri`] = uris.length === 1 ? uris[0] : uris;
    const name = values[`${end}-name`];
    if (values[`${end}-kind`] === 'queue') found[`${end}-queue`] = name;
    else if (name || end === 'src') found[`${end}-exchange`] = name;
  }
  for (const key of TEXTS) {
    if (values[key] && !(key.startsWith('src-') && found['src-queue'] !== undefined) && !(key.startsWith('dest-') && found['dest-queue'] !== undefined)) found[key] = values[key];
  }
  for (const key of NUMBERS) if (values[key] !== '') found[key] = Number(values[key]);
  for (const key of FLAGS) if (values[key]) found[key] = true;
  const after = values['src-delete-after'];
  if (after) found['src-delete-after'] = /^\d+$/.test(after) ? Number(after) : after;
  if (values['dest-publish-properties']) found['dest-publish-properties'] = JSON.parse(values['dest-publish-properties']);
  return found;
}
