/** Bytes of a message as text, JSON, hexadecimal and base64. Pure. */

/** Bytes shown in hexadecimal at once: more would be a page of a million rows. */
export const HEX_MAX = 16 * 1024;

/** The bytes of a payload as the API gives it; `encoding` is `string` or `base64`. */
export function bytesOf(payload, encoding) {
  if (encoding !== 'base64') return new TextEncoder().encode(payload);
  return Uint8Array.from(atob(payload), (character) => character.charCodeAt(0));
}

/** The text, or null where the bytes are no UTF-8. A payload that was cut may end within a character. */
export function textOf(bytes, isCut = false) {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes, { stream: isCut });
  } catch {
    return null;
  }
}

/** JSON with one value a line, or null where the text is none. */
export function prettyJson(text) {
  if (text === null || !/^\s*[[{"]/.test(text)) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  return indented(text);
}

/** Works on the text: parsed and printed again, 9007199254740993 would be another number. */
function indented(json) {
  const tokens = json.match(/"(?:[^"\\]|\\.)*"|[{}[\]:,]|[^\s{}[\]:,"]+/gs) ?? [];
  let depth = 0;
  let out = '';
  for (let i = 0; i < tokens.length; i += 1) {
    const token = tokens[i];
    if (token === '{' || token === '[') {
      const isEmpty = tokens[i + 1] === '}' || tokens[i + 1] === ']';
      out += token;
      if (isEmpty) out += tokens[(i += 1)];
      else out += `\n${'  '.repeat((depth += 1))}`;
    } else if (token === '}' || token === ']') out += `\n${'  '.repeat((depth -= 1))}${token}`;
    else if (token === ',') out += `,\n${'  '.repeat(depth)}`;
    else if (token === ':') out += ': ';
    else out += token;
  }
  return out;
}

/** Lines of an address, sixteen bytes, and their ASCII characters; at most HEX_MAX bytes. */
export function hexDump(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, HEX_MAX); at += 16) {
    const row = bytes.slice(at, at + 16);
    const hex = Array.from(row, (byte) => byte.toString(16).padStart(2, '0'));
    const [left, right] = [hex.slice(0, 8), hex.slice(8)].map((half) => half.join(' ').padEnd(23));
    const ascii = Array.from(row, (byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : '·')).join('');
    lines.push(`${at.toString(16).padStart(8, '0')}  ${left}  ${right}  ${ascii}`);
  }
  return lines.join('\n');
}

/** Base64, 76 characters a line. */
export function base64Of(bytes) {
  let binary = '';
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return (btoa(binary).match(/.{1,76}/g) ?? []).join('\n');
}
