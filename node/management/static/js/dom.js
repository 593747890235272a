/**
 * Elements, made by code. Nothing here or elsewhere turns text into markup: names come from clients, and a queue may be
 * called `<script>`. Styles are set by CSSOM, which the content security policy allows.
 */

const SVG = 'http://www.w3.org/2000/svg';

/**
 * Makes an element.
 *
 * @param {string} spec tag and classes: `div`, `span.badge.is-good`, `button#save`
 * @param {object} [props] attributes; `onclick` and other functions become listeners; `style` is an object of CSS properties;
 *   `dataset` an object; `true` makes an empty attribute; `null`, `undefined` and `false` are left out; `value`, `checked`,
 *   `selected`, `disabled` and `open` are set as properties
 * @param {...(Node|string|number|Array|null)} children strings become text; arrays are flattened; null and false are left out
 */
export function h(spec, props, ...children) {
  const { tag, id, classes } = taken(spec);
  const element = document.createElement(tag);
  return filled(element, id, classes, props, children);
}

/** As `h`, for SVG. */
export function svg(spec, props, ...children) {
  const { tag, id, classes } = taken(spec);
  return filled(document.createElementNS(SVG, tag), id, classes, props, children);
}

function taken(spec) {
  const [head, ...classes] = spec.split('.');
  const [tag, id] = head.split('#');
  return { tag: tag || 'div', id, classes };
}

const PROPERTIES = new Set(['value', 'checked', 'selected', 'disabled', 'open', 'indeterminate']);

function filled(element, id, classes, props, children) {
  if (id) element.id = id;
  if (classes.length) element.classList.add(...classes);
  if (props && (typeof props !== 'object' || props instanceof Node || Array.isArray(props))) {
    children = [props, ...children];
    props = null;
  }
  for (const [name, value] of Object.entries(props ?? {})) set(element, name, value);
  append(element, children);
  return element;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (typeof value === 'function') element.addEventListener(name.replace(/^on/, ''), value);
  else if (name === 'style') for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
  else if (name === 'dataset') Object.assign(element.dataset, value);
  else if (name === 'class') element.classList.add(...String(value).split(' ').filter(Boolean));
  else if (PROPERTIES.has(name)) element[name] = value;
  else element.setAttribute(name, value === true ? '' : String(value));
}

/** Appends children as `h` takes them. */
export function append(parent, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === '') continue;
    parent.append(child instanceof Node ? child : String(child));
  }
  return parent;
}

/** Puts new children in the place of all. */
export function fill(parent, ...children) {
  parent.replaceChildren();
  return append(parent, ...children);
}

/**
 * As `fill`, but keeps each child that would look the same, so that focus, selection and scrolling outlive a refresh.
 * A child that is kept keeps its listeners too: use it where listeners don't depend on what changes.
 */
export function patch(parent, ...children) {
  const fresh = append(document.createElement('div'), ...children);
  const wanted = [...fresh.childNodes];
  const present = [...parent.childNodes];
  wanted.forEach((node, index) => {
    const old = present[index];
    if (!old) parent.append(node);
    else if (!old.isEqualNode(node)) parent.replaceChild(node, old);
  });
  for (const old of present.slice(wanted.length)) old.remove();
  return parent;
}

/** Text that only screen readers say. */
export function hidden(text) {
  return h('span.sr-only', null, text);
}

/** One of the symbols of img/icons.svg. */
export function icon(name) {
  return svg(
    'svg.icon',
    { 'aria-hidden': 'true', focusable: 'false', viewBox: '0 0 24 24' },
    svg('use', { href: `img/icons.svg#${name}` }),
  );
}

/** A link within the pages; `to` is a hash as router.js makes them. */
export function a(to, ...children) {
  return h('a', { href: to }, ...children);
}
